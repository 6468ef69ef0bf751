"""The lines that connect the blocks: where they pass a row, their heights, and how they are drawn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from hilserver.drawing.blocks import Block, Pin
from hilserver.drawing.model import Drawing, Mark, Polyline
from hilserver.drawing.parts import RIG
from hilserver.drawing.texts import node_width


@dataclass
class LineSection:
    """The part of a node's line in one zone: what it leads to below and above, its track (0 is the lowest), height."""

    node: str
    below: list[tuple[Block, Pin]] = field(default_factory=list)
    above: list[tuple[Block, Pin]] = field(default_factory=list)
    track: int = 0
    y: float = 0.0
    valued: bool = False
    """Whether the value of the node is shown at this part of its line."""

    def ends(self) -> list[float]:
        """The horizontal positions of its ends, from left to right."""
        return sorted(block.x + pin.x for block, pin in (*self.below, *self.above))

    @property
    def length(self) -> float:
        """Its length across."""
        ends = self.ends()
        return ends[-1] - ends[0]


Lines = dict[int, dict[str, LineSection]]
"""The lines by zone and node."""


def lead_lines(blocks: list[Block], zone: Mapping[str, int]) -> Lines:
    """The lines of a circuit; ``zone``: of each node. Places where a line passes a row are added to the blocks."""
    lines: Lines = {}
    passing: set[tuple[str, int]] = set()
    working = {pin.node for block in blocks for pin in block.pins if not pin.pilot}

    def line(at: int, node: str) -> LineSection:
        return lines.setdefault(at, {}).setdefault(node, LineSection(node))

    def passes(node: str, row: int) -> None:
        if (node, row) in passing:
            return
        passing.add((node, row))
        pilot = node not in working
        up, down = Pin(node, 10.0, 0.0, True, pilot), Pin(node, 10.0, 0.0, False, pilot)
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
        span = _span(lines[number])
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


def _span(line: LineSection) -> tuple[float, float]:
    """The room of a line across, with that of its value."""
    ends = line.ends()
    if not line.valued:
        return ends[0] - 12.0, ends[-1] + 12.0
    left, right = _place(line).span(value_width(line))
    return min(ends[0], left) - 12.0, max(ends[-1], right) + 12.0


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


def choose_values(lines: Lines) -> None:
    """Of each node, choose the part of its line at which its value stands: the longest one."""
    longest: dict[str, LineSection] = {}
    for zone in lines.values():
        for line in zone.values():
            before = longest.setdefault(line.node, line)
            if line.length > before.length:
                longest[line.node] = line
    for line in longest.values():
        line.valued = True


def value_places(lines: Collection[LineSection]) -> Iterator[Mark]:
    """Where values are shown in a zone: over their lines or at an end, where there is room, without crossing lines."""
    for line in lines:
        if line.valued:
            uprights = [x for other in lines for x in _uprights(other, line)]
            occupied = [_span(other) for other in lines if other is not line and other.track == line.track]
            yield _free_place(line, uprights, occupied)


def value_width(line: LineSection) -> float:
    """Width of the widest value of a line's node, with its name."""
    return node_width(line.node.removeprefix(RIG))


def _uprights(other: LineSection, line: LineSection) -> Iterator[float]:
    """Where the upright lines to the ends of a line of the same zone pass right above ``line``."""
    if other.track > line.track:
        yield from (block.x + pin.x for block, pin in other.below)
    else:
        yield from (block.x + pin.x for block, pin in other.above)


def _free_place(line: LineSection, uprights: list[float], occupied: list[tuple[float, float]]) -> Mark:
    """The place of a line's value that crosses no upright line, if there is one; otherwise as `_place`."""
    usual, width, ends = _place(line), value_width(line), line.ends()
    left = Mark(line.node, ends[0] - 6.0, line.y + 4.0, "end")
    for mark in (_place(line, uprights), _beside(line), left):
        start, end = mark.span(width)
        free = mark.anchor == "middle" or not any(start < x < end for x in uprights)
        if free and start > 0.0 and not any(start < b and a < end for a, b in occupied):
            return mark
    return usual


def _place(line: LineSection, uprights: Iterable[float] = ()) -> Mark:
    """Over the widest gap of a line between the ``uprights`` and its ends; if none is wide enough, at its right end."""
    ends, room = line.ends(), value_width(line) + 10.0
    within = sorted({*ends, *(x for x in uprights if ends[0] < x < ends[-1])})
    width, left = max(((b - a, a) for a, b in pairwise(within)), default=(0.0, 0.0))
    return Mark(line.node, left + width / 2, line.y - 5.0, "middle") if width >= room else _beside(line)


def _beside(line: LineSection) -> Mark:
    """At a line's right end."""
    return Mark(line.node, line.ends()[-1] + 6.0, line.y + 4.0)
