"""A circuit's drawing: supply at the bottom, actuators on top, orthogonal lines.

The components are read (``parts``), set in rows (``rows``) and put together with what belongs to them (``blocks``);
lines are led between them (``lines``), and all get their places (``places``). What has a place in the circuit's file
is put there instead (``placed``), and lines are led to it (``routes``). A tank is drawn at each port that leads to it,
as engineers do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hilserver.drawing.blocks import Block, make_blocks, single, tags
from hilserver.drawing.lines import (
    Lines,
    choose_values,
    draw_line,
    lead_lines,
    value_places,
    value_width,
)
from hilserver.drawing.model import Drawing, Item
from hilserver.drawing.parts import DrawnComponent, read_parts, sorted_parts
from hilserver.drawing.placed import draw_routes, enclose, facing, nodes_to_lead, put, read_places
from hilserver.drawing.places import MARGIN, place_across, place_upwards
from hilserver.drawing.rows import Rows
from hilserver.drawing.texts import label_width, signal_width


def draw(source: Mapping[str, Any]) -> Drawing:
    """The drawing of a circuit from its table, which must be a valid circuit."""
    places = read_places(source)
    parts = sorted_parts(read_parts(source), places)
    rows = Rows(parts)
    rows.turns |= facing([*parts.moving, *(part for part in parts.hydraulic if part.mechanical)], places)
    blocks = make_blocks(parts, rows, places)
    lines = lead_lines(blocks, rows.zone)
    place_across(blocks, lines)
    choose_values(lines)
    drawing = Drawing(height=place_upwards(blocks, lines) + MARGIN)
    drawing.width = max((block.x + block.width for block in blocks), default=0.0) + MARGIN
    others = [*parts.placed_tanks, *(part for part in parts.signalling if part.name in places)]
    blocks += [single(part) for part in others]
    moved = put(blocks, places)
    anew = nodes_to_lead(blocks, moved)
    for block in blocks:
        _draw_block(drawing, block)
    _draw_lines(drawing, lines, anew)
    draw_routes(drawing, blocks, anew)
    if moved:
        enclose(drawing, blocks, MARGIN)
    _draw_signals(drawing, [part for part in parts.signalling if part.name not in places])
    return drawing


def _draw_lines(drawing: Drawing, lines: Lines, without: Collection[str]) -> None:
    """All lines but those of some nodes, with the values of their nodes."""
    for zone in lines.values():
        for line in zone.values():
            if line.node not in without:
                draw_line(drawing, line)
        for mark in value_places([line for line in zone.values() if line.node not in without]):
            drawing.nodes.append(mark)
            drawing.width = max(drawing.width, mark.span(value_width(zone[mark.name]))[1] + MARGIN)


def _draw_block(drawing: Drawing, block: Block) -> None:
    drawing.items.extend(item.moved(block.x, block.y) for item in block.items)
    drawing.wires.extend(wire.moved(block.x, block.y) for wire in block.wires)
    drawing.tanks.extend((node, (block.x + x, block.y + y)) for node, (x, y) in block.tanks)
    drawing.signals.extend(mark.moved(block.x, block.y) for mark in block.signals)


def _draw_signals(drawing: Drawing, signalling: list[DrawnComponent]) -> None:
    """Components without oil or motion, in lines below the drawing, with the names of their signals."""
    x, y, line = MARGIN, drawing.top + drawing.height, 0.0
    for part in signalling:
        room = max(map(signal_width, part.signals.values()), default=0.0) + 10.0
        width = part.symbol.width + 2 * room
        if x > MARGIN and x + width > max(drawing.width, 700.0):
            x, y, line = MARGIN, y + line + 34.0, 0.0
        label = (x + room, y + part.symbol.height + 12)
        drawing.items.append(Item(part, part.symbol, x + room, y, label))
        drawing.signals.extend(tags(part, part.symbol, x + room, y))
        x, line = x + max(width, room + label_width(part.name, ())) + 10.0, max(line, part.symbol.height)
        drawing.width = max(drawing.width, x - drawing.left + MARGIN)
    if signalling:
        drawing.height = y - drawing.top + line + 40.0
