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

SIGNAL = "signal-line"


def with_signal_lines(drawing: Drawing) -> Drawing:
    """The drawing with a line for each signal with several ports; its name stands at that line."""
    leads: dict[str, list[Lead]] = {}
    for item in drawing.items:
        for port, signal in item.part.signals.items():
            leads.setdefault(signal, []).append(_lead(item, port))
    several = {signal: ends for signal, ends in leads.items() if len(ends) > 1}
    walls = [(b, a, d, c) for item in drawing.items for a, b, c, d in extents(item)]
    drawn: list[Segment] = [pair for wire in drawing.wires for pair in pairwise(exchanged(wire.points))]
    wires, dots = list(drawing.wires), list(drawing.dots)
    names = [mark for mark in drawing.signals if mark.name not in several]
    for signal, ends in several.items():
        found = route(ends, walls, drawn)
        drawn.extend(found.segments())
        wires += (Polyline(signal, SIGNAL, exchanged(way)) for way in found.ways)
        heights = found.ends
        wires.append(Polyline(signal, SIGNAL, ((found.level, heights[0]), (found.level, heights[-1]))))
        dots += ((signal, (found.level, height)) for height in sorted(set(heights[1:-1])))
        names.append(_name(signal, [exchanged(pair) for pair in found.segments()]))
    return replace(drawing, wires=wires, dots=dots, signals=names)


def _name(signal: str, pieces: Sequence[tuple[Point, ...]]) -> Mark:
    """The name of a signal at the longest piece of its line: above a level one, beside an upright one."""
    (a, b), (c, d) = max(pieces, key=lambda piece: sum(abs(p - q) for p, q in zip(*piece, strict=True)))
    middle = ((a + c) / 2, (b + d) / 2)
    return Mark(signal, middle[0], b - 4.0, "middle") if b == d else Mark(signal, a + 4.0, middle[1])


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
