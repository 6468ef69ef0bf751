"""The lines that connect the blocks: where they pass a row, their heights, and how they are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from hilserver.drawing.blocks import Block, Pin
from hilserver.drawing.model import Drawing, Mark, Polyline


@dataclass
class LineSection:
    """The part of a node's line in one zone: what it leads to below and above, its track (0 is the lowest), height."""

    node: str
    below: list[tuple[Block, Pin]] = field(default_factory=list)
    above: list[tuple[Block, Pin]] = field(default_factory=list)
    track: int = 0
    y: float = 0.0

    def ends(self) -> list[float]:
        """The horizontal positions of its ends, from left to right."""
        return sorted(block.x + pin.x for block, pin in (*self.below, *self.above))


Lines = dict[int, dict[str, LineSection]]
"""The lines by zone and node."""


def lead_lines(blocks: list[Block], zone: Mapping[str, int]) -> Lines:
    """The lines of a circuit; ``zone``: of each node. Places where a line passes a row are added to the blocks."""
    lines: Lines = {}
    passing: set[tuple[str, int]] = set()

    def line(at: int, node: str) -> LineSection:
        return lines.setdefault(at, {}).setdefault(node, LineSection(node))

    def passes(node: str, row: int) -> None:
        if (node, row) in passing:
            return
        passing.add((node, row))
        up, down = Pin(node, 10.0, 0.0, True), Pin(node, 10.0, 0.0, False)
        block = Block(row, 20.0, pins=[up, down])
        blocks.append(block)
        line(row + 1, node).below.append((block, up))
        line(row, node).above.append((block, down))

    for block in list(blocks):
        for pin in block.pins:
            start, end = block.row + pin.up, zone[pin.node]
            found = line(start, pin.node)
            (found.below if pin.up else found.above).append((block, pin))
            for row in range(min(start, end), max(start, end)):
                passes(pin.node, row)
    return lines


def set_tracks(lines: list[LineSection]) -> int:
    """Give each line of a zone a track; returns how many there are.

    Where an end from below and one from above meet at the same place across, the former's line must be the lower one,
    so that the two do not overlap. (If both conditions contradict, the order of the circuit decides.)
    """
    lower: dict[int, set[int]] = {number: set() for number in range(len(lines))}
    for one, first in enumerate(lines):
        for other, second in enumerate(lines):
            if one != other and _meet(first, second) and other not in lower[one]:
                lower[other].add(one)
    waiting, taken = sorted(lower, key=lambda n: lines[n].ends()[0]), set[int]()
    tracks: list[list[tuple[float, float]]] = []
    while waiting:
        number = next((n for n in waiting if lower[n] <= taken), waiting[0])
        waiting.remove(number)
        taken.add(number)
        ends = lines[number].ends()
        span = (ends[0] - 12.0, ends[-1] + (12.0 if ends[0] < ends[-1] else 80.0))
        lowest = max((lines[n].track + 1 for n in lower[number] if n in taken), default=0)
        track = next(
            (t for t in range(lowest, len(tracks)) if all(span[1] < a or b < span[0] for a, b in tracks[t])), None
        )
        if track is None:
            track = max(len(tracks), lowest)
            tracks.extend([] for _ in range(track + 1 - len(tracks)))
        tracks[track].append(span)
        lines[number].track = track
    return len(tracks)


def _meet(low: LineSection, high: LineSection) -> bool:
    """Whether an end of ``low`` from below is right under an end of ``high`` from above."""
    return any(abs((a.x + p.x) - (b.x + q.x)) < 6.0 for a, p in low.below for b, q in high.above)


def draw_line(drawing: Drawing, line: LineSection) -> None:
    """A node's line across, the lines to its ends, and dots where three lines meet."""
    ends, both = line.ends(), (*line.below, *line.above)
    kind = "pilot" if all(pin.pilot for _, pin in both) else "hydraulic"
    if ends[0] < ends[-1]:
        drawing.wires.append(Polyline(line.node, kind, ((ends[0], line.y), (ends[-1], line.y))))
    for block, pin in both:
        way = tuple((block.x + x, block.y + y) for x, y in (*pin.way, (pin.x, pin.y)))
        kind = "pilot" if pin.pilot else "hydraulic"
        drawing.wires.append(Polyline(line.node, kind, (*way, (block.x + pin.x, line.y))))
    for x in sorted(set(ends)):
        if ends.count(x) + (x > ends[0]) + (x < ends[-1]) > 2:
            drawing.dots.append((line.node, (x, line.y)))


def value_place(line: LineSection) -> tuple[float, Mark]:
    """The line's length, and where the value has room: over the widest gap between its ends, otherwise at its right
    end."""
    ends = line.ends()
    width, left = max(((b - a, a) for a, b in pairwise(ends)), default=(0.0, ends[0]))
    if width > 96.0:
        return ends[-1] - ends[0], Mark(line.node, left + width / 2, line.y - 5.0, "middle")
    return ends[-1] - ends[0], Mark(line.node, ends[-1] + 6.0, line.y + 4.0)
