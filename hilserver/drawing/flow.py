"""A picture of how signals flow: blocks in columns, and lines that lead from column to column, always to the right.

Blocks are stacked in their column near what leads to them; a line that passes a column has a place of its own there,
and in the gap between two columns each source has a track of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files

from hilserver.drawing.symbols import Point
from hilserver.drawing.texts import LINE, NAME, text_width

MARGIN, APART, PAD, TRACK, PASSAGE = 16.0, 14.0, 8.0, 9.0, 12.0
"""Of the drawing's edge, between blocks, inside a block, between two tracks, and the room of a line that passes."""
NEAR = 3.0
"""Level lines that are nearer to one another look like one."""
HEAD = 20.0
FLOW_STYLE = files("hilserver.drawing").joinpath("flow.css").read_text()
"""How blocks and lines look (CSS), beside `hilserver.drawing.schematic.STYLE`: for a page that shows such a picture."""
Terminal = tuple[str, str]
"""A block, and the row of it at which a line begins or ends; "" for its first line."""


@dataclass(frozen=True)
class FlowBlock:
    """A block; ``part``: what a click on it opens.

    ``texts`` are below its ``title``, ``rows`` below these: each has a terminal of its own at both sides.
    ``attached``: it stands directly below the block before it.
    """

    name: str
    column: int
    title: str
    part: str = ""
    texts: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    kind: str = ""
    attached: bool = False

    @property
    def width(self) -> float:
        """Width of its widest line of text."""
        texts = (text_width(text) for text in (*self.texts, *self.rows))
        return 2 * PAD + max(text_width(self.title, NAME, bold=True), *texts, 40.0)

    @property
    def height(self) -> float:
        """Height of all its lines of text."""
        return HEAD + LINE * (len(self.texts) + len(self.rows)) + (4.0 if self.texts or self.rows else 0.0)

    def depth(self, row: str) -> float:
        """How far below its upper edge the terminal of a row is."""
        if row not in self.rows:
            return HEAD / 2
        return HEAD + LINE * (len(self.texts) + self.rows.index(row)) + 5.0


@dataclass(frozen=True)
class FlowLine:
    """A line from a terminal to one of a column further to the right; ``kind``: signal, flow."""

    start: Terminal
    end: Terminal
    kind: str = "signal"


@dataclass
class FlowPicture:
    """Blocks, their places (the upper left corners) and widths; the lines that are drawn, and where they branch."""

    width: float = 0.0
    height: float = 0.0
    blocks: list[tuple[FlowBlock, Point, float]] = field(default_factory=list)
    lines: Sequence[FlowLine] = ()
    ways: list[tuple[str, tuple[Point, ...]]] = field(default_factory=list)
    """The kind of each piece of line, and its corners."""
    dots: list[tuple[str, Point]] = field(default_factory=list)

    def svg(self, selected: str = "", over: Iterable[str] = ()) -> str:
        """The picture as SVG; ``selected``: a part; ``over``: elements that are drawn last."""
        begin = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="schematic flow-picture" viewBox="0 0 {self.width:g} '
            f'{self.height:g}" style="--width:{self.width:g}px" role="img" aria-label="Signals of the rig">'
        )
        ways = (f'<path class="{kind}-line" d="{_path(way)}"/>' for kind, way in self.ways)
        dots = (f'<circle class="{kind}-dot" cx="{x:g}" cy="{y:g}" r="2.5"/>' for kind, (x, y) in self.dots)
        blocks = (_block(*each, selected=bool(selected) and each[0].part == selected) for each in self.blocks)
        return "\n".join((begin, *ways, *dots, *blocks, *over, "</svg>"))


def _path(way: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in way)


def _block(block: FlowBlock, at: Point, width: float, *, selected: bool) -> str:
    (x, y), kind = at, f"block {block.kind}".strip()
    texts = [f'<text class="name" x="{x + PAD:g}" y="{y + 14:g}">{escape(block.title)}</text>']
    for number, text in enumerate((*block.texts, *block.rows)):
        word = "row" if number >= len(block.texts) else "text"
        texts.append(f'<text class="{word}" x="{x + PAD:g}" y="{y + HEAD + LINE * number + 9:g}">{escape(text)}</text>')
    size = f'width="{width:g}" height="{block.height:g}"'
    frame = f'<rect class="{kind}" x="{x:g}" y="{y:g}" {size} rx="2"/>'
    over = f'<rect class="selected" x="{x - 3:g}" y="{y - 3:g}" width="{width + 6:g}" '
    over = f'{over}height="{block.height + 6:g}" rx="4"/>' if selected else ""
    data = f' data-part="{escape(block.part)}" role="button" tabindex="0"' if block.part else ""
    return f'<g class="part"{data}>{frame}{"".join(texts)}{over}</g>'


def flow_picture(blocks: Sequence[FlowBlock], lines: Iterable[FlowLine]) -> FlowPicture:
    """The picture of blocks and of the lines between them; lines to or from blocks that do not exist are left out."""
    columns = {block.name: block.column for block in blocks}
    known = [
        line
        for line in lines
        if columns.get(line.start[0], 1 << 30) < columns.get(line.end[0], -1)  # both exist, and it leads to the right
    ]
    return _Flow(blocks, known).drawn()


class _Flow:
    def __init__(self, blocks: Sequence[FlowBlock], lines: Sequence[FlowLine]) -> None:
        self.lines = lines
        self.count = max((block.column for block in blocks), default=0) + 1
        self.stacks: list[list[list[FlowBlock]]] = [[] for _ in range(self.count)]
        """By column: groups of blocks that stand below one another without a gap."""
        for block in blocks:
            stack = self.stacks[block.column]
            if block.attached and stack:
                stack[-1].append(block)
            else:
                stack.append([block])
        self.of = {block.name: block for block in blocks}
        groups = (group for stack in self.stacks for group in stack)
        self.widths = {block.name: max(each.width for each in group) for group in groups for block in group}
        self.at: dict[str, float] = {}
        """The upper edge of each block."""
        self.passing: dict[tuple[Terminal, int], float] = {}
        """Where the line of a terminal passes a column."""

    def drawn(self) -> FlowPicture:
        picture = FlowPicture(lines=self.lines)
        for column in range(self.count):
            picture.height = max(picture.height, self._stack(column) + MARGIN)
        x = MARGIN
        for column in range(self.count):
            width = max((block.width for group in self.stacks[column] for block in group), default=0.0)
            for group in self.stacks[column]:
                picture.blocks += ((block, (x, self.at[block.name]), self.widths[block.name]) for block in group)
            x = self._lead(picture, column, x, width)
        picture.width = x + MARGIN
        return picture

    # --- heights -----------------------------------------------------------------------------------------------------

    def _height(self, terminal: Terminal, column: int) -> float:
        """Where the line of a terminal leaves a column: its own, or one that it passes."""
        block = self.of[terminal[0]]
        if block.column == column:
            return self.at[block.name] + block.depth(terminal[1])
        return self.passing[terminal, column]

    def _stack(self, column: int) -> float:
        """Set the heights of all that is in a column; returns where it ends."""
        passing = dict.fromkeys(
            line.start for line in self.lines if self.of[line.start[0]].column < column < self.of[line.end[0]].column
        )
        found: list[tuple[float, list[FlowBlock] | Terminal]] = [
            (self._height(terminal, column - 1) - PASSAGE / 2, terminal) for terminal in passing
        ]
        low = MARGIN
        for group in self.stacks[column]:
            wish = self._wish(group, column)
            low = max(low, wish) if wish is not None else low  # without lines: behind the one before it
            found.append((low, group))
        end = MARGIN
        for wish, what in sorted(found, key=lambda each: each[0]):
            top = max(end, wish)
            if isinstance(what, tuple):
                self.passing[what, column] = top + PASSAGE / 2
                end = top + PASSAGE
                continue
            for block in what:
                self.at[block.name], top = top, top + block.height
            end = top + APART
        return end - APART

    def _wish(self, group: Sequence[FlowBlock], column: int) -> float | None:
        """The height at which the lines to a group of blocks would be straight, on the average."""
        heights, depth = list[float](), 0.0
        for block in group:
            heights += (
                self._height(line.start, column - 1) - depth - block.depth(line.end[1])
                for line in self.lines
                if line.end[0] == block.name
            )
            depth += block.height
        return sum(heights) / len(heights) if heights else None

    # --- lines -------------------------------------------------------------------------------------------------------

    def _ends(self, column: int) -> Iterator[tuple[Terminal, str, list[float]]]:
        """What leads through the gap behind a column: from which terminal, of which kind, to which heights."""
        found: dict[tuple[Terminal, str], list[float]] = {}
        for line in self.lines:
            if self.of[line.start[0]].column <= column < self.of[line.end[0]].column:
                end = self.of[line.end[0]]
                there = self.passing.get((line.start, column + 1), 0.0)
                if end.column == column + 1:
                    there = self.at[end.name] + end.depth(line.end[1])
                found.setdefault((line.start, line.kind), []).append(there)
        for (terminal, kind), heights in found.items():
            yield terminal, kind, sorted(set(heights))

    def _lead(self, picture: FlowPicture, column: int, x: float, width: float) -> float:
        """Draw the lines behind a column that begins at ``x``; returns where the next one begins."""
        ends = _in_order(self._ends(column), lambda terminal: self._height(terminal, column))
        if column + 1 >= self.count:
            return x + width
        right = x + width + 2 * TRACK + TRACK * len(ends)
        track = x + width + TRACK
        for terminal, kind, heights in ends:
            here, block = self._height(terminal, column), self.of[terminal[0]]
            begin = x + (self.widths[block.name] if block.column == column else 0.0)
            track += TRACK
            if len(heights) > 1:
                picture.ways += ((kind, ((track, y), (right, y))) for y in heights)
                picture.ways.append((kind, ((begin, here), (track, here))))
                picture.ways.append((kind, ((track, min(here, *heights)), (track, max(here, *heights)))))
            elif heights[0] == here:
                picture.ways.append((kind, ((begin, here), (right, here))))
            else:
                there = heights[0]
                picture.ways.append((kind, ((begin, here), (track, here), (track, there), (right, there))))
            levels = sorted({here, *heights})
            if len(levels) > 1:
                branches = {*levels[1:-1], *({here} & set(heights))}
                picture.dots += ((kind, (track, y)) for y in sorted(branches))
        return right


_End = tuple[Terminal, str, list[float]]


def _in_order(ends: Iterable[_End], height: Callable[[Terminal], float]) -> list[_End]:
    """What leads through a gap, in the order of the tracks from left to right: without overlapping lines, and
    with few crossings.
    """
    left = sorted(ends, key=lambda end: height(end[0]), reverse=True)
    found = []
    while left:
        costs = [
            sum(_cost(end, other, height) - _cost(other, end, height) for other in left if other is not end)
            for end in left
        ]
        found.append(left.pop(costs.index(min(costs))))
    return found


def _cost(left: _End, right: _End, height: Callable[[Terminal], float]) -> int:
    """How bad it is if one line has a track to the left of that of another: overlapping lines, then crossings."""
    (here, ends), (there, others) = (height(left[0]), left[2]), (height(right[0]), right[2])
    over = sum(abs(end - there) < NEAR for end in ends)
    crossings = (min(here, *ends) < there < max(here, *ends)) + sum(
        min(there, *others) < end < max(there, *others) for end in ends
    )
    return 1000 * over + crossings
