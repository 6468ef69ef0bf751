"""Signals as lines: each leads from port to port, and to no other part."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hilserver.circuit.library import standard_library
from hilserver.drawing.layout import draw
from hilserver.drawing.model import Drawing
from hilserver.drawing.schematic import render
from hilserver.drawing.signal_lines import with_signal_lines
from hilserver.simulation.circuit_run import read_circuit_file

ROOT = Path(__file__).parents[2]
LIBRARY = standard_library()
NAMES = ("comparator", "delay", "sum", "lag", "joystick", "position_sensor", "limiter")
CIRCUITS = [*(ROOT / f"docs/examples/{name}.toml" for name in NAMES), ROOT / "config/circuits/verification.toml"]
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


@pytest.mark.parametrize("path", CIRCUITS, ids=lambda path: path.stem)
def test_a_line_joins_all_ports_of_a_signal_and_none_of_another(path: Path) -> None:
    drawing = with_signal_lines(draw(source(path)))
    ports: dict[str, list[Point]] = {}
    for item in drawing.items:
        for port, signal in item.part.signals.items():
            x, y = item.symbol.ports[port]
            ports.setdefault(signal, []).append((item.x + x, item.y + y))
    for signal, places in ports.items():
        line = reached(drawing, signal, places[0])
        assert bool(line) == (len(places) > 1)
        if line:
            assert all(any(on(place, piece) for piece in line) for place in places), signal
            others = [place for other, those in ports.items() if other != signal for place in those]
            assert not any(on(place, piece) for piece in line for place in others), signal
        assert sum(mark.name == signal for mark in drawing.signals) == 1, "the name stands once"


def test_they_are_drawn_apart_from_lines_with_oil() -> None:
    drawing = with_signal_lines(draw(source(CIRCUITS[0])))
    svg = render(drawing, {})
    assert 'class="line signal-line" data-line="reading"' in svg
    assert 'class="line hydraulic" data-line="reading"' not in svg
