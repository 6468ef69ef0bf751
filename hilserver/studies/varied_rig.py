"""A simulated rig with other values: those of its machine, drive, sensors and actuators, which the bridge is not told,
those that it is told, and those of its virtual circuit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hilserver.circuit.datasheet import DatasheetParameter, with_value
from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit, read_part
from hilserver.fidelity.changes import show
from hilserver.fidelity.comparison import simulated_device
from hilserver.rig.build import PLANT_FILES
from hilserver.rig.rig import Rig
from hilserver.rig.variants import assemble_variant, with_numbers
from hilserver.studies.component_types import has_value, with_components
from hilserver.studies.quantities import Changeable, WrittenValue, changeable, expanded, short, toleranced_values
from hilserver.studies.told_values import ToldValue, told_values, with_told
from hilserver.studies.unknown_values import UNKNOWN, UnknownValue, unknown_values, with_unknowns
from hilserver.tolerances import Tolerance
from hilserver.toml import read_toml

CIRCUIT, SENSORS, ACTUATORS = "circuit", "sensors", "actuators"
OF_SENSOR = {"noise": "", "delay": "s", "offset": "", "gain": ""}
"""Values of a sensor with their units. ``offset`` (a fraction of its range) and ``gain``: errors that its scale does
not know of."""
OF_ACTUATOR = {"delay": "s"}


@dataclass(frozen=True)
class PartValue:
    """A value of a sensor or an actuator of the simulated device, SI."""

    part: str
    name: str
    field: str
    value: float
    unit: str


RigQuantity = Changeable | PartValue | ToldValue | UnknownValue


class RigValues:
    """The values of a simulated rig that can be varied, and the rig with others.

    Keys: those of the circuit files with ``machine.``, ``drive.`` or ``circuit.`` before them (without
    ``components.``), ``sensors.p_A.delay``, ``actuators.valve_A.delay``, those of the rig file with ``told.`` before
    them, and ``unknowns.hose.share``. ``written``: the tables of machine and
    drive as they are written; by default they are read from their files.
    """

    def __init__(self, rig: Rig, written: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.rig, self.device = rig, simulated_device(rig).name
        files = {part: self.file_of(part) for part in PLANT_FILES}
        tables = written or {part: read_toml(file) for part, file in files.items()}
        self.circuits = {part: read_part(tables[part], rig.library, str(file)) for part, file in files.items()}
        self.circuits[CIRCUIT] = rig.circuit

    @property
    def written(self) -> dict[str, Mapping[str, Any]]:
        """The tables of machine and drive as they are written, with the contents of all files."""
        return {part: self.circuits[part].written for part in PLANT_FILES}

    def file_of(self, part: str) -> Path:
        """The circuit file of machine, drive or virtual circuit."""
        name = self.rig.settings.circuit if part == CIRCUIT else getattr(self._config, part)
        return self.rig.file.parent / str(name)

    @property
    def _config(self) -> Any:
        return next(device.config for device in self.rig.devices if device.name == self.device)

    @cached_property
    def known(self) -> dict[str, RigQuantity]:
        """All quantities by key."""
        found = dict[str, RigQuantity]()
        for part, circuit in self.circuits.items():
            found |= {f"{part}.{key}": each for key, each in changeable(circuit).items()}
        for part, fields in ((SENSORS, OF_SENSOR), (ACTUATORS, OF_ACTUATOR)):
            for name, settings in getattr(self._config, part).items():
                for field, unit in fields.items():
                    value = float(getattr(settings, field, 1.0 if field == "gain" else 0.0))
                    found[f"{part}.{name}.{field}"] = PartValue(part, name, field, value, unit)
        found |= {each.key: each for each in told_values(self.rig)}
        return found | unknown_values(self.rig, self.device)

    @property
    def tolerances(self) -> Iterator[tuple[str, Tolerance]]:
        """Those in the circuit files, and beside the values of sensors and actuators."""
        for part, circuit in self.circuits.items():
            for path, value in toleranced_values(circuit.written):
                yield f"{part}.{short('.'.join(expanded(path)))}", value.tolerance
        device = self.rig.sources["rig"]["devices"][self.device]
        for part in (SENSORS, ACTUATORS):
            for path, value in toleranced_values(device.get(part, {})):
                if (key := ".".join((part, *path))) in self.known:
                    yield key, value.tolerance

    def changed(self, values: Mapping[str, float], chosen: Mapping[str, Any] | None = None) -> Rig:
        """The rig with other values, SI, by key, other tables of components, by ``part.name``, and unknowns or none.

        Raises ValueError or ConfigurationError if it can't have them.
        """
        chosen = chosen or {}
        if not chosen and (found := self._in_place(values)) is not None:
            return found
        tables = {part: self._table(part, values, chosen) for part in self.circuits}
        sources: Mapping[str, Any] = self._with_tables(tables)
        pairs = [(self.known[key], x) for key, x in values.items()]
        changes = [(each, x) for each, x in pairs if isinstance(each, PartValue)]
        told = [(each, x) for each, x in pairs if isinstance(each, ToldValue)]
        if changes or told:
            sources = {**sources, "rig": with_told(self._with_parts(changes), told)}
        unknown = [(each, x) for each, x in pairs if isinstance(each, UnknownValue)]
        states = {key: state for key, state in chosen.items() if key.startswith(f"{UNKNOWN}.")}
        sources = with_unknowns(sources, self.rig, self.device, unknown, states)
        return assemble_variant(self.rig, sources)

    def _in_place(self, values: Mapping[str, float]) -> Rig | None:
        """The same where values of components, sensors and actuators are other ones; None if it has to be assembled.

        The tables of these components are read, and their numbers written into the packed circuits.
        """
        pairs = [(key.partition(".")[0], self.known[key], x) for key, x in values.items()]
        rig = self._expanded if any(part == CIRCUIT for part, _, _ in pairs) else self.rig
        own = {**rig.sources["devices"][self.device], CIRCUIT: rig.sources["circuit"]}
        tables, sensors = dict[str, dict[str, Any]](), list[tuple[PartValue, float]]()
        for part, each, x in pairs:
            if isinstance(each, PartValue):
                sensors.append((each, x))
            elif isinstance(each, DatasheetParameter) and each.path[0] == "components":
                changed, (_, name, *path) = tables.setdefault(part, {}), each.path
                table = changed.get(name) or own[part]["components"][name]
                changed[name] = with_value(table, tuple(path), _text(each, x))
            else:
                return None
        return with_numbers(rig, self.device, tables, self._with_parts(sensors)["devices"])

    @cached_property
    def _expanded(self) -> Rig:
        """The rig whose circuit is written without parameters and sub-circuits, as that of a variant is."""
        return assemble_variant(self.rig, {**self.rig.sources, "circuit": self.rig.circuit.source})

    def _with_tables(self, tables: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
        """The sources with other tables of machine, drive and virtual circuit."""
        sources = copy.copy(dict(self.rig.sources))
        if tables[CIRCUIT] is not None:
            sources["circuit"] = tables[CIRCUIT]
        plant = {part: tables[part] for part in PLANT_FILES if tables[part] is not None}
        devices = sources["devices"]
        sources["devices"] = {**devices, self.device: {**devices[self.device], **plant}}
        return sources

    def _table(self, part: str, values: Mapping[str, float], chosen: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The table of a circuit with these values; None if it is unchanged."""
        begin, circuit = f"{part}.", self.circuits[part]
        components = {key.removeprefix(begin): table for key, table in chosen.items() if key.startswith(begin)}
        changes = [(self.known[key], x) for key, x in values.items() if key.startswith(begin)]
        known = [(each, x) for each, x in changes if isinstance(each, DatasheetParameter | WrittenValue)]
        if not components and not known:
            return None
        file, library = self._files[part], self.rig.library
        if components:
            circuit = read_part(with_components(circuit, components), library, file)
        pairs = [(each, x) for each, x in known if has_value(circuit.source, each.path, library)]
        return table_with(circuit, pairs, library, file)

    @cached_property
    def _files(self) -> dict[str, str]:
        return {part: str(self.file_of(part)) for part in self.circuits}

    def _with_parts(self, changes: Sequence[tuple[PartValue, float]]) -> dict[str, Any]:
        """The rig file with other values of sensors and actuators."""
        table: dict[str, Any] = self.rig.sources["rig"]
        for each, x in changes:
            entry = dict(table["devices"][self.device][each.part][each.name])
            if each.field in ("offset", "gain"):
                show(entry, **{each.field: x})
            else:
                entry[each.field] = _text(each, x)
            table = with_value(table, ("devices", self.device, each.part, each.name), entry)
        return table


def table_with(
    circuit: Circuit, values: Sequence[tuple[Changeable, float]], library: Library, file: str
) -> Mapping[str, Any]:
    """The table of a part of a circuit with other values, SI."""
    written = circuit.written
    for each, x in values:
        if isinstance(each, WrittenValue):
            written = with_value(written, each.path, _text(each, x))
    table = circuit.source if written is circuit.written else read_part(written, library, file).source
    for each, x in values:
        if not isinstance(each, WrittenValue):
            table = with_value(table, each.path, _text(each, x))
    return table


def _text(each: Changeable | PartValue, x: float) -> str | float:
    """A value as a file has it."""
    return f"{x!r} {each.unit}" if each.unit else x
