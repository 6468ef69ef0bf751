"""The ISO 1219 symbols of the components, ready to be placed in a drawing."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

from hilserver.drawing.positions import positions, square

_SVG = "http://www.w3.org/2000/svg"
_DRAWN = f"{{{_SVG}}}"
ElementTree.register_namespace("", _SVG)

Point = tuple[float, float]


@dataclass(frozen=True)
class Symbol:
    """A drawing of ``width`` × ``height`` without its letters; ``ports`` says where each port is."""

    width: float
    height: float
    ports: Mapping[str, Point]
    body: str

    def side(self, port: str) -> str:
        """The side at which a port is: left, right, top or bottom."""
        x, y = self.ports[port]
        return min((x, "left"), (self.width - x, "right"), (y, "top"), (self.height - y, "bottom"))[1]

    def turned(self, how: str) -> Symbol:
        """The symbol in another position.

        "" as drawn, "over" mirrored top to bottom, "round" by half a turn, "up" left to bottom, "down" left to top.
        """
        w, h = self.width, self.height
        if how == "over":
            return self._placed(w, h, f"translate(0 {h:g}) scale(1 -1)", lambda x, y: (x, h - y))
        if how == "round":
            return self._placed(w, h, f"translate({w:g} {h:g}) rotate(180)", lambda x, y: (w - x, h - y))
        if how == "up":
            return self._placed(h, w, f"translate(0 {w:g}) rotate(-90)", lambda x, y: (y, w - x))
        if how == "down":
            return self._placed(h, w, f"translate({h:g} 0) rotate(90)", lambda x, y: (h - y, x))
        return self

    def _placed(self, width: float, height: float, transform: str, moved: Callable[[float, float], Point]) -> Symbol:
        ports = {port: moved(*place) for port, place in self.ports.items()}
        return Symbol(width, height, ports, f'<g transform="{transform}">{self.body}</g>')


@functools.cache
def _elements(kind: str) -> tuple[Point, Mapping[str, Point], tuple[tuple[ElementTree.Element, str], ...]] | None:
    """Size, ports and elements of a symbol's file, these as text, too; None if there is no such file."""
    file = files("hilserver.components").joinpath("symbols", f"{kind}.svg")
    if not kind.isidentifier() or not file.is_file():
        return None
    root = ElementTree.fromstring(file.read_text())
    ports: dict[str, Point] = {}
    body, letter_follows = [], False
    for element in root:
        tag, port = element.tag.removeprefix(_DRAWN), element.get("data-port")
        if port is not None:
            ports[port] = (float(element.get("cx", "0")), float(element.get("cy", "0")))
        elif tag not in ("title", "desc") and not (tag == "text" and letter_follows):
            body.append((element, _text(element)))
        letter_follows = port is not None
    return (float(root.get("width", "0")), float(root.get("height", "0"))), ports, tuple(body)


def symbol(kind: str, values: Mapping[str, Any] | None = None) -> Symbol | None:
    """The symbol of a component type with these datasheet values; None if there is none (a custom component).

    Without values: the usual one of this type, as in its file. What depends on values is marked there:
    ``data-when="key"`` is drawn if the key is given and not zero, ``"key=value"`` if it has this value, ``"a|b"`` if
    one of both holds; what is not displayed in the file is not the default. ``data-position`` is the square of a
    valve's position.
    """
    known, values = _elements(kind), values or {}
    if known is None:
        return None
    (width, height), ports, elements = known
    squares = positions(kind, values)
    step = float(elements[0][0].get("data-step", "0"))
    body = []
    for element, text in elements:
        position = element.get("data-position")
        if position is not None and int(position) in squares:
            x = {port: at for port, (at, _) in ports.items()}
            directed = position != "0" or len(squares) == 2
            text = f"<g>{square(squares[int(position)], x, -int(position) * step, directed=directed)}</g>"
        if _is_drawn(element, values):
            body.append(text)
    return Symbol(width, height, ports, "".join(body))


def _text(element: ElementTree.Element) -> str:
    text = ElementTree.tostring(element, encoding="unicode").replace(f' xmlns="{_SVG}"', "").strip()
    return text.replace(' display="none"', "")


def _is_drawn(element: ElementTree.Element, values: Mapping[str, Any]) -> bool:
    """Whether the values of a component ask for this element of its symbol."""
    conditions = element.get("data-when", "").split("|")
    if not conditions[0]:
        return True
    keys = [condition.partition("=")[::2] for condition in conditions]
    if not any(key in values for key, _ in keys):
        return element.get("display") != "none"
    return any(str(values.get(key)) == wanted if wanted else _given(values.get(key)) for key, wanted in keys)


def _given(value: object) -> bool:
    """Whether a value is there and not zero, like "0 bar"."""
    number = re.match(r"[-+]?[\d.]+(e[-+]?\d+)?", str(value))
    return float(number[0]) != 0.0 if number and isinstance(value, str | float | int) else bool(value)


def box(hydraulic: tuple[str, ...], others: tuple[str, ...]) -> Symbol:
    """A plain box for a component without a symbol: hydraulic ports at bottom and top, other ports at its right."""
    below, above = hydraulic[: (len(hydraulic) + 1) // 2], hydraulic[(len(hydraulic) + 1) // 2 :]
    width = 40.0 + 20.0 * max(len(below), 2)
    height = 40.0 + 20.0 * max(len(others), 1)
    ports = {port: (30.0 + 20.0 * k, height) for k, port in enumerate(below)}
    ports |= {port: (30.0 + 20.0 * k, 0.0) for k, port in enumerate(above)}
    ports |= {port: (width, 30.0 + 20.0 * k) for k, port in enumerate(others)}
    lines = "".join(f"M{x:g} {y:g}V{min(max(y, 12), height - 12):g}" for x, y in (ports[p] for p in hydraulic))
    body = f'<rect x="10" y="12" width="{width - 20:g}" height="{height - 24:g}"/><path d="{lines}"/>'
    return Symbol(width, height, ports, body)
