"""Parameters and sub-circuits: the table of a circuit as written becomes one without either.

A sub-circuit is a circuit file with ``ports``: names of its nodes and signals to which the enclosing circuit connects.
Inside, everything else is its own: component ``cylinder`` and node ``A`` of sub-circuit ``front`` are called
``front.cylinder`` and ``front.A`` in the circuit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from hilserver.circuit.drawn import DRAWING, places_kept, wrong_places
from hilserver.circuit.library import Library
from hilserver.errors import ConfigurationError, Problem, as_sentence, did_you_mean, shown
from hilserver.mechanics.model import embed_mechanism
from hilserver.parameters import Resolver, read_parameters, without_parameters
from hilserver.toml import read_toml

RIG = "rig."
"""Prefix of nodes that are ports of the real machine, where the pressure is measured (``rig.A``), and of those whose
motion an actuator of the rig follows and where the force is measured (``rig.table``)."""
SUBCIRCUIT = "subcircuit"
"""Type of a component that is a sub-circuit."""
_KEYS = ("description", "parameters", "ports", "components", "nodes", "mechanisms", "drawing")
"""The keys of a sub-circuit's file."""
_INSTANCE = ("type", "description", "file", "definition", "parameters", "ports")
"""The keys of a component that is a sub-circuit."""
_OF_THE_WHOLE = ("fluid", "solver", "library")
MAX_SUBCIRCUITS = 1000
"""Maximum number of sub-circuits: a file that uses another twice, which uses a third twice, grows without limit."""


class Sources:
    """The table of a circuit with the contents of the files that it names, and which file each part comes from.

    ``files``: by key of the part. Problems are added to ``problems``.
    """

    def __init__(self, library: Library, file: str, folder: Path, problems: list[Problem]) -> None:
        self._library, self._problems = library, problems
        self.files: dict[str, str] = {}
        self._count = 0
        self._top = file, folder

    def embedded(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The circuit's table with contents instead of names of files."""
        file, folder = self._top
        return self._embedded(raw, "", "", file, folder, ())

    def _embedded(
        self, raw: Mapping[str, Any], key: str, inside: str, file: str, folder: Path, within: tuple[Path, ...]
    ) -> dict[str, Any]:
        """One level: ``key`` leads to it from the circuit, ``inside`` from the beginning of its file."""
        table = dict(raw)
        for kind in ("components", "mechanisms"):
            if not isinstance(parts := raw.get(kind), Mapping):
                continue
            table[kind] = dict(parts)
            for name, part in parts.items():
                if isinstance(part, Mapping):
                    place, here = f"{key}{kind}.{name}", f"{inside}{kind}.{name}"
                    try:
                        found = self._part(kind, part, place, here, file, folder, within)
                    except ValueError as error:
                        self._problems.append(Problem(str(error), here, file))
                        found = None
                    except ConfigurationError as error:
                        self._problems += error.problems
                        found = None
                    if found is None:
                        del table[kind][name]
                    else:
                        table[kind][name] = found
        return table

    def _part(
        self,
        kind: str,
        part: Mapping[str, Any],
        place: str,
        here: str,
        file: str,
        folder: Path,
        within: tuple[Path, ...],
    ) -> Mapping[str, Any]:
        if kind == "components" and not is_subcircuit(part):
            component = self._library.types.get(str(part.get("type")))
            return component.embed(part, folder) if component else part
        if kind == "mechanisms":
            if "file" in part and "definition" not in part:
                self.files[place] = str(folder / str(part["file"]))
                return embed_mechanism(part, folder)
            return part
        self._count += 1
        if self._count > MAX_SUBCIRCUITS:
            raise ValueError(f"a circuit has at most {MAX_SUBCIRCUITS} sub-circuits")
        return self._subcircuit(part, place, here, file, folder, within)

    def _subcircuit(
        self, part: Mapping[str, Any], place: str, here: str, file: str, folder: Path, within: tuple[Path, ...]
    ) -> Mapping[str, Any]:
        if ("file" in part) == ("definition" in part):
            raise ValueError('give file, such as "axis.toml", or definition')
        inner = f"{here}.definition."
        if "file" in part:
            path = _file_below(part["file"], folder)
            if path.resolve() in within:
                loop = " -> ".join(entry.name for entry in (*within, path))
                raise ValueError(f"file: a sub-circuit can't contain itself ({loop})")
            within = (*within, path.resolve())
            file, folder, inner = str(path), path.parent, ""
            self.files[place] = file
            part = {**{k: v for k, v in part.items() if k != "file"}, "definition": read_toml(path)}
        if not isinstance(definition := part["definition"], Mapping):
            raise ValueError(f"definition: {shown(definition)} is not a table with components")
        return {**part, "definition": self._embedded(definition, f"{place}.definition.", inner, file, folder, within)}


def is_subcircuit(part: object) -> bool:
    """Whether a component's table is that of a sub-circuit."""
    return isinstance(part, Mapping) and part.get("type") == SUBCIRCUIT


def _file_below(name: object, folder: Path) -> Path:
    """A TOML file in ``folder`` or below it, so that a command over the network can't read other files."""
    parts = PurePath(name).parts if isinstance(name, str) else ()
    if not parts or PurePath(str(name)).is_absolute() or ".." in parts or PurePath(str(name)).suffix != ".toml":
        text = "must be a TOML file in the folder of the circuit file or in a folder below it"
        raise ValueError(f"file: {shown(name)} {text}")
    return folder / str(name)


@dataclass(frozen=True)
class Place:
    """Where a part of the expanded circuit is written: file, key there, and the sub-circuit that it belongs to."""

    file: str
    key: str
    subcircuit: str = ""


@dataclass
class Expanded:
    """A circuit without parameters and sub-circuits, and what is needed to name the origin of its parts.

    ``places``: by key of a part (``components.front.cylinder``); ``expressions``: by key of a value.
    """

    table: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    expressions: dict[str, str] = field(default_factory=dict)

    def located(self, problem: Problem, circuit_file: str) -> Problem:
        """The problem with file and key where the user wrote the value, and with the expression that gave it."""
        key, text = problem.key, problem.message
        found = next((e for k, e in self.expressions.items() if key == k or key.startswith((f"{k}.", f"{k}["))), None)
        if found is not None:
            text = f"{as_sentence(text)} It follows from {shown(found)}."
        owner = max((k for k in self.places if key == k or key.startswith(f"{k}.")), key=len, default="")
        if not owner:
            return replace(problem, message=text)
        place, rest = self.places[owner], key.removeprefix(owner)
        if place.subcircuit:
            text += f" (In sub-circuit {place.subcircuit} of {circuit_file or 'the circuit'}.)"
        return Problem(text, (place.key + rest).removeprefix("."), place.file)

    def level(self, key: str) -> str:
        """The sub-circuit to which a part of the circuit belongs; "": to none."""
        return self.places[key].subcircuit if key in self.places else ""

    def subcircuits(self) -> set[str]:
        """The names of all sub-circuits that have parts."""
        return {place.subcircuit for place in self.places.values()} - {""}

    @staticmethod
    def connections(written: Mapping[str, Any], node: str) -> Iterator[str]:
        """The keys of the ports of sub-circuits that connect to a node of the circuit."""
        for name, part in written.get("components", {}).items():
            if is_subcircuit(part):
                ports = part.get("ports", {}).items()
                yield from (f"components.{name}.ports.{port}" for port, given in ports if given == node)


@dataclass(frozen=True)
class _Level:
    """The circuit or one of its sub-circuits while it is expanded.

    ``name``: of the sub-circuit, empty for the circuit. ``key``: leads to its table from the circuit, ``inside`` from
    the beginning of its ``file``. ``ports``: what its ports are connected to.
    """

    table: Mapping[str, Any]
    file: str
    name: str = ""
    key: str = ""
    inside: str = ""
    ports: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)

    def called(self, name: str) -> str:
        """The name of one of its parts in the circuit."""
        return f"{self.name}.{name}" if self.name else name

    def node(self, name: object) -> Any:
        """The node or signal of the circuit that corresponds to one of this level."""
        if not isinstance(name, str) or not name or name.startswith(RIG):
            return name
        return self.ports[name] if name in self.ports else self.called(name)


def expand(
    written: Mapping[str, Any], library: Library, file: str, files: Mapping[str, str], problems: list[Problem]
) -> Expanded:
    """The circuit without parameters and sub-circuits. ``files``: of its parts, by key (`Sources`)."""
    found = Expanded({key: value for key, value in written.items() if key != "parameters"})
    found.table |= {kind: {} for kind in ("components", "nodes", "mechanisms")}
    _Expansion(library, files, found, problems).add(_Level(written, file))
    for kind in ("nodes", "mechanisms"):
        if kind not in written and not found.table[kind]:
            del found.table[kind]
    if DRAWING in written:
        found.table[DRAWING] = places_kept(written[DRAWING], found.table["components"])
    return found


class _Expansion:
    def __init__(self, library: Library, files: Mapping[str, str], found: Expanded, problems: list[Problem]) -> None:
        self.library, self.files, self.found, self.problems = library, files, found, problems

    def add(self, level: _Level) -> None:
        """Add the parts of a circuit or sub-circuit, then those of its own sub-circuits."""
        if level.name:
            self._check_keys(level)
        table = level.table
        self.problems += wrong_places(table, level.file, level.inside)
        parameters = read_parameters(
            table.get("parameters", {}), level.given, f"{level.inside}parameters", level.file, self.problems
        )
        if not level.name:
            resolver = Resolver(parameters, level.file, self.problems)
            for key in ("fluid", "solver"):
                if key in table:
                    self.found.table[key] = resolver.resolved(table[key], key)
            self.found.expressions |= resolver.expressions
        for kind, add in (
            ("components", self._component),
            ("mechanisms", self._mechanism),
            ("nodes", self._start),
        ):
            for name, part in self._parts(level, kind):
                key = f"{level.inside}{kind}.{name}"
                resolver = Resolver(parameters, level.file, self.problems)
                if isinstance(part, Mapping) and (kind == "mechanisms" or is_subcircuit(part)):
                    inner = {k: v for k, v in part.items() if k == "definition"}  # has parameters of its own
                    part = {**resolver.resolved({k: v for k, v in part.items() if k not in inner}, key), **inner}
                else:
                    part = resolver.resolved(part, key)
                flat = f"{kind}.{level.called(name)}"
                self.found.expressions |= {flat + k.removeprefix(key): text for k, text in resolver.expressions.items()}
                if level.name:
                    self.found.places[flat] = Place(level.file, key, level.name)
                add(level, name, part)

    def _parts(self, level: _Level, kind: str) -> Iterator[tuple[str, Any]]:
        parts = level.table.get(kind, {})
        if isinstance(parts, Mapping):
            yield from parts.items()
        elif level.name:
            self._problem(level, kind, f"{shown(parts)} is not a table.")
        else:
            self.found.table[kind] = parts

    def _problem(self, level: _Level, key: str, text: str) -> None:
        self.problems.append(Problem(text, f"{level.inside}{key}", level.file))

    def _check_keys(self, level: _Level) -> None:
        for key in level.table:
            if key in _OF_THE_WHOLE:
                self._problem(level, key, "belongs to the circuit: a sub-circuit has no such table of its own.")
            elif key not in _KEYS:
                self._problem(level, key, "unknown key." + did_you_mean(key, _KEYS))

    def _component(self, level: _Level, name: str, table: Any) -> None:
        if is_subcircuit(table):
            self._subcircuit(level, name, table)
            return
        if level.name and isinstance(table, Mapping):
            table = dict(table)
            if isinstance(ports := table.get("ports"), Mapping):
                table["ports"] = {port: level.node(node) for port, node in ports.items()}
            kind = self.library.types.get(str(table.get("type")))
            for port in (*kind.inputs, *kind.outputs) if kind else ():
                if port in table:
                    table[port] = level.node(table[port])
        self._enter(level, "components", name, table)

    def _enter(self, level: _Level, kind: str, name: str, table: Any) -> None:
        """Put a part into the circuit, under the name that it has there."""
        parts, called = self.found.table[kind], level.called(name)
        if called in parts:
            self._problem(level, f"{kind}.{name}", f'the circuit has two {kind} called "{called}": rename one.')
        parts[called] = table

    def _mechanism(self, level: _Level, name: str, table: Any) -> None:
        key = f"{level.key}mechanisms.{name}"
        flat = f"mechanisms.{level.called(name)}"
        if not isinstance(table, Mapping) or not isinstance(definition := table.get("definition"), Mapping):
            self._enter(level, "mechanisms", name, table)
            return
        own = (level.file, f"{level.inside}mechanisms.{name}.definition")
        if key in self.files:
            own = (self.files[key], "")
        self.found.places[f"{flat}.definition"] = Place(*own, level.name)
        table = {k: v for k, v in table.items() if k != "parameters"} | {
            "definition": self._own_parameters(level, name, definition, table.get("parameters", {}), own)
        }
        nodes, actuators = table.get("nodes", {}), definition.get("actuators", {})
        if level.name and isinstance(nodes, Mapping) and isinstance(actuators, Mapping):
            table["nodes"] = {a: level.node(nodes.get(a, a)) for a in {**dict.fromkeys(actuators), **nodes}}
        self._enter(level, "mechanisms", name, table)

    def _own_parameters(
        self, level: _Level, name: str, definition: Mapping[str, Any], given: Any, own: tuple[str, str]
    ) -> Mapping[str, Any]:
        """A mechanism with the meaning of its expressions; ``given``: parameters that the circuit sets."""
        self._check_given(level, f"mechanisms.{name}", given, definition.get("parameters", {}))
        values = given if isinstance(given, Mapping) else {}
        found, expressions = without_parameters(definition, values, *own, self.problems)
        flat = f"mechanisms.{level.called(name)}.definition."
        self.found.expressions |= {flat + key: text for key, text in expressions.items()}
        return found

    def _check_given(self, level: _Level, key: str, given: Any, table: Any) -> None:
        """``given``: parameters set for a mechanism or sub-circuit; ``table``: those that its file has."""
        known = table if isinstance(table, Mapping) else {}
        if not isinstance(given, Mapping):
            self._problem(level, f"{key}.parameters", f'{shown(given)} is not a table such as {{ bore = "63 mm" }}.')
            return
        for name in given:
            if name not in known:
                text = f"there is no such parameter in its file.{did_you_mean(name, known)}"
                self._problem(level, f"{key}.parameters.{name}", text if known else text + " It has none.")

    def _start(self, level: _Level, name: str, start: Any) -> None:
        if name in level.ports or (level.name and name.startswith(RIG)):
            text = "is a port: its initial values belong to the enclosing circuit, to the node that it connects to."
            self._problem(level, f"nodes.{name}", text)
            return
        self._enter(level, "nodes", name, start)

    def _subcircuit(self, level: _Level, name: str, table: Mapping[str, Any]) -> None:
        here = f"components.{name}"
        if not name or any(character in name for character in '."[] \n\t'):
            self._problem(level, here, "the name of a sub-circuit must not contain dots, brackets, quotes or spaces.")
        for key in table:
            if key not in _INSTANCE:
                self._problem(level, f"{here}.{key}", "unknown key." + did_you_mean(key, _INSTANCE))
        definition, given = table.get("definition", {}), table.get("parameters", {})
        self._check_given(level, here, given, definition.get("parameters", {}))
        key = f"{level.key}{here}"
        in_file = key in self.files
        self.add(
            _Level(
                definition,
                self.files[key] if in_file else level.file,
                level.called(name),
                f"{key}.definition.",
                "" if in_file else f"{level.inside}{here}.definition.",
                self._connected(level, here, table.get("ports", {}), definition.get("ports", [])),
                given if isinstance(given, Mapping) else {},
            )
        )

    def _connected(self, level: _Level, here: str, given: Any, names: Any) -> dict[str, Any]:
        """What each port of a sub-circuit is connected to, in the circuit."""
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            self._problem(level, f"{here}.ports", f'its file gives ports as {shown(names)}; write ports = ["P", "T"].')
            return {}
        if not isinstance(given, Mapping):
            self._problem(level, f"{here}.ports", f'{shown(given)} is not a table such as {{ P = "supply" }}.')
            return {}
        for port, node in given.items():
            if port not in names:
                text = "the sub-circuit has no such port." + did_you_mean(port, names)
                self._problem(level, f"{here}.ports.{port}", text)
            elif isinstance(node, bool) or not isinstance(node, str | int | float) or node == "":
                text = f"{shown(node)} is neither the name of a node or signal nor a number."
                self._problem(level, f"{here}.ports.{port}", text)
        for port in names:
            if port not in given:
                text = "port is not connected: give the node or signal it connects to."
                self._problem(level, f"{here}.ports.{port}", text)
        return {port: level.node(given.get(port, port)) for port in names}
