"""Safe values for the devices of a rig whose server is dead: what its service does after a failure."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.realtime.devices import ADVICE, DeviceSetup
from hilserver.realtime.rig_setup import device_setups
from hilserver.realtime.segment import SharedMemoryError
from hilserver.realtime.segment_folder import find_segment
from hilserver.realtime.shared import LoopMemory
from hilserver.rig.rig import Rig

PATIENCE = 5.0
"""Seconds allowed for a device, in addition to its ``hang_time``; then the next one gets its safe values."""


def make_rig_safe(rig: Rig) -> dict[str, str | None]:
    """Open each device, write its safe values, close it, in the order of the rig file.

    A device that hangs keeps no other from its safe values. Returns the failure by device, None if there was none.

    Simulated devices are skipped: their processes have ended as well. Raises HilserverError if the rig's loop is still
    running: then the devices belong to the loop, and commands are the way to stop it.
    """
    if pid := _running_loop(rig.settings.name):
        text = f"the loop of rig {rig.settings.name} is still running (process {pid}). Use: hilserver send trip"
        raise HilserverError(text)
    simulated = {device.name for device in rig.devices if not device.is_hardware}
    return {setup.name: _safe_in_time(setup) for setup in device_setups(rig, {}) if setup.name not in simulated}


def _running_loop(rig: str) -> int:
    """The rig's real-time process, 0 if there is none."""
    with contextlib.suppress(SharedMemoryError, OSError):
        pid = LoopMemory.attach(find_segment(rig)).info.loop_pid
        if pid and b"hilserver.realtime.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return 0


def _safe_in_time(setup: DeviceSetup) -> str | None:
    """As `_make_safe`, which is abandoned where the driver hangs."""
    outcome: list[str | None] = []
    patience = PATIENCE + _hang_time(setup)
    working = threading.Thread(target=lambda: outcome.append(_make_safe(setup)), daemon=True)
    working.start()
    working.join(patience)
    return outcome[0] if outcome else f"its driver did not answer for {patience:g} s. {ADVICE}"


def _hang_time(setup: DeviceSetup) -> float:
    try:
        return float(getattr(setup.configured()[1], "hang_time", 0.0))
    except Exception:  # `_make_safe` reports it
        return 0.0


def _make_safe(setup: DeviceSetup) -> str | None:
    try:
        kind, config = setup.configured()
        with contextlib.closing(kind(setup.name, config, setup.inputs, setup.outputs)) as driver:
            driver.open()
            driver.make_safe()
    except Exception as error:  # the safe values of the other devices must be written in any case
        return str(error) or type(error).__name__
    return None
