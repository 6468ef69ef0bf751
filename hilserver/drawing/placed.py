"""Parts at places that the circuit's file gives, and the lines to them; all others stay where the layout puts them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from hilserver.drawing.blocks import Block, Box, Pin, extents
from hilserver.drawing.model import Drawing, Mark, Polyline
from hilserver.drawing.parts import DrawnComponent
from hilserver.drawing.routes import OUT, Lead, Route, Segment, exchanged, route
from hilserver.drawing.symbols import Point
from hilserver.drawing.texts import node_width

GRID = 20.0
"""Width of a column and height of a row, in the units of the drawing."""
RIG = "rig."


def read_places(source: Mapping[str, Any]) -> dict[str, Point]:
    """The places in a circuit's table, in units of the drawing: upper left corners of symbols."""
    return {name: (GRID * column, GRID * row) for name, (column, row) in source.get("drawing", {}).items()}


def facing(parts: Sequence[DrawnComponent], places: Mapping[str, Point]) -> dict[str, str]:
    """How parts that move are turned: by half a turn where the one at their right port is left of that at the left."""
    at: dict[str, list[tuple[str, float]]] = {}
    for part in parts:
        for node in part.mechanical.values():
            if part.name in places:
                at.setdefault(node, []).append((part.name, places[part.name][0]))
    turns = {}
    for part in parts:
        sides = {part.symbol.side(port): node for port, node in part.mechanical.items()}
        others = {
            side: [x for name, x in at.get(node, ()) if name != part.name]
            for side, node in sides.items()
            if side in ("left", "right")
        }
        if part.name in places and all(others.get(side) for side in ("left", "right")):
            left, right = (sum(others[side]) / len(others[side]) for side in ("left", "right"))
            if right < left:
                turns[part.name] = "round"
    return turns


def put(blocks: Sequence[Block], places: Mapping[str, Point]) -> list[Block]:
    """Move the blocks that have places to them; returns these."""
    moved = [block for block in blocks if block.items and block.items[0].part.name in places]
    for block in moved:
        first = block.items[0]
        x, y = places[first.part.name]
        block.x, block.y = x - first.x, y - first.y
    return moved


def nodes_to_lead(blocks: Sequence[Block], moved: Sequence[Block]) -> set[str]:
    """The nodes whose lines are led anew: those of parts at given places."""
    return {pin.node for block in moved for pin in block.pins} | {
        node
        for block in moved
        for item in block.items
        for node in item.part.mechanical.values()
        if sum(_moves_with(other, node) for other in blocks) > 1
    }


def draw_routes(drawing: Drawing, blocks: Sequence[Block], nodes: Collection[str]) -> None:
    """Draw the lines of these nodes around everything that is drawn."""
    walls = [box for block in blocks for item in block.items for box in extents(item.moved(block.x, block.y))]
    drawn: list[Segment] = []
    for node in sorted(nodes):
        pins = [(block, pin) for block in blocks if block.items for pin in block.pins if pin.node == node]
        leads = [lead for block, pin in pins for lead in [_lead(block, pin)]]
        if leads:
            found = route(leads, walls, drawn)
            drawn.extend(found.segments())
            _draw(drawing, node, found, [lead.pilot for lead in leads])
        sideways = [_sideways(block, node).turned() for block in blocks if _moves_with(block, node)]
        if len(sideways) > 1:
            others = [segment for one in drawn for segment in pairwise(exchanged(one))]
            upright = route(sideways, [(b, a, d, c) for a, b, c, d in walls], others)
            drawn.extend(pair for segment in upright.segments() for pair in pairwise(exchanged(segment)))
            for way in upright.ways:
                drawing.wires.append(Polyline(node, "mechanical", exchanged(way)))
            ends = upright.ends
            drawing.wires.append(Polyline(node, "mechanical", ((upright.level, ends[0]), (upright.level, ends[-1]))))


def _lead(block: Block, pin: Pin) -> Lead:
    begin = tuple((block.x + x, block.y + y) for x, y in pin.way)
    return Lead(block.x + pin.x, block.y + pin.y, -1 if pin.up else 1, _box(block), pin.pilot, begin)


def _box(block: Block) -> Box:
    first = block.items[0]
    x, y = block.x + first.x, block.y + first.y
    return x, y, x + first.symbol.width, y + first.symbol.height


def _moves_with(block: Block, node: str) -> bool:
    return any(node in item.part.mechanical.values() for item in block.items)


def _sideways(block: Block, node: str) -> Lead:
    """The port of a block at a mechanical node, as a lead to the left or to the right."""
    item = next(item for item in block.items if node in item.part.mechanical.values())
    port = next(port for port, at in item.part.mechanical.items() if at == node)
    x, y = (a + b + c for a, b, c in zip((block.x, block.y), (item.x, item.y), item.symbol.ports[port], strict=True))
    side = item.symbol.side(port)
    begin: tuple[Point, ...] = ()
    if side in ("top", "bottom"):
        begin = ((x, y),)
        y += OUT if side == "bottom" else -OUT
    return Lead(x, y, -1 if side == "left" else 1, _box(block), begin=begin)


def _draw(drawing: Drawing, node: str, found: Route, pilots: Sequence[bool]) -> None:
    ends, level = found.ends, found.level
    if ends[0] < ends[-1]:
        kind = "pilot" if all(pilots) else "hydraulic"
        drawing.wires.append(Polyline(node, kind, ((ends[0], level), (ends[-1], level))))
    for way, pilot in zip(found.ways, pilots, strict=True):
        drawing.wires.append(Polyline(node, "pilot" if pilot else "hydraulic", way))
    for x in sorted(set(ends)):
        if ends.count(x) + (x > ends[0]) + (x < ends[-1]) > 2:
            drawing.dots.append((node, (x, level)))
    gap, left = max(((b - a, a) for a, b in pairwise(ends)), default=(0.0, 0.0))
    over = gap >= node_width(node.removeprefix(RIG)) + 10.0
    middle = Mark(node, left + gap / 2, level - 5.0, "middle")
    drawing.nodes.append(middle if over else Mark(node, ends[-1] + 6.0, level + 4.0))


def enclose(drawing: Drawing, blocks: Sequence[Block], margin: float) -> None:
    """Set the drawing's edges so that it contains everything."""
    boxes = [*_boxes(drawing, blocks)]
    drawing.left, drawing.top = (min(0.0, *(box[side] - margin for box in boxes)) for side in (0, 1))
    right, bottom = (max((box[side] for box in boxes), default=0.0) + margin for side in (2, 3))
    drawing.width, drawing.height = right - drawing.left, bottom - drawing.top


def _boxes(drawing: Drawing, blocks: Sequence[Block]) -> Iterator[Box]:
    for block in blocks:
        if block.items:
            yield block.x, block.y, block.x + block.width, block.y + block.height
    for wire in drawing.wires:
        for x, y in wire.points:
            yield x, y, x, y
    for mark in drawing.nodes:
        left, right = mark.span(node_width(mark.name.removeprefix(RIG)))
        yield left, mark.y - 10.0, right, mark.y + 4.0
    yield 0.0, 0.0, 100.0, 60.0
