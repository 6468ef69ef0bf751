"""Makes the set-up of a run's processes from its rig."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.scheduling import Scheduling
from hilserver.realtime.setup import Setup
from hilserver.rig.build import Rig
from hilserver.rig.plan import first_row
from hilserver.tick.plant import PlantArrays

SWITCH = "HILSERVER_REHEARSAL"
"""Environment variable: ``off`` rehearses no tick, whatever the rig files say."""


def make_setup(rig: Rig, segments: Mapping[str, str], plants: Mapping[str, PlantArrays]) -> Setup:
    """The set-up of a rig. ``segments``: device name -> shared memory of its process; ``plants``: simulated devices."""
    loop = rig.settings.loop
    scheduling = Scheduling(loop.priority, frozenset(loop.cpus) or None, loop.lock_memory)
    devices = tuple(device_setups(rig, segments))
    row = first_row(rig.layout, rig.plan, rig.packed)
    rehearsal = loop.rehearsal and os.environ.get(SWITCH) != "off"
    packed, own = rig.packed, rig.library.own
    return Setup(rig.plan, packed.index, packed.value, row, devices, scheduling, plants, own, rig.speed, rehearsal)


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
