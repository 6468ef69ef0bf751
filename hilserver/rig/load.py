"""Loads a rig file with its circuit and work cycle and says all that is wrong, not only the first."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hilserver.circuit.library import Library, standard_library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.driver import Driver, driver_named
from hilserver.errors import ConfigurationError, Problem, did_you_mean, problems_of
from hilserver.rig.config import CycleSettings, RigSettings
from hilserver.rig.plan import Plan, RowLayout, build_plan


@dataclass(frozen=True)
class Device:
    """A configured device: its driver, the driver's settings, and which of its channels the rig uses."""

    name: str
    driver: type[Driver]
    config: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


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

    def pack(self, circuit: Circuit, file: str = "") -> PackedCircuit:
        """Pack another circuit for this rig. Raises ConfigurationError, also where it is too large for the row."""
        packed = pack(circuit, self.library, self.layout.bindings, self.layout.ports, file)
        self.layout.check_space(packed, file)
        return packed

    def read_circuit(self, source: Mapping[str, Any], file: str = "") -> Circuit:
        """Validate a circuit table for this rig."""
        return read_circuit(source, self.library, file)


def read_toml(path: Path, shown: str = "") -> dict[str, Any]:
    """Parse a TOML file. Raises ConfigurationError naming the file, and the line where it is malformed."""
    name = shown or str(path)
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise ConfigurationError([Problem("no such file.", file=name)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([Problem(f"can't be read: {error}.", file=name)]) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([Problem(f"is not valid TOML: {error}.", file=name)]) from None


def load_rig(path: Path | str, library: Library | None = None) -> Rig:
    """Load and check a rig. Raises ConfigurationError with every problem of the rig, circuit and cycle files."""
    file = Path(path)
    rig_source = read_toml(file)
    problems: list[Problem] = []
    sources: dict[str, Any] = {"rig": rig_source}
    for key in ("circuit", "cycle"):
        if isinstance(name := rig_source.get(key), str):
            try:
                sources[key] = read_toml(file.parent / name)
            except ConfigurationError as error:
                problems += error.problems
    return assemble(sources, file, library or standard_library(), problems)


def assemble(sources: Mapping[str, Any], file: Path, library: Library, problems: list[Problem] | None = None) -> Rig:
    """Build a rig from its source tables (as loaded from files, or as kept in a log)."""
    problems = problems if problems is not None else []
    name = str(file)
    rig_source = sources["rig"]
    settings = _validated(RigSettings, rig_source, name, problems)
    circuit_file = str(file.parent / str(rig_source.get("circuit", ""))) if rig_source.get("circuit") else name
    cycle_file = str(file.parent / str(rig_source.get("cycle", ""))) if rig_source.get("cycle") else name
    circuit = None
    if "circuit" in sources:
        try:
            circuit = read_circuit(sources["circuit"], library, circuit_file)
        except ConfigurationError as error:
            problems += error.problems
    cycle = _validated(CycleSettings, sources["cycle"], cycle_file, problems) if "cycle" in sources else None
    devices: list[Device] = []
    if settings is not None:
        devices = _devices(settings, file, problems)
        problems += _references(settings, name)
        if cycle is not None:
            problems += _cycle_problems(settings, cycle, cycle_file)
    packed = None
    if settings is not None and not _references(settings, name):
        layout, plan = build_plan(settings, cycle if not problems else None, _order(settings, devices))
        if circuit is not None:
            try:
                packed = pack(circuit, library, layout.bindings, layout.ports, circuit_file)
            except ConfigurationError as error:
                problems += error.problems
    if problems or settings is None or circuit is None or packed is None:
        raise ConfigurationError(problems)
    layout = layout.with_space_for(packed)
    _, plan = build_plan(settings, cycle, _order(settings, devices), layout.circuit_space)
    return Rig(file, settings, circuit, cycle, tuple(devices), library, layout, plan, packed, dict(sources))


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
        inputs = {c.source: f"channels.{n}.source" for n, c in settings.channels.items() if c.device == name and c.source}
        outputs = {v.output: f"valves.{n}.output" for n, v in settings.valves.items() if v.device == name}
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
        (c.device, c.source) for c in settings.channels.values() if c.device and c.source and (c.device, c.source) not in names
    ]
    return {name: slot for slot, name in enumerate(dict.fromkeys(names))}


def _references(settings: RigSettings, file: str) -> list[Problem]:
    """Names that refer to channels, ports and devices which don't exist, or are of the wrong unit."""
    problems: list[Problem] = []

    def channel(name: str | None, key: str, unit: str | None) -> None:
        if name is None:
            return
        if name not in settings.channels:
            problems.append(Problem(f'"{name}" is not a channel.' + did_you_mean(name, settings.channels), key, file))
        elif unit is not None and settings.channels[name].unit != unit:
            has = settings.channels[name].unit or "no unit"
            problems.append(Problem(f'channel "{name}" is measured in {has}, here {unit} is needed.', key, file))

    for port, name in settings.ports.items():
        channel(name, f"ports.{port}", "Pa")
    for name, limit in settings.limits.items():
        channel(limit.channel, f"limits.{name}.channel", None)
        if limit.channel in settings.channels:
            unit = settings.channels[limit.channel].unit
            for key in ("min", "max"):
                bound = getattr(limit, key)
                if bound is not None and bound.unit != unit:
                    problems.append(Problem(f'has another unit than channel "{limit.channel}" ({unit or "none"}).', f"limits.{name}.{key}", file))
    for name, measured in settings.channels.items():
        if measured.device is not None and measured.device not in settings.devices:
            text = f'"{measured.device}" is not a device.' + did_you_mean(measured.device, settings.devices)
            problems.append(Problem(text, f"channels.{name}.device", file))
    for name, valve in settings.valves.items():
        key = f"valves.{name}"
        if valve.port not in settings.ports:
            problems.append(Problem(f'"{valve.port}" is not a port.' + did_you_mean(valve.port, settings.ports), f"{key}.port", file))
        if valve.device not in settings.devices:
            problems.append(Problem(f'"{valve.device}" is not a device.' + did_you_mean(valve.device, settings.devices), f"{key}.device", file))
        channel(valve.supply, f"{key}.supply", "Pa")
        channel(valve.tank, f"{key}.tank", "Pa")
        channel(valve.flow, f"{key}.flow", "m^3/s")
    return problems


def _cycle_problems(settings: RigSettings, cycle: CycleSettings, file: str) -> list[Problem]:
    problems = []
    for name, entry in cycle.inputs.items():
        if name not in settings.inputs:
            problems.append(Problem(f'"{name}" is not an input of the rig.' + did_you_mean(name, settings.inputs), f"inputs.{name}", file))
            continue
        low, high = settings.inputs[name].range
        for number, (_, value) in enumerate(entry.points):
            if not low <= value <= high:
                key = f"inputs.{name}.points[{number}]"
                problems.append(Problem(f"{value:g} is outside of the input's range {low:g} … {high:g}.", key, file))
    return problems
