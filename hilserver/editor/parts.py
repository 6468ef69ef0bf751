"""The parts of a circuit as it is being edited, complete or not: their ports, and what is connected to them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hilserver.circuit.library import Library
from hilserver.circuit.subcircuits import RIG, is_subcircuit
from hilserver.components.base import Component
from hilserver.errors import HilserverError
from hilserver.toml import read_plain_toml

Table = Mapping[str, Any]
SIGNALS = ("signal in", "signal out")
DEEPEST = 8
"""Sub-circuits in one another whose ports are looked at."""


@dataclass(frozen=True, order=True)
class PortEnd:
    """A port of a component."""

    component: str
    port: str

    def __str__(self) -> str:
        return f"{self.component}.{self.port}"


def below(table: Table, key: str) -> Table:
    """The table at a key; an empty one if there is none, or a faulty file has something else there."""
    found = table.get(key)
    return found if isinstance(found, Mapping) else {}


def tables(table: Table, key: str) -> dict[str, Table]:
    """The tables in the one at a key, whatever else a faulty file has there."""
    return {str(name): each for name, each in below(table, key).items() if isinstance(each, Mapping)}


@functools.lru_cache(maxsize=100)
def _definition_in(path: Path, changed: int) -> Table:
    """The table of a file, read once for each time at which it was changed."""
    return read_plain_toml(path)


def _read(path: Path) -> Table:
    """The table of a file; an empty one if it can't be read, which the check tells."""
    try:
        return _definition_in(path, path.stat().st_mtime_ns)
    except (HilserverError, OSError, ValueError):  # a null character in the name
        return {}


@dataclass(frozen=True)
class Parts:
    """What the component types of a circuit know; ``folder``: that of its file, where its sub-circuits are."""

    library: Library
    folder: Path
    within: tuple[str, ...] = ()
    """The files of the sub-circuits in which this circuit is."""

    def type_of(self, part: Table) -> type[Component] | None:
        """The component's type; None for a sub-circuit and for one that is not known."""
        return self.library.types.get(str(part.get("type")))

    def ports(self, part: Table) -> dict[str, str]:
        """The ports of a component and their kinds: hydraulic, mechanical, shaft, signal in, signal out; "" if not
        known."""
        if is_subcircuit(part):
            return self._ports_of_file(part)
        kind = self.type_of(part)
        if kind is None:
            ports = part.get("ports")
            return dict.fromkeys(map(str, ports), "") if isinstance(ports, Mapping) else {}
        of = {"hydraulic": kind.hydraulic, "mechanical": kind.mechanical, "shaft": kind.rotational}
        of |= {"signal in": kind.inputs, "signal out": kind.outputs}
        return {port: what for what, ports in of.items() for port in ports}

    def is_optional(self, part: Table, port: str) -> bool:
        """Whether a port need not be connected: there is a number instead, or one that applies without."""
        kind = self.type_of(part)
        return kind is not None and (port in kind.input_defaults or isinstance(part.get(port), int | float))

    def _ports_of_file(self, part: Table) -> dict[str, str]:
        definition, file = self._definition(part), part.get("file")
        names = definition.get("ports")
        listed = [name for name in names if isinstance(name, str)] if isinstance(names, list) else below(part, "ports")
        within = (*self.within, str(file))
        if len(within) > DEEPEST:
            return dict.fromkeys(listed, "")
        folder = (self.folder / str(file)).parent if file else self.folder
        kinds = Parts(self.library, folder, within).nodes(definition)
        return {name: kinds.get(name, "") for name in listed if name}

    def _definition(self, part: Table) -> Table:
        """The circuit that a sub-circuit consists of; an empty one if it can't be read, which the check tells."""
        if not isinstance(file := part.get("file"), str):
            return below(part, "definition")
        if Path(file).is_absolute() or ".." in Path(file).parts or Path(file).suffix != ".toml":
            return {}
        return _read(self.folder / file)

    def actuators(self, mechanism: Table) -> dict[str, str]:
        """The actuators of a mechanism and the nodes that they move: the one given, else one of the actuator's name."""
        given = below(mechanism, "nodes")
        names = dict.fromkeys((*below(self._mechanism(mechanism), "actuators"), *given))
        return {name: node for name in names if isinstance(node := given.get(name, name), str)}

    def parameters_of_mechanism(self, mechanism: Table) -> Table:
        """The parameters that a mechanism has, with their own values."""
        return below(self._mechanism(mechanism), "parameters")

    def _mechanism(self, mechanism: Table) -> Table:
        file = mechanism.get("file")
        return _read(self.folder / file) if isinstance(file, str) else below(mechanism, "definition")

    def moved(self, table: Table) -> dict[tuple[str, str], str]:
        """The nodes that mechanisms move, by mechanism and actuator."""
        return {
            (name, actuator): node
            for name, mechanism in tables(table, "mechanisms").items()
            for actuator, node in self.actuators(mechanism).items()
        }

    def parameters(self, part: Table) -> Table:
        """The parameters that a sub-circuit has, with their own values."""
        return below(self._definition(part), "parameters")

    def path(self, table: Table, end: PortEnd) -> tuple[str, ...]:
        """Where the connection of a port is written. Raises HilserverError if there is no such port."""
        part = tables(table, "components").get(end.component)
        if part is None:
            raise HilserverError(f"there is no component {end.component}.")
        ports = self.ports(part)
        if end.port not in ports:
            raise HilserverError(f"{end.component} has no port {end.port}.")
        if ports[end.port] in SIGNALS:
            return "components", end.component, end.port
        return "components", end.component, "ports", end.port

    def kind(self, table: Table, end: PortEnd) -> str:
        """The kind of a port: hydraulic, mechanical, shaft, signal; "" if not known.

        Raises HilserverError if there is no such port.
        """
        part = tables(table, "components").get(end.component, {})
        kind = self.ports(part).get(end.port)
        if kind is None:
            raise HilserverError(f"there is no port {end}.")
        return kind.partition(" ")[0]

    def node(self, table: Table, end: PortEnd) -> str:
        """The node or signal at a port; empty if there is none, or a number."""
        value: object = table
        for key in self.path(table, end):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value if isinstance(value, str) else ""

    def ends(self, table: Table) -> Iterator[tuple[PortEnd, str]]:
        """All ports with the nodes at them, "" where there is none."""
        for name, part in tables(table, "components").items():
            for port in self.ports(part):
                end = PortEnd(name, port)
                yield end, self.node(table, end)

    def at(self, table: Table, node: str) -> list[PortEnd]:
        """The ports at a node."""
        return [end for end, name in self.ends(table) if name == node]

    def nodes(self, table: Table) -> dict[str, str]:
        """All nodes and signals by name, and their kinds."""
        found: dict[str, str] = {}
        for end, node in self.ends(table):
            if node:
                found[node] = found.get(node) or self.kind(table, end)
        return found


def is_rig_port(node: str) -> bool:
    """Whether a node is a port of the real machine."""
    return node.startswith(RIG)
