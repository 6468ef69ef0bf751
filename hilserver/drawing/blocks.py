"""Blocks: a component with everything placed together with it: tanks, name, signals, and what it moves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from hilserver.drawing.model import Item, Mark, Polyline
from hilserver.drawing.parts import PILOT_PORTS, DrawnComponent, DrawnComponents
from hilserver.drawing.rows import Rows
from hilserver.drawing.symbols import Point, Symbol
from hilserver.drawing.texts import ABOVE, BELOW, LINE, label_width, signal_width

STUB = 16.0
"""From a port to its tank."""
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Pin:
    """A place at a block where the line of a node leaves it, upwards or downwards; ``way``: from the port to there."""

    node: str
    x: float
    y: float
    up: bool
    pilot: bool = False
    way: tuple[Point, ...] = ()

    def moved(self, x: float, y: float) -> Pin:
        """A copy, moved right and down."""
        way = tuple((a + x, b + y) for a, b in self.way)
        return replace(self, x=self.x + x, y=self.y + y, way=way)


@dataclass
class Block:
    """Symbols that are placed together, or, without any, the place where a line passes a row."""

    row: int
    width: float = 0.0
    height: float = 0.0
    items: list[Item] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    wires: list[Polyline] = field(default_factory=list)
    tanks: list[tuple[str, Point]] = field(default_factory=list)
    signals: list[Mark] = field(default_factory=list)
    hangs: bool = False
    x: float = 0.0
    y: float = 0.0


def make_blocks(parts: DrawnComponents, rows: Rows, apart: Collection[str] = ()) -> list[Block]:
    """The blocks of a circuit: first of the components with oil, then of purely mechanical ones.

    ``apart``: the names of components that are not drawn together with others.
    """
    moving = {part.name: part for part in parts.moving if part.name not in apart}
    blocks = [_block(part, rows) for part in parts.moving if part.name in apart]
    for part in parts.hydraulic:
        block = _block(part, rows)
        if part.mechanical:
            _add_mechanics(block, moving)
        blocks.append(block)
    while moving:
        part = max(moving.values(), key=_drives)
        del moving[part.name]
        block = _block(part, rows)
        _add_mechanics(block, moving)
        blocks.append(block)
    return blocks


def _block(part: DrawnComponent, rows: Rows) -> Block:
    """A component with what belongs to it: its tanks, the names of its signals, its label."""
    row = rows.row.get(part.name, rows.top)
    drawn = part.symbol.turned(rows.turns.get(part.name, ""))
    block = Block(row)
    for port, node in part.hydraulic.items():
        x, y = drawn.ports[port]
        pilot = port in PILOT_PORTS or node in rows.pilots
        side = drawn.side(port)
        if node in rows.tanks:
            _lead_to_tank(block, node, (x, y), drawn.side(port), drawn, "pilot" if pilot else "hydraulic")
        elif side in ("top", "bottom"):
            block.pins.append(Pin(node, x, y, side == "top", pilot))
        else:
            out = x + (12.0 if side == "right" else -12.0)
            block.pins.append(Pin(node, out, y, rows.zone[node] > row, pilot, ((x, y),)))
    block.hangs = bool(block.pins) and all(pin.up for pin in block.pins)
    block.signals = tags(part, drawn, 0.0, 0.0)
    block.items.append(Item(part, drawn, 0.0, 0.0, *_label_place(block, part, drawn)))
    _settle(block)
    return block


def single(part: DrawnComponent) -> Block:
    """A component that stands alone: a tank, or one with signals only."""
    block = Block(0)
    block.signals = tags(part, part.symbol, 0.0, 0.0)
    label = (0.0, part.symbol.height + ABOVE + 4.0)
    block.items.append(Item(part, part.symbol, 0.0, 0.0, label))
    _settle(block)
    return block


def _label_place(block: Block, part: DrawnComponent, drawn: Symbol) -> tuple[Point, str]:
    """Where the label of a component with oil is, and its anchor: a free place beside its symbol."""
    high = LINE * len(part.flows)  # from the first base line to the last one
    if not part.kind:
        return (drawn.width / 2, 19.0), "middle"
    if part.mechanical:  # the right side is for moving parts
        free = min((mark.x - signal_width(mark.name) for mark in block.signals if mark.anchor == "end"), default=0.0)
        if any(pin.up for pin in block.pins):
            left = min((free, *(pin.x - 6.0 for pin in block.pins)))
            return (left - 4.0, ABOVE), "end"
        return (0.0, -BELOW - 5.0 - high), "start"
    first = (drawn.height - high - ABOVE - BELOW) / 2 + ABOVE
    for mark in block.signals:  # below a signal at the top or at the right, above one at the bottom
        if mark.y < drawn.height - 10.0 and mark.anchor == "start":
            first = max(first, mark.y + BELOW + ABOVE + 1.0)
    used = [drawn.width, *(x + 13.0 for _, (x, _) in block.tanks), *(pin.x for pin in block.pins)]
    return (max(used) + 9.0, first), "start"


def _lead_to_tank(block: Block, node: str, port: Point, side: str, drawn: Symbol, kind: str) -> None:
    """A line from a port to a tank of its own, below."""
    x, y = port
    way: tuple[Point, ...] = ((x, y),)
    if side == "bottom":
        end = (x, y + STUB)
    elif side == "top":
        aside = drawn.width + 6.0
        end, way = (aside, drawn.height), ((x, y), (x, y - 6.0), (aside, y - 6.0))
    else:
        aside = x + (10.0 if side == "right" else -10.0)
        end, way = (aside, max(y + STUB, drawn.height - 10.0)), ((x, y), (aside, y))
    block.wires.append(Polyline(node, kind, (*way, end)))
    block.tanks.append((node, end))


def _add_mechanics(block: Block, moving: dict[str, DrawnComponent]) -> None:
    """Put the parts that move with the block's component at its right, node by node; remove them from ``moving``."""
    first = block.items[0]
    waiting = [(node, _port_place(first, port)) for port, node in first.part.mechanical.items()]
    known = {node for node, _ in waiting}
    while waiting:
        node, start = waiting.pop(0)
        partners = [part for part in moving.values() if node in part.mechanical.values()]
        if not partners:
            continue
        right = max(box[2] for item in block.items for box in extents(item))
        bar, top = right + 14.0, start[1]
        to_bar: tuple[Point, ...] = (start, (bar, start[1]))
        if start[0] < right - 12.0:  # the place is occupied: below it
            low = max(_foot(item) for item in block.items)
            aside = start[0] - 8.0
            if start[0] > first.x + first.symbol.width / 2:
                aside = max(start[0] + 8.0, *(x + 15.0 for _, (x, _) in block.tanks if x > start[0]), 0.0)
            to_bar = (start, (aside, start[1]), (aside, low), (bar, low))
        ends = [to_bar[-1][1]]
        for number, part in enumerate(partners):
            del moving[part.name]
            item, port = _partner(part, node, bar, top, number)
            way = _way_from_bar(item, port, bar)
            ends.append(way[0][1])
            block.items.append(item)
            block.signals.extend(tags(part, item.symbol, item.x, item.y))
            block.wires.append(Polyline(node, "mechanical", way))
            top = _foot(item) + 8.0
            waiting += [(n, _port_place(item, p)) for p, n in part.mechanical.items() if n not in known]
            known.update(part.mechanical.values())
        block.wires.append(Polyline(node, "mechanical", to_bar))
        block.wires.append(Polyline(node, "mechanical", ((bar, min(ends)), (bar, max(ends)))))
    _settle(block)


def _partner(part: DrawnComponent, node: str, bar: float, top: float, number: int) -> tuple[Item, str]:
    """A part that moves with the node at a bar: the first one with its port at this height, the others below it."""
    port = next(port for port, at in part.mechanical.items() if at == node)
    drawn = part.symbol
    if len(part.mechanical) > 1 and drawn.side(port) == "right":
        drawn = drawn.turned("round")
    names = (signal_width(mark.name) + 4.0 for mark in tags(part, drawn, 0.0, 0.0) if mark.anchor == "end")
    x, y = bar + 16.0 + max(names, default=0.0), top - drawn.ports[port][1] if number == 0 else top
    return Item(part, drawn, x, y, (x, y + drawn.height + ABOVE + 4.0)), port


def _drives(part: DrawnComponent) -> bool:
    """Whether a part's only connection is at its right: it is drawn first."""
    return [part.symbol.side(port) for port in part.mechanical] == ["right"]


def _port_place(item: Item, port: str) -> Point:
    x, y = item.symbol.ports[port]
    return item.x + x, item.y + y


def _foot(item: Item) -> float:
    """The height below which an item has neither symbol nor name."""
    return max(box[3] for box in extents(item)) + 8.0


def _way_from_bar(item: Item, port: str, bar: float) -> tuple[Point, ...]:
    """From the bar at the left of a symbol to its port; around it and its name where the port is at its right."""
    x, y = _port_place(item, port)
    if item.symbol.side(port) != "right":
        return (bar, y), (x, y)
    low, aside = _foot(item), max(box[2] for box in extents(item)) + 6.0
    return (bar, low), (aside, low), (aside, y), (x, y)


def extents(item: Item) -> tuple[Box, Box]:
    """The extents of an item's symbol and of its label: left, top, right, bottom of each."""
    symbol = (item.x, item.y, item.x + item.symbol.width, item.y + item.symbol.height)
    if not item.part.kind:
        return symbol, symbol
    flows = item.part.flows if item.part.hydraulic else ()
    (x, y), width = item.label, label_width(item.part.name, flows)
    left = x - width if item.anchor == "end" else x
    return symbol, (left, y - ABOVE, left + width, y + LINE * len(flows) + BELOW)


def _settle(block: Block) -> None:
    """Move the contents so that none protrudes at the left or at the top, and set the block's size to theirs."""
    boxes = [box for item in block.items for box in extents(item)]
    boxes += [(x - 13.0, y, x + 13.0, y + 12.0) for _, (x, y) in block.tanks]
    places = (*(place for wire in block.wires for place in wire.points), *((pin.x, pin.y) for pin in block.pins))
    boxes += [(x - 4.0, y, x + 4.0, y) for x, y in places]
    for mark in block.signals:
        left, right = mark.span(signal_width(mark.name))
        boxes.append((left, mark.y - ABOVE, right, mark.y + BELOW))
    left, top = (min(box[side] for box in boxes) for side in (0, 1))
    block.width, block.height = max(box[2] for box in boxes) - left, max(box[3] for box in boxes) - top
    block.items = [item.moved(-left, -top) for item in block.items]
    block.wires = [wire.moved(-left, -top) for wire in block.wires]
    block.pins = [pin.moved(-left, -top) for pin in block.pins]
    block.tanks = [(node, (x - left, y - top)) for node, (x, y) in block.tanks]
    block.signals = [mark.moved(-left, -top) for mark in block.signals]


def tags(part: DrawnComponent, drawn: Symbol, x: float, y: float) -> list[Mark]:
    """The names of a component's signals at their ports."""
    marks = []
    for port, name in part.signals.items():
        px, py = drawn.ports[port]
        shift, drop, anchor = {
            "left": (-4.0, 3.5, "end"),
            "right": (4.0, 3.5, "start"),
            "top": (4.0, 4.0, "start"),
            "bottom": (4.0, 2.0, "start"),
        }[drawn.side(port)]
        marks.append(Mark(name, x + px + shift, y + py + drop, anchor))
    return marks
