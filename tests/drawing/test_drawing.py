"""The schematic: for every ready circuit and every component's example, drawn as an engineer would accept it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from drawing_bench import Segment, on, overlap, reached, segments

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.drawing.layout import draw
from hilserver.drawing.model import Drawing
from hilserver.drawing.schematic import schematic
from hilserver.drawing.symbols import Point, symbol

ROOT = Path(__file__).parents[2]
CIRCUITS = sorted((*(ROOT / "config/circuits").glob("*.toml"), *(ROOT / "docs/examples").glob("*.toml")))


def source(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def ports_of(drawing: Drawing, kind: str) -> Iterator[tuple[str, str, Point]]:
    """Node, component and place of each port."""
    for item in drawing.items:
        for port, node in getattr(item.part, kind).items():
            x, y = item.symbol.ports[port]
            yield node, item.part.name, (item.x + x, item.y + y)


@pytest.mark.parametrize("path", CIRCUITS, ids=lambda path: path.stem)
def test_lines_connect_the_ports_of_a_node_and_nothing_else(path: Path) -> None:
    circuit = source(path)
    drawing = draw(circuit)
    tanks = {n for t in circuit["components"].values() if t["type"] == "tank" for n in t["ports"].values()}
    lines: dict[str, list[Segment]] = {}
    for node, segment in segments(drawing.wires):
        lines.setdefault(node, []).append(segment)
    for node, name, place in ports_of(drawing, "hydraulic"):
        connected = reached(place, lines[node])
        assert connected, f"{path.stem}: nothing leads to {name} at node {node}"
        if node in tanks:
            ends = [at for at_node, at in drawing.tanks if at_node == node]
            assert any(on(end, line) for end in ends for line in connected), f"{name}: no tank"
        else:
            assert set(connected) == set(lines[node]), f"{path.stem}: node {node} is in pieces at {name}"


@pytest.mark.parametrize("path", CIRCUITS, ids=lambda path: path.stem)
def test_lines_are_orthogonal_and_never_lie_on_one_another(path: Path) -> None:
    drawing = draw(source(path))
    found = list(segments(drawing.wires))
    for node, ((a, b), (c, d)) in found:
        assert a == c or b == d, f"node {node} has a line that is neither level nor upright"
    for (node, one), (other, two) in combinations(found, 2):
        if node != other:
            assert overlap(one, two) <= 1.0, f"{node} and {other} lie on one another: {one} {two}"


@pytest.mark.parametrize("path", CIRCUITS, ids=lambda path: path.stem)
def test_symbols_have_room(path: Path) -> None:
    """All of them, within the picture, none over another."""
    circuit, drawing = source(path), draw(source(path))
    drawn = {item.part.name for item in drawing.items}
    assert drawn >= {name for name, table in circuit["components"].items() if table["type"] != "tank"}
    boxes = [(i.part.name, i.x, i.y, i.x + i.symbol.width, i.y + i.symbol.height) for i in drawing.items]
    for name, left, top, right, bottom in boxes:
        assert left >= 0, name
        assert top >= 0, name
        assert right <= drawing.width, name
        assert bottom <= drawing.height, name
    for one, other in combinations(boxes, 2):
        apart = one[3] <= other[1] or other[3] <= one[1] or one[4] <= other[2] or other[4] <= one[2]
        assert apart, f"{one[0]} and {other[0]} overlap"


def test_the_supply_is_below_and_the_actuator_on_top() -> None:
    """As one draws it (ISO 1219-2, 2012, 5.1: from bottom to top: supply, control, actuators)."""
    place = {item.part.name: item.y for item in draw(source(ROOT / "config/circuits/verification.toml")).items}
    assert place["cylinder"] < place["main_valve"] < place["pump"]
    assert place["load"] < place["main_valve"]
    assert place["relief"] > place["main_valve"]


def test_a_picture_names_what_is_live_and_what_a_click_opens() -> None:
    picture = ElementTree.fromstring(schematic(source(ROOT / "config/circuits/lift.toml")))
    parts = {element.get("data-part") for element in picture.iter() if element.get("data-part")}
    assert parts == {"tank", "pump", "line", "relief", "main_valve"}
    values = {element.get("data-value") for element in picture.iter() if element.get("data-value")}
    assert {"node.supply", "node.rig.A", "node.rig.B", "part.pump", "signal.joystick"} <= values
    assert {"supply", "rig.A", "rig.B"} <= {element.get("data-line") for element in picture.iter()}


def test_names_from_a_circuit_are_text_and_no_markup() -> None:
    evil = '<script>alert("x")</script>'
    circuit = {"components": {evil: {"type": "volume", "ports": {"P": evil}, "volume": "1 l"}}}
    picture = schematic(circuit)
    assert "<script" not in picture
    assert ElementTree.fromstring(picture).find(".//{*}script") is None


def test_a_component_without_a_symbol_is_a_box_with_its_ports() -> None:
    circuit = {
        "components": {
            "own": {"type": "my_valve", "ports": {"P": "supply", "T": "tank", "A": "a", "rod": "rod"}, "gain": 2},
            "tank": {"type": "tank", "ports": {"T": "tank"}},
            "supply": {"type": "volume", "ports": {"P": "supply"}},
            "a": {"type": "volume", "ports": {"P": "a"}},
        }
    }
    (own,) = (item for item in draw(circuit).items if item.part.name == "own")
    assert own.symbol.ports.keys() == {"P", "T", "A", "rod"}


def test_empty_and_cyclic_circuits_are_drawn() -> None:
    assert draw({}).items == []
    check = {"type": "check_valve", "opening_pressure": "1 bar"}
    ring = {name: {**check, "ports": {"A": a, "B": b}} for name, a, b in (("one", "x", "y"), ("two", "y", "x"))}
    assert len(draw({"components": ring}).items) == 2


@pytest.mark.parametrize("how", ["", "over", "round", "up", "down"])
def test_ports_follow_the_rotation_of_a_symbol(how: str) -> None:
    """Turned by the SVG's transform as by our own: where the port's line begins, there the port is."""
    drawn = symbol("orifice")
    assert drawn is not None
    turned = drawn.turned(how)
    transform = re.search(r'transform="([^"]+)"', turned.body)
    for port, (x, y) in drawn.ports.items():
        place = moved(transform[1], x, y) if transform else (x, y)
        assert turned.ports[port] == pytest.approx(place)


def moved(transform: str, x: float, y: float) -> Point:
    """What an SVG does with a point (SVG 1.1, 7.6): the last transform is applied first."""
    for name, values in reversed(re.findall(r"(\w+)\(([^)]*)\)", transform)):
        numbers = [float(value) for value in values.split()]
        if name == "translate":
            x, y = x + numbers[0], y + numbers[1]
        elif name == "scale":
            x, y = x * numbers[0], y * numbers[1]
        else:
            assert name == "rotate"
            x, y = {90.0: (-y, x), -90.0: (y, -x), 180.0: (-x, -y)}[numbers[0]]
    return x, y


def test_main_lines_are_solid_and_pilot_lines_are_dashed() -> None:
    """ISO 1219-1: working lines solid, pilot and drain lines dashed. A counterbalance valve's V is its valve side."""
    path = ROOT / "config/circuits/lowering.toml"
    dashed = {wire.node for wire in draw(source(path)).wires if wire.kind == "pilot"}
    ports = source(path)["components"]["holding"]["ports"]
    assert ports["X"] in dashed
    assert not dashed & {ports["C"], ports["V"]}
    kinds = [wire.kind for wire in draw(source(path)).wires if wire.node == ports["Y"]]
    assert kinds.count("pilot") == 1, "its drain, and nothing else that leads to the tank"


def test_a_load_sensing_line_is_dashed_from_the_valve_to_the_pump() -> None:
    """Over shuttle valves, which pass pilot pressures here; a shuttle valve alone does not make a line a pilot line."""
    circuit = source(ROOT / "config/circuits/crane.toml")
    circuit = dict(read_circuit(circuit, standard_library(), str(ROOT / "config/circuits/crane.toml")).source)
    kinds: dict[str, set[str]] = {}
    for wire in draw(circuit).wires:
        kinds.setdefault(wire.node, set()).add(wire.kind)
    for node in ("LS", "LS_boom", "LS_jib"):
        assert kinds[node] == {"pilot"}, node
    assert kinds["supply"] == {"hydraulic"}
