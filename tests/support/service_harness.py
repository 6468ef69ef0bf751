"""A real server, in processes of its own, for tests: start it, talk to it over MQTT, kill parts, see what is left."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiomqtt
import numpy as np
from message_schemas import flaws
from warm_start import Command, start

from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.connection import new_client
from hilserver.realtime.segment_folder import segment_path
from hilserver.realtime.shared import LoopMemory
from hilserver.realtime.simulated_device import DeviceMemory
from hilserver.realtime.stand_by import WORKING
from hilserver.record.format import RecordError
from hilserver.record.reader import LogReader, LogTable, last_batch

CONFIG = Path(__file__).parents[2] / "config"
MODULES = {
    "hilserver.realtime.process": "loop",
    "hilserver.realtime.simulated_device": "device",
    "hilserver.realtime.worker": "worker",
    "hilserver.realtime.stand_by": "stand-by",
    "hilserver.record.recorder": "recorder",
    "hilserver.virtual_commissioning.before_arming": "check",
    "mosquitto": "broker",
}
LOST_TRACK = (
    "Traceback",
    "never retrieved",
    "never awaited",
    "was destroyed but it is pending",
    "Exception in callback",
    "Exception ignored",
    "unhandled exception",
    "Unclosed ",
    "ResourceWarning",
)
"""What asyncio and the interpreter say of tasks, exceptions and files that nobody took care of."""
PATIENCE = 60.0
"""Seconds for what must come at some time; a busy machine is slow, and only a failure takes so long."""
COMPILED = {"[loop]": "[loop]\ncompiled_circuit = true"}
"""Change of a rig whose loop runs code that is compiled for its circuit."""
_numbers = itertools.count()


def rig_text(name: str, folder: Path, changes: Mapping[str, str] | None = None) -> str:
    """The demo's rig under another name, recording in ``folder``; ``changes`` replace lines, by how they begin.

    Its loop does not lock its memory: in a process of a test (`warm_start`) there is much that it does not need. Nor is
    code compiled for its circuit, which takes ten seconds of processor time, unless ``changes`` has `COMPILED`.
    """
    lines = [*(CONFIG / "rigs" / "demo.toml").read_text().splitlines(), "[arming]", "virtual_commissioning = false"]
    lines += ["[recording]", f'folder = "{folder / "logs"}"']
    replace = {
        "name =": f'name = "{name}"',
        "machine =": f'machine = "{CONFIG}/circuits/machine.toml"',
        "drive =": f'drive = "{CONFIG}/circuits/drive.toml"',
        "circuit =": f'circuit = "{CONFIG}/circuits/lift.toml"',
        "cycle =": f'cycle = "{CONFIG}/cycles/lift.toml"',
        "[loop]": "[loop]\ncompiled_circuit = false",
        "rate =": 'rate = "250 Hz"\nheartbeat_timeout = "2.5 s"',
        "lost_after =": 'lost_after = "20 s"',
        "[recording]": '[recording]\nlost_after = "20 s"',
        "max_missed =": "max_missed = 5000\nlock_memory = false",
        "max_age =": 'max_age = "2.5 s"',
        **(changes or {}),
    }
    for beginning, line in replace.items():
        lines = [line if old.startswith(beginning) else old for old in lines]
    text = "\n".join([*lines, ""])
    tomllib.loads(text)
    return text


class Server:
    """One run of a rig. ``with Server(folder) as server:`` starts it; at the end everything of it is killed.

    ``changes`` replace lines of the demo's rig; ``text`` is another rig's, with {name} in the place of its name.
    ``path`` holds more modules; ``environment`` more variables; ``notes``: where it says that it runs, if not as usual;
    ``options``: of the command; ``defects``: last lines of tracebacks that belong to the test. ``really``: it is
    started as users start it, see `warm_start`.
    """

    def __init__(
        self,
        folder: Path,
        name: str = "",
        changes: Mapping[str, str] | None = None,
        text: str = "",
        path: tuple[Path, ...] = (),
        environment: Mapping[str, str] | None = None,
        notes: Path | None = None,
        options: Sequence[str] = (),
        defects: Sequence[str] = (),
        really: bool = False,
    ) -> None:
        self.name = name or f"test_{os.getpid()}_{next(_numbers)}"
        self.folder = folder
        self.port = 0
        self.start_time = 0.0
        self.pids: dict[str, int] = {}
        self.rig = folder / f"{self.name}.toml"
        self.rig.write_text(text.replace("{name}", self.name) or rig_text(self.name, folder, changes))
        self.path = os.pathsep.join((*map(str, path), os.environ.get("PYTHONPATH", "")))
        self.environment = environment or {}
        self.notes = notes or folder / "hilserver"
        self.options = options
        self.defects = defects
        self.really = really
        self.errors = folder / f"{self.name}-{next(_numbers)}.stderr"
        self.process: Command | subprocess.Popen[str] | None = None

    def launch(self) -> None:
        """Start it, without waiting for anything."""
        own = {"XDG_RUNTIME_DIR": str(self.folder), "PYTHONPATH": self.path}
        environment = {**os.environ, **own, **self.environment}
        with self.errors.open("w") as errors:
            words = ("run", "--verbose", self.rig, *self.options)
            self.process = start(
                words, stdout=subprocess.PIPE, stderr=errors, environment=environment, really=self.really
            )
        self.pids = {"supervisor": self.process.pid}

    def __enter__(self) -> Self:
        began = time.monotonic()
        self.launch()
        assert self.process is not None
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            self.close()
            raise AssertionError(f"the server did not start: {self.stderr}")
        self.start_time = time.monotonic() - began
        self.read_note()
        return self

    def read_note(self) -> None:
        """Find its broker and its processes."""
        self.port = json.loads((self.notes / f"{self.name}.json").read_text())["port"]
        self.note_children()

    def __exit__(self, *error: object) -> None:
        self.close()
        for path in self.segments:
            path.unlink()
        if error[:1] in ((), (None,)):  # else the test's own failure is the one to be told
            assert complaints(self.stderr, self.defects) == []

    def close(self) -> None:
        """Kill what still runs of it."""
        assert self.process is not None
        self.note_children()
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def note_children(self) -> None:
        """Look for processes that were started since."""
        assert self.process is not None
        self.pids |= children_of(self.process.pid)

    @property
    def segments(self) -> list[Path]:
        """Its shared memory."""
        return sorted(segment_path(self.name).parent.glob(f"{self.name}*"))

    @property
    def stderr(self) -> str:
        return self.errors.read_text() if self.errors.exists() else ""

    @property
    def memory(self) -> LoopMemory:
        return LoopMemory.attach(segment_path(self.name))

    @property
    def device(self) -> DeviceMemory:
        return DeviceMemory.attach(segment_path(f"{self.name}-rig"))

    @property
    def logs(self) -> list[Path]:
        return sorted((self.folder / "logs").glob("*.arrow"), key=lambda path: path.stat().st_ctime_ns)

    def kill(self, *names: str, number: int = signal.SIGKILL) -> None:
        for name in names:
            # of several, one may have ended already because of another one's end
            with contextlib.suppress(*[ProcessLookupError] * (len(names) > 1)):
                os.kill(self.pids[name], number)

    def alive(self) -> set[str]:
        return {name for name, pid in self.pids.items() if is_alive(pid)}

    def wait_exit(self, timeout: float = PATIENCE) -> int:
        """Wait for the end of the supervisor; returns its exit code."""
        assert self.process is not None
        return self.process.wait(timeout)

    def logged(self, tick: int) -> dict[str, Any] | None:
        """The log's columns, once it holds this tick."""
        with contextlib.suppress(RecordError):  # nothing written yet
            last = last_batch(self.logs[0])
            if last is not None and last["tick"][-1].as_py() >= tick:
                return dict(read_log(self.logs[0]).columns)
        return None

    def leaves(self) -> list[str]:
        """What is left of it: processes, shared memory, note."""
        left = sorted(self.alive()) + [path.name for path in self.segments]
        return left + [path.name for path in self.notes.glob(f"{self.name}*")]


def complaints(log: str, defects: Sequence[str] = ()) -> list[str]:
    """Lines of a server's log that are never in order: what Python says of a program that lost track of itself.

    ``defects``: last lines of tracebacks that are.
    """
    for defect in defects:
        log = re.sub(rf"Traceback(?:(?!Traceback).)*?^{re.escape(defect)}$", "", log, flags=re.S | re.M)
    return [line for line in log.splitlines() if any(sign in line for sign in LOST_TRACK)]


def children_of(parent: int) -> dict[str, int]:
    """The server's processes by what they are."""
    found: dict[str, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and fields[0] != "Z":
                words = (folder / "cmdline").read_text()
                if (folder / "comm").read_text().strip() == WORKING:  # it was a stand-by
                    words = "hilserver.realtime.worker"
                found |= {name: int(folder.name) for module, name in MODULES.items() if module in words}
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(condition: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """Wait until the condition holds; returns its value."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s")
        time.sleep(0.005)
    return value


def applied(device: DeviceMemory) -> float:
    """The raw command that the simulated valve follows now."""
    row = np.zeros(device.readings.width)
    device.readings.latest(row)
    return float(row[device.applied][0])


def read_log(path: Path) -> LogTable:
    return LogReader(path).read_all()


class Panel:
    """A plain MQTT client that sees everything of one server and keeps it, in order of arrival."""

    def __init__(self, server: Server, client: aiomqtt.Client) -> None:
        self.prefix = f"hil/{server.name}/"
        self.client = client
        self.seen: list[tuple[str, Any]] = []
        self.sent: list[tuple[str, Any]] = []
        """Commands that were carried out."""
        self._new = asyncio.Event()

    async def follow(self) -> None:
        async for message in self.client.messages:
            topic, payload = message.topic.value.removeprefix(self.prefix), bytes(message.payload)
            if topic.startswith("command/"):
                continue
            self.seen.append((topic, payload.decode() if topic == "availability" else json.loads(payload)))
            self._new.set()

    def all(self, topic: str) -> list[Any]:
        return [payload for name, payload in self.seen if name == topic]

    async def see(
        self, topic: str, where: Callable[[Any], bool] = lambda _: True, start: int = 0, within: float = PATIENCE
    ) -> Any:
        """The first payload on this topic for which ``where`` holds, among those from number ``start`` on."""
        async with asyncio.timeout(within):
            while True:
                for name, payload in self.seen[start:]:
                    if name == topic and where(payload):
                        return payload
                start = max(start, 0)
                self._new.clear()
                await self._new.wait()

    async def command(self, name: str, **payload: Any) -> Any:
        """Send a command; returns its answer."""
        id = f"{os.getpid()}-{next(_numbers)}"
        start = len(self.seen)
        await self.client.publish(f"{self.prefix}command/{name}", json.dumps({"id": id, **payload}), qos=1)
        answer = await self.see("answer", lambda answer: answer["id"] == id, start)
        if answer["ok"]:
            self.sent.append((f"command/{name}", {"id": id, **payload}))
        return answer

    async def do(self, name: str, **payload: Any) -> Any:
        """The same, for one that must succeed."""
        answer = await self.command(name, **payload)
        assert answer["ok"], answer
        return answer

    async def run_cycle(self) -> None:
        """Arm, start, and let the work cycle move the machine."""
        for name, payload in (("arm", {}), ("start", {}), ("cycle", {"action": "start"})):
            await self.do(name, **payload)


@contextlib.asynccontextmanager
async def panel(server: Server) -> AsyncIterator[Panel]:
    """A client that is connected to the server's broker. What came and went is as the published schemas say."""
    address = BrokerAddress(port=server.port)
    async with new_client(address, aiomqtt.ProtocolVersion.V5, timeout=PATIENCE) as client:
        user = Panel(server, client)
        following = asyncio.create_task(user.follow())
        await client.subscribe(f"{user.prefix}#", qos=1)
        await user.see("availability", lambda text: text == "online")
        try:
            yield user
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError, aiomqtt.MqttError):
                await following
    for topic, message in (*user.seen, *user.sent):
        assert topic == "availability" or flaws(topic, message) == []


def listens(port: int) -> bool:
    """Whether a program on this computer accepts connections at the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def talk(server: Server, conversation: Callable[[Panel], Awaitable[None]]) -> None:
    """Have a conversation with a server over MQTT."""

    async def run() -> None:
        async with panel(server) as user:
            await conversation(user)

    asyncio.run(run())


@contextlib.contextmanager
def busy_processors() -> Iterator[None]:
    """A child process at normal priority that keeps every processor busy."""
    spinning = [subprocess.Popen((sys.executable, "-c", "while True: pass")) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
