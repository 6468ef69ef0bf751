"""The elements of a circuit's drawing with their positions."""

from __future__ import annotations

from dataclasses import dataclass, field

from hilserver.drawing.parts import DrawnComponent
from hilserver.drawing.symbols import Point, Symbol


@dataclass(frozen=True)
class Item:
    """A symbol and its position."""

    part: DrawnComponent
    symbol: Symbol
    x: float
    y: float
    label: Point


@dataclass(frozen=True)
class Polyline:
    """A line of a node; ``kind``: hydraulic, pilot (dashed) or mechanical."""

    node: str
    kind: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Mark:
    """A text at a place: the value of a node or a signal. ``anchor`` as in SVG."""

    name: str
    x: float
    y: float
    anchor: str = "start"


@dataclass
class Drawing:
    """All elements of a drawing."""

    width: float = 0.0
    height: float = 0.0
    items: list[Item] = field(default_factory=list)
    wires: list[Polyline] = field(default_factory=list)
    dots: list[tuple[str, Point]] = field(default_factory=list)
    tanks: list[tuple[str, Point]] = field(default_factory=list)
    nodes: list[Mark] = field(default_factory=list)
    signals: list[Mark] = field(default_factory=list)
