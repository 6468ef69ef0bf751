"""Loads a rig file with its circuit and work cycle, and reports all that is wrong, not only the first problem."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hilserver.circuit.library import Library, library_of, standard_library
from hilserver.circuit.model import Circuit, read_circuit, read_part
from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.compiler import check
from hilserver.driver import Driver, PlantDriver, driver_named
from hilserver.errors import ConfigurationError, Problem, collected, did_you_mean, problems_of
from hilserver.rig.calibration import histories, with_calibrations
from hilserver.rig.checks import (
    cycle_disagreements,
    disagreements,
    starts_out_of_range,
    undriven_signals,
    unmatched_signals,
    unresolved_in_rig,
)
from hilserver.rig.cycle import CycleSettings
from hilserver.rig.file_kinds import kind_of
from hilserver.rig.mobilities import with_mobilities
from hilserver.rig.outputs import driven_outputs
from hilserver.rig.plan import RowLayout, build_plan, row_layout
from hilserver.rig.references import subtables, unresolved
from hilserver.rig.rig import Device, Rig, slow_devices_of
from hilserver.rig.settings import RigSettings
from hilserver.rig.simulated import PlantCircuit, build_plant, read_plant
from hilserver.rig.trust import remember
from hilserver.tick.plant import PlantArrays
from hilserver.toml import is_there, parse_with_tolerances, read_toml

CLOSING = 5e-3
"""s that a valve is assumed to take to close after its watchdog has acted: some time constants at 80 Hz."""
PLANT_FILES = ("machine", "drive")
"""Settings of a simulated device that name circuit files."""
OTHER_FILES = ("circuit", "sub-circuit", "work cycle", "sequence", "mechanism", "study", "layout")
"""Kinds of files that are easily given instead of a rig file; their keys would all be called unknown."""


def load_rig(path: Path | str, library: Library | None = None, *, texts: Mapping[Path, str] | None = None) -> Rig:
    """Load and check a rig. Raises ConfigurationError with every problem of the rig file and all files it names.

    ``library``: instead of the standard one and the files that the rig names. ``texts``: of files that are not as on
    the disk, by their paths without `..`.
    """
    file, given = Path(path), texts or {}
    rig_source = _read(file, str(file), given)
    if (kind := kind_of(rig_source)) in OTHER_FILES:
        raise ConfigurationError([Problem(f"is a {kind}, not a rig file", "", str(file))])
    problems: list[Problem] = []
    sources: dict[str, Any] = {"rig": rig_source}

    def read_into(tables: dict[str, Any], key: str, name: str) -> None:
        with collected(problems):
            tables[key] = _read(file.parent / name, beside(file, name), given)

    for key in ("circuit", "cycle"):
        if isinstance(name := rig_source.get(key), str) and name:
            read_into(sources, key, name)
    if isinstance(name := rig_source.get("calibration"), str) and is_there(file.parent / name):
        read_into(sources, "calibration", name)  # before the first calibration there is none
    sources["devices"] = {}
    for name, table in _plant_tables(rig_source):
        sources["devices"][name] = {}
        for key in PLANT_FILES:
            if isinstance(table.get(key), str):
                read_into(sources["devices"][name], key, table[key])
    if library is None:
        library = _own_library(sources, file, problems)
    return assemble(sources, file, library, problems)


def _read(file: Path, name: str, texts: Mapping[Path, str]) -> dict[str, Any]:
    text = texts.get(Path(os.path.normpath(file)))
    return read_toml(file, name) if text is None else parse_with_tolerances(text.encode(), name)


def _own_library(sources: dict[str, Any], file: Path, problems: list[Problem]) -> Library:
    """The standard library and the files that rig and circuits name, whose text goes into the sources.

    Raises ConfigurationError: without their components the circuit can't be checked.
    """
    own: dict[str, OwnFile] = {}
    wrong: list[Problem] = []
    for named_in, names in _libraries(sources, file):
        own |= {entry.name: entry for entry in OwnFile.named(names, named_in.parent, str(named_in), wrong)}
    library = standard_library()
    with collected(wrong):
        library = library_of(own.values())
        check(library)
    if wrong:
        _validated(RigSettings, sources["rig"], str(file), wrong)
        raise ConfigurationError([*problems, *wrong, *unresolved_in_rig(sources["rig"], str(file))])
    if own:
        sources["library"] = [asdict(entry) for entry in own.values()]
        remember(own.values())
    return library


def _libraries(sources: Mapping[str, Any], file: Path) -> Iterator[tuple[Path, object]]:
    """The files of a rig that may name Python files, each with what it names."""
    rig_source = sources["rig"]
    names = rig_source.get("library", [])
    if isinstance(names, list) and all(isinstance(name, str) and name for name in names):  # else its settings say so
        yield file, names
    if "circuit" in sources:
        yield Path(beside(file, rig_source["circuit"])), sources["circuit"].get("library", [])
    for device, tables in sources["devices"].items():
        for key, table in tables.items():
            yield Path(beside(file, rig_source["devices"][device][key])), table.get("library", [])


def library_in(sources: Mapping[str, Any]) -> Library:
    """The library of a rig's sources, as passed between the processes of a run (of a log: `library_of_log`)."""
    return library_of(OwnFile(**entry) for entry in sources.get("library", ()))


def _plant_tables(rig_source: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of the simulated devices in a rig file that is not validated yet."""
    devices = rig_source.get("devices")
    for name, table in devices.items() if isinstance(devices, Mapping) else ():
        if isinstance(table, Mapping) and isinstance(driver := table.get("driver"), str):
            with suppress(ConfigurationError):  # reported when the device is validated
                if issubclass(driver_named(driver), PlantDriver):
                    yield name, table


def assemble(
    sources: Mapping[str, Any],
    file: Path,
    library: Library,
    problems: list[Problem] | None = None,
    accounts: bool = False,
) -> Rig:
    """Build a rig from its source tables (as loaded from files, or as kept in a log).

    ``sources``: "rig", "circuit", "cycle" and "calibration" (both optional), and for simulated devices "devices":
    {device: {"machine": …, "drive": …}}. ``problems``: what was found wrong when they were loaded. ``accounts``: pack
    its circuits and plants with their accounts. Raises ConfigurationError with these and all others.
    """
    problems = list(problems or ())
    devices_sources = {device: dict(tables) for device, tables in sources.get("devices", {}).items()}
    sources = {**sources, "devices": devices_sources}
    name, rig_source = str(file), sources["rig"]
    settings: RigSettings | None = _validated(RigSettings, rig_source, name, problems)
    circuit_file, cycle_file = beside(file, rig_source.get("circuit")), beside(file, rig_source.get("cycle"))
    circuit = _circuit(sources, library, circuit_file, problems)
    cycle: CycleSettings | None = None
    if "cycle" in sources:
        cycle = _validated(CycleSettings, sources["cycle"], cycle_file, problems)
    if settings is None or circuit is None:  # further checks nonetheless, so that everything is reported at once
        inputs = rig_source.get("inputs")
        names = inputs if isinstance(inputs, Mapping) else ()
        problems += undriven_signals(sources.get("circuit"), names, library, circuit_file)
    wrong = [*unresolved_in_rig(rig_source, name)]
    problems += unresolved(CycleSettings, sources.get("cycle"), rig_source, cycle_file, {})
    read = _read_plants(sources, file, library, problems)
    calibration_file, calibrated = beside(file, rig_source.get("calibration")), sources.get("calibration", {})
    if settings is None:
        _check_alone(rig_source, file, circuit, circuit_file, library, problems)
        histories(calibrated, calibration_file, problems)
        raise ConfigurationError([*problems, *wrong])
    settings, calibrations = with_calibrations(settings, calibrated, calibration_file, problems)
    devices = _devices(settings, file, problems)
    wrong += disagreements(settings, name)
    problems += wrong
    if cycle is not None:
        problems += cycle_disagreements(settings, cycle, cycle_file)
    plants = dict(_plants(settings, devices, read, file, library, problems, accounts))
    circuits = {name: circuit for name, (circuit, _) in plants.items()}
    arrays = {name: each for name, (_, each) in plants.items()}
    slots, slow = raw_slots(settings, devices), slow_devices_of(settings, devices)
    outputs = tuple(driven_outputs(settings, {d.name: d.rate for d in devices if d.is_hardware}))
    layout = row_layout(settings, slots, slow, outputs) if not wrong else None
    problems += unmatched_signals(settings, layout.names, name) if layout is not None else ()
    packed = _packed(circuit, library, layout, circuit_file, accounts, problems) if circuit is not None else None
    problems += starts_out_of_range(settings, packed, name) if packed is not None else ()
    if problems or layout is None or circuit is None or packed is None:
        raise ConfigurationError(problems)
    sources["circuit"] = circuit.written
    layout = layout.with_space_for(packed)
    plan = build_plan(settings, cycle, slots, layout, slow, circuit.fluid, _longest_gap(settings, devices), name)
    packed = with_mobilities(packed, circuit, settings, library)
    parts = (tuple(devices), library, layout, plan, packed, sources, arrays, circuits, calibrations)
    return Rig(file, settings, circuit, cycle, *parts, accounts=accounts)


def _packed(
    circuit: Circuit, library: Library, layout: RowLayout | None, file: str, accounts: bool, problems: list[Problem]
) -> PackedCircuit | None:
    """The circuit packed for the rig; without a layout, which has problems, as if nothing was connected to it."""
    with collected(problems):
        if layout is None:
            return pack(circuit, library, file=file, accounts=accounts)
        return pack(circuit, library, layout.bindings, layout.ports, file, accounts, actuators=layout.actuators)
    return None


def _longest_gap(settings: RigSettings, devices: Iterable[Device]) -> float:
    """Time without a tick after which the first valve has been closed by its device, s; infinite without a watchdog."""
    known = {device.name: device for device in devices}
    driven = [(v.device, v.output) for v in settings.valves.values()]
    driven += [(a.device, a.output) for a in settings.actuators.values()]
    times = (known[name].driver.safe_after(known[name].config, output) for name, output in driven if name in known)
    return min(times, default=inf) + CLOSING


def beside(file: Path, name: object) -> str:
    """A file that is named in another one, as shown to the user."""
    return _beside(file, name) if isinstance(name, str) and name else str(file)


@functools.lru_cache(maxsize=256)
def _beside(file: Path, name: str) -> str:
    return os.path.normpath(file.parent / name)


def _circuit(sources: Mapping[str, Any], library: Library, file: str, problems: list[Problem]) -> Circuit | None:
    with collected(problems):
        return read_circuit(sources["circuit"], library, file) if "circuit" in sources else None
    return None


def _check_alone(
    rig_source: Mapping[str, Any],
    file: Path,
    circuit: Circuit | None,
    circuit_file: str,
    library: Library,
    problems: list[Problem],
) -> None:
    """Check devices and circuit on their own, where the settings of the rig file are not valid."""
    for name, table in subtables(rig_source, "devices").items():
        driver_settings(name, table, file, problems)
    if circuit is not None:
        with collected(problems):
            pack(circuit, library, file=circuit_file)


def _read_plants(
    sources: Mapping[str, Any], file: Path, library: Library, problems: list[Problem]
) -> dict[str, dict[str, Any]]:
    """The validated tables of the simulated devices, of those whose files are all there and valid."""
    found, named = {}, subtables(sources["rig"], "devices")
    for device, tables in sources["devices"].items():
        wrong: list[Problem] = []
        for key, table in tables.items():
            with collected(wrong):
                tables[key] = read_part(table, library, beside(file, named.get(device, {}).get(key))).source
        problems += wrong
        if not wrong and all(key in tables for key in PLANT_FILES):
            found[device] = tables
    return found


def _plants(
    settings: RigSettings,
    devices: Iterable[Device],
    read: Mapping[str, Mapping[str, Any]],
    file: Path,
    library: Library,
    problems: list[Problem],
    accounts: bool,
) -> Iterator[tuple[str, tuple[PlantCircuit, PlantArrays]]]:
    """The plants of the simulated devices whose tables are valid (``read``)."""
    for device in devices:
        if not device.is_simulated or device.name not in read or any(device.unknown_channels()):
            continue
        tables, files = read[device.name], {key: beside(file, getattr(device.config, key)) for key in PLANT_FILES}
        try:
            machine, drive = (tables[key] for key in PLANT_FILES)
            circuit = read_plant(machine, drive, library, accounts=accounts, drift=device.drift)
            yield device.name, (circuit, plant_of(device, circuit, 1.0 / settings.loop.rate))
        except ConfigurationError as error:
            problems += (_located(problem, device.name, tables, files, file) for problem in error.problems)


def plant_of(device: Device, circuit: PlantCircuit, dt: float) -> PlantArrays:
    """A simulated device with this circuit, as it begins; ``dt``: tick, s. Raises ConfigurationError."""
    return build_plant(device.config, circuit.packed, (device.inputs, device.outputs), dt)


def _located(problem: Problem, device: str, tables: Mapping[str, Any], files: Mapping[str, str], file: Path) -> Problem:
    """A problem of the joined circuit with the file where its cause stands."""
    table, _, rest = problem.key.partition(".")
    if table in ("sensors", "actuators", "drift"):
        return replace(problem, key=f"devices.{device}.{problem.key}", file=str(file))
    word = rest.split(".")[0]
    holders = [files[key] for key in PLANT_FILES if word and word in tables[key].get(table, {})]
    return replace(problem, file=" + ".join(holders or files.values()))


def _validated(kind: type[Any], source: object, file: str, problems: list[Problem]) -> Any:
    try:
        return kind.model_validate(source)
    except ValidationError as error:
        problems.extend(problems_of(error, source, file=file, names=kind.model_fields))
        return None


def driver_settings(
    name: str, table: Mapping[str, Any], file: Path, problems: list[Problem]
) -> tuple[type[Driver], Any] | None:
    """A device's driver and its validated settings; None if it has problems."""
    key, values = f"devices.{name}", {k: v for k, v in table.items() if k != "driver"}
    if not isinstance(table.get("driver"), str):
        problems.append(Problem("missing: name the driver.", f"{key}.driver", str(file)))
        return None
    with collected(problems):
        driver = driver_named(table["driver"], f"{key}.driver", str(file))
        try:
            return driver, driver.Config.model_validate(values, context={"folder": file.parent})
        except ValidationError as error:
            problems += problems_of(error, values, file=str(file), prefix=key, names=driver.Config.model_fields)
    return None


def _devices(settings: RigSettings, file: Path, problems: list[Problem]) -> list[Device]:
    """Each device with its driver's own settings validated and its channels known."""
    found = []
    for name, table in settings.devices.items():
        if (validated := driver_settings(name, table, file, problems)) is None:
            continue
        driver, config = validated
        inputs = {
            c.source: f"channels.{n}.source" for n, c in settings.channels.items() if c.device == name and c.source
        }
        outputs = {v.output: f"valves.{n}.output" for n, v in settings.valves.items() if v.device == name}
        outputs |= {a.output: f"actuators.{n}.output" for n, a in settings.actuators.items() if a.device == name}
        outputs |= {o.output: f"outputs.{n}.output" for n, o in settings.outputs.items() if o.device == name}
        for used, offered in zip((inputs, outputs), driver.channels(config), strict=True):
            known = {info.name for info in offered}
            problems += [
                Problem(f'device {name} has no channel "{channel}".' + did_you_mean(channel, known), where, str(file))
                for channel, where in used.items()
                if channel not in known
            ]
        found.append(Device(name, driver, config, tuple(inputs), tuple(outputs)))
    return found


def raw_slots(settings: RigSettings, devices: list[Device]) -> dict[tuple[str, str], int]:
    """(device, source) -> raw slot: the devices in turn, each with its channels in order."""
    names = [(d.name, source) for d in devices for source in d.inputs]
    names += [
        (c.device, c.source)
        for c in settings.channels.values()
        if c.device and c.source and (c.device, c.source) not in names
    ]
    return {name: slot for slot, name in enumerate(dict.fromkeys(names))}
