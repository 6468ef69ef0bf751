"""A chaos run: faults of all kinds at random moments, beside and over each other, and an operator who wants to go on.

`play` starts a server, lets the steps of a sequence happen to it, and compares what is seen at the devices with the
model (chaos_model.py) all the time. In the end everything is mended, the rig must be brought back to RUNNING by
nothing but commands (where its server lives), the server is stopped or killed, and its logs must be whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from chaos_model import BLIND, SLOWLY, Look, Model, Step, Steps
from chaos_place import IS_ROOT, ChaosServer, Disk
from mqtt_bench import FLOOD
from service_harness import eventually, panel, rig_text
from soak import HEARTBEAT, MAX_MISSED, RECORDING, Soak, be_running
from soak_logs import look_at_logs

from hilserver.realtime.device import DeviceMemory
from hilserver.realtime.shared import LoopMemory
from hilserver.record.folder import SUFFIX
from hilserver.tick.codes import Mode
from hilserver.tick.row import header

NAME = f"chaos_{os.getpid()}"
LOST_AFTER = 2.0
"""s; without a broker the rig may run for so long."""
TO_END = 20.0
"""s in which a server that has lost its supervisor must have ended with all its processes."""
SUPPLY = 60
"""bar: an ordinary reading of the sensor at the Modbus device."""
DEVICE = """
[devices.plc]
driver = "modbus"
tcp = {{ host = "127.0.0.1", port = {port} }}
timeout = "200 ms"
refresh = "100 ms"
rate = "50 Hz"
hang_time = "2 s"
read_back = true
[devices.plc.inputs.p_A]
table = "input"
address = 0
type = "int16"
[devices.plc.inputs.x]
table = "input"
address = 1
type = "int16"
[devices.plc.outputs.enable]
table = "coil"
address = 9
safe = 0
[channels.p_plc]
device = "plc"
source = "p_A"
scale = {{ raw = [0, 100], value = ["0 bar", "100 bar"] }}
[channels.x_plc]
device = "plc"
source = "x"
scale = {{ raw = [0, {most}], value = ["0 mm", "1000 mm"] }}
[limits.old_plc]
channel = "p_plc"
max_age = "1 s"
action = "trip"
[outputs.pump]
device = "plc"
output = "enable"
max_age = "1 s"
raw = [0, 1]
on = "armed"
"""
"""The valve's supply and the piston's position are measured, and the pump switched on, by a slow device."""
STEPS_OF_X = 10_000
"""Of the reading of the position, over a stroke of 1 m."""
X = 6
"""Place of the piston's position, 0 to 10 V, in what the simulated device shows, behind the time."""


@dataclass
class Chaos:
    """The server, its devices, and what is seen of them."""

    soak: Soak
    server: ChaosServer = field(init=False)
    model: Model = field(default_factory=Model)
    held: list[int] = field(default_factory=list)
    """Processes that are held by SIGSTOP, each as often as it is."""
    deleted: list[Path] = field(default_factory=list)
    """Logs that were removed while they were written."""
    unmounted: bool = False
    """Whether logs could not be seen for a while."""
    active: list[tuple[str, float, float]] = field(default_factory=list)
    """What each fault concerns, when it began, when it ended (inf: not yet)."""
    recorded: int = -1
    """The last tick that the server has reported as recorded."""
    floods: list[subprocess.Popen[bytes]] = field(default_factory=list)
    stuck: int = 0
    """How many faults hold the sensor of the position."""
    unseen: float = 0.0
    """m that the piston has moved since then, fast enough for anybody to see."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.disk = Disk(self.soak.folder / "logs")
        self._was: tuple[float, float] | None = None
        """Time and position at the last look."""

    def new_server(self) -> ChaosServer:
        changes = {
            "rate =": f'rate = "1 kHz"\nheartbeat_timeout = "{HEARTBEAT:g} s"',
            "max_missed =": f"max_missed = {MAX_MISSED}",
            "max_age =": 'max_age = "2 s"',
            "lost_after =": f'lost_after = "{LOST_AFTER:g} s"',
            "supply =": 'supply = "p_plc"',
            "position =": 'position = "x_plc"',
        }
        text = rig_text(NAME, self.soak.folder, changes) + RECORDING.format(file_length="2 s", keep=2.0)
        text += DEVICE.format(port=self.soak.bench.settings["tcp"]["port"], most=STEPS_OF_X)
        return ChaosServer(self.soak.folder, NAME, text=text, environment=self.soak.fake.environment)

    # --- what is seen ------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Look at devices and loop until cancelled."""
        memory, device = self.server.memory, self.server.device
        while True:
            self.model.see(await asyncio.to_thread(self._look, memory, device))
            await asyncio.sleep(0.01)

    def _look(self, memory: LoopMemory, device: DeviceMemory) -> Look:
        """First at the devices, then at the loop: what a device does is never newer than the loop's row."""
        row, reading = np.empty(memory.ring.width), np.zeros(device.readings.width)
        device.readings.latest(reading)
        is_fresh = time.monotonic() - reading[0] < 0.5
        valve = float(reading[device.applied][0]) if is_fresh else None
        if reading[0]:
            self._measure(float(reading[0]), float(reading[X]) / 10.0)
        pump = self.modbus("get", table="coil", address=9, count=1, unit=1)
        memory.ring.latest(row)
        now, tick, mode = time.monotonic(), int(header(row).tick), Mode(int(header(row).mode))
        return Look(now, tick, mode, valve, bool(pump[0]), self.unseen)

    def _measure(self, at: float, x: float) -> None:
        """Let the slow device measure the position, unless its sensor is stuck."""
        was, self._was = self._was, (at, x)
        if not self.stuck:
            self.modbus("set", table="input", address=1, values=[round(x * STEPS_OF_X)], unit=1)
            self.unseen = 0.0
        elif was is not None:
            self.unseen += max(abs(x - was[1]) - SLOWLY * (at - was[0]), 0.0)

    def modbus(self, command: str, **arguments: Any) -> Any:
        """Tell the Modbus device something."""
        with self.lock:
            return self.soak.bench.server.do(command, **arguments)

    # --- what is done to it ------------------------------------------------------------------------------------------

    def hold(self, name: str) -> None:
        self.server.note_children()
        pid = self.server.pids[name]
        self.held.append(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """One hold of the process less; it goes on after the last."""
        held, self.held = self.held, [pid for pid in self.held if pid != self.server.pids[name]]
        self.held += [self.server.pids[name]] * max(held.count(self.server.pids[name]) - 1, 0)
        self._let_go(set(held) - set(self.held))

    @staticmethod
    def _let_go(pids: set[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def hold_sensor(self, one_more: int) -> None:
        """Let the sensor of the position show what it shows."""
        self.stuck += one_more

    def kill(self, *names: str) -> None:
        self.server.note_children()
        for name in names or tuple(self.server.pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.server.pids[name], signal.SIGKILL)

    def delete_log(self) -> None:
        """Remove the file that is being written; the recorder must not begin another one meanwhile."""
        self.hold("recorder")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for opened in Path(f"/proc/{self.server.pids['recorder']}/fd").iterdir():
                if (file := opened.readlink()).suffix == SUFFIX:
                    file.unlink()
                    self.deleted.append(file)
        self.go_on("recorder")

    def mend(self) -> None:
        """End all faults."""
        self._let_go(set(self.held))
        self.held.clear()
        end_floods(self)
        self.soak.fake.mend()
        self.soak.fake.set(clock_offset=0.0)
        self.stuck = 0
        self.server.terminal.go_on()
        self.disk.mount()
        self.modbus("fault", refusal=0, answers=[], deaf=False)
        self.modbus("set", table="input", address=0, values=[SUPPLY], unit=1)

    def publish(self, name: str, **payload: Any) -> None:
        """Send a command, whether or not anybody takes it."""
        message = json.dumps({"id": os.urandom(8).hex(), **payload})
        command = ["mosquitto_pub", "-p", str(self.server.port), "-t", f"hil/{self.server.name}/command/{name}"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([*command, "-q", "1", "-m", message], capture_output=True, timeout=2.0)


@dataclass(frozen=True)
class Fault:
    """What happens, what ends it, and after how many seconds of it the rig must have stopped running."""

    begin: Callable[[Chaos], None]
    end: Callable[[Chaos], None] = lambda chaos: None
    stops_after: float = np.inf
    at_most: float = np.inf
    """It lasts no longer: beyond, the server ends, as it should."""
    by_command: bool = False
    """Whether it is a command, which has to arrive."""


def held(name: str, **more: Any) -> Fault:
    """A process that hangs."""
    return Fault(lambda chaos: chaos.hold(name), lambda chaos: chaos.go_on(name), **more)


def killed(name: str, **more: Any) -> Fault:
    """A process that dies, and that the server replaces."""
    return Fault(lambda chaos: chaos.kill(name), **more)


def fake(**values: float) -> Fault:
    """Disk or clock."""
    return Fault(lambda chaos: chaos.soak.fake.set(**values), lambda chaos: chaos.soak.fake.mend())


def plc(begin: dict[str, Any], end: dict[str, Any], **more: Any) -> Fault:
    """Faults of the Modbus device."""
    return Fault(lambda chaos: chaos.modbus("fault", **begin), lambda chaos: chaos.modbus("fault", **end), **more)


def reads(bar: int, **more: Any) -> Fault:
    """The sensor of the supply shows this."""

    def show(value: int) -> Callable[[Chaos], None]:
        return lambda chaos: chaos.modbus("set", table="input", address=0, values=[value], unit=1)

    return Fault(show(bar), show(SUPPLY), **more)


def sent(name: str, stops: bool = False, **payload: Any) -> Fault:
    """A command of somebody else."""
    return Fault(lambda chaos: chaos.publish(name, **payload), stops_after=0.0 if stops else np.inf, by_command=True)


def flood(*command: str) -> Callable[[Chaos], None]:
    """Another client sends as many commands as it can: this one, with this payload."""

    def begin(chaos: Chaos) -> None:
        words = [sys.executable, "-c", FLOOD, str(chaos.server.port), chaos.server.name, *command]
        chaos.floods.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    return begin


def unmount(chaos: Chaos) -> None:
    """Take the disk of the logs away."""
    chaos.disk.unmount()
    chaos.unmounted = True


def end_floods(chaos: Chaos) -> None:
    """All of them."""
    while chaos.floods:
        flooding = chaos.floods.pop()
        flooding.kill()
        flooding.wait()


LONG_AGO = time.time() - 86400.0
FAULTS = {
    "supervisor held": held("supervisor", stops_after=HEARTBEAT, at_most=HEARTBEAT + 1.0),
    "loop held": held("loop", stops_after=0.0, at_most=2.0),
    "recorder held": held("recorder"),
    "worker held": held("worker", stops_after=1.0),
    "stand-by held": held("stand-by"),
    "device held": held("device", stops_after=2.0, at_most=3.5),
    "broker held": held("broker", stops_after=LOST_AFTER),
    "recorder killed": killed("recorder"),
    "worker killed": killed("worker"),
    "stand-by killed": killed("stand-by"),
    "broker killed": killed("broker"),
    "disk full": fake(full=1),
    "disk slow": fake(write_delay=0.5),
    "disk nearly full": fake(free_bytes=99e6),
    "log deleted": Fault(Chaos.delete_log),
    "clock ahead": fake(clock_offset=3600.0),
    "clock back": fake(clock_offset=-400 * 86400.0),
    "writes refused": plc({"refusal": 2}, {"refusal": 0}, stops_after=1.0),
    "wrong answers": plc({"answers": ["0001" * 6] * 200}, {"answers": []}),
    "no answers": plc({"answers": ["nothing"] * 200}, {"answers": []}),
    "connection lost": Fault(lambda chaos: chaos.modbus("drop")),
    "supply lost": reads(0, stops_after=0.5),
    "supply out of range": reads(300, stops_after=1.0),
    "supply jumps": reads(99),
    "tripped by an old command": sent("trip", stops=True, expires=LONG_AGO),
    "stopped": sent("stop", stops=True),
    "disarmed by an old command": sent("disarm", stops=True, expires=LONG_AGO),
    "old start": sent("start", expires=LONG_AGO),
    "flood": Fault(flood(), end_floods),
    "flood of stops": Fault(flood("stop", "{}"), end_floods),
    "flood of heartbeats": Fault(flood("heartbeat", '{"client": "x"}'), end_floods),
    "terminal stopped": Fault(lambda chaos: chaos.server.terminal.stop(), lambda chaos: chaos.server.terminal.go_on()),
    "terminal not read": Fault(
        lambda chaos: chaos.server.terminal.stop_reading(), lambda chaos: chaos.server.terminal.go_on()
    ),
    "writes not applied": plc({"deaf": True}, {"deaf": False}, stops_after=1.5),
    "sensor stuck": Fault(lambda chaos: chaos.hold_sensor(1), lambda chaos: chaos.hold_sensor(-1)),
    "clock a second back": fake(clock_offset=-1.0),
}
if IS_ROOT:
    FAULTS["disk unmounted"] = Fault(unmount, lambda chaos: chaos.disk.mount())


def stop_service(chaos: Chaos) -> None:
    """As systemd does."""
    os.kill(chaos.server.pids["supervisor"], signal.SIGTERM)


def kill_device(chaos: Chaos) -> None:
    """A simulated device doesn't come back: the rig trips, and somebody has to stop the service."""
    chaos.kill("device")
    time.sleep(2.5)
    stop_service(chaos)


ENDS: dict[str, Callable[[Chaos], None]] = {
    "service stopped": stop_service,
    "supervisor killed": lambda chaos: chaos.kill("supervisor"),
    "loop killed": lambda chaos: chaos.kill("loop"),
    "device killed": kill_device,
    "supervisor and loop killed": lambda chaos: chaos.kill("supervisor", "loop"),
    "all killed": lambda chaos: chaos.kill(),
}
"""How a server ends; the last step of a sequence."""
TRANSMITTED = 1.0
"""s for a command from its sender to the tick, and for whatever is measured in the slow device to arrive."""
AFTERWARDS = 3.0
"""s for which a fault may still have effects."""
HAMPERS = {"supervisor", "loop", "broker", "flood"}
"""What may keep a command from arriving in time."""


def concerns(what: str) -> str:
    """What a fault concerns: those of the same may undo each other."""
    first = what.split()[0]
    return "slow device" if first in ("worker", "stand-by", "writes", "wrong", "no", "connection", "supply") else first


async def happen(chaos: Chaos, step: Step, began: float) -> None:
    """One step at its time: begin, wait, end; then the rig must have stopped, where the fault by itself demands it."""
    fault = FAULTS[step.what]
    await asyncio.sleep(max(began + step.at - time.monotonic(), 0.0))
    at, lasts, number = time.monotonic(), min(step.lasts, fault.at_most), len(chaos.active)
    chaos.active.append((concerns(step.what), at, np.inf))
    await asyncio.to_thread(fault.begin, chaos)
    slow = time.monotonic() - at > BLIND
    await asyncio.sleep(lasts)
    held_for = time.monotonic() - at
    await asyncio.to_thread(fault.end, chaos)
    chaos.active[number] = (concerns(step.what), at, time.monotonic() + AFTERWARDS)
    if fault.by_command:
        await asyncio.sleep(max(TRANSMITTED - lasts, 0.0))
    elif held_for < fault.stops_after + TRANSMITTED:
        return
    disturbing = HAMPERS if fault.by_command else {concerns(step.what), "loop", "device"}
    others = [other for k, other in enumerate(chaos.active) if k != number and other[0] in disturbing]
    if np.isfinite(fault.stops_after) and not slow and all(since > at + held_for or to < at for _, since, to in others):
        chaos.model.require_stopped(at, f"{step.what} for {held_for:.1f} s")


async def operate(chaos: Chaos) -> None:
    """An operator who tries to make the rig run, and to move it, until cancelled; without a look at it."""
    while True:
        for name in ("reset", "arm", "start"):
            await asyncio.to_thread(chaos.publish, name)
        there_and_back = 0.4 if int(time.monotonic()) % 4 < 2 else -0.4
        await asyncio.to_thread(chaos.publish, "set_input", input="joystick", value=there_and_back)
        await asyncio.sleep(0.2)


async def play(soak: Soak, steps: Steps, end: str) -> str:
    """One life of a server; returns what was wrong first, empty if nothing was."""
    chaos, times = Chaos(soak), [time.monotonic()]
    chaos.disk.mount()
    chaos.server = chaos.new_server()
    with contextlib.ExitStack() as life:
        life.callback(chaos.disk.unmount)
        life.enter_context(chaos.server)
        chaos.mend()
        memory = chaos.server.memory
        watching = asyncio.create_task(chaos.watch())
        try:
            times.append(time.monotonic())
            await plague(chaos, steps)
            chaos.mend()
            times.append(time.monotonic())
            if "supervisor" in chaos.server.alive():
                async with asyncio.timeout(90.0), panel(chaos.server) as user:
                    await be_running(user)
                    state = await user.see("state", lambda state: state["recording"]["tick"], len(user.seen))
                    chaos.recorded = state["recording"]["tick"]
            elif not {"supervisor", "loop", "device"} & {concerns(step.what) for step in steps}:
                chaos.model.wrong.append("the server has ended by itself")
            times.append(time.monotonic())
            chaos.server.note_children()
            await asyncio.to_thread(ENDS[end], chaos)
            await asyncio.to_thread(eventually, lambda: not chaos.server.alive() - {"device"}, TO_END)
            await asyncio.sleep(0.1)
        except Exception as error:  # with what the server has said
            chaos.model.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            watching.cancel()
            chaos.mend()
        row = np.empty(memory.ring.width)
        memory.ring.latest(row)
        if wrong := "; ".join(chaos.model.wrong):
            return f"{wrong}\nThe server said:\n{chaos.server.stderr[-3000:]}"
    times.append(time.monotonic())
    spans = zip(("start", "chaos", "running again", "end"), np.diff(times), strict=False)
    soak.report.append(f"{'':32}" + ", ".join(f"{what} {span:.1f} s" for what, span in spans))
    is_whole = end != "all killed" and not chaos.deleted
    with chaos.disk.all_files() as folders:
        logs = soak.new_logs(*folders)
        soak.report.append(
            look_at_logs(
                logs, int(header(row).tick), is_whole=is_whole, recorded=chaos.recorded, found_later=chaos.unmounted
            )
        )
    return ""


async def plague(chaos: Chaos, steps: Steps) -> None:
    """Let the steps happen while the operator wants to go on; until the server ends, at most."""

    async def server_ends() -> None:
        while "supervisor" in chaos.server.alive():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)

    operating, ending, began = asyncio.create_task(operate(chaos)), asyncio.create_task(server_ends()), time.monotonic()
    happening = [asyncio.create_task(happen(chaos, step, began)) for step in steps]

    async def all_happened() -> None:
        await asyncio.gather(*happening)

    waiting = asyncio.create_task(all_happened())
    try:
        await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
    finally:
        for task in (operating, ending, waiting, *happening):
            task.cancel()
        await asyncio.gather(operating, ending, waiting, *happening, return_exceptions=True)
