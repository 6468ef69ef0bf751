"""A circuit as a schematic: SVG with ISO 1219 symbols, whose lines and texts can be found by name to show live values.

``data-part`` is the component that a click opens, ``data-mechanism`` the mechanism that moves a node. ``data-line`` is
the node of a line, ``data-value`` names a text: ``node.<node>``, ``part.<component>`` or ``signal.<signal>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

from hilserver.drawing.layout import draw
from hilserver.drawing.model import Drawing, Item, Mark, Polyline
from hilserver.drawing.parts import RIG, machine_port
from hilserver.drawing.symbols import Point
from hilserver.drawing.texts import LINE

STYLE = files("hilserver.drawing").joinpath("schematic.css").read_text()
"""How lines, symbols and texts look (CSS): for a page that shows schematics."""
_BUTTON = ' role="button" tabindex="0"'


def schematic(source: Mapping[str, Any]) -> str:
    """The schematic of a circuit from its table, as one SVG element; `STYLE` belongs to its page."""
    return render(draw(source), tanks_of(source))


def tanks_of(source: Mapping[str, Any]) -> dict[str, str]:
    """The tanks of a circuit by their nodes."""
    tanks = {name: part for name, part in source.get("components", {}).items() if part.get("type") == "tank"}
    return {str(node): name for name, part in tanks.items() for node in part.get("ports", {}).values()}


def picture(source: Mapping[str, Any]) -> str:
    """The schematic as a self-contained picture, for reports and files."""
    head, rest = schematic(source).split("\n", 1)
    return f"{head}\n<style>\n{STYLE}</style>\n{rest.replace(_BUTTON, '')}"


def render(drawing: Drawing, tanks: Mapping[str, str]) -> str:
    """A drawing as SVG; ``tanks``: by node, the component that a click on a tank opens."""
    width, height = round(drawing.width), round(drawing.height)
    extent = f"{drawing.left:g} {drawing.top:g} {width} {height}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="schematic" viewBox="{extent}" '
        f'style="--width:{width}px" role="img" aria-label="Schematic of the virtual circuit">',
        *(_wire(wire) for wire in drawing.wires),
        *(
            f'<circle class="dot" data-line="{escape(node)}" cx="{x:g}" cy="{y:g}" r="3"/>'
            for node, (x, y) in drawing.dots
        ),
        *(_tank(tanks.get(node), at) for node, at in drawing.tanks),
        *(_item(item) for item in drawing.items),
        *(_mark(f"node.{mark.name}", mark, "value") for mark in drawing.nodes),
        *(_mark(f"signal.{mark.name}", mark, "signal") for mark in drawing.signals),
        "</svg>",
    ]
    return "\n".join(parts)


def _wire(wire: Polyline) -> str:
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in wire.points)
    return f'<path class="line {wire.kind}" data-line="{escape(wire.node)}" d="{path}"/>'


def _tank(name: str | None, at: Point) -> str:
    x, y = at
    data = f' data-part="{escape(name)}"' if name is not None else ""
    hit = f'<rect class="hit" x="{x - 16:g}" y="{y - 6:g}" width="32" height="20"/>'
    return f'<g class="part"{data}>{hit}<path d="M{x - 13:g} {y:g}v10h26v-10"/></g>'


def _item(item: Item) -> str:
    x, y = item.x, item.y
    name, low = escape(item.part.name), item.label[1]
    at = f'x="{item.label[0]:g}" text-anchor="{item.anchor}"'
    if not item.part.kind:  # a port of the machine
        return (
            f'<g class="machine" data-machine="{name}" transform="translate({x:g} {y:g})">{item.symbol.body}</g>'
            f'<text class="port" {at} y="{low:g}">{escape(machine_port(item.part.name))}</text>'
        )
    texts = f'<text class="name" {at} y="{low:g}">{name}</text>'
    hit = f'<rect class="hit" x="{x:g}" y="{y:g}" width="{item.symbol.width:g}" height="{item.symbol.height:g}"/>'
    body = f'<g transform="translate({x:g} {y:g})">{item.symbol.body}</g>'
    if mechanism := item.part.mechanism:
        title = f"<title>mechanism {escape(mechanism)}</title>"
        return f'<g class="mechanism" data-mechanism="{escape(mechanism)}">{title}{hit}{body}{texts}</g>'
    for number, port in enumerate(item.part.flows if item.part.hydraulic else (), 1):
        value = f'data-value="{escape(item.part.flow_name(port))}"'
        texts += f'<text class="value" {at} y="{low + LINE * number:g}" {value}></text>'
    lettered = item.part.hydraulic if len(item.part.hydraulic) > 2 or item.part.kind == "subcircuit" else ()
    letters = "".join(_letter(port, item) for port in lettered)
    return (
        f'<g class="part" data-part="{name}"{_BUTTON}><title>{name}: {escape(item.part.kind)}</title>'
        f"{hit}{body}{letters}{texts}</g>"
    )


def _letter(port: str, item: Item) -> str:
    """A port's letter, beside its line."""
    x, y = item.symbol.ports[port]
    side = item.symbol.side(port)
    dx, dy = {"top": (-3.0, 9.0), "bottom": (-3.0, -3.0), "left": (2.0, -3.0), "right": (-2.0, -3.0)}[side]
    anchor = "start" if side == "left" else "end"
    place = f'x="{item.x + x + dx:g}" y="{item.y + y + dy:g}"'
    return f'<text class="letter" {place} text-anchor="{anchor}">{escape(port)}</text>'


def _mark(value: str, mark: Mark, kind: str) -> str:
    name = escape(mark.name.removeprefix(RIG))
    return (
        f'<text class="{kind}" data-value="{escape(value)}" x="{mark.x:g}" y="{mark.y:g}" '
        f'text-anchor="{mark.anchor}">{name}</text>'
    )
