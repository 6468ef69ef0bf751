"""Signals as lines: each leads from port to port, and to no other part."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.drawing.layout import draw
from hilserver.drawing.model import Drawing
from hilserver.drawing.schematic import render
from hilserver.drawing.signal_lines import with_signal_lines
from hilserver.simulation.circuit_run import read_circuit_file

ROOT = Path(__file__).parents[2]
LIBRARY = standard_library()
NAMES = ("comparator", "delay", "sum", "lag", "joystick", "product", "limiter", "pilot_operated_check_valve")
CIRCUITS = [ROOT / f"docs/examples/{name}.toml" for name in NAMES]
RANDOM = 30
Point = tuple[float, float]


def source(path: Path) -> dict[str, Any]:
    return dict(read_circuit_file(path, LIBRARY).source)


def on(point: Point, piece: tuple[Point, Point]) -> bool:
    """Whether a point is on a level or upright piece."""
    (x, y), ((a, b), (c, d)) = point, piece
    return min(a, c) - 1e-6 <= x <= max(a, c) + 1e-6 and min(b, d) - 1e-6 <= y <= max(b, d) + 1e-6


def reached(drawing: Drawing, signal: str, start: Point) -> list[tuple[Point, Point]]:
    """The pieces of a signal's line that are connected to a point."""
    pieces = [p for w in drawing.wires if w.node == signal and w.kind == "signal-line" for p in pairwise(w.points)]
    found: list[tuple[Point, Point]] = []
    waiting = [piece for piece in pieces if on(start, piece)]
    while waiting:
        piece = waiting.pop()
        if piece not in found:
            found.append(piece)
            waiting += [each for each in pieces if any(on(p, piece) for p in each) or any(on(p, each) for p in piece)]
    return found


def signals_of(drawing: Drawing) -> dict[str, list[Point]]:
    """The places of all ports of each signal."""
    ports: dict[str, list[Point]] = {}
    for item in drawing.items:
        for port, signal in item.part.signals.items():
            x, y = item.symbol.ports[port]
            ports.setdefault(signal, []).append((item.x + x, item.y + y))
    return ports


def wrong_lines(drawing: Drawing) -> list[str]:
    """The signals whose line misses one of its ports, leads to one of another, or whose name does not stand once."""
    ports, wrong = signals_of(drawing), []
    for signal, places in ports.items():
        line = reached(drawing, signal, places[0])
        others = [place for other, those in ports.items() if other != signal for place in those]
        if (
            bool(line) != (len(places) > 1)
            or not all(any(on(place, piece) for piece in line) for place in places if line)
            or any(on(place, piece) for piece in line for place in others)
            or sum(mark.name == signal for mark in drawing.signals) != 1
        ):
            wrong.append(signal)
    return wrong


def random_network(seed: int) -> dict[str, Any]:
    """A circuit of gains and sums, each of signals of any of the others before it, and a pump that follows the last."""
    chance, known, components = random.Random(seed), ["joystick"], dict[str, dict[str, Any]]()
    for number in range(chance.randint(3, 7)):
        name = f"s{number}"
        inputs = {"a": chance.choice(known), "b": chance.choice(known)}
        kinds: list[dict[str, Any]] = [{"type": "sum", **inputs}, {"type": "gain", "input": inputs["a"], "gain": 0.5}]
        components[f"part_{number}"] = {**chance.choice(kinds), "signal": name}
        known.append(name)
    pump = {"type": "flow_source", "ports": {"P": "line", "T": "tank"}, "command": known[-1], "flow": "1 l/min"}
    components |= {"pump": pump, "line": {"type": "volume", "ports": {"P": "line"}, "volume": "1 l"}}
    return {"components": {**components, "tank": {"type": "tank", "ports": {"T": "tank"}}}}


@pytest.mark.parametrize("path", CIRCUITS, ids=lambda path: path.stem)
def test_a_line_joins_all_ports_of_a_signal_and_none_of_another(path: Path) -> None:
    drawing = with_signal_lines(draw(source(path)))
    assert max(map(len, signals_of(drawing).values())) == 2
    assert wrong_lines(drawing) == []


def test_so_do_lines_with_branches() -> None:
    ends: list[int] = []
    for seed in range(RANDOM):
        drawing = with_signal_lines(draw(dict(read_circuit(random_network(seed), LIBRARY).source)))
        assert wrong_lines(drawing) == [], seed
        ends += map(len, signals_of(drawing).values())
    assert max(ends) > 3
    assert min(ends) == 1


def test_they_are_drawn_apart_from_lines_with_oil() -> None:
    drawing = with_signal_lines(draw(source(CIRCUITS[0])))
    svg = render(drawing, {})
    assert 'class="line signal-line" data-line="reading"' in svg
    assert 'class="line hydraulic" data-line="reading"' not in svg
