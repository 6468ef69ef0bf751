"""The symbols: they follow what a valve does, and say after which rule of ISO 1219-1 they are drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.components.base import Fluid, Table
from hilserver.drawing.positions import OPEN, THROTTLED, positions
from hilserver.drawing.symbols import Symbol, symbol
from hilserver.toml import read_toml

ROOT = Path(__file__).parents[2]
LIBRARY = standard_library()
SPOOLS = {
    kind: 3 if kind.endswith("4_3") or kind in ("servo_valve", "load_sensing_valve") else 2
    for kind in (
        "directional_valve_2_2",
        "directional_valve_3_2",
        "directional_valve_4_2",
        "directional_valve_4_3",
        "proportional_valve_4_3",
        "servo_valve",
        "load_sensing_valve",
    )
}
"""Valves with squares, and how many."""


def file_of(kind: str) -> ElementTree.Element:
    package = LIBRARY.types[kind].__module__.rpartition(".")[0]
    return ElementTree.fromstring((files(package) / "symbols" / f"{kind}.svg").read_text())


def drawn(kind: str, values: dict[str, Any] | None = None) -> Symbol:
    found = symbol(kind, values)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", LIBRARY.types)
def test_a_symbol_says_after_which_rule_it_is_drawn(kind: str) -> None:
    """Or that the standard has none: the text is in the table of docs/reference/components."""
    said = file_of(kind).findtext("{*}desc") or ""
    assert len(said) > 10
    assert said.endswith(".")
    for word in re.findall(r"\b[a-z]+_\w+\b", said):
        known = {*LIBRARY.types, *LIBRARY.types[kind].model_fields}
        assert word in known, f"{kind}: {word} is neither a type nor a datasheet value"


@pytest.mark.parametrize("kind", LIBRARY.types)
def test_what_a_symbol_depends_on_is_a_value_of_its_component(kind: str) -> None:
    """And what the file shows is the symbol without values, that is with the defaults."""
    component = LIBRARY.types[kind]
    for element in file_of(kind).iter():
        for condition in filter(None, element.get("data-when", "").split("|")):
            key, _, wanted = condition.partition("=")
            assert key in component.model_fields or key in component.inputs, f"{kind}: {key}"
            if key in component.model_fields:
                default = component.model_fields[key].default
                shown = str(default) == wanted if wanted else default not in (None, "0 bar", "0 N", "0 N/m")
                assert (element.get("display") != "none") == shown, f"{kind}: {condition}"


@pytest.mark.parametrize("kind", SPOOLS)
def test_the_file_of_a_valve_shows_its_usual_squares(kind: str) -> None:
    """As the docs show it; in schematics they are drawn from the values."""
    marked = [element for element in file_of(kind) if element.get("data-position") is not None]
    assert len(marked) == SPOOLS[kind] == len(positions(kind, {}))
    in_file = [p.get("d") for group in marked for p in group]
    body = drawn(kind).body
    assert [d for d in re.findall(r' d="([^"]*)"', body) if d in in_file] == in_file
    assert set(in_file) <= set(re.findall(r' d="([^"]*)"', body))


@pytest.mark.parametrize("file", sorted((ROOT / "config/circuits").glob("*.toml")), ids=lambda path: path.stem)
def test_connections_in_ready_circuits_are_those_of_the_kernels(file: Path) -> None:
    """The edges that a symbol shows as open are those whose opening, as the kernel gets it, is more than a leak."""
    circuit = read_circuit(read_toml(file), LIBRARY, str(file))
    for placed in circuit.placed:
        kind = placed.component.type_name
        compare(kind, circuit.source["components"][placed.name])


CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        (kind, {"centre": centre})
        for kind in ("directional_valve_4_3", "load_sensing_valve")
        for centre in ("closed", "open", "tandem", "float")
    ),
    ("directional_valve_2_2", {"rest": "open"}),
    ("directional_valve_3_2", {"rest": "P-A"}),
    ("directional_valve_4_2", {"rest": "parallel"}),
    *(("directional_valve_4_3", {"centre": "float", "centre_opening": y}) for y in (0.01, "3 %", 0.3, 0.5)),
    ("directional_valve_4_3", {"centre": "open", "centre_opening": 0.05, "centre_travel": 1, "overlap": -0.1}),
    ("directional_valve_4_3", {"overlap": -0.1}),
    ("directional_valve_4_3", {"overlap": 0.1, "overlap_T": -0.1}),
    ("directional_valve_4_3", {"openings": {"AT": [[-1, 0], [1, 0]]}}),
    ("directional_valve_4_3", {"openings": {"PA": [[-0.2, 0], [0.2, 0.4], [1, 1]], "PB": [[-1, 1], [1, 1]]}}),
    ("directional_valve_3_2", {"openings": {"AT": [[0, 0.5], [1, 0.5]]}}),
)


@pytest.mark.parametrize(("kind", "values"), CASES)
def test_connections_follow_rest_centre_openings_and_underlap(kind: str, values: dict[str, Any]) -> None:
    example = read_toml(ROOT / f"docs/examples/{kind}.toml")["components"]
    table = next(table for table in example.values() if table["type"] == kind)
    kept = {key: value for key, value in table.items() if key not in ("centre", "rest", "overlap", "openings")}
    compare(kind, kept | values)


A, B, P = (130.0, 50.0), (150.0, 50.0), (130.0, 70.0)
"""Places of throttles in the centre square: halfway between its edge and the line that joins the ports."""
THROTTLES: tuple[tuple[str, dict[str, Any], set[tuple[float, float]]], ...] = (
    ("directional_valve_4_3", {"centre": "float", "centre_opening": 0.03}, {A, B}),
    ("directional_valve_4_3", {"centre": "float", "centre_opening": THROTTLED}, {A, B}),
    ("directional_valve_4_3", {"centre": "float", "centre_opening": THROTTLED + 0.01}, set()),
    ("directional_valve_4_3", {"centre": "float", "centre_opening": OPEN}, set()),
    ("directional_valve_4_3", {"centre": "float"}, set()),
    ("directional_valve_4_3", {"centre": "closed", "centre_opening": 0.03}, set()),
    ("directional_valve_4_3", {"centre": "tandem", "centre_opening": 0.1}, {P}),
    ("directional_valve_4_3", {"centre": "open", "centre_opening": 0.1}, {A, B, P}),
    ("directional_valve_4_3", {"centre": "float", "centre_opening": 0.5, "overlap": "-5 %"}, {P}),
    ("directional_valve_4_3", {"centre": "float", "centre_opening": "3 %"}, {A, B}),
    ("directional_valve_4_3", {"centre": "float", "centre_opening": "$opening"}, set()),
    ("directional_valve_4_3", {"overlap": -0.1, "overlap_T": 0.1}, {A, B}),
    ("directional_valve_4_3", {"openings": {"PA": [[0, 0], [1, "20 %"]]}}, {(90.0, 60.0)}),
    ("load_sensing_valve", {"centre": "float", "centre_opening": 0.05}, {(150.0, 50.0), (190.0, 50.0)}),
    ("directional_valve_3_2", {"openings": {"AT": [[0, 0.1], [1, 0]]}}, {(140.0, 60.0)}),
)


@pytest.mark.parametrize(("kind", "values", "wanted"), THROTTLES)
def test_throttled_paths_have_two_arcs_that_face_each_other(
    kind: str, values: dict[str, Any], wanted: set[tuple[float, float]]
) -> None:
    """On the path itself; not on one that is open, nor on a port that is closed."""
    found = set()
    for d in re.findall(r'd="(M[^"]*Q[^"]*Q[^"]*)"', drawn(kind, values).body):
        one, other = (np.array(re.findall(r"-?[\d.]+", arc), float).reshape(3, 2) for arc in d[1:].split("M"))
        nearest, farthest = (np.linalg.norm(one[k] - other[k]) for k in (1, 0))
        assert 0.0 < nearest < farthest / 2, "bent towards each other"
        found.add(tuple(np.round((one[1] + other[1]) / 2)))
    assert found == wanted


def compare(kind: str, table: dict[str, Any]) -> None:
    """The edges shown in each position against the component's own curves; and the lines against the edges."""
    shown = positions(kind, table)
    if not shown:
        return
    component = LIBRARY.types[kind].model_validate(
        {key: value for key, value in table.items() if key in LIBRARY.types[kind].model_fields}
    )
    curves = {
        name.removeprefix("table_"): value
        for name, value in component.parameters(Fluid()).items()
        if isinstance(value, Table) and name.startswith("table_")
    }
    for spool, edges in shown.items() if curves else ():
        openings = {name: float(np.interp(spool, table.x, table.y)) for name, table in curves.items()}
        is_open = {name: opening for name, opening in openings.items() if opening > OPEN}
        assert edges == pytest.approx(is_open), f"{kind} at {spool}"
    body = drawn(kind, table).body
    at_rest = paths(body, 0)
    ports = {port: place for port, place in drawn(kind).ports.items() if port in "PTAB"}
    for one in ports:
        for other in set(ports) - {one}:
            joined = any({one, other} <= group for group in groups_of(shown[0], ports))
            assert reaches(at_rest, ports[one], ports[other]) == joined, f"{kind}: {one}-{other}"


def groups_of(edges: Iterable[str], ports: Any) -> list[set[str]]:
    """Ports that are joined by these edges."""
    groups = [{port} for port in ports]
    for edge in edges:
        merged = set().union(*(group for group in groups if group & set(edge)))
        groups = [group for group in groups if not group & merged] + [merged]
    return groups


def paths(body: str, position: int) -> list[tuple[float, float, float, float]]:
    """The lines that touch the ports, and all that lies in the squares; without the short bars of closed ports."""
    lines = []
    for d in re.findall(r'<path d="([^"]*)"', body):
        place = (0.0, 0.0)
        for letter, text in re.findall(r"([A-Za-z])([^A-Za-z]*)", d):
            numbers = [float(n) for n in re.findall(r"-?[\d.]+", text)]
            before = place
            if letter in "ML":
                place = (numbers[0], numbers[1])
            elif letter == "V":
                place = (place[0], numbers[0])
            elif letter == "H":
                place = (numbers[0], place[1])
            elif letter != "h":  # the short bar of a closed port
                break
            if letter in "LVH":
                lines.append((*before, *place))
    return lines


def reaches(lines: list[tuple[float, float, float, float]], start: Any, end: Any) -> bool:
    """Whether lines lead from a point to another one; an arrow head is 6 long."""

    def near(point: Any, line: tuple[float, float, float, float]) -> bool:
        (x, y), (a, b, c, d) = point, line
        length = np.hypot(c - a, d - b)
        along = ((x - a) * (c - a) + (y - b) * (d - b)) / length
        across = abs((x - a) * (d - b) - (y - b) * (c - a)) / length
        return bool(across < 1.0 and -0.5 <= along <= length + 6.5)

    found = [line for line in lines if near(start, line)]
    for line in found:  # which grows
        ends = (line[:2], line[2:])
        found += [
            other
            for other in lines
            if other not in found
            and (any(near(p, other) for p in ends) or any(near(p, line) for p in (other[:2], other[2:])))
        ]
    return any(near(end, line) for line in found)


@pytest.mark.parametrize("kind", ["pressure_compensated_pump", "load_sensing_pump", "power_limited_pump"])
def test_a_variable_pump_has_a_controller_between_its_outlet_and_a_spring(kind: str) -> None:
    """Two squares; the pilot line from P at one end, at the other the spring, and LS in the load-sensing one."""
    body, ports = drawn(kind).body, drawn(kind).ports
    frame = re.search(r'd="M(\d+) (\d+)h(\d+)v(\d+)h-\3zM(\d+) \2v\4M\1 [\d.]+h\3M\1 [\d.]+h\3"', body)
    assert frame is not None, "a frame with a line that divides it, between two parallel lines"
    left, top, width, height, middle = map(float, frame.groups())
    assert middle == left + width / 2
    dashed = re.findall(r'<path stroke-dasharray="[^"]*" d="M([\d.]+) ([\d.]+)[^"]*H([\d.]+)"', body)
    lines = {float(x): (float(y), float(end)) for x, y, end in dashed}
    level, to = lines.pop(ports["P"][0])
    assert to == left
    assert top < level < top + height
    spring = re.search(rf'd="M{left + width:g} {level:g}((?:l[-\d.]+ ?[-\d.]+)+)', body)
    assert spring is not None
    end = left + width + sum(float(x) for x in re.findall(r"l(-?[\d.]+)", spring[1]))
    assert lines == ({ports["LS"][0]: (ports["LS"][1], end)} if "LS" in ports else {})


def test_pressure_valves_stand_beside_or_between_their_ports() -> None:
    """Normally closed: the arrow beside the ports, on the side to which the pilot pressure moves it; open: in line."""
    offset = {
        "relief_valve": -1,
        "static_relief_valve": -1,
        "sequence_valve": -1,
        "counterbalance_valve": -1,
        "unloading_valve": 1,
        "pressure_compensator": 0,
        "reducing_valve": 0,
    }
    for kind, side in offset.items():
        body, ports = drawn(kind).body, drawn(kind).ports
        port = next(x for name, (x, _) in ports.items() if name in "PC")
        arrow = re.search(r'd="M(\d+) \d+[LV][\d. ]*" ?/><path fill="currentColor" stroke="none" d="M\1 ', body)
        assert arrow is not None, kind
        assert np.sign(float(arrow[1]) - port) == side, kind
        box = re.search(r'<rect x="(\d+)" y="\d+" width="(\d+)"', body)
        assert box is not None
        left, right = float(box[1]), float(box[1]) + float(box[2])
        pilots = re.findall(r'stroke-dasharray="4 3" d="([^"]*)"', body)
        acts = {
            left: any(d.endswith(f"H{left:g}") for d in pilots),
            right: any(d.endswith(f"H{right:g}") for d in pilots),
        }
        assert acts == {left: side <= 0, right: side > 0}, kind
    assert "M40 70V36" in drawn("pressure_compensator", {"place": "downstream"}).body


def test_values_that_change_the_function_change_the_symbol() -> None:
    for kind, values in (
        ("check_valve", {"cracking_pressure": "0.5 bar"}),
        ("cylinder", {"cushion_A": {"length": "20 mm"}}),
        ("single_acting_cylinder", {"spring_force": "100 N"}),
        ("flow_control_valve_2_way", {"reverse_check": {"flow": "1 l/min"}}),
        ("hydraulic_motor", {"setting": "swash"}),
        ("directional_valve_4_3", {"f45": "20 Hz"}),
        ("reducing_valve", {"relief_flow": {"flow": "1 l/min"}}),
        ("unloading_valve", {"check": {"flow": "1 l/min"}}),
    ):
        assert drawn(kind, values).body != drawn(kind).body, kind
    assert drawn("check_valve", {"cracking_pressure": "0 bar"}).body == drawn("check_valve").body
