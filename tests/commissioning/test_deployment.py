"""A rig is brought to another machine, by a real sshd; and what goes wrong leaves the old one running there."""

from __future__ import annotations

import fcntl
import functools
import io
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_bench import SshBench, needs_sshd, running_sshd

from hilserver.commissioning import deployment, on_target
from hilserver.commissioning.bundle import Bundle, program, rig_files
from hilserver.commissioning.deployment import (
    DeploymentError,
    Target,
    deploy,
    fetch_logs,
    mode_of,
    roll_back,
    state_of,
)
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.record.reader import LogReader

pytestmark = [pytest.mark.realtime, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
NAME = f"deployed_{os.getpid()}"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshBench]:
    with running_sshd(tmp_path_factory.mktemp("ssh"), one_connection=True) as found:
        yield found


class _Program(Bundle):
    """Half a second is needed to read its 450 MB and to hash them."""

    @functools.cached_property
    def id(self) -> str:
        return super().id


@pytest.fixture(scope="module", autouse=True)
def _one_program() -> Iterator[None]:
    """What is sent by every deployment here is looked up and hashed once."""

    @functools.cache
    def once(extras: tuple[str, ...]) -> Bundle:
        found = program(extras)
        return _Program(found.files, found.texts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deployment, "program", once)
        yield


def rig_in(folder: Path, more: str = "", port: int = 0) -> Path:
    """The demo's rig under a name of its own, which endures a busy machine; its loop is slow and locks no memory."""
    shutil.copytree(ROOT / "config", folder / "config", dirs_exist_ok=True)
    file = folder / "config/rigs/demo.toml"
    text = file.read_text().replace('name = "demo"', f'name = "{NAME}"').replace("= 1000 ", "= 5000 ")
    text = text.replace("port = 0", f"port = {port}").replace('"1 kHz"', '"250 Hz"\nlock_memory = false')
    file.write_text(f"{text}\n[arming]\nvirtual_commissioning = false\n{more}")
    return file


@pytest.fixture(scope="module")
def deployed(bench: SshBench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A rig that runs on the target."""
    target = Target(bench.address, NAME, bench.config())
    try:
        assert deploy(rig_in(tmp_path_factory.mktemp("rig")), target) == "1"
        yield target
    finally:
        target.ask("stop")
        shutil.rmtree(bench.home / "hilserver", ignore_errors=True)


def runs(target: Target) -> str:
    """The release that runs there."""
    state = state_of(target)
    assert state["online"], state
    return str(state["release"]["name"])


def current(target: Target) -> str:
    """The release whose server runs there, without asking that server."""
    found = target.ask("facts", program="none")
    assert found["running"]
    return str(found["current"]["name"])


def order(target: Target, command: str) -> None:
    """Send a command to the server there."""
    done = target.ask("call", release="current", arguments=["send", command, "--rig", NAME])
    assert done["code"] == 0, done


def recordings(target: Target, folder: Path) -> set[str]:
    """The names of the logs that are fetched into this folder."""
    return {path.name for path in fetch_logs(target, folder) if path.suffix == ".arrow"}


# --- it works --------------------------------------------------------------------------------------------------------


@needs_sshd
def test_it_runs_with_its_own_program_in_safe(deployed: Target, bench: SshBench) -> None:
    assert mode_of(deployed) == "SAFE"
    pid = int((bench.home / f"hilserver/rigs/{NAME}/server.pid").read_text())
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert f"{bench.home}/hilserver/programs/" in maps
    assert str(ROOT / ".venv") not in maps, "libraries of this computer's environment"


@needs_sshd
def test_next_release_and_back_and_the_logs(deployed: Target, tmp_path: Path) -> None:
    said: list[str] = []
    first = current(deployed)
    before = recordings(deployed, tmp_path / "before")
    second = deploy(rig_in(tmp_path), deployed, tell=said.append)
    assert runs(deployed) == second
    assert not [text for text in said if "libraries" in text], "the program is there already"
    assert roll_back(deployed) == first
    assert runs(deployed) == first
    assert roll_back(deployed) == second, "the one before is now the later one"

    logs = recordings(deployed, tmp_path / "logs")
    assert before < logs, "all are fetched into an empty folder"
    assert len(logs - before) == 3, "one of each server that was started here"
    assert len(LogReader(tmp_path / "logs" / min(logs)).read_all().columns["tick"]) > 0
    again = recordings(deployed, tmp_path / "logs")
    assert again <= {max(logs)}, "only the one that is being written"


# --- what goes wrong --------------------------------------------------------------------------------------------------


@needs_sshd
def test_the_old_one_runs_again_if_the_new_one_does_not_start(deployed: Target, tmp_path: Path) -> None:
    before = current(deployed)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        file = rig_in(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(DeploymentError, match=f"(?s)does not start.*port.*Release {before} runs"):
            deploy(file, deployed)
    assert runs(deployed) == before


@needs_sshd
def test_a_rig_that_is_wrong_is_not_sent(deployed: Target, tmp_path: Path) -> None:
    before = current(deployed)
    with pytest.raises(ConfigurationError, match="unknown key"):
        deploy(rig_in(tmp_path, "[lop]\n"), deployed)
    assert runs(deployed) == before


@needs_sshd
def test_an_armed_rig_is_not_touched(deployed: Target, tmp_path: Path) -> None:
    before = current(deployed)
    order(deployed, "arm")
    try:
        with pytest.raises(DeploymentError, match=r"is ARMED\. Disarm it first"):
            deploy(rig_in(tmp_path), deployed)
        with pytest.raises(DeploymentError, match=r"is ARMED\. Disarm it first"):
            roll_back(deployed)
    finally:
        order(deployed, "disarm")
    assert runs(deployed) == before


@needs_sshd
def test_a_rig_in_fault_can_be_looked_at_and_replaced(deployed: Target, tmp_path: Path) -> None:
    """`hilserver status` ends with an exit code of its own there, which is no failure."""
    order(deployed, "trip")
    assert mode_of(deployed) == "FAULT"
    after = deploy(rig_in(tmp_path), deployed)
    assert (runs(deployed), mode_of(deployed)) == (after, "SAFE")


@needs_sshd
def test_a_target_that_is_gone(bench: SshBench) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        config = bench.config("gone", port=free.getsockname()[1])
    with pytest.raises(DeploymentError, match=r"can't be reached.*refused.*keeps running"):
        Target(bench.address, NAME, config).ask("facts", program="x")


@needs_sshd
def test_another_machine_under_the_same_address(bench: SshBench) -> None:
    config = bench.config("changed", known=bench.known("others", bench.key("other_host")))
    with pytest.raises(DeploymentError, match="its host key is not the one that is known here"):
        Target(bench.address, NAME, config).ask("facts", program="x")


@needs_sshd
def test_a_key_that_the_target_does_not_accept(bench: SshBench) -> None:
    config = bench.config("stranger", key=bench.key("stranger_key"))
    with pytest.raises(DeploymentError, match=r"refuses the login.*ssh-copy-id"):
        Target(bench.address, NAME, config).ask("facts", program="x")


FACTS = {"machine": platform.machine(), "python": list(sys.version_info[:2]), "free": 10**12}


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"machine": "riscv64"}, "its processor is riscv64"),
        ({"python": [3, 9]}, "has Python 3.9"),
        ({"free": 10**8}, "its disk has 100 MB left, and 201 MB are needed"),
    ],
)
def test_an_unsuitable_target_is_not_changed(changed: dict[str, Any], text: str) -> None:
    target = Target("hil@rig-pc", NAME)
    deployment._require_suitable(target, FACTS, 10**6)
    with pytest.raises(DeploymentError, match=f"{text}.*Nothing was changed"):
        deployment._require_suitable(target, {**FACTS, **changed}, 10**6)


@pytest.mark.parametrize(
    ("there", "here", "newer"),
    [
        ("0.10.0", "0.9.2", True),
        ("1.0", "1.0rc1", True),
        ("0.9.2", "0.10.0", False),
        ("1.0", "1.0.0", False),
        (None, "0.1", False),
    ],
)
def test_a_newer_version_is_not_replaced_unasked(
    there: str | None, here: str, newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "version", lambda name: here)
    facts = {"current": None if there is None else {"version": there}}
    target = Target("hil@rig-pc", NAME)
    if newer:
        with pytest.raises(DeploymentError, match=f"runs hilserver {there}, and this is {here}.*--downgrade.*changed"):
            deployment.require_no_newer(target, facts)
    else:
        deployment.require_no_newer(target, facts)


@needs_sshd
def test_a_downgrade_only_if_it_is_asked_for(deployed: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, file = current(deployed), rig_in(tmp_path)
    monkeypatch.setattr(deployment, "version", lambda name: "0.0.1")
    with pytest.raises(DeploymentError, match=r"and this is 0\.0\.1"):
        deploy(file, deployed)
    assert runs(deployed) == before
    assert int(deploy(file, deployed, downgrade=True)) > int(before)


@needs_sshd
@pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own needs root")
def test_a_disk_that_fills_up_meanwhile(bench: SshBench, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    try:
        target = Target(bench.address, NAME, bench.config(), root=str(disk))
        with pytest.raises(DeploymentError, match="the disk is full"):
            target.ask("receive", Bundle({}, {"large": bytes(4 << 20)}), folder="programs/x")
        assert not list((disk / "programs").iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_transfer_that_ends_early_leaves_nothing(tmp_path: Path) -> None:
    stream = io.BytesIO()
    Bundle({}, {"a": bytes(100_000), "b": bytes(100_000)}).write(stream)
    request = json.dumps({"action": "receive", "root": str(tmp_path), "rig": NAME, "folder": "programs/x"})
    command = [sys.executable, str(Path(on_target.__file__)), request]
    for length in (0, 700, 150_000):
        done = subprocess.run(command, input=stream.getvalue()[:length], capture_output=True, check=True)
        assert "the transfer failed" in json.loads(done.stdout)["error"]
        assert not list((tmp_path / "programs").iterdir())
    subprocess.run(command, input=stream.getvalue(), capture_output=True, check=True)
    assert {path.name for path in (tmp_path / "programs/x").iterdir()} == {"a", "b"}


def test_a_release_in_use_is_not_removed(tmp_path: Path) -> None:
    """It may be: the connection was lost while it was started."""
    for name in ("1", "2"):
        (tmp_path / "releases" / name).mkdir(parents=True)
    on_target.point(tmp_path / "current", "2")
    with pytest.raises(on_target.ActionRefused, match="release 2 is in use"):
        on_target.remove(tmp_path, "2")
    on_target.remove(tmp_path, "1")
    assert [path.name for path in (tmp_path / "releases").iterdir()] == ["2"]


def test_two_do_not_deploy_at_the_same_time(tmp_path: Path) -> None:
    request = json.dumps({"action": "stop", "root": str(tmp_path), "rig": NAME})
    command = [sys.executable, str(Path(on_target.__file__)), request]
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert answer == {"error": "somebody else is deploying there at the moment"}
    assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout) == {}


@pytest.mark.parametrize("address", ["-oProxyCommand=x", "", "a b", "a;b"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(DeploymentError, match="is not the address of a machine"):
        Target(address, NAME)


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_a_rig_comes_with_all_files_that_it_names(tmp_path: Path) -> None:
    files = rig_files(rig_in(tmp_path))
    config = tmp_path / "config"
    assert {"rigs/demo.toml", "cycles/lift.toml", "circuits/machine.toml", "circuits/drive.toml"} <= files.keys()
    assert {f"circuits/{path.name}" for path in (config / "circuits").glob("*.toml")} <= files.keys()
    assert "rigs/boom.toml" not in files
    assert all((config / name).resolve() == path for name, path in files.items())


def test_a_file_that_only_this_machine_has_is_refused(tmp_path: Path) -> None:
    file = rig_in(tmp_path)
    file.write_text(file.read_text().replace('"../cycles/lift.toml"', f'"{tmp_path}/config/cycles/lift.toml"'))
    with pytest.raises(HilserverError, match=r"lift\.toml\" is the name of a file on this computer"):
        rig_files(file)


def sent(make: Callable[[], Bundle]) -> set[str]:
    return {name.split("/")[0].lower() for name in make().files}


def test_the_program_comes_with_what_it_needs_and_no_more() -> None:
    tops = sent(program)
    assert {"hilserver", "hilserver_drivers", "numpy", "numpy.libs", "scipy", "pyarrow", "aiomqtt"} <= tops
    assert not tops & {"numba", "pytest", "pymodbus", "nicegui", "mypy", "ziglang"}
    assert {"pymodbus", "serial"} <= sent(lambda: program(["modbus"]))
    files = program().files
    assert "hilserver/compiler/built/fingerprint" in files
    assert not [name for name in files if name.endswith(".pyc")]


def test_the_identity_of_a_program_is_its_content(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1")
    first = Bundle({"a": file}, {}).id
    assert Bundle({"a": file}, {}).id == first != Bundle({"b": file}, {}).id
    file.write_text("2")
    assert Bundle({"a": file}, {}).id != first


def test_an_unknown_extra_is_refused() -> None:
    with pytest.raises(HilserverError, match=r"there is no extra modbuss\. Did you mean modbus\?"):
        program(["modbuss"])
