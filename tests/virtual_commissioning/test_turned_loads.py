"""The load in the other direction: of cylinders whose load the rig file does not state, and of no others."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from component_bench import program
from lift_bench import lift
from slow_lift import modbus, slow_lift
from trial_bench import SUPPLY

from hilserver.circuit.library import standard_library
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.virtual_commissioning.cases import PULLING, CaseKind, cases
from hilserver.virtual_commissioning.subject import Subject
from hilserver.virtual_commissioning.turned_loads import of_unstated_loads

pytestmark = pytest.mark.slow


def two_cylinders(**loads: str) -> Rig:
    """The lift with a second cylinder, arm, moved by a lever; with these loads stated."""
    sources = copy.deepcopy(dict(slow_lift(1000.0, "prediction", SUPPLY).sources))
    rig: dict[str, Any] = sources["rig"]
    device = modbus(1000.0)
    names = {"p_A": "p_C", "p_B": "p_D", "x": "y"}
    for number, (old, new) in enumerate(names.items(), 10):
        device["inputs"][new] = {**device["inputs"][old], "address": 2 * number}
        rig["channels"][new] = {**rig["channels"][old], "source": new}
    for number, name in enumerate(("valve_C", "valve_D"), 10):
        device["outputs"][name] = {**device["outputs"]["valve_A"], "address": 2 * number}
    rig["devices"] = {"rig": device}
    rig["ports"] |= {"C": "p_C", "D": "p_D"}
    rig["inputs"]["lever"] = rig["inputs"]["joystick"]
    rig["cylinders"]["arm"] = {**rig["cylinders"]["lift"], "port_A": "C", "port_B": "D", "position": "y"}
    for old, new in (("A", "C"), ("B", "D")):
        rig["valves"][new] = {**rig["valves"][old], "port": new, "output": f"valve_{new}"}
    rig["simulation"]["loads"] = loads
    components = sources["circuit"]["components"]
    second = {**components["main_valve"], "command": "lever"}
    second["ports"] = {**second["ports"], "A": "rig.C", "B": "rig.D"}
    components["second_valve"] = second
    rig.pop("cycle", None)
    sources.pop("cycle", None)
    return assemble({**sources, "devices": {}}, lift().file, standard_library())


def turned(rig: Rig) -> list[str]:
    """The cases with a load in the other direction."""
    subject = Subject(rig, program())
    every = cases(rig, loads=subject.loads, home=subject.home)
    return [str(case) for case in of_unstated_loads(subject, every) if case.load == PULLING]


def test_only_cylinders_whose_load_is_not_stated_have_it_in_the_other_direction() -> None:
    found = turned(two_cylinders(lift="3924 N"))
    assert found == [
        "rest, at 50% of the stroke, load of arm in the other direction",
        "step of lever to 0.5, at 50% of the stroke, load of arm in the other direction",
        "step of lever to -0.5, at 50% of the stroke, load of arm in the other direction",
    ]


def test_without_any_stated_load_all_of_them_are_in_the_other_direction() -> None:
    found = turned(two_cylinders())
    assert len(found) == 5
    assert all(text.endswith(", load in the other direction") for text in found)
    assert turned(two_cylinders(lift="3924 N", arm="1 kN")) == []


def test_a_turned_case_runs() -> None:
    rig = two_cylinders(lift="3924 N")
    subject = Subject(rig, program())
    every = of_unstated_loads(subject, cases(rig, loads=subject.loads, home=subject.home))
    case = next(c for c in every if c.turned and c.kind is CaseKind.STEP)
    start = subject.of(case).start
    area_A, area_B = rig.settings.cylinders["arm"].areas()
    weight = rig.settings.cylinders["arm"].mass * 9.81
    assert area_B * start["D.content"] - area_A * start["C.content"] == pytest.approx(weight, rel=0.01)
    assert area_A * start["A.content"] - area_B * start["B.content"] == pytest.approx(weight, rel=0.01)
