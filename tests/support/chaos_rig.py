"""The rig of a chaos run: its server, its devices, what is seen of them, and what can be done to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from chaos_model import SLOWLY, Look, Model
from chaos_place import ChaosServer, Disk
from service_harness import COMPILED, MODULES, rig_text
from soak import HEARTBEAT, MAX_MISSED, RECORDING, Soak

from hilserver.realtime.shared import LoopMemory
from hilserver.realtime.simulated_device import DeviceMemory
from hilserver.record.folder import SUFFIX
from hilserver.tick.codes import Mode
from hilserver.tick.row import headers

NAME = f"chaos_{os.getpid()}"
LOST_AFTER = 2.0
"""s; without a broker the rig may run for so long."""
SUPPLY = 140
"""bar: what the machine has, and the sensor at the Modbus device shows; else the product would expect another flow."""
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
scale = {{ raw = [0, 250], value = ["0 bar", "250 bar"] }}
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
STEADY = 0.1
"""s between two readings of the simulated device; one that stood still longer makes good in one go what it missed."""
KEPT = 0.3
"""GB of recordings: those of several lives, so that old ones are removed now and then, and none of the same life."""
LONGEST_LOOK = 1000
"""Rows of the loop between two looks."""
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
        self._cursor = 0
        self._ticks: Any = None
        """Headers of the newest rows that were looked at."""

    def new_server(self) -> ChaosServer:
        changes = {
            **COMPILED,
            "rate =": f'rate = "1 kHz"\nheartbeat_timeout = "{HEARTBEAT:g} s"',
            "max_missed =": f"max_missed = {MAX_MISSED}",
            "max_age =": 'max_age = "2 s"',
            "lost_after =": f'lost_after = "{LOST_AFTER:g} s"',
            "supply =": 'supply = "p_plc"',
            "position =": 'position = "x_plc"',
        }
        text = rig_text(NAME, self.soak.folder, changes) + RECORDING.format(file_length="2 s", keep=KEPT)
        text += DEVICE.format(port=self.soak.bench.settings["tcp"]["port"], most=STEPS_OF_X)
        return ChaosServer(self.soak.folder, NAME, text=text, environment=self.soak.fake.environment)

    # --- what is seen ------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Look at devices and loop until cancelled."""
        memory, device = self.server.memory, self.server.device
        self._cursor = max(memory.ring.published - 1, 0)
        while True:
            self.model.see(await asyncio.to_thread(self._look, memory, device))
            await asyncio.sleep(0.01)

    def _look(self, memory: LoopMemory, device: DeviceMemory) -> Look:
        """First at the devices, then at the loop: what a device does is never newer than the loop's row."""
        reading = np.zeros(device.readings.width)
        device.readings.latest(reading)
        is_fresh = time.monotonic() - reading[0] < 0.5
        valve = float(reading[device.applied][0]) if is_fresh else None
        if reading[0]:
            self._measure(float(reading[0]), float(reading[X]) / 10.0)
        pump = self.modbus("get", table="coil", address=9, count=1, unit=1)
        rows = np.empty((LONGEST_LOOK, memory.ring.width))
        count, self._cursor, _ = memory.ring.read(self._cursor, rows)
        self._ticks = headers(rows[:count]) if count else self._ticks
        modes, now = {Mode(int(mode)) for mode in self._ticks["mode"]}, time.monotonic()
        return Look(
            now,
            int(self._ticks["tick"][-1]),
            Mode(int(self._ticks["mode"][-1])),
            valve,
            bool(pump[0]),
            self.unseen,
            stopped=modes != {Mode.RUNNING},
        )

    def _measure(self, at: float, x: float) -> None:
        """Let the slow device measure the position, unless its sensor is stuck."""
        was, self._was = self._was, (at, x)
        if not self.stuck:
            self.modbus("set", table="input", address=1, values=[round(x * STEPS_OF_X)], unit=1)
            self.unseen = 0.0
        elif was is not None and at - was[0] < STEADY:
            self.unseen += max(abs(x - was[1]) - SLOWLY * (at - was[0]), 0.0)

    def modbus(self, command: str, **arguments: Any) -> Any:
        """Tell the Modbus device something."""
        with self.lock:
            return self.soak.bench.server.do(command, **arguments)

    # --- what is done to it ------------------------------------------------------------------------------------------

    def server_is_complete(self) -> bool:
        """Whether all of its processes are there: a server is ready before its stand-by worker is."""
        self.server.note_children()
        return {*MODULES.values()} - {"check"} <= set(self.server.pids)

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

    def repair(self) -> None:
        """End all faults."""
        self._let_go(set(self.held))
        self.held.clear()
        self.end_floods()
        self.soak.fake.repair()
        self.soak.fake.set(clock_offset=0.0)
        self.stuck = 0
        self.server.terminal.go_on()
        self.disk.mount()
        self.modbus("fault", refusal=0, answers=[], deaf=False)
        self.modbus("set", table="input", address=0, values=[SUPPLY], unit=1)

    def end_floods(self) -> None:
        """All of them."""
        while self.floods:
            flooding = self.floods.pop()
            flooding.kill()
            flooding.wait()

    def publish(self, name: str, **payload: Any) -> None:
        """Send a command, whether or not anybody takes it."""
        message = json.dumps({"id": os.urandom(8).hex(), **payload})
        command = ["mosquitto_pub", "-p", str(self.server.port), "-t", f"hil/{self.server.name}/command/{name}"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([*command, "-q", "1", "-m", message], capture_output=True, timeout=2.0)
