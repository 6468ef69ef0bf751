"""Blocks: a component with everything placed together with it: tanks, name, signals, and what it moves."""

from __future__ import annotations

from dataclasses import dataclass, field

from hilserver.drawing.model import Item, Mark, Polyline
from hilserver.drawing.parts import DrawnComponent, DrawnComponents
from hilserver.drawing.rows import Rows
from hilserver.drawing.symbols import Point, Symbol

STUB = 16.0
"""From a port to its tank."""
LETTER = 6.6
"""Width of a letter of the names."""
_PILOT_PORTS = {"X", "Y", "L", "LS"}


@dataclass(frozen=True)
class Pin:
    """A place at a block where the line of a node leaves it, upwards or downwards; ``way``: from the port to there."""

    node: str
    x: float
    y: float
    up: bool
    pilot: bool = False
    way: tuple[Point, ...] = ()


@dataclass
class Block:
    """Symbols that are placed together, or, without any, the place where a line passes a row."""

    row: int
    width: float
    height: float = 0.0
    items: list[Item] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    wires: list[Polyline] = field(default_factory=list)
    tanks: list[tuple[str, Point]] = field(default_factory=list)
    signals: list[Mark] = field(default_factory=list)
    hangs: bool = False
    x: float = 0.0
    y: float = 0.0


def make_blocks(parts: DrawnComponents, rows: Rows) -> list[Block]:
    """The blocks of a circuit: first of the components with oil, then of purely mechanical ones."""
    moving = {part.name: part for part in parts.moving}
    blocks = []
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
    """A component with what belongs to it: its name, its tanks, the names of its signals."""
    row = rows.row.get(part.name, rows.top)
    drawn = part.symbol.turned(rows.turns.get(part.name, ""))
    left = LETTER * max((len(name) for port, name in part.signals.items() if drawn.side(port) == "left"), default=0)
    left += 14.0 * part.side_used(drawn, "left")
    right = LETTER * max(len(part.name) + 1, 10) + 12.0 * part.side_used(drawn, "right") if part.kind else 0.0
    block = Block(row, left + drawn.width + right, drawn.height)
    label = (left + drawn.width + (16 if part.side_used(drawn, "right") else 4), drawn.height / 2)
    if not part.kind:
        label = (left + drawn.width / 2, 19.0)
    elif part.mechanical:  # the right side is for moving parts
        label = (left + 20.0, 8.0)
    block.items.append(Item(part, drawn, left, 0.0, label))
    for port, node in part.hydraulic.items():
        x, y = drawn.ports[port]
        pilot = port in _PILOT_PORTS
        side = drawn.side(port)
        x += left
        if node in rows.tanks:
            _lead_to_tank(block, node, x, y, side, drawn, left)
        elif side in ("top", "bottom"):
            block.pins.append(Pin(node, x, y, side == "top", pilot))
        else:
            out = x + (12.0 if side == "right" else -12.0)
            block.pins.append(Pin(node, out, y, rows.zone[node] > row, pilot, ((x, y),)))
    block.hangs = bool(block.pins) and all(pin.up for pin in block.pins)
    block.signals = tags(part, drawn, left, 0.0)
    return block


def _lead_to_tank(block: Block, node: str, x: float, y: float, side: str, drawn: Symbol, left: float) -> None:
    """A line from a port to a tank of its own, below."""
    way: tuple[Point, ...] = ((x, y),)
    if side == "bottom":
        end = (x, y + STUB)
    elif side == "top":
        aside = left + drawn.width + 6.0
        end, way = (aside, drawn.height), ((x, y), (x, y - 6.0), (aside, y - 6.0))
    else:
        aside = x + (10.0 if side == "right" else -10.0)
        end, way = (aside, max(y + STUB, drawn.height - 10.0)), ((x, y), (aside, y))
    block.wires.append(Polyline(node, "hydraulic", (*way, end)))
    block.tanks.append((node, end))
    block.height = max(block.height, end[1] + 16.0)


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
        right = max(item.x + item.symbol.width for item in block.items)
        low = max(_foot(item) for item in block.items)
        bar, top = right + 14.0, start[1]
        to_bar: tuple[Point, ...] = (start, (bar, start[1]))
        if start[0] < right - 12.0:  # the place is occupied: below it
            aside = start[0] + (8.0 if start[0] > first.x + first.symbol.width / 2 else -8.0)
            to_bar = (start, (aside, start[1]), (aside, low), (bar, low))
        ends = [to_bar[-1][1]]
        for number, part in enumerate(partners):
            del moving[part.name]
            port = next(port for port, at in part.mechanical.items() if at == node)
            drawn = part.symbol
            if len(part.mechanical) > 1 and drawn.side(port) == "right":
                drawn = drawn.turned("round")
            x, y = bar + 16.0, top - drawn.ports[port][1] if number == 0 else top
            item = Item(part, drawn, x, y, (x + drawn.width / 2, y + drawn.height + 9.0))
            way = _way_from_bar(item, port, bar)
            ends.append(way[0][1])
            block.items.append(item)
            block.signals.extend(tags(part, drawn, x, y))
            block.wires.append(Polyline(node, "mechanical", way))
            top = _foot(item) + 8.0
            waiting += [(n, _port_place(item, p)) for p, n in part.mechanical.items() if n not in known]
            known.update(part.mechanical.values())
            block.width = max(block.width, x + part.symbol.width + 10.0, x + LETTER * len(part.name) + 20.0)
        block.wires.append(Polyline(node, "mechanical", to_bar))
        block.wires.append(Polyline(node, "mechanical", ((bar, min(ends)), (bar, max(ends)))))
    _settle(block)


def _drives(part: DrawnComponent) -> bool:
    """Whether a part's only connection is at its right: it is drawn first."""
    return [part.symbol.side(port) for port in part.mechanical] == ["right"]


def _port_place(item: Item, port: str) -> Point:
    x, y = item.symbol.ports[port]
    return item.x + x, item.y + y


def _foot(item: Item) -> float:
    """The height below which an item has neither symbol nor name."""
    return max(item.y + item.symbol.height, item.label[1]) + 10.0


def _way_from_bar(item: Item, port: str, bar: float) -> tuple[Point, ...]:
    """From the bar at the left of a symbol to its port; around it where the port is at its right."""
    x, y = _port_place(item, port)
    if item.symbol.side(port) != "right":
        return (bar, y), (x, y)
    low = _foot(item)
    return (bar, low), (x + 6.0, low), (x + 6.0, y), (x, y)


def _settle(block: Block) -> None:
    """Move the contents down so that none protrudes at the top, and set the block's height to that of its contents."""
    up = max(0.0, -min(item.y for item in block.items))
    places = [point for wire in block.wires for point in wire.points]
    low = max((*(_foot(item) for item in block.items[1:]), *(y + 4.0 for _, y in places), block.height))
    block.height = low + up
    block.items = [Item(i.part, i.symbol, i.x, i.y + up, (i.label[0], i.label[1] + up)) for i in block.items]
    block.wires = [Polyline(w.node, w.kind, tuple((x, y + up) for x, y in w.points)) for w in block.wires]
    block.pins = [Pin(p.node, p.x, p.y + up, p.up, p.pilot, tuple((x, y + up) for x, y in p.way)) for p in block.pins]
    block.tanks = [(node, (x, y + up)) for node, (x, y) in block.tanks]
    block.signals = [Mark(m.name, m.x, m.y + up, m.anchor) for m in block.signals]


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
