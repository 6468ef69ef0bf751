"""The faults of a chaos run, and how a server ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from chaos_place import IS_ROOT
from chaos_rig import LOST_AFTER, SUPPLY, Chaos
from mqtt_bench import FLOOD
from soak import HEARTBEAT


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
    return Fault(lambda chaos: chaos.soak.fake.set(**values), lambda chaos: chaos.soak.fake.repair())


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
    "supply jumps": reads(240),
    "tripped by an old command": sent("trip", stops=True, expires=LONG_AGO),
    "stopped": sent("stop", stops=True),
    "disarmed by an old command": sent("disarm", stops=True, expires=LONG_AGO),
    "old start": sent("start", expires=LONG_AGO),
    "flood": Fault(flood(), Chaos.end_floods),
    "flood of stops": Fault(flood("stop", "{}"), Chaos.end_floods),
    "flood of heartbeats": Fault(flood("heartbeat", '{"client": "x"}'), Chaos.end_floods),
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
