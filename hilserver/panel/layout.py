"""Where everything of a circuit's drawing goes: supply at the bottom, actuators on top, orthogonal lines.

Each hydraulic node is a horizontal line in a *zone*; between two zones is a *row* of symbols. A component stands in the
row above the nodes at its lower ports and below those at its upper ones. A line that has to pass a row gets a place
in it of its own. A tank is drawn at each port that leads to it, as engineers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hilserver.panel.symbols import Point, Symbol, box, symbol

GAP, TRACK, MARGIN, STUB = 26.0, 22.0, 20.0, 16.0
"""Between two symbols of a row; between two lines of a zone; around everything; from a port to its tank."""
LETTER = 6.6
"""Width of a letter of the names."""
_PILOT_PORTS = {"X", "Y", "L", "LS", "V"}
RIG = "rig."


@dataclass(frozen=True)
class Part:
    """A component of the circuit: its nodes by port, hydraulic and mechanical, and its signals by port."""

    name: str
    kind: str
    hydraulic: Mapping[str, str]
    mechanical: Mapping[str, str]
    signals: Mapping[str, str]
    symbol: Symbol

    def side_used(self, drawn: Symbol, side: str) -> bool:
        """Whether a port of oil is at this side of the symbol as it is drawn."""
        return any(drawn.side(port) == side for port in self.hydraulic)


@dataclass(frozen=True)
class Item:
    """A symbol at its place."""

    part: Part
    symbol: Symbol
    x: float
    y: float
    label: Point


@dataclass(frozen=True)
class Wire:
    """A line of a node; ``kind``: hydraulic, pilot (dashed) or mechanical."""

    node: str
    kind: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Mark:
    """A text at a place: the value of a node or a signal. ``anchor`` as in SVG."""

    name: str
    x: float
    y: float
    anchor: str = "start"


@dataclass
class Drawing:
    """All that is drawn."""

    width: float = 0.0
    height: float = 0.0
    items: list[Item] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    dots: list[tuple[str, Point]] = field(default_factory=list)
    tanks: list[tuple[str, Point]] = field(default_factory=list)
    nodes: list[Mark] = field(default_factory=list)
    signals: list[Mark] = field(default_factory=list)


def read_parts(source: Mapping[str, Any]) -> list[Part]:
    """The components in a circuit's table. A hydraulic port has a capital letter, a mechanical one has none."""
    return [_part(name, table) for name, table in source.get("components", {}).items()]


def _part(name: str, table: Mapping[str, Any]) -> Part:
    kind, ports = str(table.get("type", "")), {port: str(node) for port, node in table.get("ports", {}).items()}
    hydraulic = {port: node for port, node in ports.items() if port[0].isupper()}
    mechanical = {port: node for port, node in ports.items() if port not in hydraulic}
    drawn = symbol(kind)
    if drawn is None or not ports.keys() <= drawn.ports.keys():
        drawn = box(tuple(hydraulic), tuple(mechanical))
    signals = {port: table[port] for port in drawn.ports if port not in ports and isinstance(table.get(port), str)}
    return Part(name, kind, hydraulic, mechanical, signals, drawn)


def draw(source: Mapping[str, Any]) -> Drawing:
    """The drawing of a circuit from its table (checked before: it is one that runs)."""
    return _Layout(read_parts(source)).drawing()


@dataclass(frozen=True)
class _Pin:
    """A place at a block where the line of a node leaves it, upwards or downwards; ``way``: from the port to there."""

    node: str
    x: float
    y: float
    up: bool
    pilot: bool = False
    way: tuple[Point, ...] = ()


@dataclass
class _Block:
    """Symbols that are placed together, or, without any, the place where a line passes a row."""

    row: int
    width: float
    height: float = 0.0
    items: list[Item] = field(default_factory=list)
    pins: list[_Pin] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    tanks: list[tuple[str, Point]] = field(default_factory=list)
    signals: list[Mark] = field(default_factory=list)
    hangs: bool = False
    x: float = 0.0
    y: float = 0.0


@dataclass
class _Run:
    """The part of a node's line in one zone: what it leads to below and above, its track (0 is the lowest), height."""

    node: str
    below: list[tuple[_Block, _Pin]] = field(default_factory=list)
    above: list[tuple[_Block, _Pin]] = field(default_factory=list)
    track: int = 0
    y: float = 0.0

    def ends(self) -> list[float]:
        return sorted(block.x + pin.x for block, pin in (*self.below, *self.above))


class _Layout:
    def __init__(self, parts: list[Part]) -> None:
        self.tank = {node: part.name for part in parts if part.kind == "tank" for node in part.hydraulic.values()}
        parts = [part for part in parts if part.kind != "tank"]
        ends = dict.fromkeys(node for part in parts for node in part.hydraulic.values() if node.startswith(RIG))
        self.parts = [part for part in parts if part.hydraulic] + [_terminal(node) for node in ends]
        self.moving = [part for part in parts if not part.hydraulic and part.mechanical]
        self.signalling = [part for part in parts if not part.hydraulic and not part.mechanical]
        self.driven = {
            node
            for part in self.parts
            if not part.kind or (part.mechanical and "drive" not in part.mechanical)
            for node in part.hydraulic.values()
        }
        self.turns = {part.name: self._turn(part) for part in self.parts}
        self.level = self._levels()
        self.blocks = self._blocks()

    def drawing(self) -> Drawing:
        self.runs = self._runs()
        self._place_across()
        return self._draw()

    # --- which way up, which row ----------------------------------------------------------------------------------

    def _turn(self, part: Part) -> str:
        """How a symbol is turned so that its lines run upwards, and those to the tank downwards."""
        sides = {part.symbol.side(port): node for port, node in part.hydraulic.items()}
        if "left" in sides and "right" in sides and not ("top" in sides and "bottom" in sides):
            return "down" if sides["right"] in self.tank else "up"
        if list(sides) == ["left"]:
            return "down"
        top, bottom = sides.get("top"), sides.get("bottom")
        if top is None or bottom is None or part.mechanical:
            return ""
        upside_down = (top in self.tank and bottom not in self.tank) or (
            bottom in self.driven and top not in self.driven and len(part.hydraulic) < 5
        )
        return "over" if upside_down else ""

    def _sides(self, part: Part, side: str) -> list[str]:
        """Nodes at one side of a part as it is turned, tanks left out."""
        turned = part.symbol.turned(self.turns[part.name])
        found = (node for port, node in part.hydraulic.items() if turned.side(port) == side)
        return [node for node in found if node not in self.tank]

    def _levels(self) -> dict[str, int]:
        """The zone of each node: one above the highest node at the other side of a component."""
        above = self._nodes_above()
        order: list[str] = []
        open_ways: set[str] = set()

        def visit(node: str) -> None:
            open_ways.add(node)
            for high in list(above[node]):
                if high in open_ways:  # a circle: this way it is drawn downwards
                    del above[node][high]
                elif high not in order:
                    visit(high)
            open_ways.discard(node)
            order.append(node)

        sources = [node for part in self.parts if not self._sides(part, "bottom") for node in self._sides(part, "top")]
        for node in dict.fromkeys((*sources, *above)):
            if node not in order:
                visit(node)
        level = dict.fromkeys(order, 1)
        for node in reversed(order):
            for high in above[node]:
                level[high] = max(level[high], level[node] + 1)
        return level

    def _nodes_above(self) -> dict[str, dict[str, None]]:
        """For each node (but tanks) those at the upper side of the components that stand on it."""
        nodes = (node for part in self.parts for node in part.hydraulic.values() if node not in self.tank)
        above: dict[str, dict[str, None]] = {node: {} for node in nodes}
        for part in self.parts:
            for low in self._sides(part, "bottom"):
                above[low].update(dict.fromkeys(high for high in self._sides(part, "top") if high != low))
        return above

    def _row(self, part: Part) -> int:
        low, high = self._sides(part, "bottom"), self._sides(part, "top")
        if low:
            return max(self.level[node] for node in low)
        if high:
            return min(self.level[node] for node in high) - 1
        return max((self.level[node] for node in part.hydraulic.values() if node not in self.tank), default=0)

    def _is_actuator(self, part: Part) -> bool:
        return bool(part.mechanical) and not self._sides(part, "top") and "drive" not in part.mechanical

    def _keep_within_reach(self, rows: Mapping[str, int]) -> None:
        """A node's line is in no zone below or above all its ends."""
        zones: dict[str, list[int]] = {}
        for part in self.parts:
            for side, zone in (("top", rows[part.name] + 1), ("bottom", rows[part.name])):
                for node in self._sides(part, side):
                    zones.setdefault(node, []).append(zone)
            for node in (*self._sides(part, "left"), *self._sides(part, "right")):
                zones.setdefault(node, []).extend(() if zones.get(node) else (max(rows[part.name], 1),))
        for node, found in zones.items():
            self.level[node] = min(max(self.level[node], min(found)), max(found))

    def _blocks(self) -> list[_Block]:
        rows = {part.name: self._row(part) for part in self.parts}
        top = max((*rows.values(), *self.level.values()), default=0)
        actuators = {part.name for part in self.parts if not part.kind or self._is_actuator(part)}
        rows |= dict.fromkeys(actuators, top)
        self._keep_within_reach(rows)
        moving = {part.name: part for part in self.moving}
        blocks = []
        for part in self.parts:
            block = _block(part, self.turns[part.name], rows[part.name], self.level, self.tank)
            if part.mechanical:
                _add_mechanics(block, moving)
            blocks.append(block)
        while moving:
            part = max(moving.values(), key=_drives)
            del moving[part.name]
            block = _block(part, "", top, self.level, self.tank)
            _add_mechanics(block, moving)
            blocks.append(block)
        return blocks

    # --- lines ----------------------------------------------------------------------------------------------------

    def _runs(self) -> dict[int, dict[str, _Run]]:
        """The lines by zone and node; places where they pass a row are added to the blocks."""
        runs: dict[int, dict[str, _Run]] = {}
        passing: dict[tuple[str, int], _Block] = {}

        def run(zone: int, node: str) -> _Run:
            return runs.setdefault(zone, {}).setdefault(node, _Run(node))

        def passed(node: str, row: int) -> None:
            if (node, row) in passing:
                return
            pins = [_Pin(node, 10.0, 0.0, True), _Pin(node, 10.0, 0.0, False)]
            block = passing[node, row] = _Block(row, 20.0, pins=pins)
            self.blocks.append(block)
            run(row + 1, node).below.append((block, pins[0]))
            run(row, node).above.append((block, pins[1]))

        for block in list(self.blocks):
            for pin in block.pins:
                zone, level = block.row + pin.up, self.level[pin.node]
                run(zone, pin.node)
                (runs[zone][pin.node].below if pin.up else runs[zone][pin.node].above).append((block, pin))
                for row in range(min(zone, level), max(zone, level)):
                    passed(pin.node, row)
        return runs

    # --- across ---------------------------------------------------------------------------------------------------

    def _rows(self) -> dict[int, list[_Block]]:
        rows: dict[int, list[_Block]] = {}
        for block in self.blocks:
            rows.setdefault(block.row, []).append(block)
        return dict(sorted(rows.items()))

    def _place_across(self) -> None:
        """Places across the page: symbols near what they are connected to, none over another."""
        rows = self._rows()
        for blocks in rows.values():
            blocks.sort(key=lambda block: not block.items)
            _spread(blocks, [0.0] * len(blocks))
        for sweep in range(12):
            for row in sorted(rows, reverse=bool(sweep % 2)):
                wanted = {id(block): self._wanted(block) for block in rows[row]}
                if sweep < 8 and row > 0:
                    rows[row].sort(key=lambda block: wanted[id(block)] + block.width / 2)
                _spread(rows[row], [wanted[id(block)] for block in rows[row]])
        left = min((block.x for block in self.blocks), default=0.0)
        for block in self.blocks:
            block.x = round(block.x - left + MARGIN)

    def _wanted(self, block: _Block) -> float:
        """Where a block would have its lines straight: the nearest place within the other ends of each."""
        moves = []
        for pin in block.pins:
            run = self.runs[block.row + pin.up][pin.node]
            here = block.x + pin.x
            others = [b.x + p.x for b, p in (*run.below, *run.above) if b is not block]
            if others:
                moves.append(min(max(here, min(others)), max(others)) - here)
        return block.x + (sum(moves) / len(moves) if moves else 0.0)

    # --- up and down ----------------------------------------------------------------------------------------------

    def _place_upwards(self) -> float:
        """Heights of blocks and lines; returns the whole height."""
        rows, y = self._rows(), MARGIN
        for row in range(max((*rows, *self.runs), default=0), -1, -1):
            blocks = rows.get(row, [])
            height = max((block.height for block in blocks), default=0.0)
            for block in blocks:
                block.y = y if block.hangs else y + height - block.height
            runs = list(self.runs.get(row, {}).values())
            tracks = _set_tracks(runs)
            y += height + (TRACK * (tracks + 1) if runs else 0.0)
            for run in runs:
                run.y = y - TRACK * (run.track + 1)
        return y

    def _draw(self) -> Drawing:
        drawing = Drawing(height=self._place_upwards() + MARGIN)
        for block in self.blocks:
            _draw_block(drawing, block)
        marks: dict[str, tuple[float, Mark]] = {}
        for zone in self.runs.values():
            for run in zone.values():
                _draw_run(drawing, run)
                length, mark = _value_place(run)
                if run.node not in marks or length > marks[run.node][0]:
                    marks[run.node] = length, mark
        drawing.nodes.extend(mark for _, mark in marks.values())
        drawing.width = max((block.x + block.width for block in self.blocks), default=0.0) + MARGIN
        self._draw_signals(drawing)
        return drawing

    def _draw_signals(self, drawing: Drawing) -> None:
        """Components without oil or motion, in lines below the drawing, with the names of their signals."""
        x, y, line = MARGIN, drawing.height, 0.0
        for part in self.signalling:
            room = LETTER * max(map(len, part.signals.values()), default=0) + 10
            width = part.symbol.width + 2 * room
            if x > MARGIN and x + width > max(drawing.width, 700.0):
                x, y, line = MARGIN, y + line + 34.0, 0.0
            label = (x + room + part.symbol.width / 2, y + part.symbol.height + 12)
            drawing.items.append(Item(part, part.symbol, x + room, y, label))
            drawing.signals.extend(_tags(part, part.symbol, x + room, y))
            x, line = x + width + 10, max(line, part.symbol.height)
            drawing.width = max(drawing.width, x + MARGIN)
        if self.signalling:
            drawing.height = y + line + 40.0


def _terminal(node: str) -> Part:
    """A port of the real machine."""
    plug = Symbol(
        90.0, 46.0, {"A": (45.0, 46.0)}, '<rect x="5" y="2" width="80" height="26" rx="4"/><path d="M45 28v18"/>'
    )
    return Part(node, "", {"A": node}, {}, {}, plug)


def _block(part: Part, turn: str, row: int, level: Mapping[str, int], tank: Mapping[str, str]) -> _Block:
    """A component with what belongs to it: its name, its tanks, the names of its signals."""
    drawn = part.symbol.turned(turn)
    left = LETTER * max((len(name) for port, name in part.signals.items() if drawn.side(port) == "left"), default=0)
    left += 14.0 * part.side_used(drawn, "left")
    right = LETTER * max(len(part.name) + 1, 10) + 12.0 * part.side_used(drawn, "right") if part.kind else 0.0
    block = _Block(row, left + drawn.width + right, drawn.height)
    label = (left + drawn.width + (16 if part.side_used(drawn, "right") else 4), drawn.height / 2)
    if not part.kind:
        label = (left + drawn.width / 2, 19.0)
    elif part.mechanical:  # the right side belongs to what moves
        label = (left + 20.0, 8.0)
    block.items.append(Item(part, drawn, left, 0.0, label))
    for port, node in part.hydraulic.items():
        x, y = drawn.ports[port]
        pilot = port in _PILOT_PORTS
        side = drawn.side(port)
        x += left
        if node in tank:
            _lead_to_tank(block, node, x, y, side, drawn, left)
        elif side in ("top", "bottom"):
            block.pins.append(_Pin(node, x, y, side == "top", pilot))
        else:
            out = x + (12.0 if side == "right" else -12.0)
            block.pins.append(_Pin(node, out, y, level[node] > row, pilot, ((x, y),)))
    block.hangs = bool(block.pins) and all(pin.up for pin in block.pins)
    block.signals = _tags(part, drawn, left, 0.0)
    return block


def _lead_to_tank(block: _Block, node: str, x: float, y: float, side: str, drawn: Symbol, left: float) -> None:
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
    block.wires.append(Wire(node, "hydraulic", (*way, end)))
    block.tanks.append((node, end))
    block.height = max(block.height, end[1] + 16.0)


def _add_mechanics(block: _Block, moving: dict[str, Part]) -> None:
    """Put what moves with the block's component at its right, node by node, and take it out of ``moving``."""
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
        if start[0] < right - 12.0:  # something is in the way: below it
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
            block.signals.extend(_tags(part, drawn, x, y))
            block.wires.append(Wire(node, "mechanical", way))
            top = _foot(item) + 8.0
            waiting += [(n, _port_place(item, p)) for p, n in part.mechanical.items() if n not in known]
            known.update(part.mechanical.values())
            block.width = max(block.width, x + part.symbol.width + 10.0, x + LETTER * len(part.name) + 20.0)
        block.wires.append(Wire(node, "mechanical", to_bar))
        block.wires.append(Wire(node, "mechanical", ((bar, min(ends)), (bar, max(ends)))))
    _settle(block)


def _drives(part: Part) -> bool:
    """Whether a part's only connection is at its right: it is drawn first."""
    return [part.symbol.side(port) for port in part.mechanical] == ["right"]


def _port_place(item: Item, port: str) -> Point:
    x, y = item.symbol.ports[port]
    return item.x + x, item.y + y


def _foot(item: Item) -> float:
    """Below this height an item has neither symbol nor name."""
    return max(item.y + item.symbol.height, item.label[1]) + 10.0


def _way_from_bar(item: Item, port: str, bar: float) -> tuple[Point, ...]:
    """From the bar at the left of a symbol to its port; around it where the port is at its right."""
    x, y = _port_place(item, port)
    if item.symbol.side(port) != "right":
        return (bar, y), (x, y)
    low = _foot(item)
    return (bar, low), (x + 6.0, low), (x + 6.0, y), (x, y)


def _settle(block: _Block) -> None:
    """Move everything down by what stands out above, and make the block as high as what is in it."""
    up = max(0.0, -min(item.y for item in block.items))
    places = [point for wire in block.wires for point in wire.points]
    low = max((*(_foot(item) for item in block.items[1:]), *(y + 4.0 for _, y in places), block.height))
    block.height = low + up
    block.items = [Item(i.part, i.symbol, i.x, i.y + up, (i.label[0], i.label[1] + up)) for i in block.items]
    block.wires = [Wire(w.node, w.kind, tuple((x, y + up) for x, y in w.points)) for w in block.wires]
    block.pins = [_Pin(p.node, p.x, p.y + up, p.up, p.pilot, tuple((x, y + up) for x, y in p.way)) for p in block.pins]
    block.tanks = [(node, (x, y + up)) for node, (x, y) in block.tanks]
    block.signals = [Mark(m.name, m.x, m.y + up, m.anchor) for m in block.signals]


def _tags(part: Part, drawn: Symbol, x: float, y: float) -> list[Mark]:
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


def _spread(blocks: list[_Block], wanted: list[float]) -> None:
    """Places in this order, nearest to the wanted ones (least squares), with gaps: pools of neighbours that touch."""
    offsets, at = [], 0.0
    for block in blocks:
        offsets.append(at)
        at += block.width + GAP
    pools: list[tuple[float, int]] = []  # mean, count
    for want, offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while pools and pools[-1][0] > mean:
            before, number = pools.pop()
            mean, count = (before * number + mean * count) / (number + count), number + count
        pools.append((mean, count))
    means = [mean for mean, count in pools for _ in range(count)]
    for block, mean, offset in zip(blocks, means, offsets, strict=True):
        block.x = mean + offset


def _set_tracks(runs: list[_Run]) -> int:
    """Give each line of a zone a track; returns how many there are.

    Where an end from below and one from above meet at the same place across, the former's line must be the lower one,
    lest the two overlap. (Two that want it both ways get what the order of the circuit gives.)
    """
    lower: dict[int, set[int]] = {number: set() for number in range(len(runs))}
    for one, first in enumerate(runs):
        for other, second in enumerate(runs):
            if one != other and _meet(first, second) and other not in lower[one]:
                lower[other].add(one)
    waiting, taken = sorted(lower, key=lambda n: runs[n].ends()[0]), set[int]()
    tracks: list[list[tuple[float, float]]] = []
    while waiting:
        number = next((n for n in waiting if lower[n] <= taken), waiting[0])
        waiting.remove(number)
        taken.add(number)
        ends = runs[number].ends()
        span = (ends[0] - 12.0, ends[-1] + (12.0 if ends[0] < ends[-1] else 80.0))
        lowest = max((runs[n].track + 1 for n in lower[number] if n in taken), default=0)
        track = next(
            (t for t in range(lowest, len(tracks)) if all(span[1] < a or b < span[0] for a, b in tracks[t])), None
        )
        if track is None:
            track = max(len(tracks), lowest)
            tracks.extend([] for _ in range(track + 1 - len(tracks)))
        tracks[track].append(span)
        runs[number].track = track
    return len(tracks)


def _meet(low: _Run, high: _Run) -> bool:
    """Whether an end of ``low`` from below is right under an end of ``high`` from above."""
    return any(abs((a.x + p.x) - (b.x + q.x)) < 6.0 for a, p in low.below for b, q in high.above)


def _draw_block(drawing: Drawing, block: _Block) -> None:
    def moved(points: Iterable[Point]) -> tuple[Point, ...]:
        return tuple((block.x + x, block.y + y) for x, y in points)

    for item in block.items:
        place, label = moved([(item.x, item.y)])[0], moved([item.label])[0]
        drawing.items.append(Item(item.part, item.symbol, *place, label))
    drawing.wires.extend(Wire(wire.node, wire.kind, moved(wire.points)) for wire in block.wires)
    drawing.tanks.extend((node, moved([at])[0]) for node, at in block.tanks)
    drawing.signals.extend(Mark(m.name, block.x + m.x, block.y + m.y, m.anchor) for m in block.signals)


def _draw_run(drawing: Drawing, run: _Run) -> None:
    """A node's line across, the lines to its ends, and dots where three lines meet."""
    ends, both = run.ends(), (*run.below, *run.above)
    kind = "pilot" if all(pin.pilot for _, pin in both) else "hydraulic"
    if ends[0] < ends[-1]:
        drawing.wires.append(Wire(run.node, kind, ((ends[0], run.y), (ends[-1], run.y))))
    for block, pin in both:
        way = tuple((block.x + x, block.y + y) for x, y in (*pin.way, (pin.x, pin.y)))
        kind = "pilot" if pin.pilot else "hydraulic"
        drawing.wires.append(Wire(run.node, kind, (*way, (block.x + pin.x, run.y))))
    for x in sorted(set(ends)):
        if ends.count(x) + (x > ends[0]) + (x < ends[-1]) > 2:
            drawing.dots.append((run.node, (x, run.y)))


def _value_place(run: _Run) -> tuple[float, Mark]:
    """Where the node's value has room: over the widest gap between its ends, else beside its right end."""
    ends = run.ends()
    width, left = max(((b - a, a) for a, b in pairwise(ends)), default=(0.0, ends[0]))
    if width > 96.0:
        return ends[-1] - ends[0], Mark(run.node, left + width / 2, run.y - 5.0, "middle")
    return ends[-1] - ends[0], Mark(run.node, ends[-1] + 6.0, run.y + 4.0)
