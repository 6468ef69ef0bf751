"""What a rig's processes need from it: their set-up, and the size of the memory that they share."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.scheduling import Scheduling
from hilserver.realtime.setup import Setup
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Rig
from hilserver.tick.plant import PlantArrays

REHEARSAL_VARIABLE = "HILSERVER_REHEARSAL"
"""Name of an environment variable: ``off`` rehearses no tick, whatever the rig files say."""
RING_SECONDS, RING_BYTES, RING_ROWS = 20.0, 128e6, 1000
"""Size of the ring: seconds, limited to these bytes, unless the rig file says otherwise; but at least these rows."""
COMMANDS_KEPT, PAYLOAD_BYTES = 1 << 14, 1 << 18
"""Size of the mailbox: commands that it keeps, for a recorder that comes late; bytes for the largest circuit."""


def make_setup(rig: Rig, segments: Mapping[str, str], plants: Mapping[str, PlantArrays]) -> Setup:
    """The set-up of a rig. ``segments``: device name -> shared memory of its process; ``plants``: simulated devices."""
    loop = rig.settings.loop
    scheduling = Scheduling(loop.priority, frozenset(loop.cpus) or None, loop.lock_memory)
    devices = tuple(device_setups(rig, segments))
    row = first_row(rig.layout, rig.plan, rig.packed)
    rehearsal = loop.rehearsal and os.environ.get(REHEARSAL_VARIABLE) != "off"
    packed, own = rig.packed, rig.library.own
    return Setup(rig.plan, packed.index, packed.value, row, devices, scheduling, plants, own, rig.speed, rehearsal)


def loop_memory_shape(rig: Rig) -> dict[str, int]:
    """The shape of the memory that the processes of a rig share, as `LoopMemory.create` and `nbytes` take it."""
    rate, buffer = rig.clock_rate, rig.settings.recording.buffer
    rows = min(RING_SECONDS * rate, RING_BYTES / (8 * rig.layout.width)) if buffer is None else buffer * rate
    return {
        "row_width": rig.layout.width,
        "ring_rows": max(round(rows), RING_ROWS),
        "mailbox_slots": COMMANDS_KEPT,
        "payload_bytes": PAYLOAD_BYTES,
    }


def device_setups(rig: Rig, segments: Mapping[str, str]) -> list[DeviceSetup]:
    """Slots and columns of each device, in the order of the rig file."""
    columns = {(o.device, o.output): rig.layout.column(o.column) for o in rig.layout.outputs}
    found, slot, output = [], 0, 0
    for device in rig.devices:
        table = rig.settings.devices[device.name]
        found.append(
            DeviceSetup(
                name=device.name,
                driver=str(table["driver"]),
                settings={key: value for key, value in table.items() if key != "driver"},
                folder=str(rig.file.parent),
                inputs=device.inputs,
                outputs=device.outputs,
                first_slot=slot,
                output_columns=tuple(columns[device.name, name] for name in device.outputs),
                first_output=output,
                error_column=rig.layout.column(f"errors.{device.name}"),
                segment=segments.get(device.name, ""),
            )
        )
        slot += len(device.inputs)
        output += len(device.outputs)
    return found
