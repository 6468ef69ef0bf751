"""Components as the text of a circuit file, from which tests put their circuits together.

``ports`` is written as ``"P=supply T=tank"``: port and node.
"""

from __future__ import annotations

from typing import Any


def component(name: str, kind: str, ports: str, **values: Any) -> str:
    """The table of a component with these datasheet values."""
    nodes = dict(pair.split("=") for pair in ports.split())
    return f"[components.{name}]\n{toml({'type': kind, 'ports': nodes, **values})}\n"


def tank(node: str = "T", **values: Any) -> str:
    """A tank."""
    return component("tank", "tank", f"T={node}", **values)


def volume(node: str, size: str, name: str | None = None) -> str:
    """A volume at a node; it has the name of its node if it is given none."""
    return component(name or node, "volume", f"P={node}", volume=size)


def orifice(name: str, ports: str, flow: str, drop: str) -> str:
    """An orifice, by a point of its datasheet."""
    return component(name, "orifice", ports, nominal_flow={"flow": flow, "drop": drop})


def flow_source(ports: str, flow: str, command: str | float = 1) -> str:
    """A flow source with the name ``source``."""
    return component("source", "flow_source", ports, command=command, flow=flow)


def pressure_source(name: str, node: str, command: str | float = 1, pressure: str = "100 bar") -> str:
    """A pressure source."""
    return component(name, "pressure_source", f"P={node}", command=command, pressure=pressure)


def toml(values: dict[str, Any]) -> str:
    """Values as lines of TOML."""
    return "\n".join(f"{key} = {_literal(value)}" for key, value in values.items())


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_literal(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


IN_SERIES = orifice("first", "A=P B=between", "1 l/min", "5 bar") + orifice(
    "second", "A=between B=T", "1 l/min", "5 bar"
)
"""Two orifices between P and T; the node between them has no volume."""
