"""The lines of a drawing: what they lead to, and what they lie on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hilserver.drawing.model import Polyline
from hilserver.drawing.symbols import Point

Segment = tuple[Point, Point]


def segments(wires: list[Polyline]) -> Iterator[tuple[str, Segment]]:
    for wire in wires:
        for start, end in pairwise(wire.points):
            if start != end:
                yield wire.node, (start, end)


def on(point: Point, segment: Segment) -> bool:
    (x, y), ((a, b), (c, d)) = point, segment
    return min(a, c) - 0.1 <= x <= max(a, c) + 0.1 and min(b, d) - 0.1 <= y <= max(b, d) + 0.1


def touch(one: Segment, other: Segment) -> bool:
    return any(on(point, other) for point in one) or any(on(point, one) for point in other)


def reached(start: Point, lines: list[Segment]) -> list[Segment]:
    """The segments that are connected to a point."""
    found = [line for line in lines if on(start, line)]
    for line in found:
        found += [other for other in lines if other not in found and touch(line, other)]
    return found


def overlap(one: Segment, other: Segment) -> float:
    """Length over which two segments lie on one another, or nearly."""
    for across in (0, 1):
        along = 1 - across
        places = {round(point[across]) for point in (*one, *other)}
        if max(places) - min(places) <= 2:
            first, second = sorted((sorted(p[along] for p in one), sorted(p[along] for p in other)))
            return min(first[1], second[1]) - second[0]
    return 0.0
