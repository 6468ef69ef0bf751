"""The components of a circuit as they are drawn: their symbols and what is connected to them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hilserver.drawing.symbols import Symbol, box, symbol
from hilserver.drawing.texts import VALUE, text_width

RIG = "rig."
"""Prefix of the names of the nodes at the machine's ports."""
PILOT_PORTS = {"X", "Y", "L", "LS"}
MECHANISM = "mechanism"
"""Kind of what stands for a mechanism at each node that it moves."""
_OF = " · "
_LINK = '<circle cx="12" cy="38" r="3"/><path d="M5 46h14l-7-8zM14 36L44 14M0 24H28"/><circle cx="28" cy="25" r="2"/>'
"""A link on a pivot, moved at a pin."""
_BESIDE_PILOT_LINES = {"shuttle_valve", "volume", "pipe", "hose", "pressure_sensor"}
"""Components of pilot lines as well as of working lines."""


@dataclass(frozen=True)
class DrawnComponent:
    """A component of the circuit: its nodes by port, hydraulic and mechanical, and its signals by port."""

    name: str
    kind: str
    hydraulic: Mapping[str, str]
    mechanical: Mapping[str, str]
    signals: Mapping[str, str]
    symbol: Symbol

    @property
    def mechanism(self) -> str:
        """The mechanism that it stands for; "" for a component."""
        return self.name.partition(_OF)[0] if self.kind == MECHANISM else ""

    @property
    def flows(self) -> tuple[str, ...]:
        """The ports whose flow is shown; "" alone: one flow says it all, from P to T or of the only port.

        Of a valve that has more ports than A and B, these; otherwise the first three.
        """
        ports = tuple(self.hydraulic)
        if len(ports) == 1 or set(ports) == {"P", "T"}:
            return ("",)
        return ("A", "B") if {"A", "B"} <= set(ports) else ports[:3]

    def flow_name(self, port: str) -> str:
        """The name of the text that shows the flow of one of `flows`."""
        return f"part.{self.name}.{port}" if port else f"part.{self.name}"


@dataclass(frozen=True)
class DrawnComponents:
    """The components by how they are drawn; ``tanks``: the tank of each node that is at one."""

    hydraulic: list[DrawnComponent]
    moving: list[DrawnComponent]
    signalling: list[DrawnComponent]
    tanks: Mapping[str, str]
    placed_tanks: list[DrawnComponent]

    @property
    def pilots(self) -> set[str]:
        """The nodes of pilot lines: a pilot port is at them, and no port through which working flow passes."""
        working, pilot = set(), set()
        for part in self.hydraulic:
            for port, node in part.hydraulic.items():
                if port in PILOT_PORTS:
                    pilot.add(node)
                elif part.kind not in _BESIDE_PILOT_LINES:
                    working.add(node)
        return pilot - working


def sorted_parts(parts: list[DrawnComponent], placed: Collection[str] = ()) -> DrawnComponents:
    """The components of a circuit by how they are drawn; the ports of the machine are among the hydraulic ones.

    A tank is drawn at each port that leads to it; one that is ``placed`` also at its place.
    """
    placed_tanks = [part for part in parts if part.kind == "tank" and part.name in placed]
    tanks = {node: part.name for part in parts if part.kind == "tank" for node in part.hydraulic.values()}
    parts = [part for part in parts if part.kind != "tank"]
    machine = dict.fromkeys(node for part in parts for node in part.hydraulic.values() if node.startswith(RIG))
    return DrawnComponents(
        [part for part in parts if part.hydraulic] + [_terminal(node) for node in machine],
        [part for part in parts if not part.hydraulic and part.mechanical],
        [part for part in parts if not part.hydraulic and not part.mechanical],
        tanks,
        placed_tanks,
    )


def read_parts(source: Mapping[str, Any]) -> list[DrawnComponent]:
    """The components in a circuit's table. A hydraulic port has a capital letter, a mechanical one has none.

    A port whose node is empty is not connected. A mechanism is drawn at each node that it moves.
    """
    parts = [_part(name, table) for name, table in source.get("components", {}).items()]
    return parts + [part for name, table in source.get("mechanisms", {}).items() for part in _joints(name, table)]


def _joints(name: str, table: Mapping[str, Any]) -> Iterator[DrawnComponent]:
    """A mechanism at each of its actuators."""
    given = table.get("nodes", {})
    for actuator in dict.fromkeys((*table.get("definition", {}).get("actuators", {}), *given)):
        drawn = Symbol(50.0, 46.0, {actuator: (0.0, 24.0)}, _LINK)
        node = str(given.get(actuator, actuator))
        yield DrawnComponent(f"{name}{_OF}{actuator}", MECHANISM, {}, {actuator: node}, {}, drawn)


def _part(name: str, table: Mapping[str, Any]) -> DrawnComponent:
    kind, ports = str(table.get("type", "")), {port: str(node) for port, node in table.get("ports", {}).items()}
    oil = [port for port in ports if port[0].isupper()]
    drawn = symbol(kind, table)
    if drawn is None or not ports.keys() <= drawn.ports.keys():
        drawn = box(tuple(oil), tuple(port for port in ports if port not in oil))
    hydraulic = {port: ports[port] for port in oil if ports[port]}
    mechanical = {port: node for port, node in ports.items() if node and port not in oil}
    signals = {port: table[port] for port in drawn.ports if port not in ports and isinstance(table.get(port), str)}
    return DrawnComponent(name, kind, hydraulic, mechanical, signals, drawn)


def _terminal(node: str) -> DrawnComponent:
    """A port of the real machine."""
    width = max(80.0, 20.0 * math.ceil(text_width(machine_port(node), VALUE, bold=True) / 20.0 + 0.5))
    body = f'<rect x="5" y="2" width="{width:g}" height="26" rx="4"/><path d="M{width / 2 + 5:g} 28v18"/>'
    plug = Symbol(width + 10.0, 46.0, {"A": (width / 2 + 5.0, 46.0)}, body)
    return DrawnComponent(node, "", {"A": node}, {}, {}, plug)


def machine_port(node: str) -> str:
    """How a port of the machine is called."""
    return f"{node.removeprefix(RIG)} · machine"
