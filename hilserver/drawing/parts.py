"""The components of a circuit as they are drawn: their symbols and what is connected to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hilserver.drawing.symbols import Symbol, box, symbol

RIG = "rig."
"""Prefix of the names of the nodes at the machine's ports."""


@dataclass(frozen=True)
class DrawnComponent:
    """A component of the circuit: its nodes by port, hydraulic and mechanical, and its signals by port."""

    name: str
    kind: str
    hydraulic: Mapping[str, str]
    mechanical: Mapping[str, str]
    signals: Mapping[str, str]
    symbol: Symbol

    def side_used(self, drawn: Symbol, side: str) -> bool:
        """Whether a port of oil is at this side of the symbol as it is drawn."""
        return any(drawn.side(port) == side for port in self.hydraulic)


@dataclass(frozen=True)
class DrawnComponents:
    """The components by how they are drawn; ``tanks``: the tank of each node that is at one."""

    hydraulic: list[DrawnComponent]
    moving: list[DrawnComponent]
    signalling: list[DrawnComponent]
    tanks: Mapping[str, str]


def sorted_parts(parts: list[DrawnComponent]) -> DrawnComponents:
    """The components of a circuit by how they are drawn; the ports of the machine are among the hydraulic ones."""
    tanks = {node: part.name for part in parts if part.kind == "tank" for node in part.hydraulic.values()}
    parts = [part for part in parts if part.kind != "tank"]
    machine = dict.fromkeys(node for part in parts for node in part.hydraulic.values() if node.startswith(RIG))
    return DrawnComponents(
        [part for part in parts if part.hydraulic] + [_terminal(node) for node in machine],
        [part for part in parts if not part.hydraulic and part.mechanical],
        [part for part in parts if not part.hydraulic and not part.mechanical],
        tanks,
    )


def read_parts(source: Mapping[str, Any]) -> list[DrawnComponent]:
    """The components in a circuit's table. A hydraulic port has a capital letter, a mechanical one has none."""
    return [_part(name, table) for name, table in source.get("components", {}).items()]


def _part(name: str, table: Mapping[str, Any]) -> DrawnComponent:
    kind, ports = str(table.get("type", "")), {port: str(node) for port, node in table.get("ports", {}).items()}
    hydraulic = {port: node for port, node in ports.items() if port[0].isupper()}
    mechanical = {port: node for port, node in ports.items() if port not in hydraulic}
    drawn = symbol(kind, str(table.get("centre", "closed")))
    if drawn is None or not ports.keys() <= drawn.ports.keys():
        drawn = box(tuple(hydraulic), tuple(mechanical))
    signals = {port: table[port] for port in drawn.ports if port not in ports and isinstance(table.get(port), str)}
    return DrawnComponent(name, kind, hydraulic, mechanical, signals, drawn)


def _terminal(node: str) -> DrawnComponent:
    """A port of the real machine."""
    plug = Symbol(
        90.0, 46.0, {"A": (45.0, 46.0)}, '<rect x="5" y="2" width="80" height="26" rx="4"/><path d="M45 28v18"/>'
    )
    return DrawnComponent(node, "", {"A": node}, {}, {}, plug)
