"""Signals as lines from port to port, in a drawing whose layout knows only their names.

The lines are dotted, since ISO 1219-1 leaves solid ones to oil, dashed ones to pilot and drain, dash-dotted ones to
what encloses several components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hilserver.drawing.blocks import Box, extents
from hilserver.drawing.model import Drawing, Item, Mark, Polyline
from hilserver.drawing.routes import OUT, Lead, Segment, exchanged, route
from hilserver.drawing.symbols import Point
from hilserver.drawing.texts import ABOVE, BELOW, text_width

SIGNAL = "signal-line"
EDGE = 6.0
"""From a signal to the edge of the drawing."""


def with_signal_lines(drawing: Drawing) -> Drawing:
    """The drawing with a line for each signal with several ports; its name is shown at that line."""
    leads: dict[str, list[Lead]] = {}
    for item in drawing.items:
        for port, signal in item.part.signals.items():
            leads.setdefault(signal, []).append(_lead(item, port))
    several = {signal: ends for signal, ends in leads.items() if len(ends) > 1}
    walls = [box for item in drawing.items for box in extents(item)]
    walls += ((x - 13.0, y, x + 13.0, y + 10.0) for _, (x, y) in drawing.tanks)
    turned = [(b, a, d, c) for a, b, c, d in walls]
    drawn: list[Segment] = [pair for wire in drawing.wires for pair in pairwise(exchanged(wire.points))]
    found = replace(drawing, wires=list(drawing.wires), dots=list(drawing.dots))
    found.signals = [mark for mark in drawing.signals if mark.name not in several]
    for signal, ends in several.items():
        line = route(ends, turned, drawn)
        drawn.extend(line.segments())
        found.wires += (Polyline(signal, SIGNAL, exchanged(way)) for way in line.ways)
        heights = line.ends
        found.wires.append(Polyline(signal, SIGNAL, ((line.level, heights[0]), (line.level, heights[-1]))))
        found.dots += ((signal, (line.level, height)) for height in sorted(set(heights[1:-1])))
        found.signals.append(_name(signal, [exchanged(pair) for pair in line.segments()], walls))
    _enclose(found)
    return found


def _name(signal: str, pieces: Sequence[tuple[Point, ...]], walls: Sequence[Box]) -> Mark:
    """The name of a signal at the longest piece of its line that has room: above a level one, beside an upright one."""
    pieces = sorted(pieces, key=lambda piece: -sum(abs(p - q) for p, q in zip(*piece, strict=True)))
    marks = []
    for (a, b), (c, d) in pieces:
        x, y = (a + c) / 2, (b + d) / 2
        marks.append(Mark(signal, x, y - 4.0, "middle") if b == d else Mark(signal, x + 4.0, y + 4.0))
    return next((mark for mark in marks if not any(_meet(_extent(mark), wall) for wall in walls)), marks[0])


def _extent(mark: Mark) -> Box:
    left, right = mark.span(text_width(mark.name))
    return left, mark.y - ABOVE, right, mark.y + BELOW


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _enclose(drawing: Drawing) -> None:
    """Set the drawing's edges so that it contains its signals."""
    boxes = [_extent(mark) for mark in drawing.signals]
    boxes += ((x, y, x, y) for wire in drawing.wires if wire.kind == SIGNAL for x, y in wire.points)
    right, bottom = drawing.left + drawing.width, drawing.top + drawing.height
    drawing.left = min(drawing.left, *(box[0] - EDGE for box in boxes), 0.0)
    drawing.top = min(drawing.top, *(box[1] - EDGE for box in boxes), 0.0)
    drawing.width = max(right, *(box[2] + EDGE for box in boxes), 0.0) - drawing.left
    drawing.height = max(bottom, *(box[3] + EDGE for box in boxes), 0.0) - drawing.top


def _lead(item: Item, port: str) -> Lead:
    """A signal's port as the beginning of a line to the left or to the right, with across and along exchanged."""
    x, y = (a + b for a, b in zip((item.x, item.y), item.symbol.ports[port], strict=True))
    side = item.symbol.side(port)
    begin: tuple[Point, ...] = ()
    if side in ("top", "bottom"):
        begin = ((x, y),)
        y += OUT if side == "bottom" else -OUT
    box: Box = (item.x, item.y, item.x + item.symbol.width, item.y + item.symbol.height)
    return Lead(x, y, -1 if side == "left" else 1, box, begin=begin).turned()
