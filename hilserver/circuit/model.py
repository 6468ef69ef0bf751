"""A circuit as the user draws it: components by name, the nodes that connect them, solver and fluid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from hilserver.circuit import subcircuits
from hilserver.circuit.library import Library
from hilserver.circuit.mechanisms import PlacedMechanism, check_name, read_mechanisms, wrong_nodes
from hilserver.circuit.own import OwnFile
from hilserver.components.base import Component, Datasheet, Fluid, Parameters
from hilserver.components.synonyms import meant_type
from hilserver.errors import ConfigurationError, Problem, did_you_mean, problems_of, shown
from hilserver.toml import copied
from hilserver.units import Angle, Length, Pressure, Speed, Velocity, shown_value

RIG = subcircuits.RIG
FORCE = ".force"
"""End of the name of the signal with the measured force at a node that an actuator of the rig follows."""

MAX_SUBSTEPS = 1000


class Solver(Datasheet):
    """How the circuit is integrated."""

    integrator: Literal["euler", "rk4", "rosenbrock"] = Field(
        default="rk4", description="rosenbrock: linearly implicit and L-stable, for stiff, small volumes"
    )
    substeps: int = Field(default=10, ge=1, le=MAX_SUBSTEPS, description="integration steps per tick")
    mechanics_substeps: int | None = Field(
        default=None,
        ge=1,
        description="number of times per tick that a mechanism's equations of motion are solved; a divisor of "
        "substeps. The steps "
        "in between share the solution at their midpoint. default: one solution per evaluation",
    )

    @model_validator(mode="after")
    def _steps_share_solutions(self) -> Solver:
        if self.mechanics_substeps is not None and self.substeps % self.mechanics_substeps:
            divisors = ", ".join(str(n) for n in range(1, self.substeps + 1) if self.substeps % n == 0)
            raise ValueError(
                f"mechanics_substeps {self.mechanics_substeps} does not divide substeps: use one of {divisors}"
            )
        return self


class NodeStart(Datasheet):
    """Initial values of a node."""

    pressure: Pressure = Field(default="0 bar", description="initial pressure of a hydraulic node")
    pressure_from: str | None = Field(
        default=None, description="port of the rig whose measured pressure the node starts from when it is switched in"
    )
    position: Length = Field(default="0 m", description="initial position of a mechanical node")
    velocity: Velocity = Field(default="0 m/s", description="initial velocity of a mechanical node")
    angle: Angle = Field(default="0 rad", description="initial angle of a shaft")
    speed: Speed = Field(default="0 rpm", description="initial speed of a shaft")


@dataclass(frozen=True)
class Placed:
    """A component in a circuit with its connections: node name per port; node name or constant per signal input.

    ``fluid``: its oil, where that is not the circuit's.
    """

    name: str
    component: Component
    ports: Mapping[str, str]
    signals: Mapping[str, str | float]
    fluid: Fluid | None = None
    _calculated: list[tuple[Fluid, Parameters]] = field(default_factory=list, init=False, repr=False, compare=False)

    def parameters(self, fluid: Fluid) -> Parameters:
        """Its kernel parameters with this oil of the circuit, calculated once: some are fits to a datasheet's curve."""
        oil = self.fluid or fluid
        for own, known in self._calculated:
            if own == oil:
                return known
        found = self.component.parameters(oil)
        self._calculated[:] = [(oil, found)]
        return found


@dataclass(frozen=True)
class Circuit:
    """A validated circuit.

    ``source`` is its table with the contents of all files, without parameters and sub-circuits: that of the log.
    ``written`` is the table with both, as the user gave it, with the contents of all files: changes are made to it.
    """

    description: str
    fluid: Fluid
    solver: Solver
    placed: tuple[Placed, ...]
    starts: Mapping[str, NodeStart]
    source: Mapping[str, Any] = field(repr=False)
    written: Mapping[str, Any] = field(repr=False)
    mechanisms: tuple[PlacedMechanism, ...] = ()
    known: Mapping[str, Parameters] = field(default_factory=dict, repr=False)
    """Kernel parameters of components by name, where they were calculated before."""
    origin: subcircuits.Expanded = field(default_factory=subcircuits.Expanded, repr=False, compare=False)
    """Where its parts are written."""

    def fluid_of(self, placed: Placed) -> Fluid:
        """The oil of a component."""
        return placed.fluid or self.fluid

    def parameters_of(self, placed: Placed) -> Parameters:
        """The kernel parameters of a component."""
        known = self.known.get(placed.name)
        return placed.parameters(self.fluid) if known is None else known

    def hydraulic_nodes(self) -> list[str]:
        """Names in order of first use."""
        return list(dict.fromkeys(p.ports[port] for p in self.placed for port in p.component.hydraulic))

    def mechanical_nodes(self) -> list[str]:
        """Names in order of first use."""
        at_ports = [p.ports[port] for p in self.placed for port in p.component.mechanical]
        return list(dict.fromkeys([*at_ports, *(n for m in self.mechanisms for n in m.nodes_of("mechanical"))]))

    def rotational_nodes(self) -> list[str]:
        """Names in order of first use."""
        at_ports = [p.ports[port] for p in self.placed for port in p.component.rotational]
        return list(dict.fromkeys([*at_ports, *(n for m in self.mechanisms for n in m.nodes_of("rotational"))]))

    def rig_ports(self) -> list[str]:
        """The measured ports of the machine that the circuit connects to, without the prefix."""
        return [name.removeprefix(RIG) for name in self.hydraulic_nodes() if name.startswith(RIG)]

    def rig_actuators(self) -> list[str]:
        """The rig's actuators that follow a mechanical node of the circuit, without the prefix."""
        return [name.removeprefix(RIG) for name in self.mechanical_nodes() if name.startswith(RIG)]

    def inputs(self) -> list[str]:
        """Signals that no component writes: they come from the operator or the work cycle."""
        written = {p.signals[port] for p in self.placed for port in p.component.outputs}
        read = [node for p in self.placed for port in p.component.inputs if isinstance(node := p.signals[port], str)]
        return list(dict.fromkeys(node for node in read if node not in written))

    def where(self, name: str) -> str:
        """The key at which a node or a signal first occurs; empty if no component is connected to it.

        At its own level, if there: of a node to which a sub-circuit connects only with a port, that port.
        """
        level = max((of for of in self.origin.subcircuits() if name.startswith(f"{of}.")), key=len, default="")
        elsewhere = ""
        for placed in self.placed:
            key = f"components.{placed.name}"
            connections = {**{f"ports.{port}": node for port, node in placed.ports.items()}, **placed.signals}
            found = next((f"{key}.{port}" for port, connected in connections.items() if connected == name), "")
            if found and self.origin.level(key) == level:
                return found
            elsewhere = elsewhere or found
        return next(self.origin.connections(self.written, name), elsewhere) if not level else elsewhere


BEYOND_END = 1e-3
"""m, by which an end stop may be compressed at the start."""
_TABLES = ("description", "library", "parameters", "fluid", "solver", "components", "nodes", "mechanisms", "drawing")


def read_circuit(raw: Mapping[str, Any], library: Library, file: str = "", folder: Path | None = None) -> Circuit:
    """Validate a circuit table. Raises ConfigurationError with all problems found.

    Files referred to are relative to ``folder`` (default: the folder of ``file``); the circuit's ``source`` holds
    their contents.
    """
    circuit = read_part(raw, library, file, folder)
    if problems := list(wrong_connections(circuit, file)):
        raise ConfigurationError(problems)
    return circuit


def read_part(raw: Mapping[str, Any], library: Library, file: str = "", folder: Path | None = None) -> Circuit:
    """Validate a table that is only a part of a circuit: each component on its own, without its connections."""
    if not isinstance(raw, Mapping):
        raise ConfigurationError([Problem(f"{shown(raw)} is not a table with components.", file=file)])
    folder = folder or Path(file).parent
    problems = [*_unknown_keys(raw, file), *_not_loaded(raw.get("library", []), library, folder, file)]
    sources = subcircuits.Sources(library, file, folder, problems)
    written = sources.embedded({key: value for key, value in raw.items() if key != "library"})
    whole = subcircuits.expand(written, library, file, sources.files, problems)
    wrong: list[Problem] = []
    circuit = _read_expanded(whole, written, library, file, wrong)
    found_already = {(problem.file, problem.key) for problem in problems}
    located = [whole.located(problem, file) for problem in wrong]
    problems += [problem for problem in located if (problem.file, problem.key) not in found_already]
    if problems or circuit is None:
        raise ConfigurationError(dict.fromkeys(problems))  # the problems of a part that is used twice are reported once
    return circuit


def _unknown_keys(raw: Mapping[str, Any], file: str) -> Iterator[Problem]:
    for key in raw:
        if key == "ports":
            text = 'this is a sub-circuit: another circuit names it, as the file of a component of type "subcircuit".'
            yield Problem(text, key, file)
        elif key not in _TABLES:
            yield Problem("unknown key." + did_you_mean(key, _TABLES), key, file)


def _not_loaded(names: object, library: Library, folder: Path, file: str) -> Iterator[Problem]:
    """Python files with components that a circuit names and that the program did not load when it started."""
    loaded = {own.name for own in library.own}
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str) or OwnFile.shown_name(name, folder) not in loaded:
            text = f"{shown(name)} is not loaded: a running server gets its components when it starts, from the files"
            yield Problem(f"{text} that library names in the rig file and in its circuit files.", "library", file)


def _read_expanded(
    whole: subcircuits.Expanded, written: Mapping[str, Any], library: Library, file: str, problems: list[Problem]
) -> Circuit | None:
    """The circuit of a table without parameters and sub-circuits; None if it has problems."""
    raw = whole.table

    def model(kind: type[Any], value: object, key: str) -> Any:
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            problems.extend(problems_of(error, value, file=file, prefix=key, names=kind.model_fields))
            return None

    description = raw.get("description", "")
    if not isinstance(description, str):
        problems.append(Problem(f"{shown(description)} is not a string in quotes.", "description", file))
    fluid = model(Fluid, raw.get("fluid", {}), "fluid")
    solver = model(Solver, raw.get("solver", {}), "solver")
    starts = {name: model(NodeStart, value, f"nodes.{name}") for name, value in _table(raw, "nodes", file, problems)}
    components = _table(raw, "components", file, problems)
    placed = [read_component(name, value, library, file, problems) for name, value in components]
    mechanisms = list(read_mechanisms(_table(raw, "mechanisms", file, problems), file, problems))
    if not raw.get("components") and not raw.get("mechanisms"):
        problems.append(Problem("a circuit needs at least one component.", "components", file))
    if fluid is not None:
        for p in (p for p in placed if p is not None):
            wrong = library.wrong_parameters(type(p.component), partial(p.parameters, fluid))
            problems.extend(Problem(text, f"components.{p.name}", file) for text in wrong)
    if problems:
        return None
    parts = tuple(p for p in placed if p is not None)
    source, given = copied(raw), copied(written)
    return Circuit(description, fluid, solver, parts, starts, source, given, tuple(mechanisms), origin=whole)


def _table(raw: Mapping[str, Any], key: str, file: str, problems: list[Problem]) -> list[tuple[str, Any]]:
    table = raw.get(key, {})
    if isinstance(table, Mapping):
        return list(table.items())
    problems.append(Problem(f"{shown(table)} is not a table.", key, file))
    return []


def read_component(name: str, value: object, library: Library, file: str, problems: list[Problem]) -> Placed | None:
    """Validate the table of a component; None if it has problems, which are added to ``problems``."""
    key = f"components.{name}"
    if not isinstance(value, Mapping):
        problems.append(Problem(f"{shown(value)} is not a table.", key, file))
        return None
    check_name(name, key, file, problems)
    named = value.get("type")
    kind = library.types.get(named) if isinstance(named, str) else None
    if kind is None:
        text = "missing: give the component type." if named is None else f"{shown(named)} is not a component type."
        text += meant_type(str(named), [*library.types, subcircuits.SUBCIRCUIT])
        problems.append(Problem(text, f"{key}.type", file))
        return None
    ports = _ports(value.get("ports", {}), kind, f"{key}.ports", file, problems)
    signals = _signals(value, kind, key, file, problems)
    values = {k: v for k, v in value.items() if k not in ("type", "ports", "fluid", *kind.inputs, *kind.outputs)}
    try:
        component = kind.model_validate(values)
    except ValidationError as error:
        names = [*kind.model_fields, "ports", "fluid", *kind.inputs, *kind.outputs]
        problems.extend(problems_of(error, values, file=file, prefix=key, names=names))
        return None
    try:
        fluid = Fluid.model_validate(value["fluid"]) if "fluid" in value else None
    except ValidationError as error:
        problems.extend(problems_of(error, value["fluid"], file=file, prefix=f"{key}.fluid", names=Fluid.model_fields))
        return None
    return Placed(name, component, ports, signals, fluid)


def _ports(raw: object, kind: type[Component], key: str, file: str, problems: list[Problem]) -> dict[str, str]:
    if not isinstance(raw, Mapping):
        problems.append(Problem(f'{shown(raw)} is not a table such as {{ P = "supply" }}.', key, file))
        return {}
    wanted = (*kind.hydraulic, *kind.mechanical, *kind.rotational)
    for port, node in raw.items():
        if port not in wanted:
            problems.append(
                Problem(f"{kind.type_name} has no such port." + did_you_mean(port, wanted), f"{key}.{port}", file)
            )
        elif not isinstance(node, str) or not node:
            problems.append(Problem(f"{shown(node)} is not the name of a node.", f"{key}.{port}", file))
    for port in wanted:
        if port not in raw:
            problems.append(Problem("port is not connected: give the node it connects to.", f"{key}.{port}", file))
    return {port: node for port, node in raw.items() if isinstance(node, str)}


def _signals(
    raw: Mapping[str, Any], kind: type[Component], key: str, file: str, problems: list[Problem]
) -> dict[str, str | float]:
    signals: dict[str, str | float] = {}
    for port in (*kind.inputs, *kind.outputs):
        node = raw.get(port, kind.input_defaults.get(port))
        if isinstance(node, str) and node:
            signals[port] = node
        elif port in kind.inputs and isinstance(node, int | float) and not isinstance(node, bool) and abs(node) < 1e300:
            signals[port] = float(node)
        elif node is None:
            problems.append(Problem("signal is not connected: give the signal it connects to.", f"{key}.{port}", file))
        else:
            problems.append(
                Problem(f"{shown(node)} is neither the name of a signal nor a finite number.", f"{key}.{port}", file)
            )
    return signals


def wrong_connections(circuit: Circuit, file: str = "") -> Iterator[Problem]:
    """Each node is of one kind; each signal has one writer; initial values belong to nodes that exist."""
    used: dict[str, str] = {}
    for placed in circuit.placed:
        for port, node in (*placed.ports.items(), *((p, n) for p, n in placed.signals.items() if isinstance(n, str))):
            kind = _kind_of_port(placed.component, port)
            if used.setdefault(node, kind) != kind:
                key = f"components.{placed.name}.{port}"
                yield Problem(f'"{node}" is a {used[node]} node elsewhere and a {kind} node here.', key, file)
    yield from wrong_nodes(circuit.mechanisms, used, circuit.starts, file)
    writers: dict[str, str] = {}
    for placed in circuit.placed:
        for port in placed.component.outputs:
            node = str(placed.signals[port])
            if writers.setdefault(node, placed.name) != placed.name:
                yield Problem(
                    f'signal "{node}" is also written by {writers[node]}.', f"components.{placed.name}.{port}", file
                )
    yield from _wrong_starts(circuit, used, file)
    yield from impossible_starts(circuit, file)


_STARTS_OF = {
    "hydraulic": ("pressure", "pressure_from"),
    "mechanical": ("position", "velocity"),
    "rotational": ("angle", "speed"),
    "signal": (),
}
"""The initial values that a kind of node has."""


def _wrong_starts(circuit: Circuit, used: Mapping[str, str], file: str) -> Iterator[Problem]:
    """Initial values of nodes that don't exist or are of another kind."""
    for name, start in circuit.starts.items():
        if name not in used:
            yield Problem("no component connects to this node." + did_you_mean(name, used), f"nodes.{name}", file)
            continue
        allowed = _STARTS_OF[used[name]]
        for key in sorted(start.model_fields_set - set(allowed)):
            keys = " and ".join(allowed) or "no initial values"
            yield Problem(f"a {used[name]} node has {keys}.", f"nodes.{name}.{key}", file)


def impossible_starts(circuit: Circuit, file: str = "") -> Iterator[Problem]:
    """Initial positions outside of strokes, and pressures that no oil has."""
    for placed in circuit.placed:
        for port, (low, high) in placed.component.positions().items():
            node = placed.ports[port]
            start = circuit.starts.get(node)
            if start is not None and not low - BEYOND_END <= start.position <= high + BEYOND_END:
                stroke = f"{shown_value(low, 'm')} … {shown_value(high, 'm')}"
                text = f"{shown_value(start.position, 'm')} is outside the stroke of {placed.name}, {stroke}."
                yield Problem(text, f"nodes.{node}.position", file)
    fluids = (circuit.fluid, *(placed.fluid for placed in circuit.placed if placed.fluid))
    lowest = min(fluid.vapour_pressure for fluid in fluids)
    for name, start in circuit.starts.items():
        if start.pressure < lowest:
            text = f"{shown_value(start.pressure, 'Pa')} is below the vapour pressure of the oil, "
            text += f"{shown_value(lowest, 'Pa')}."
            yield Problem(text, f"nodes.{name}.pressure", file)


def _kind_of_port(component: Component, port: str) -> str:
    if port in component.hydraulic:
        return "hydraulic"
    if port in component.mechanical:
        return "mechanical"
    return "rotational" if port in component.rotational else "signal"
