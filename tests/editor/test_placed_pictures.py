"""Parts at places of the file: lines lead to all their ports, and can be told apart."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import pytest
from drawing_bench import on, overlap, reached, segments

from hilserver.circuit.library import circuit_library
from hilserver.drawing.model import Drawing
from hilserver.drawing.symbols import Point
from hilserver.editor.document import CircuitDocument
from hilserver.editor.edits import Move
from hilserver.editor.parts import Parts, tables
from hilserver.editor.session import EditorSession

ROOT = Path(__file__).parents[2]
FILES = sorted((*ROOT.glob("config/circuits/*.toml"), *ROOT.glob("docs/examples/*.toml")))


def opened(file: Path) -> EditorSession:
    return EditorSession(CircuitDocument.open(file, Parts(circuit_library(file), file.parent)))


def lies_within(line: tuple[Point, Point], box: tuple[float, float, float, float]) -> bool:
    (a, b), (c, d) = line
    left, top, right, bottom = box
    return min(a, c) < right - 2 and max(a, c) > left + 2 and min(b, d) < bottom - 2 and max(b, d) > top + 2


def faults(drawing: Drawing) -> int:
    """Lines of different nodes that lie on one another, and lines through symbols."""
    lines = list(segments(drawing.wires))
    boxes = [(item.x, item.y, item.x + item.symbol.width, item.y + item.symbol.height) for item in drawing.items]
    same = sum(overlap(one, other) > 1.0 for (a, one), (b, other) in combinations(lines, 2) if a != b)
    return same + sum(lies_within(line, box) for _, line in lines for box in boxes)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_with_all_places_kept_the_lines_are_as_clear_as_before(file: Path) -> None:
    session = opened(file)
    before = faults(session.sketch.drawing)
    session.keep_places()
    assert faults(session.sketch.drawing) <= before
    assert set(session.document.table.get("drawing", {})) == {
        item.part.name for item in session.sketch.drawing.items if not item.part.mechanism
    }, "everything that is drawn as a part has a place"


def test_wherever_parts_are_put_lines_lead_to_all_their_ports() -> None:
    looked_at = 0
    for seed in range(50):
        chance = random.Random(seed)
        session = opened(FILES[seed % len(FILES)])
        document, names = session.document, [*tables(session.document.table, "components")]
        some = chance.sample(names, chance.randint(1, len(names)))
        document.make(Move({name: (chance.randrange(50), chance.randrange(40)) for name in some}))
        session.changed()
        components = tables(document.table, "components")
        tanks = {part["ports"]["T"] for part in components.values() if part["type"] == "tank"}
        nodes = {handle.node for handle in session.sketch.handles if handle.kind == "hydraulic"} - {"", *tanks}
        for node in nodes:
            lines = [line for at, line in segments(session.sketch.drawing.wires) if at == node]
            places = [each.at for each in session.sketch.handles if each.node == node and each.kind == "hydraulic"]
            connected = reached(places[0], lines)
            assert all(any(on(place, line) for line in connected) for place in places), (seed, node)
            looked_at += len(places)
    assert looked_at > 150
