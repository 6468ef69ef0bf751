"""The picture of a circuit that is being edited: every part and port, connected or not, and where each one is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hilserver.circuit.drawn import DRAWING, is_place
from hilserver.drawing.layout import draw
from hilserver.drawing.model import Drawing
from hilserver.drawing.placed import GRID
from hilserver.drawing.schematic import tanks_of
from hilserver.drawing.symbols import Point
from hilserver.editor.edits import Place
from hilserver.editor.parts import SIGNALS, Parts, PortEnd, Table, tables


@dataclass(frozen=True)
class Handle:
    """A port in the picture: where a line to it can begin and end."""

    end: PortEnd
    at: Point
    kind: str
    node: str
    is_optional: bool = False


@dataclass(frozen=True)
class Sketch:
    """A drawing, the ports in it, the place of each part, in columns and rows, and the tanks by their nodes."""

    drawing: Drawing
    handles: tuple[Handle, ...]
    places: Mapping[str, Place]
    tanks: Mapping[str, str]


def drawable(table: Table, parts: Parts, *, values: bool = True) -> dict[str, Any]:
    """The table of a circuit that can be drawn, whatever is missing or wrong; a port without a node has an empty one.

    ``values``: with the datasheet values, on which the symbols depend.
    """
    components: dict[str, Any] = {}
    for name, part in tables(table, "components").items():
        nodes, signals = {}, {}
        for port, kind in parts.ports(part).items():
            node = parts.node(table, PortEnd(name, port))
            if kind not in SIGNALS:
                nodes[port] = "" if kind == "signal" else node  # of a sub-circuit: no line, as all signals
            elif node:
                signals[port] = node
        others = {key: value for key, value in part.items() if values and key not in (*signals, *SIGNALS)}
        components[name] = {**others, "type": str(part.get("type", "")), "ports": nodes, **signals}
    given = table.get(DRAWING, {})
    known = {*components, *(node for part in components.values() for node in part["ports"].values())}
    places = given.items() if isinstance(given, Mapping) else ()
    drawn = {n: place for n, place in places if n in known and is_place(place)}
    mechanisms = {name: {"nodes": parts.actuators(each)} for name, each in tables(table, "mechanisms").items()}
    return {"components": components, DRAWING: drawn, "mechanisms": mechanisms}


def sketch(table: Table, parts: Parts) -> Sketch:
    """The picture of a circuit's table."""
    source = drawable(table, parts)
    try:
        drawing = draw(source)
    except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError):  # the check says which value is wrong
        drawing = draw(drawable(table, parts, values=False))
    components = tables(table, "components")
    handles, places = [], {}
    for item in drawing.items:
        name = item.part.name
        places[name] = (max(round(item.x / GRID), 0), max(round(item.y / GRID), 0))
        for port, kind in parts.ports(components.get(name, {})).items():
            at = item.symbol.ports.get(port)
            if at is not None:
                end = PortEnd(name, port)
                optional = parts.is_optional(components[name], port)
                handles.append(Handle(end, (item.x + at[0], item.y + at[1]), kind, parts.node(table, end), optional))
    return Sketch(drawing, tuple(handles), places, tanks_of(source))
