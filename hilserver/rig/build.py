"""Loads a rig file with its circuit and work cycle and says all that is wrong, not only the first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hilserver.circuit.library import Library, library_of, standard_library
from hilserver.circuit.model import Circuit, read_circuit, read_part
from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import check_kernels
from hilserver.driver import Driver, Pace, driver_named
from hilserver.errors import ConfigurationError, Problem, did_you_mean, problems_of, shown
from hilserver.rig.calibration import Calibration, with_calibrations
from hilserver.rig.ladder import cannot
from hilserver.rig.plan import RowLayout, build_plan, row_layout
from hilserver.rig.settings import (
    CycleInput,
    CycleSettings,
    CylinderSettings,
    LimitSettings,
    OutputSettings,
    RigSettings,
    ValveSettings,
)
from hilserver.rig.simulated import build_plant
from hilserver.tick.plan import Plan
from hilserver.tick.plant import PlantArrays
from hilserver.toml import read_toml

PLANT_FILES = ("machine", "drive")
"""Settings of a simulated device that name circuit files."""


@dataclass(frozen=True)
class Device:
    """A configured device: its driver, the driver's settings, and which of its channels the rig uses."""

    name: str
    driver: type[Driver]
    config: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def unknown_channels(self) -> tuple[set[str], set[str]]:
        """Inputs and outputs that the rig uses and the device has not."""
        inputs, outputs = self.driver.channels(self.config)
        return set(self.inputs) - {c.name for c in inputs}, set(self.outputs) - {c.name for c in outputs}


@dataclass(frozen=True)
class Rig:
    """Everything a run needs, validated: settings, devices, circuit, plan and row layout; and the sources as given."""

    file: Path
    settings: RigSettings
    circuit: Circuit
    cycle: CycleSettings | None
    devices: tuple[Device, ...]
    library: Library
    layout: RowLayout
    plan: Plan
    packed: PackedCircuit
    sources: Mapping[str, Any]
    first_plants: Mapping[str, PlantArrays] = field(repr=False)
    """The simulated devices as they begin; :meth:`plants` copies them."""
    calibrations: Mapping[str, tuple[Calibration, ...]] = field(default_factory=dict)
    """The history of each calibrated channel; ``settings`` holds what came of it."""

    def pack(self, circuit: Circuit, file: str = "") -> PackedCircuit:
        """Pack another circuit for this rig. Raises ConfigurationError, also where it is too large for the row."""
        packed = pack(circuit, self.library, self.layout.bindings, self.layout.ports, file)
        self.layout.check_space(packed, file)
        return packed

    def plants(self) -> dict[str, PlantArrays]:
        """Fresh plants of the simulated devices, by device name: arrays of their own, at their initial values."""
        return {name: PlantArrays._make(array.copy() for array in plant) for name, plant in self.first_plants.items()}

    def read_circuit(self, source: Mapping[str, Any], file: str = "") -> Circuit:
        """Validate a circuit table for this rig; files that it names lie in the folder of the rig's circuit."""
        folder = (self.file.parent / self.settings.circuit).parent
        return read_circuit(source, self.library, file, folder)


def load_rig(path: Path | str, library: Library | None = None) -> Rig:
    """Load and check a rig. Raises ConfigurationError with every problem of the rig file and all files it names.

    ``library``: instead of the standard one and the files that the rig names.
    """
    file = Path(path)
    rig_source = read_toml(file)
    problems: list[Problem] = []
    sources: dict[str, Any] = {"rig": rig_source}
    if library is None:
        library = _own_library(sources, file)
    for key in ("circuit", "cycle"):
        if isinstance(name := rig_source.get(key), str) and name:
            _read_into(sources, key, file, name, problems)
    if isinstance(name := rig_source.get("calibration"), str) and (file.parent / name).exists():
        _read_into(sources, "calibration", file, name, problems)  # before the first calibration there is none
    sources["devices"] = {}
    for name, table in _plant_tables(rig_source):
        sources["devices"][name] = {}
        for key in PLANT_FILES:
            if isinstance(table.get(key), str):
                _read_into(sources["devices"][name], key, file, table[key], problems)
    return assemble(sources, file, library, problems)


def _own_library(sources: dict[str, Any], file: Path) -> Library:
    """The standard library and the files that the rig names, whose text goes into the sources.

    Raises ConfigurationError: without their components the circuit can't be judged.
    """
    names = sources["rig"].get("library", ())
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        return standard_library()  # the settings' check says what is wrong
    problems: list[Problem] = []
    own = []
    for name in dict.fromkeys(names):
        try:
            own.append(OwnFile.read(file.parent / name, _beside(file, name)))
        except ConfigurationError as error:
            problems += error.problems
    try:
        library = library_of(own)
        check_kernels(library)
    except ConfigurationError as error:
        problems += error.problems
    if problems:
        _validated(RigSettings, sources["rig"], str(file), problems)
        raise ConfigurationError(problems)
    if own:
        sources["library"] = [asdict(entry) for entry in own]
    return library


def library_in(sources: Mapping[str, Any]) -> Library:
    """The library of a rig's sources, as kept in a log."""
    return library_of(OwnFile(**entry) for entry in sources.get("library", ()))


def _read_into(tables: dict[str, Any], key: str, file: Path, name: str, problems: list[Problem]) -> None:
    try:
        tables[key] = read_toml(file.parent / name, _beside(file, name))
    except ConfigurationError as error:
        problems += error.problems


def _plant_tables(rig_source: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of the simulated devices in a rig file that is not validated yet."""
    devices = rig_source.get("devices")
    for name, table in devices.items() if isinstance(devices, Mapping) else ():
        if isinstance(table, Mapping) and isinstance(driver := table.get("driver"), str):
            with suppress(ConfigurationError):  # reported when the device is validated
                if driver_named(driver).handed == "plant":
                    yield name, table


def assemble(sources: Mapping[str, Any], file: Path, library: Library, problems: list[Problem] | None = None) -> Rig:
    """Build a rig from its source tables (as loaded from files, or as kept in a log).

    ``sources``: "rig", "circuit", "cycle" and "calibration" (both optional), and for simulated devices "devices":
    {device: {"machine": …, "drive": …}}. ``problems``: what was found wrong when they were loaded. Raises
    ConfigurationError with these and all others.
    """
    problems = list(problems or ())
    devices_sources = {device: dict(tables) for device, tables in sources.get("devices", {}).items()}
    sources = {**sources, "devices": devices_sources}
    name, rig_source = str(file), sources["rig"]
    settings: RigSettings | None = _validated(RigSettings, rig_source, name, problems)
    circuit_file, cycle_file = _beside(file, rig_source.get("circuit")), _beside(file, rig_source.get("cycle"))
    circuit = _circuit(sources, library, circuit_file, problems)
    cycle: CycleSettings | None = None
    if "cycle" in sources:
        cycle = _validated(CycleSettings, sources["cycle"], cycle_file, problems)
    if settings is None or circuit is None:  # what can be judged all the same, so that all is said at once
        problems += _unled_signals(sources, library, circuit_file)
    if settings is None:
        raise ConfigurationError([*problems, *_unknown_names(rig_source, name)])
    calibration_file = _beside(file, settings.calibration)
    settings, calibrations = with_calibrations(settings, sources.get("calibration", {}), calibration_file, problems)
    devices = _devices(settings, file, problems)
    problems += (wrong := _references(settings, name))
    if cycle is not None:
        problems += _cycle_problems(settings, cycle, cycle_file)
    plants = dict(_plants(settings, devices, sources, file, library, problems))
    slots = _order(settings, devices)
    layout = row_layout(settings, slots) if not wrong else None
    packed = None
    if circuit is not None:
        try:
            bindings, ports = (layout.bindings, layout.ports) if layout is not None else (None, ())
            packed = pack(circuit, library, bindings, ports, circuit_file)
        except ConfigurationError as error:
            problems += error.problems
    if problems or layout is None or circuit is None or packed is None:
        raise ConfigurationError(problems)
    sources["circuit"] = circuit.source
    rates = {device.name: device.config.rate for device in devices if device.driver.pace is Pace.SLOW}
    layout = layout.with_space_for(packed)
    plan = build_plan(settings, cycle, slots, layout, rates, circuit.fluid)
    return Rig(
        file, settings, circuit, cycle, tuple(devices), library, layout, plan, packed, sources, plants, calibrations
    )


def _beside(file: Path, name: object) -> str:
    """A file that is named in another one, as shown to the user."""
    return os.path.normpath(file.parent / name) if isinstance(name, str) and name else str(file)


def _circuit(sources: Mapping[str, Any], library: Library, file: str, problems: list[Problem]) -> Circuit | None:
    try:
        return read_circuit(sources["circuit"], library, file) if "circuit" in sources else None
    except ConfigurationError as error:
        problems += error.problems
        return None


def _plants(
    settings: RigSettings,
    devices: Iterable[Device],
    sources: Mapping[str, Any],
    file: Path,
    library: Library,
    problems: list[Problem],
) -> Iterator[tuple[str, PlantArrays]]:
    """The plants of the simulated devices whose files could be read."""
    for device in devices:
        tables = sources.get("devices", {}).get(device.name, {})
        if (
            device.driver.handed != "plant"
            or any(device.unknown_channels())
            or any(key not in tables for key in PLANT_FILES)
        ):
            continue
        files = {key: _beside(file, getattr(device.config, key)) for key in PLANT_FILES}
        wrong: list[Problem] = []
        for key, shown_file in files.items():
            try:
                tables[key] = read_part(tables[key], library, shown_file).source
            except ConfigurationError as error:
                wrong += error.problems
        if not wrong:
            try:
                yield device.name, _plant(device, tables, library, 1.0 / settings.loop.rate)
            except ConfigurationError as error:
                wrong += (_located(problem, device.name, tables, files, file) for problem in error.problems)
        problems += wrong


def _plant(device: Device, tables: Mapping[str, Any], library: Library, dt: float) -> PlantArrays:
    names = (device.inputs, device.outputs)
    return build_plant(device.config, tables["machine"], tables["drive"], library, names, dt)


def _located(problem: Problem, device: str, tables: Mapping[str, Any], files: Mapping[str, str], file: Path) -> Problem:
    """A problem of the joined circuit with the file where its cause stands."""
    table, _, rest = problem.key.partition(".")
    if table in ("sensors", "actuators"):
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


def _devices(settings: RigSettings, file: Path, problems: list[Problem]) -> list[Device]:
    """Each device with its driver's own settings validated and its channels known."""
    found = []
    for name, table in settings.devices.items():
        key = f"devices.{name}"
        values = {k: v for k, v in table.items() if k != "driver"}
        if not isinstance(table.get("driver"), str):
            problems.append(Problem("missing: which driver is it?", f"{key}.driver", str(file)))
            continue
        try:
            driver = driver_named(table["driver"], f"{key}.driver", str(file))
            config = driver.Config.model_validate(values, context={"folder": file.parent})
        except ConfigurationError as error:
            problems += error.problems
            continue
        except ValidationError as error:
            names = driver.Config.model_fields
            problems += problems_of(error, values, file=str(file), prefix=key, names=names)
            continue
        inputs = {
            c.source: f"channels.{n}.source" for n, c in settings.channels.items() if c.device == name and c.source
        }
        outputs = {v.output: f"valves.{n}.output" for n, v in settings.valves.items() if v.device == name}
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


def _order(settings: RigSettings, devices: list[Device]) -> dict[tuple[str, str], int]:
    """(device, source) -> raw slot: the devices in turn, each with its channels in order."""
    names = [(d.name, source) for d in devices for source in d.inputs]
    names += [
        (c.device, c.source)
        for c in settings.channels.values()
        if c.device and c.source and (c.device, c.source) not in names
    ]
    return {name: slot for slot, name in enumerate(dict.fromkeys(names))}


def _references(settings: RigSettings, file: str) -> list[Problem]:
    """Names that refer to channels, ports and devices which don't exist, or are of the wrong unit, or are taken."""
    found = [_channel(settings, name, "Pa", f"ports.{port}") for port, name in settings.ports.items()]
    for name, measured in settings.channels.items():
        if measured.device is not None:
            found.append(_known(measured.device, settings.devices, "a device", f"channels.{name}.device"))
    for name, limit in settings.limits.items():
        found += _limit_problems(settings, name, limit)
    for name, valve in settings.valves.items():
        found += _valve_problems(settings, name, valve)
    for name, cylinder in settings.cylinders.items():
        found += _cylinder_problems(settings, name, cylinder)
    for name, output in settings.outputs.items():
        found += _output_problems(settings, name, output)
    if settings.enable is not None:
        found += _enable_problems(settings, settings.enable.channel)
    return [replace(problem, file=file) for problem in found if problem is not None]


def _unknown_names(source: Mapping[str, Any], file: str) -> Iterator[Problem]:
    """References to what the rig file does not have, in a file whose values are not all valid."""
    tables = {
        key: _subtables(source, key) for key in ("channels", "devices", "limits", "valves", "outputs", "cylinders")
    }
    given = source.get("ports")
    ports: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    references: list[tuple[Any, Mapping[str, Any], str, str]] = [
        (name, tables["channels"], "a channel", f"ports.{port}") for port, name in ports.items()
    ]
    for table, key, known, what in (
        ("limits", "channel", tables["channels"], "a channel"),
        ("channels", "device", tables["devices"], "a device"),
        ("valves", "device", tables["devices"], "a device"),
        ("outputs", "device", tables["devices"], "a device"),
        ("valves", "port", ports, "a port"),
        ("valves", "supply", tables["channels"], "a channel"),
        ("valves", "tank", tables["channels"], "a channel"),
        ("valves", "flow", tables["channels"], "a channel"),
        ("valves", "spool", tables["channels"], "a channel"),
        ("valves", "other_port", ports, "a port"),
        ("cylinders", "port_A", ports, "a port"),
        ("cylinders", "port_B", ports, "a port"),
        ("cylinders", "position", tables["channels"], "a channel"),
    ):
        references += [(v[key], known, what, f"{table}.{name}.{key}") for name, v in tables[table].items() if key in v]
    for name, known, what, key in references:
        if isinstance(name, str) and (problem := _known(name, known, what, key)):
            yield replace(problem, file=file)


def _unled_signals(sources: Mapping[str, Any], library: Library, file: str) -> Iterator[Problem]:
    """Signals that no component writes and that are no input of the rig, in tables that are not all valid."""
    inputs = _subtables(sources["rig"], "inputs")
    placed = {
        name: (table, library.types[table["type"]])
        for name, table in _subtables(sources.get("circuit", {}), "components").items()
        if isinstance(table.get("type"), str) and table["type"] in library.types
    }
    written = {
        table[port] for table, kind in placed.values() for port in kind.outputs if isinstance(table.get(port), str)
    }
    for name, (table, kind) in placed.items():
        for port in kind.inputs:
            signal = table.get(port)
            if isinstance(signal, str) and signal not in written and signal not in inputs:
                text = f"signal {shown(signal)} is written by no component and is not an input of the rig."
                yield Problem(text + did_you_mean(signal, inputs), f"components.{name}.{port}", file)


def _subtables(source: object, key: str) -> dict[str, Mapping[str, Any]]:
    """The tables within table ``key`` of a source that is not validated."""
    table = source.get(key) if isinstance(source, Mapping) else None
    return {n: t for n, t in table.items() if isinstance(t, Mapping)} if isinstance(table, Mapping) else {}


def _known(name: str, names: Iterable[str], what: str, key: str) -> Problem | None:
    return None if name in names else Problem(f"{shown(name)} is not {what}." + did_you_mean(name, names), key)


def _channel(settings: RigSettings, name: str, unit: str, key: str) -> Problem | None:
    """What is wrong with a reference to a channel that must be of this unit."""
    if name in settings.channels and (has := settings.channels[name].unit) != unit:
        return Problem(f'channel "{name}" is measured in {has or "no unit"}, here {unit or "no unit"} is needed.', key)
    return _known(name, settings.channels, "a channel", key)


def _limit_problems(settings: RigSettings, name: str, limit: LimitSettings) -> Iterator[Problem | None]:
    yield _known(limit.channel, settings.channels, "a channel", f"limits.{name}.channel")
    if name in settings.channels and name != limit.channel:
        yield Problem(f'has the name of a channel but watches "{limit.channel}": call it otherwise.', f"limits.{name}")
    if limit.channel in settings.channels:
        unit = settings.channels[limit.channel].unit
        for key in ("min", "max", "max_rate", "slow_down"):
            bound = getattr(limit, key)
            if bound is not None and bound.unit != unit:
                text = f'is of unit {bound.unit or "none"}, channel "{limit.channel}" of {unit or "none"}.'
                yield Problem(text, f"limits.{name}.{key}")
    for valve in limit.valves:
        yield _known(valve, settings.valves, "a valve", f"limits.{name}.valves.{valve}")
        if valve in settings.valves and not settings.valves[valve].range[0] <= 0.0 <= settings.valves[valve].range[1]:
            text = f"valve {valve} can't be stopped: its range does not contain 0."
            yield Problem(text, f"limits.{name}.valves.{valve}")


def _valve_problems(settings: RigSettings, name: str, valve: ValveSettings) -> Iterator[Problem | None]:
    key = f"valves.{name}"
    yield _known(valve.port, settings.ports, "a port", f"{key}.port")
    yield _known(valve.device, settings.devices, "a device", f"{key}.device")
    yield _channel(settings, valve.supply, "Pa", f"{key}.supply")
    yield _channel(settings, valve.tank, "Pa", f"{key}.tank")
    if valve.flow is not None:
        yield _channel(settings, valve.flow, "m^3/s", f"{key}.flow")
    if valve.spool is not None:
        yield _channel(settings, valve.spool, "", f"{key}.spool")
    if valve.other_port is not None:
        yield _known(valve.other_port, settings.ports, "a port", f"{key}.other_port")
    if reason := cannot(settings, valve, valve.bridge.strategy):
        yield Problem(f"{valve.bridge.strategy} {reason}.", f"{key}.bridge.strategy")
    if valve.dither.amplitude > 0 and valve.dither.frequency >= 0.5 * settings.loop.rate:
        text = (
            f"{valve.dither.frequency:g} Hz can't be made by {settings.loop.rate:g} ticks per second: stay below half."
        )
        yield Problem(text, f"{key}.dither.frequency")
    for other, before in settings.valves.items():
        if other == name:
            break
        if (before.device, before.output) == (valve.device, valve.output):
            yield Problem(f'valve "{other}" is driven by this output too.', f"{key}.output")
        if before.port == valve.port:
            yield Problem(f'valve "{other}" makes this port\'s flow too.', f"{key}.port")


def _output_problems(settings: RigSettings, name: str, output: OutputSettings) -> Iterator[Problem | None]:
    key = f"outputs.{name}"
    yield _known(output.device, settings.devices, "a device", f"{key}.device")
    driven = {(v.device, v.output): f'valve "{valve}"' for valve, v in settings.valves.items()}
    for other, before in settings.outputs.items():
        if other == name:
            break
        driven[before.device, before.output] = f'output "{other}"'
    if user := driven.get((output.device, output.output)):
        yield Problem(f"{user} is driven by this output too.", f"{key}.output")


def _enable_problems(settings: RigSettings, channel: str) -> Iterator[Problem | None]:
    yield _channel(settings, channel, "", "enable.channel")
    if channel in settings.channels and settings.channels[channel].device is None:
        yield Problem(f'channel "{channel}" has a fixed value: the local enable must be measured.', "enable.channel")


def _cylinder_problems(settings: RigSettings, name: str, cylinder: CylinderSettings) -> Iterator[Problem | None]:
    key = f"cylinders.{name}"
    yield _known(cylinder.port_A, settings.ports, "a port", f"{key}.port_A")
    if cylinder.port_B is not None:
        yield _known(cylinder.port_B, settings.ports, "a port", f"{key}.port_B")
        if cylinder.port_B == cylinder.port_A:
            yield Problem("is port_A too.", f"{key}.port_B")
    if cylinder.position is not None:
        yield _channel(settings, cylinder.position, "m", f"{key}.position")
    for other, before in settings.cylinders.items():
        if other == name:
            break
        for port in {cylinder.port_A, cylinder.port_B} & {before.port_A, before.port_B} - {None}:
            yield Problem(f'cylinder "{other}" has port "{port}" too.', key)


def _cycle_problems(settings: RigSettings, cycle: CycleSettings, file: str) -> list[Problem]:
    problems = []
    for name, entry in cycle.inputs.items():
        if name not in settings.inputs:
            problems.append(
                Problem(
                    f'"{name}" is not an input of the rig.' + did_you_mean(name, settings.inputs),
                    f"inputs.{name}",
                    file,
                )
            )
            continue
        low, high = settings.inputs[name].range
        for number, (_, value) in enumerate(entry.points or ()):
            if not low <= value <= high:
                key = f"inputs.{name}.points[{number}]"
                problems.append(Problem(f"{value:g} is outside of the input's range {low:g} … {high:g}.", key, file))
        problems += _sweep_problems(settings, name, entry, file)
    return problems


def _sweep_problems(settings: RigSettings, name: str, entry: CycleInput, file: str) -> Iterator[Problem]:
    if (sweep := entry.sweep) is None:
        return
    key, (low, high) = f"inputs.{name}.sweep", settings.inputs[name].range
    lowest, highest = sweep.mean - sweep.amplitude, sweep.mean + sweep.amplitude
    if lowest < low or highest > high:
        text = f"goes from {lowest:g} to {highest:g}: outside of the input's range {low:g} … {high:g}."
        yield Problem(text, key, file)
    if (fastest := max(sweep.frequencies)) > 0.1 * settings.loop.rate:
        text = f"{fastest:g} Hz is too fast for {settings.loop.rate:g} ticks per second: ten ticks per period at least."
        yield Problem(text, f"{key}.frequencies", file)
