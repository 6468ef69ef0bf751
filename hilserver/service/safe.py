"""Safe values for the devices of a rig whose server is dead: what its service does after a failure."""

from __future__ import annotations

import contextlib
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.setup import device_setups
from hilserver.realtime.shared import LoopMemory, SharedMemoryError, segment_path
from hilserver.rig.build import Rig


def make_rig_safe(rig: Rig) -> dict[str, str | None]:
    """Open each device, write its safe values, close it. Returns what went wrong by device, None for nothing.

    Simulated devices are left out: their processes are gone too. Raises HilserverError where the rig's loop still runs:
    then the devices are its own, and it is told by commands.
    """
    if pid := _running_loop(rig.settings.name):
        text = f"the loop of rig {rig.settings.name} still runs (process {pid}). Use: hilserver send trip"
        raise HilserverError(text)
    simulated = {device.name for device in rig.devices if not device.is_hardware}
    return {setup.name: _make_safe(setup) for setup in device_setups(rig, {}) if setup.name not in simulated}


def _running_loop(rig: str) -> int:
    """The rig's real-time process, 0 where there is none."""
    with contextlib.suppress(SharedMemoryError, OSError):
        pid = LoopMemory.attach(segment_path(rig)).info.loop_pid
        if pid and b"hilserver.realtime.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return 0


def _make_safe(setup: DeviceSetup) -> str | None:
    try:
        kind, config = setup.configured()
        with contextlib.closing(kind(setup.name, config, setup.inputs, setup.outputs)) as driver:
            driver.open()
            driver.make_safe()
    except Exception as error:  # the other devices must have their safe values whatever this one does
        return str(error) or type(error).__name__
    return None
