"""A rig for the runner: a folder with the runner, the compiled program, and one file with everything else.

The file is declared in ``compiler/runner/runner.h``: a header, and an image of memory.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hilserver.circuit.engine import CODE, HEADER
from hilserver.circuit.program import Record, parameters_of
from hilserver.compiler.loading import runner_files
from hilserver.compiler.sources import fingerprint
from hilserver.errors import ConfigurationError, HilserverError, Problem
from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.process import commands_at_rest, ramp_time
from hilserver.realtime.rig_setup import device_setups
from hilserver.record.format import encode
from hilserver.record.run import run_header
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Device, Rig
from hilserver.runner.image import CELL, Cells, Image, dimensions_of
from hilserver.tick.bridge.strategies import STRATEGY_NAMES
from hilserver.tick.codes import FIRST_LIMIT_FAULT, CommandKind, FaultCode, Mode, ResultCode, fault_text
from hilserver.tick.lockstep import Attached, run_bridged
from hilserver.tick.plant import PlantArrays
from hilserver.tick.program import work_needed
from hilserver.tick.row import COLUMN, input_columns

MAGIC = b"HILPACK1"
PACK = "rig.pack"
"""Name of the file in the folder."""
COMMANDS = {
    "arm": CommandKind.ARM,
    "start": CommandKind.START,
    "stop": CommandKind.STOP,
    "disarm": CommandKind.DISARM,
    "reset": CommandKind.RESET,
    "trip": CommandKind.TRIP,
    "input": CommandKind.SET_INPUT,
    "strategy": CommandKind.STRATEGY,
    "jog": CommandKind.JOG,
    "cycle": CommandKind.CYCLE,
}
"""The commands that the runner takes, by name."""


def write_rig(rig: Rig, folder: Path, *, with_devices: bool = True) -> list[Path]:
    """Write a rig for the runner into a new or empty folder; returns the files.

    ``with_devices``: otherwise it is for replays only. Raises ConfigurationError where a device has no form for the
    runner, HilserverError for components of the user, or if the folder can't be written.
    """
    refuse_own(rig)
    files = runner_files()
    content = packed_bytes(rig, with_devices=with_devices)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise HilserverError(f"{folder}: is not empty. Name a new folder.")
        for name, path in files.items():
            shutil.copyfile(path, folder / name)
            (folder / name).chmod(0o644 if name.endswith(".so") else 0o755)
        (folder / PACK).write_bytes(content)
    except OSError as error:
        raise HilserverError(f"{folder}: can't be written: {error.strerror or error}.") from error
    return sorted(folder.iterdir())


def refuse_own(rig: Rig) -> None:
    """Raises HilserverError for components of the user, whose kernels are not part of the prebuilt library."""
    if rig.library.own_kernels:
        raise HilserverError(f"{rig.file}: has components of your own, which the runner can't run yet.")


def packed_bytes(rig: Rig, *, with_devices: bool = True) -> bytes:
    """The file with the rig: its row before the first tick, plan, circuit, devices, names."""
    image, plan, settings = Image(), rig.plan, rig.settings
    layout = plan.layout[0]
    row = first_row(rig.layout, plan, rig.packed)
    simulated, workers = _devices(rig) if with_devices else ([], [])
    for attached in simulated:  # these have every command at once
        row[attached.confirmed - layout.confirmed + layout.confirmed_age] = 0.0
    devices = parameters_of(run_bridged)["devices"]
    assert isinstance(devices, Record)
    programs = [zlib.crc32(path.read_bytes()) for name, path in runner_files().items() if name.endswith(".so")]
    resting, safe = commands_at_rest(plan)
    parts = [
        image.add(np.array(programs, dtype=np.int64)),
        image.add(plan.block),
        image.add(rig.packed.index),
        image.add(rig.packed.value),
        image.add(row),
        image.add(input_columns(plan)),
        image.add(np.array(resting, dtype=np.int64)),
        image.add(safe),
        image.add_frames(devices.one(), simulated),
        image.add(np.array(dimensions_of(devices.one()), dtype=np.int64)),
        image.add(np.array([_worker(image, setup) for setup in workers], dtype=np.int64)),
    ]
    about = encode(run_header(rig, fingerprint(), "runner").model_dump())
    parts += [image.add_text(settings.name), image.add_text("\n".join(_words(rig)) + "\n"), image.add_text(about)]
    dt = float(plan.loop[0].dt)
    numbers = [
        work_needed(rig.packed.index, plan),
        round(1e9 * dt),
        round(ramp_time(plan) / dt),
        *(layout.confirmed, layout.confirmed_age, layout.raw, layout.age),
        *(COLUMN[name] for name in ("mode", "fault", "command", "result")),
        settings.loop.priority or 0,
        sum(1 << cpu for cpu in settings.loop.cpus or ()),
        settings.loop.lock_memory,
        round(1e6 * settings.recording.min_free_megabytes),
        round(1e6 * settings.recording.max_megabytes),
        *(HEADER, CODE),
    ]
    return _file(parts, numbers, image)


def _file(parts: list[Cells], numbers: list[int], image: Image) -> bytes:
    """The whole file, with its size and checksum."""
    cells = np.array([*(number for part in parts for number in part), *numbers], dtype=np.int64)
    content = cells.tobytes() + image.cells.tobytes()
    start = MAGIC + fingerprint().encode()
    size = len(start) + 2 * CELL + len(content)
    content = np.int64(size).tobytes() + content
    return start + np.int64(zlib.crc32(content)).tobytes() + content


def _devices(rig: Rig) -> tuple[list[Attached], list[DeviceSetup]]:
    """The simulated devices, and those with a worker. Raises ConfigurationError for others."""
    plants, simulated, workers = rig.plants(), [], []
    problems: list[Problem] = []
    for device, setup in zip(rig.devices, device_setups(rig, {}), strict=True):
        if device.name in plants:
            simulated.append(attached(rig, plants[device.name], setup))
        elif device.rate is not None:
            workers.append(setup)
        else:
            problems.append(_problem(rig, device))
    if problems:
        raise ConfigurationError(problems)
    return simulated, workers


def _problem(rig: Rig, device: Device) -> Problem:
    driver = rig.settings.devices[device.name]["driver"]
    text = (
        f'"{driver}" is a driver that the loop itself calls, in Python. The runner has simulated devices, and those '
        "with a process of their own (modbus, serial)."
    )
    return Problem(text, f"devices.{device.name}.driver", str(rig.file))


def attached(rig: Rig, plant: PlantArrays, setup: DeviceSetup) -> Attached:
    """A simulated device in the loop."""
    n_inputs, outputs = len(setup.inputs), np.array(setup.output_columns, dtype=np.int64)
    return Attached(
        plant=plant,
        slots=setup.first_slot + np.arange(n_inputs),
        outputs=outputs,
        confirmed=rig.plan.layout[0].confirmed + setup.first_output + np.arange(len(outputs)),
        raw=np.zeros(n_inputs),
        command=np.zeros(len(outputs)),
        trace=np.empty((0, len(plant.values))),
    )


def _worker(image: Image, setup: DeviceSetup) -> list[int]:
    """The record of a device with a worker."""
    name, outputs = image.add_text(setup.name), image.add(np.array(setup.output_columns, dtype=np.int64))
    places = [setup.first_slot, len(setup.inputs), setup.first_output, len(setup.outputs), setup.error_column]
    return [*places, *name, *outputs]


def _words(rig: Rig) -> Iterator[str]:
    """The names of numbers: lines with kind, number and name."""
    faults = {code.value: code.text for code in FaultCode}
    limits = range(FIRST_LIMIT_FAULT, FIRST_LIMIT_FAULT + len(rig.layout.limits))
    faults |= {number: fault_text(number, rig.layout.limits) for number in limits}
    tables: dict[str, dict[int, str]] = {
        "mode": {mode.value: mode.name for mode in Mode},
        "fault": faults,
        "result": {code.value: code.text for code in ResultCode},
        "command": {kind.value: name for name, kind in COMMANDS.items()},
        "input": dict(enumerate(rig.settings.inputs)),
        "valve": dict(enumerate(rig.settings.valves)),
        "strategy": dict(enumerate(STRATEGY_NAMES)),
    }
    for kind, names in tables.items():
        for number, name in names.items():
            yield f"{kind} {number} {name}"
