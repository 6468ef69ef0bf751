"""The elements of a circuit's drawing with their positions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hilserver.drawing.parts import DrawnComponent
from hilserver.drawing.symbols import Point, Symbol


@dataclass(frozen=True)
class Item:
    """A symbol, its position, and that of its label: the base line of the name, its ``anchor`` as in SVG."""

    part: DrawnComponent
    symbol: Symbol
    x: float
    y: float
    label: Point
    anchor: str = "start"

    def moved(self, x: float, y: float) -> Item:
        """A copy, moved right and down."""
        return replace(self, x=self.x + x, y=self.y + y, label=(self.label[0] + x, self.label[1] + y))


@dataclass(frozen=True)
class Polyline:
    """A line of a node; ``kind``: hydraulic, pilot (dashed) or mechanical."""

    node: str
    kind: str
    points: tuple[Point, ...]

    def moved(self, x: float, y: float) -> Polyline:
        """A copy, moved right and down."""
        return replace(self, points=tuple((a + x, b + y) for a, b in self.points))


@dataclass(frozen=True)
class Mark:
    """A text at a place: the value of a node or a signal. ``anchor`` as in SVG."""

    name: str
    x: float
    y: float
    anchor: str = "start"

    def moved(self, x: float, y: float) -> Mark:
        """A copy, moved right and down."""
        return replace(self, x=self.x + x, y=self.y + y)

    def span(self, width: float) -> tuple[float, float]:
        """The left and the right end of a text of this width."""
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, left + width


@dataclass
class Drawing:
    """All elements of a drawing; ``left``, ``top``: its upper left corner."""

    width: float = 0.0
    height: float = 0.0
    left: float = 0.0
    top: float = 0.0
    items: list[Item] = field(default_factory=list)
    wires: list[Polyline] = field(default_factory=list)
    dots: list[tuple[str, Point]] = field(default_factory=list)
    tanks: list[tuple[str, Point]] = field(default_factory=list)
    nodes: list[Mark] = field(default_factory=list)
    signals: list[Mark] = field(default_factory=list)
