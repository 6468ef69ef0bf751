"""A circuit's drawing: supply at the bottom, actuators on top, orthogonal lines.

The components are read (``parts``), set in rows (``rows``) and put together with what belongs to them (``blocks``);
lines are led between them (``lines``), and all get their places (``places``). A tank is drawn at each port that leads
to it, as engineers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hilserver.drawing.blocks import LETTER, Block, make_blocks, tags
from hilserver.drawing.lines import Lines, draw_line, lead_lines, value_place
from hilserver.drawing.model import Drawing, Item, Mark, Polyline
from hilserver.drawing.parts import DrawnComponent, read_parts, sorted_parts
from hilserver.drawing.places import MARGIN, place_across, place_upwards
from hilserver.drawing.rows import Rows
from hilserver.drawing.symbols import Point


def draw(source: Mapping[str, Any]) -> Drawing:
    """The drawing of a circuit from its table, which must be a valid circuit."""
    parts = sorted_parts(read_parts(source))
    rows = Rows(parts)
    blocks = make_blocks(parts, rows)
    lines = lead_lines(blocks, rows.zone)
    place_across(blocks, lines)
    drawing = Drawing(height=place_upwards(blocks, lines) + MARGIN)
    drawing.width = max((block.x + block.width for block in blocks), default=0.0) + MARGIN
    for block in blocks:
        _draw_block(drawing, block)
    _draw_lines(drawing, lines)
    _draw_signals(drawing, parts.signalling)
    return drawing


def _draw_lines(drawing: Drawing, lines: Lines) -> None:
    """All lines; the value of a node is where its line is longest."""
    marks: dict[str, tuple[float, Mark]] = {}
    for zone in lines.values():
        for line in zone.values():
            draw_line(drawing, line)
            length, mark = value_place(line)
            if line.node not in marks or length > marks[line.node][0]:
                marks[line.node] = length, mark
    drawing.nodes.extend(mark for _, mark in marks.values())


def _draw_block(drawing: Drawing, block: Block) -> None:
    def moved(points: Iterable[Point]) -> tuple[Point, ...]:
        return tuple((block.x + x, block.y + y) for x, y in points)

    for item in block.items:
        place, label = moved([(item.x, item.y)])[0], moved([item.label])[0]
        drawing.items.append(Item(item.part, item.symbol, *place, label))
    drawing.wires.extend(Polyline(wire.node, wire.kind, moved(wire.points)) for wire in block.wires)
    drawing.tanks.extend((node, moved([at])[0]) for node, at in block.tanks)
    drawing.signals.extend(Mark(m.name, block.x + m.x, block.y + m.y, m.anchor) for m in block.signals)


def _draw_signals(drawing: Drawing, signalling: list[DrawnComponent]) -> None:
    """Components without oil or motion, in lines below the drawing, with the names of their signals."""
    x, y, line = MARGIN, drawing.height, 0.0
    for part in signalling:
        room = LETTER * max(map(len, part.signals.values()), default=0) + 10
        width = part.symbol.width + 2 * room
        if x > MARGIN and x + width > max(drawing.width, 700.0):
            x, y, line = MARGIN, y + line + 34.0, 0.0
        label = (x + room + part.symbol.width / 2, y + part.symbol.height + 12)
        drawing.items.append(Item(part, part.symbol, x + room, y, label))
        drawing.signals.extend(tags(part, part.symbol, x + room, y))
        x, line = x + width + 10, max(line, part.symbol.height)
        drawing.width = max(drawing.width, x + MARGIN)
    if signalling:
        drawing.height = y + line + 40.0
