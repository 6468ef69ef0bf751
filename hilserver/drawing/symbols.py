"""The ISO 1219 symbols of the components, ready to be placed in a drawing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from xml.etree import ElementTree

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


_CENTRES: Mapping[str, Mapping[str, str]] = {
    "directional_valve_4_3": {
        "closed": "M130 20V48M126 48h8M150 20V48M146 48h8M130 100V72M126 72h8M150 100V72M146 72h8",
        "open": "M130 20V100M150 20V100M130 60H150",
        "tandem": "M130 20V48M126 48h8M150 20V48M146 48h8M130 100V64H150V100",
        "float": "M130 20V60H150M150 20V100M130 100V72M126 72h8",
    },
    "load_sensing_valve": {
        "closed": "M140 20V48M136 48h8M170 20V48M166 48h8M140 100V72M136 72h8M150 100V68",
        "open": "M140 20V100M170 20V58H140M150 58V100",
        "tandem": "M140 20V48M136 48h8M170 20V48M166 48h8M140 100V60H150V100",
        "float": "M140 20V58H170V20M150 58V100M140 100V72M136 72h8",
    },
}
"""The paths in the middle square of a valve by its ``centre``; the file shows the closed one."""


@functools.cache
def symbol(kind: str, centre: str = "closed") -> Symbol | None:
    """The symbol of a component type, of a 4/3 valve with this centre; None if there is none (a custom component)."""
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
        elif tag != "title" and not (tag == "text" and letter_follows):
            body.append(ElementTree.tostring(element, encoding="unicode").replace(f' xmlns="{_SVG}"', "").strip())
        letter_follows = port is not None
    text, centres = "".join(body), _CENTRES.get(kind, {})
    if centre in centres:
        text = text.replace(f'd="{centres["closed"]}"', f'd="{centres[centre]}"')
    return Symbol(float(root.get("width", "0")), float(root.get("height", "0")), ports, text)


def box(hydraulic: tuple[str, ...], others: tuple[str, ...]) -> Symbol:
    """A plain box for a component without a symbol: hydraulic ports at bottom and top, other ports at its right."""
    below, above = hydraulic[: (len(hydraulic) + 1) // 2], hydraulic[(len(hydraulic) + 1) // 2 :]
    width = 40.0 + 20.0 * max(len(below), 2)
    height = 40.0 + 20.0 * max(len(others), 1)
    ports = {port: (30.0 + 20.0 * k, height) for k, port in enumerate(below)}
    ports |= {port: (30.0 + 20.0 * k, 0.0) for k, port in enumerate(above)}
    ports |= {port: (width, 30.0 + 20.0 * k) for k, port in enumerate(others)}
    lines = "".join(f"M{x:g} {y:g}V{min(max(y, 10), height - 10):g}" for x, y in (ports[p] for p in hydraulic))
    body = f'<rect x="10" y="10" width="{width - 20:g}" height="{height - 20:g}"/><path d="{lines}"/>'
    return Symbol(width, height, ports, body)
