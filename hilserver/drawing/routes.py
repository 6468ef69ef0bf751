"""Lines between parts whose places somebody has chosen: each node is a straight line with a branch to every port.

The height of that line is the cheapest of those that the ports suggest: short, not through symbols or texts, not on
other lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hilserver.drawing.blocks import Box
from hilserver.drawing.symbols import Point

OUT = 12.0
"""A line leaves its port by this distance before it turns."""
LEAST = 5.0
"""The same, where two ports face one another."""
_HIT, _OVERLAP, _BEND = 300.0, 150.0, 8.0
_CLOSE = 5.0
"""Lines nearer to one another than this can't be told apart."""
Way = tuple[Point, ...]
Segment = tuple[Point, Point]


@dataclass(frozen=True)
class Lead:
    """A port from which a line leaves: its place, up (-1) or down (1), from where, and the extent of its part."""

    x: float
    y: float
    way: int
    box: Box
    pilot: bool = False
    begin: Way = ()

    def turned(self) -> Lead:
        """With across and along exchanged: for lines that lead sideways out of their ports."""
        left, top, right, bottom = self.box
        return Lead(self.y, self.x, self.way, (top, left, bottom, right), self.pilot, exchanged(self.begin))

    def ways(self, level: float) -> Iterator[Way]:
        """The ways from the port to a line at this height: straight, or around the part."""
        begin = (*self.begin, (self.x, self.y))
        if (level - self.y) * self.way >= LEAST:
            yield (*begin, (self.x, level))
            return
        out = self.y + self.way * OUT
        for aside in (self.box[0] - OUT, self.box[2] + OUT):
            yield (*begin, (self.x, out), (aside, out), (aside, level))


@dataclass(frozen=True)
class Route:
    """The line of a node: its height, its ends, the way of each port to it."""

    level: float
    ways: tuple[Way, ...]

    @property
    def ends(self) -> list[float]:
        """Where the ways meet the line, from left to right."""
        return sorted(way[-1][0] for way in self.ways)

    def segments(self) -> Iterator[Segment]:
        """All straight pieces."""
        for way in self.ways:
            yield from pairwise(way)
        ends = self.ends
        if ends[0] < ends[-1]:
            yield (ends[0], self.level), (ends[-1], self.level)


def exchanged(points: Way) -> Way:
    """Points with across and along exchanged."""
    return tuple((y, x) for x, y in points)


def route(leads: Sequence[Lead], walls: Sequence[Box], drawn: Sequence[Segment]) -> Route:
    """The line of a node that joins these ports. ``walls``: what it should not cross; ``drawn``: other lines."""
    near = sorted({lead.y + lead.way * OUT * k for lead in leads for k in (1.0, 2.0, 3.0)})
    levels = [*near, *((a.y + b.y) / 2 for a, b in pairwise(sorted(leads, key=lambda lead: lead.y)))]
    found = [_at_level(leads, level, walls, drawn) for level in levels]
    return min(found, key=lambda one: _cost(tuple(one.segments()), walls, drawn))


def _at_level(leads: Sequence[Lead], level: float, walls: Sequence[Box], drawn: Sequence[Segment]) -> Route:
    middle = sum(lead.x for lead in leads) / len(leads)

    def cost(way: Way) -> float:
        return _cost(tuple(pairwise(way)), walls, drawn) + abs(way[-1][0] - middle) + _BEND * len(way)

    return Route(level, tuple(min(lead.ways(level), key=cost) for lead in leads))


def _cost(segments: Sequence[Segment], walls: Sequence[Box], drawn: Sequence[Segment]) -> float:
    total = 0.0
    for segment in segments:
        (a, b), (c, d) = segment
        total += abs(c - a) + abs(d - b)
        total += _HIT * sum(_crosses(segment, wall) for wall in walls)
        total += _OVERLAP * sum(_lies_on(segment, other) for other in drawn)
    return total


def _crosses(segment: Segment, box: Box) -> bool:
    """Whether a straight piece leads through a box, not only along its edge."""
    (a, b), (c, d) = segment
    left, top, right, bottom = box
    return min(a, c) < right - 2 and max(a, c) > left + 2 and min(b, d) < bottom - 2 and max(b, d) > top + 2


def _lies_on(one: Segment, other: Segment) -> bool:
    """Whether two straight pieces can't be told apart: parallel, and on one another."""
    for across in (0, 1):
        along = 1 - across
        places = [point[across] for point in (*one, *other)]
        if max(places) - min(places) < _CLOSE:
            (a, b), (c, d) = sorted(point[along] for point in one), sorted(point[along] for point in other)
            return min(b, d) - max(a, c) > 1.0
    return False
