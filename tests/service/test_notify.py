"""What the service manager is told: READY and the watchdog come from the loop's ticks. And what follows a failure."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import probe
import pytest
from probe import ProbeDevice
from probe_rig import CIRCUIT, RIG
from service_harness import MODULES, Server, eventually, panel
from warm_start import COMMAND

from hilserver.protocol import running
from hilserver.record.forecast import log_folder
from hilserver.rig.recording_settings import RecordingSettings
from hilserver.service import safe as safe_module
from hilserver.service.forking import USUAL_CHILDREN
from hilserver.service.notify import Notifier
from hilserver.service.restarts import Restarts


class Manager:
    """Stands in for systemd: a socket, and what was said to it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)
        self.heard: list[dict[str, str]] = []

    def listen(self) -> list[dict[str, str]]:
        """What came since the last call."""
        new = []
        with contextlib.suppress(BlockingIOError):
            while True:
                text = self._socket.recv(4096).decode()
                new.append(dict(line.split("=", 1) for line in text.splitlines()))
        self.heard += new
        return new

    def hears(self, name: str) -> bool:
        """Whether a message with this field came since the last call."""
        return any(name in message for message in self.listen())

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify") if request.param == "path" else f"@hilserver-test-{os.getpid()}")
    yield made
    made.close()


# --- the protocol ----------------------------------------------------------------------------------------------------


def test_a_message_is_one_datagram_of_lines(manager: Manager) -> None:
    Notifier(manager.address).tell(READY=1, STATUS="two\nlines")
    assert manager.listen() == [{"READY": "1", "STATUS": "two lines"}]


def test_without_a_service_manager_nothing_is_sent(tmp_path: Path) -> None:
    for address in ("", str(tmp_path / "none"), "@hilserver-nobody-listens"):
        Notifier(address).tell(READY=1)


def test_a_service_manager_that_does_not_read_does_not_block(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    for number in range(1000):  # far more than its queue holds
        notifier.tell(STATUS=number)
    assert manager.listen()


def test_a_status_is_sent_once(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    for text in ("SAFE", "SAFE", "ARMED", "SAFE"):
        notifier.status(text)
    assert [message["STATUS"] for message in manager.listen()] == ["SAFE", "ARMED", "SAFE"]


@pytest.mark.parametrize(
    ("microseconds", "pid", "watchdog"),
    [("10000000", "", 10.0), ("10000000", "own", 10.0), ("10000000", "1", None), ("", "", None), ("0", "", None)],
)
def test_the_environment_is_read_and_kept_from_children(
    monkeypatch: pytest.MonkeyPatch, microseconds: str, pid: str, watchdog: float | None
) -> None:
    given = {
        "NOTIFY_SOCKET": "@x",
        "WATCHDOG_USEC": microseconds,
        "WATCHDOG_PID": str(os.getpid()) if pid == "own" else pid,
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert Notifier.from_environment().watchdog == watchdog
    assert not given.keys() & os.environ.keys()


@pytest.mark.realtime
def test_ready_and_watchdog_follow_the_ticks(manager: Manager) -> None:
    """The ticks are the test's; between two steps the notifier looks several times."""
    tick: float | None = None

    async def look(notifier: Notifier) -> list[dict[str, str]]:
        await asyncio.sleep(0.15)
        return manager.listen()

    async def work() -> None:
        nonlocal tick
        notifier = Notifier(manager.address, watchdog=0.04)
        following = asyncio.create_task(notifier.follow(lambda: tick, lambda: f"tick {tick}"))
        assert await look(notifier) == []
        tick = 0.0  # one row: it may be the first and the last
        assert await look(notifier) == [{"STATUS": "tick 0.0"}]
        tick = 1.0
        said = await look(notifier)
        assert [next(iter(message)) for message in said] == ["READY", "WATCHDOG", "STATUS"]
        assert await look(notifier) == []  # asyncio goes on, the loop does not
        tick = 2.0
        assert [next(iter(message)) for message in await look(notifier)] == ["WATCHDOG", "STATUS"]
        notifier.stopping("why")
        tick = 3.0
        assert await look(notifier) == [{"STOPPING": "1", "STATUS": "why"}]  # the last that is said
        assert following.done()

    asyncio.run(work())


# --- a real server ---------------------------------------------------------------------------------------------------


def environment(manager: Manager, watchdog: float = 0.4) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": f"{watchdog * 1e6:.0f}"}


@pytest.mark.realtime
@pytest.mark.parametrize("manager", ["abstract"], indirect=True)
def test_a_server_is_ready_when_it_ticks_and_silent_when_its_loop_hangs(manager: Manager, tmp_path: Path) -> None:
    """Its supervisor is told to be patient, so that it does not end the hanging loop by itself."""
    changes = {"rate =": 'rate = "1 kHz"\nheartbeat_timeout = "1000 s"'}

    def beats(count: int) -> None:
        """Wait until the supervisor has beaten so many times more: it lives, whatever the loop does."""
        start = server.memory.supervisor_heartbeat.beats
        eventually(lambda: server.memory.supervisor_heartbeat.beats >= start + count)

    async def is_served() -> None:
        async with panel(server) as user:
            assert not (await user.command("fly"))["ok"]

    with Server(tmp_path, changes=changes, environment=environment(manager)) as server:
        eventually(lambda: manager.hears("READY"))
        assert server.memory.ring.published > 0
        eventually(lambda: manager.hears("WATCHDOG"))
        assert {"STATUS": "SAFE"} in manager.heard
        assert sum("READY" in message for message in manager.heard) == 1

        server.kill("loop", number=signal.SIGSTOP)
        published = server.memory.ring.published
        beats(20)  # what was on its way when the loop was stopped
        manager.listen()
        asyncio.run(is_served())
        beats(100)  # 2 s: 20 looks
        assert not manager.hears("WATCHDOG")
        assert server.memory.ring.published <= published + 1

        server.kill("loop", number=signal.SIGCONT)
        eventually(lambda: manager.hears("WATCHDOG"))
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert manager.listen()[-1] == {"STOPPING": "1", "STATUS": "stopping"}


@pytest.mark.realtime
@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_child_processes_do_not_notify_the_service_manager(manager: Manager, tmp_path: Path) -> None:
    with Server(tmp_path, environment=environment(manager), really=True) as server:
        eventually(lambda: manager.hears("READY"))
        # Of forked children /proc shows the environment with which the supervisor was started (test_children).
        started = server.pids.keys() - {"supervisor", *(MODULES[name] for name in USUAL_CHILDREN)}
        assert "broker" in started
        for name in started:
            assert b"NOTIFY_SOCKET" not in Path(f"/proc/{server.pids[name]}/environ").read_bytes()


@pytest.mark.realtime
@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_a_start_that_fails_is_never_ready(manager: Manager, tmp_path: Path) -> None:
    changes = {"embedded =": 'embedded = false\nuser = "x"\npassword_file = "none"', "port = 0": "port = 1"}
    server = Server(tmp_path, changes=changes, environment=environment(manager))
    server.launch()
    try:
        assert server.wait_exit(60.0) == 2
        assert server.process is not None
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""  # nor does it say that it runs
    finally:
        server.close()
    assert not any("READY" in message for message in manager.listen())


@pytest.mark.realtime
def test_after_a_restart_the_rig_is_safe_however_it_was_before(tmp_path: Path) -> None:
    async def run_cycle(server: Server) -> None:
        async with panel(server) as user:
            await user.run_cycle()

    async def mode(server: Server) -> str:
        async with panel(server) as user:
            return str((await user.see("state"))["mode"])

    with Server(tmp_path) as killed:
        asyncio.run(run_cycle(killed))
        killed.kill("supervisor", "loop")
        with Server(tmp_path, killed.name) as server:
            assert asyncio.run(mode(server)) == "SAFE"


# --- directories of a service ----------------------------------------------------------------------------------------


@pytest.mark.realtime
def test_a_service_keeps_its_files_where_systemd_says(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("runtime", "logs-of-service")}
    for folder in folders.values():
        folder.mkdir(mode=0o750)
    given = {"RUNTIME_DIRECTORY": str(folders["runtime"]), "LOGS_DIRECTORY": str(folders["logs-of-service"])}
    with Server(tmp_path, changes={"folder =": ""}, environment=given, notes=folders["runtime"]) as server:
        assert [path.suffix for path in folders["logs-of-service"].iterdir()] == [".arrow"]
        assert {path.name for path in folders["runtime"].iterdir()} == {
            f"{server.name}.json",
            f"{server.name}.run",
            "failures",
        }
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert list(folders["runtime"].iterdir()) == []


def test_a_services_server_is_found_by_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    service = tmp_path / "services" / "rig1"
    service.mkdir(parents=True)
    (service / "lab.json").write_text(f'{{"pid": {os.getpid()}, "port": 8883}}')
    (service / "dead.json").write_text(f'{{"pid": {2**22 + 1}, "port": 8884}}')
    monkeypatch.setattr(running, "SERVICES", tmp_path / "services")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "own"))
    assert {name: address.port for name, address in running.running().items()} == {"lab": 8883}


def test_the_rig_files_folder_of_logs_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert log_folder(RecordingSettings()) == Path("logs")
    monkeypatch.setenv("LOGS_DIRECTORY", "/var/log/hilserver/rig1:/other")
    assert log_folder(RecordingSettings()) == Path("/var/log/hilserver/rig1")
    assert log_folder(RecordingSettings(folder="/data")) == Path("/data")


# --- back-off --------------------------------------------------------------------------------------------------------


def test_each_failure_makes_the_next_start_wait_longer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, manager: Manager
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    restarts = Restarts.of_service()
    for _ in range(9):
        restarts.wait(Notifier(manager.address))
    assert waited == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert [message["STATUS"] for message in manager.listen()[:2]] == [
        "the last start failed: this one begins in 1 s",
        "the last 2 starts failed: this one begins in 2 s",
    ]
    restarts.succeed()
    assert (restarts.failures, restarts.delay()) == (0, 0.0)


def test_without_a_service_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    restarts = Restarts.of_service()
    restarts.wait(Notifier())
    assert restarts.failures == 0


@pytest.mark.parametrize("text", ["", "many", "-3", "\0"])
def test_a_damaged_count_delays_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "failures").write_text(text)
    assert Restarts(tmp_path / "failures").delay() == 0.0
    (tmp_path / "failures").write_text("9" * 1000)
    assert Restarts(tmp_path / "failures").delay() == 60.0


@pytest.mark.realtime
def test_starts_that_fail_are_counted_and_an_orderly_end_is_none(tmp_path: Path) -> None:
    given = {"RUNTIME_DIRECTORY": str(tmp_path)}
    broken = tmp_path / "broken.toml"
    broken.write_text("name = 7\n")
    count = tmp_path / "failures"
    for number in (1, 2):
        done = subprocess.run(
            (*COMMAND, "run", "--verbose", broken), env={**os.environ, **given}, capture_output=True, check=False
        )
        assert (done.returncode, count.read_text()) == (2, str(number))
    count.write_text("1")
    with Server(tmp_path, environment=given, notes=tmp_path) as server:
        assert count.read_text() == "2"
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert not count.exists()


# --- safe values when nobody is left ---------------------------------------------------------------------------------


@pytest.mark.realtime
def test_safe_values_after_everything_was_killed(tmp_path: Path) -> None:
    card, io = ProbeDevice(tmp_path / "card"), ProbeDevice(tmp_path / "io")
    card.measure(a=5.0, b=8.0)
    io.measure(a=1.0, c=4.0)
    (tmp_path / "circuit.toml").write_text(CIRCUIT)
    path = probe.install(tmp_path / "installed")
    server = Server(tmp_path, text=RIG.replace("{folder}", str(tmp_path)), path=path)

    def safe() -> subprocess.CompletedProcess[str]:
        command = (*COMMAND, "safe", str(server.rig))
        given = {**os.environ, "PYTHONPATH": server.path}
        return subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=60)

    async def open_valve() -> None:
        async with panel(server) as user:
            for name in ("arm", "start"):
                await user.do(name)
            await user.do("jog", valve="main", command=0.2)
            await asyncio.to_thread(eventually, lambda: card.output("u") == pytest.approx(2.0))

    with server:
        asyncio.run(open_valve())
        refused = safe()
        assert refused.returncode == 2
        assert re.search(r"the loop of rig \w+ is still running", refused.stderr)
        assert card.output("u") == pytest.approx(2.0)
        server.kill(*server.pids)
        eventually(lambda: not server.alive())
        assert card.output("u") == pytest.approx(2.0)  # the last command stands
        done = safe()
        assert (done.returncode, done.stderr) == (0, "")
        assert {name: card.output(name) for name in probe.SAFE} == probe.SAFE
        assert io.output("u") == probe.SAFE["u"]
        io.condition = probe.UNPLUGGED
        card.put("u", 1.0)
        done = safe()
        assert done.returncode == 1
        assert "device io: the safe values could not be written: device io: it is unplugged." in done.stderr
        assert card.output("u") == probe.SAFE["u"]  # one device that fails does not keep the others from theirs


def test_a_device_that_hangs_keeps_no_other_from_its_safe_values(monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()

    def make_safe(setup: Any) -> None:
        if setup.name == "hangs":
            forever.wait()

    setups = [SimpleNamespace(name=name) for name in ("hangs", "works")]
    monkeypatch.setattr(safe_module, "device_setups", lambda rig, segments: setups)
    monkeypatch.setattr(safe_module, "_running_loop", lambda name: 0)
    monkeypatch.setattr(safe_module, "_make_safe", make_safe)
    monkeypatch.setattr(safe_module, "PATIENCE", 0.05)
    rig: Any = SimpleNamespace(settings=SimpleNamespace(name="lab"), devices=[])
    try:
        troubles = safe_module.make_rig_safe(rig)
    finally:
        forever.set()
    assert troubles["hangs"] is not None
    assert troubles["hangs"].startswith("its driver did not answer for 0.05 s. Switch the hydraulic supply off")
    assert troubles["works"] is None
