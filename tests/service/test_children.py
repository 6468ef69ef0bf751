"""Notes of running servers, and the child processes of a server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hilserver.compiler import is_compiled, loading
from hilserver.compiler.loading import FINGERPRINT_FILE, folder_in_cache
from hilserver.compiler.seal import seal
from hilserver.compiler.sources import fingerprint
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.running import announce, find, running, withdraw, working_folder
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.service import device_reports
from hilserver.service.children import Child, ChildFailed, Prepared, all_ready
from hilserver.service.forking import OF_SERVICE_MANAGER, fork


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(Path(__file__).parents[2] / "config" / "rigs" / "demo.toml")


def test_notes_of_running_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    address = BrokerAddress(port=1234)
    note = announce("lab", address)
    (note.parent / "dead.json").write_text(json.dumps({"pid": 2**22 + 1, **address.model_dump(mode="json")}))
    (note.parent / "half.json").write_text('{"pid"')
    (note.parent / "other.json").write_text('{"request": 1}')
    assert running() == {"lab": address}
    assert find(None) == ("lab", address)
    withdraw(note)
    withdraw(note)
    assert running() == {}


def test_a_failure_of_a_device_is_an_event_after_a_quiet_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails again and again would fill the log; its failures are counted."""
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    reports, said = device_reports.DeviceReports(["card"]), []
    for count, at in enumerate((1.0, 2.0, 10.0, 20.1), 1):
        now = at
        reports.heard({"device": "card", "errors": {"unplugged": count}, "last_error": "device card: it is unplugged."})
        said.append(reports.news())
    assert said == [["device card: it is unplugged."], [], [], ["device card: it is unplugged."]]
    assert reports.news() == []
    assert reports.status()["card"].errors == {"unplugged": 4}


def test_a_pending_build_of_the_program_is_announced(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes a minute, in which the supervisor would hear nothing: another process is to do it."""
    assert is_compiled(rig.library)
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(loading, "SHIPPED", tmp_path / "nothing")
    assert not is_compiled(rig.library)
    folder_in_cache().mkdir()
    (folder_in_cache() / FINGERPRINT_FILE).write_text("of other sources")
    seal(folder_in_cache())
    assert not is_compiled(rig.library)
    (folder_in_cache() / FINGERPRINT_FILE).write_text(fingerprint())
    seal(folder_in_cache())
    assert is_compiled(rig.library)


def test_the_working_folder_is_private_and_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    left_behind = working_folder("lab") / "setup.npz"
    left_behind.touch()
    folder = working_folder("lab")
    assert not left_behind.exists()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_child_that_does_not_start_reports_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    says = "import json\nprint(json.dumps({'error': 'first'}))\nprint(json.dumps({'error': 'then'}))\n"
    (tmp_path / "sick_child.py").write_text(says)
    (tmp_path / "mute_child.py").write_text("raise SystemExit(7)")

    async def start(module: str) -> str:
        child = await Child.start("child", module)
        with pytest.raises(ChildFailed) as failure:
            await all_ready(child)
        await child.stop()
        return str(failure.value)

    assert asyncio.run(start("sick_child")) == "first"
    assert asyncio.run(start("mute_child")) == "child ended before it was ready (exit code 7)."


FORKING = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
"""Python 3.12 warns of a fork where the process has threads, as this one has in parallel tests."""


@FORKING
def test_a_prepared_child_gets_its_arguments_and_the_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(tmp_path)
    text = """
import os
from hilserver.realtime.reports import arguments, send_report
def main():
    send_report(ready=True, pid=os.getpid(), given=arguments())
    return 3
if __name__ == "__main__":
    main()
"""
    for name in ("wanted_child", "spare_child"):
        (tmp_path / f"{name}.py").write_text(text)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))

    async def run() -> None:
        prepared = Prepared({name: fork(name) for name in ("wanted_child", "spare_child")})
        child = await Child.start("child", "wanted_child", "a b", '{"c": 1}', prepared=prepared)
        await all_ready(child)
        assert child.ready.result() == {"ready": True, "pid": child.process.pid, "given": ["a b", '{"c": 1}']}
        another = await Child.start("child", "wanted_child", "d", prepared=prepared)  # as after its end
        await all_ready(another)
        assert another.ready.result()["given"] == ["d"]
        assert await child.wait_ended() == "exit code 3"
        assert await another.wait_ended() == "exit code 0"
        prepared.end()
        assert await prepared.take("spare_child", []) is None

    asyncio.run(run())
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


@FORKING
def test_a_forked_child_that_fails_or_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "defective_child.py").write_text("def main():\n    raise ValueError('defect')\n")
    (tmp_path / "leaving_child.py").write_text("def main():\n    raise SystemExit(4)\n")
    (tmp_path / "waiting_child.py").write_text("import time\ndef main():\n    time.sleep(1e3)\n")

    async def run() -> None:
        names = ("defective_child", "leaving_child", "waiting_child")
        prepared = Prepared({name: fork(name) for name in names})
        defective, leaving, waiting = [await Child.start(name, name, prepared=prepared) for name in names]
        assert await defective.wait_ended() == "exit code 1"
        assert await leaving.wait_ended() == "exit code 4"
        assert waiting.running
        waiting.kill()
        assert await waiting.wait_ended() == "killed by SIGKILL"
        waiting.kill()  # which has no effect any more
        await waiting.stop()

    asyncio.run(run())


@FORKING
def test_a_forked_child_does_not_know_the_service_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the supervisor may notify it."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in OF_SERVICE_MANAGER:
        monkeypatch.setenv(name, "1")
    text = "import os\nfrom hilserver.realtime.reports import send_report\n"
    text += "def main():\n    send_report(ready=True, names=sorted(os.environ))\n"
    (tmp_path / "telling_child.py").write_text(text)

    async def run() -> list[str]:
        child = await Child.start("c", "telling_child", prepared=Prepared({"telling_child": fork("telling_child")}))
        await all_ready(child)
        assert await child.wait_ended() == "exit code 0"
        return list(child.ready.result()["names"])

    names = asyncio.run(run())
    assert "PATH" in names
    assert not {*OF_SERVICE_MANAGER} & {*names}


@FORKING
def test_a_forked_child_is_shown_by_its_module_and_holds_no_pipe_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = """
import os
from pathlib import Path
from hilserver.realtime.reports import send_report
def main():
    shown = Path("/proc/self/cmdline").read_text().split("\\0")[:3]
    name = Path("/proc/self/comm").read_text()
    send_report(ready=True, shown=shown, name=name, session=os.getsid(0), files=len(os.listdir("/proc/self/fd")))
    os.read(0, 1)
"""
    (tmp_path / "shown_child.py").write_text(text)

    async def run() -> None:
        first, second = Prepared({"shown_child": fork("shown_child")}), Prepared({"shown_child": fork("shown_child")})
        children = [await Child.start("c", "shown_child", prepared=each, keep_input=True) for each in (first, second)]
        await all_ready(*children)
        for child in children:
            said = child.ready.result()
            assert said["shown"] == ["python", "-m", "shown_child"]
            assert said["name"] == "python\n"  # not that of the supervisor, which ``pkill hilserver`` is to end
            assert said["session"] == child.process.pid
            assert said["files"] == 4  # its standard three, and the folder in which it looks
            child.kill()
            await child.wait_ended()

    asyncio.run(run())


def test_a_prepared_child_ends_where_no_arguments_come() -> None:
    """Its standard input ends with the supervisor, even if that is killed before it knows the arguments."""
    command = [sys.executable, "-c", "from hilserver.realtime.reports import arguments\nprint(arguments())"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
