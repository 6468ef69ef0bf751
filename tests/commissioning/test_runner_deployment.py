"""A rig is brought to a machine that has neither Python nor anything else but a shell and tar, by a real sshd."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from command_line import Command
from runner_bench import Packed, demo
from slow_lift import slow_lift
from ssh_bench import SshBench, needs_sshd, running_sshd

from hilserver.commissioning import runner_target
from hilserver.commissioning.bundle import Bundle
from hilserver.commissioning.deployment import DeploymentError, Target, mode_of, roll_back
from hilserver.commissioning.runner_target import SCRIPT, RunnerTarget, deploy_runner, fetch_rows
from hilserver.compiler.loading import RUNNER
from hilserver.errors import HilserverError
from hilserver.runner.pack import PACK, write_rig
from hilserver.simulation.replay import replay_log

pytestmark = [pytest.mark.realtime]

ROOT = Path(__file__).parents[2]
NAME = f"bare_{os.getpid()}"
TOOLS = (
    *("sh", "mkdir", "ln", "rm", "mv", "cat", "sed", "tr", "tar", "df", "uname", "sleep", "readlink", "wc", "tail"),
    *("date", "basename"),
)
"""All that a target needs."""


def rig_in(folder: Path) -> Path:
    """The demo's rig under a name of its own, which endures a busy machine, and records little."""
    shutil.copytree(ROOT / "config", folder / "config", dirs_exist_ok=True)
    file = folder / "config/rigs/demo.toml"
    text = file.read_text().replace('name = "demo"', f'name = "{NAME}"').replace("= 1000 ", "= 5000 ")
    file.write_text(f"{text}\n[recording]\nmax_megabytes = 5\n")
    return file


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshBench]:
    with running_sshd(tmp_path_factory.mktemp("ssh"), TOOLS, one_connection=True) as found:
        yield found


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rig_in(tmp_path_factory.mktemp("rig"))


@pytest.fixture(scope="module")
def deployed(bench: SshBench, rig: Path) -> Iterator[RunnerTarget]:
    """A rig that runs on the target."""
    target = RunnerTarget(bench.address, NAME, bench.config())
    try:
        assert deploy_runner(rig, target) == "1"
        yield target
    finally:
        target.ask("stop")


def runs(target: RunnerTarget) -> str:
    """The release that runs there."""
    state = target.state()
    assert state["online"], state
    return str(state["release"]["name"])


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + 30.0
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.002)


def place(bench: SshBench) -> Path:
    return bench.home / "hilserver/runners" / NAME


# --- it works --------------------------------------------------------------------------------------------------------


@needs_sshd
def test_the_target_has_no_python(bench: SshBench) -> None:
    with pytest.raises(DeploymentError, match=r"has no python3\. A rig runs there without it, too: .*--runner"):
        Target(bench.address, NAME, bench.config()).ask("facts", program="x")


@needs_sshd
def test_it_runs_and_takes_commands(deployed: RunnerTarget, bench: SshBench) -> None:
    pid = int((place(bench) / "server.pid").read_text())
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert f"{place(bench)}/releases/" in maps
    assert "python" not in maps
    assert mode_of(deployed) == "SAFE"
    with pytest.raises(DeploymentError, match="refused: not possible in this mode"):
        deployed.send("start")
    assert deployed.send("arm")["mode"] == "ARMED"
    assert deployed.send("start")["mode"] == "RUNNING"
    assert deployed.send("input joystick 0.3")["mode"] == "RUNNING"
    assert deployed.send("stop")["mode"] == "ARMED"
    assert deployed.send("disarm")["mode"] == "SAFE"


@needs_sshd
def test_next_release_and_back_and_the_logs(deployed: RunnerTarget, rig: Path, tmp_path: Path) -> None:
    said: list[str] = []
    first = runs(deployed)
    second = deploy_runner(rig, deployed, said.append)
    assert runs(deployed) == second != first
    assert [text for text in said if text.startswith("sending the runner and the rig")]
    assert roll_back(deployed) == first
    assert runs(deployed) == first

    logs = fetch_rows(deployed, tmp_path / "logs")
    assert len(logs) >= 3, "one of each start"
    result = replay_log(min(logs), tolerance=0.0)
    assert result.same_program
    assert (result.compared + len(result.starts), result.differences) == (result.rows, ())


@needs_sshd
def test_from_the_command_line(deployed: RunnerTarget, bench: SshBench, rig: Path, hilserver: Command) -> None:
    words = ["deploy", str(rig), bench.address, "--runner", "--ssh-config", str(bench.config())]
    assert f"{NAME}  SAFE  tick" in hilserver(*words, "--status").out
    assert hilserver(*words, "--send", "arm").out == f"{bench.address}: {NAME} is ARMED.\n"
    assert hilserver(*words, "--send", "disarm").out == f"{bench.address}: {NAME} is SAFE.\n"


# --- what goes wrong --------------------------------------------------------------------------------------------------


@needs_sshd
def test_an_armed_rig_is_not_touched(deployed: RunnerTarget, rig: Path) -> None:
    before = runs(deployed)
    deployed.send("arm")
    try:
        with pytest.raises(DeploymentError, match=r"is ARMED\. Disarm it first"):
            deploy_runner(rig, deployed)
        with pytest.raises(DeploymentError, match=r"is ARMED\. Disarm it first"):
            roll_back(deployed)
        with pytest.raises(DeploymentError, match=r"is armed or runs\. Disarm it first"):
            deployed.ask("activate", release=before)  # it was armed while the release was on its way
    finally:
        deployed.send("disarm")
    assert runs(deployed) == before


@needs_sshd
def test_a_release_that_is_damaged_is_removed(
    deployed: RunnerTarget, rig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = runs(deployed)

    def damaged(*arguments: Any) -> list[Path]:
        files = write_rig(*arguments)
        pack = next(file for file in files if file.name == PACK)
        pack.write_bytes(pack.read_bytes()[:-8])
        return files

    monkeypatch.setattr("hilserver.commissioning.runner_target.write_rig", damaged)
    with pytest.raises(DeploymentError, match=rf"rig\.pack: is not complete.*Release {before} runs"):
        deploy_runner(rig, deployed)
    assert runs(deployed) == before


@needs_sshd
def test_the_old_one_runs_again_if_the_new_one_does_not_start(
    deployed: RunnerTarget, bench: SshBench, tmp_path: Path
) -> None:
    """It can't write its recording."""
    before, logs = runs(deployed), place(bench) / "logs"
    deployed.ask("stop")
    logs.rename(place(bench) / "kept")
    logs.write_text("not a folder")
    try:
        with pytest.raises(DeploymentError, match=r"(?s)does not start: .*can't be created.*is in place, not running"):
            deploy_runner(rig_in(tmp_path), deployed)
    finally:
        logs.unlink()
        (place(bench) / "kept").rename(logs)
        deployed.ask("activate", release=before)
    assert runs(deployed) == before


@needs_sshd
def test_a_runner_that_was_killed_or_started_by_somebody_else(deployed: RunnerTarget, bench: SshBench) -> None:
    before = runs(deployed)
    os.kill(int((place(bench) / "server.pid").read_text()), signal.SIGKILL)
    assert not deployed.state()["online"]
    folder = place(bench) / "current"
    with subprocess.Popen([folder / RUNNER, folder], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        while b'"mode"' not in other.stdout.readline():
            pass
        with pytest.raises(DeploymentError, match=r"(?s)does not start: .*in use by process"):
            deployed.ask("activate", release=before)
        other.terminate()
        other.communicate()
    deployed.ask("activate", release=before)
    assert runs(deployed) == before


@needs_sshd
def test_what_has_begun_is_completed_if_the_connection_is_lost(deployed: RunnerTarget, bench: SshBench) -> None:
    before, lock = runs(deployed), bench.home / "hilserver/lock.runner"
    with deployed._started("activate", release=before) as process:
        until(lock.is_symlink)
        process.kill()
    until(lambda: not lock.is_symlink())
    assert runs(deployed) == before
    with pytest.raises(DeploymentError, match=f"release {before} is in use"):
        deployed.ask("remove", release=before)


def test_an_unsuitable_target_is_not_changed() -> None:
    target = RunnerTarget("hil@rig-pc", NAME)
    runner_target._require_suitable(target, {"machine": "x86_64", "free": 10**9}, 10**6)
    with pytest.raises(DeploymentError, match=r"its processor is aarch64.*Nothing was changed"):
        runner_target._require_suitable(target, {"machine": "aarch64", "free": 10**9}, 10**6)
    with pytest.raises(DeploymentError, match=r"its disk has 10 MB left, and 21 MB are needed.*Nothing was changed"):
        runner_target._require_suitable(target, {"machine": "x86_64", "free": 10**7}, 10**6)


def script(folder: Path, *words: str) -> list[str]:
    """The command of an action, for this computer's shell."""
    return ["sh", "-c", SCRIPT.read_text(), "sh", words[0], str(folder), NAME, *words[1:]]


def on_target(folder: Path, *words: str, data: bytes = b"") -> str:
    """Carry out an action as the target's shell does."""
    return subprocess.run(script(folder, *words), input=data, capture_output=True, check=True).stdout.decode()


def test_a_transfer_that_ends_early_leaves_nothing(tmp_path: Path) -> None:
    stream = io.BytesIO()
    Bundle({}, {"release.json": b"{}", "a": bytes(100_000)}).write(stream)
    for length in (0, 300, 50_000):
        assert '"error": "the transfer failed' in on_target(tmp_path, "receive", "1", data=stream.getvalue()[:length])
        assert not list((tmp_path / "runners" / NAME / "releases").iterdir())
    assert on_target(tmp_path, "receive", "1", data=stream.getvalue()) == "{}\n"
    assert {path.name for path in (tmp_path / f"runners/{NAME}/releases/1").iterdir()} == {"a", "release.json"}


def test_two_do_not_deploy_at_the_same_time(tmp_path: Path) -> None:
    lock = tmp_path / "lock.runner"
    for ended in (999_999_999, os.getpid()):  # a connection was lost; and another process has its number now
        lock.symlink_to(str(ended))
        assert on_target(tmp_path, "stop") == "{}\n"
        assert not lock.is_symlink()
    with subprocess.Popen(script(tmp_path, "receive", "1"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as first:
        until(lock.is_symlink)
        assert on_target(tmp_path, "stop") == '{"error": "somebody else is deploying there at the moment"}\n'
        assert lock.is_symlink()
    assert first.returncode == 0
    assert not lock.is_symlink()


def test_a_release_of_another_is_not_replaced(tmp_path: Path) -> None:
    """Two have asked for the next number, one after the other, and now send their releases."""
    one, other = io.BytesIO(), io.BytesIO()
    Bundle({}, {"a": b"one", "release.json": b"{}"}).write(one)
    Bundle({}, {"a": b"other", "release.json": b"{}"}).write(other)
    assert on_target(tmp_path, "receive", "1", data=one.getvalue()) == "{}\n"
    assert "somebody else has deployed there meanwhile" in on_target(tmp_path, "receive", "1", data=other.getvalue())
    releases = tmp_path / "runners" / NAME / "releases"
    assert [path.name for path in releases.iterdir()] == ["1"]
    assert (releases / "1/a").read_text() == "one"


def test_a_release_in_use_is_not_removed(tmp_path: Path) -> None:
    place = tmp_path / "runners" / NAME
    for name in ("1", "2", "3"):
        (place / "releases" / name).mkdir(parents=True)
    (place / "previous").symlink_to("releases/1")
    (place / "current").symlink_to("releases/2")
    for name in ("1", "2"):
        assert f"release {name} is in use" in on_target(tmp_path, "remove", name)
    assert on_target(tmp_path, "remove", "3") == "{}\n"
    assert {path.name for path in (place / "releases").iterdir()} == {"1", "2"}
    assert "there is no release 3" in on_target(tmp_path, "activate", "3")


class Answering(RunnerTarget):
    """A target that answers as it is told."""

    answers: ClassVar[dict[str, Any]] = {
        "facts": {"machine": "x86_64", "free": 10**9, "running": False, "next": "1", "current": None},
        "recordings": {"files": {}},
        "call": {"code": 0, "output": '{"ready": true}', "errors": ""},
    }

    def ask(self, action: str, data: Bundle | None = None, **arguments: Any) -> dict[str, Any]:
        return dict(self.answers.get(action, {}))


def test_recordings_that_were_fetched_are_converted_once(tmp_path: Path) -> None:
    """An earlier call was interrupted; one recording has no rows; another one is no recording."""
    packed = Packed(demo("bare_rows"), tmp_path / "rig")
    packed.done("--lockstep", 9, "--rows", tmp_path / "1.rows")
    (tmp_path / "0.rows").write_text("something else")
    (tmp_path / "2.rows").write_bytes((tmp_path / "1.rows").read_bytes()[: -9 * (16 + 8 * packed.rig.layout.width)])
    said: list[str] = []
    target = Answering("hil@rig-pc", NAME)
    assert fetch_rows(target, tmp_path, said.append) == [tmp_path / "1.arrow"]
    assert replay_log(tmp_path / "1.arrow", tolerance=0.0).compared == 9
    assert [text.rpartition("/")[2] for text in said] == [
        "0.rows: is not a file of rows of the runner.",
        "2.rows: has no rows.",
    ]
    assert fetch_rows(target, tmp_path) == []


def test_workers_are_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(runner_target, "load_rig", lambda file: slow_lift(100.0, "inverse_static"))
    assert deploy_runner(Path("lift.toml"), Answering("hil@rig-pc", NAME), said.append) == "1"
    assert said[-1].startswith("warning: rig: deploy does not start the workers")


def test_a_runner_that_can_not_be_executed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"code": 127, "output": "", "errors": "sh: 1: hilserver-runner: not found"}
    monkeypatch.setitem(Answering.answers, "call", call)
    with pytest.raises(DeploymentError, match=r"not found\)\. It needs Linux with glibc 2\.29 or later"):
        runner_target._check(Answering("hil@rig-pc", NAME), "1", print)


def test_options_that_do_not_belong_together(hilserver: Command) -> None:
    rig = str(ROOT / "config/rigs/demo.toml")
    for words, text in (
        (["--send", "arm"], "--send is for --runner"),
        (["--runner", "--extra", "modbus"], "--extra can't be combined with --runner"),
        (["--runner", "--send", "arm", "--status"], "one at a time"),
    ):
        assert text in hilserver("deploy", rig, "hil@rig-pc", *words).err
    with pytest.raises(HilserverError, match="is not the address"):
        RunnerTarget("a b", NAME)
