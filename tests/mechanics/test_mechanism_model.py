"""Mechanism files: what is read, and the messages about invalid ones."""

from __future__ import annotations

import copy
import tomllib
from math import hypot, pi
from pathlib import Path
from typing import Any

import pytest

from hilserver.errors import ConfigurationError
from hilserver.mechanics.model import Linear, Prismatic, Revolute, Rotary, read_mechanism

MECHANISMS = Path(__file__).parents[2] / "config/mechanisms"
FILES = sorted(MECHANISMS.glob("*.toml"))

BOOM: dict[str, Any] = {
    "bodies": {"boom": {"mass": "200 kg", "inertia": "190 kg*m^2", "centre": ["1.3 m", "1.2 m"]}},
    "joints": {"pivot": {"type": "revolute", "between": ["ground", "boom"], "point": ["0 m", "1.2 m"]}},
    "actuators": {"lift": {"between": ["ground", "boom"], "pins": [["15 cm", "30 cm"], ["65 cm", "110 cm"]]}},
}
PENDULUM: dict[str, Any] = {
    "bodies": {"bob": {"mass": "1 kg", "inertia": ["1 kg*m^2"] * 3, "centre": ["0 m", "0 m", "-1 m"]}},
    "joints": {
        "ball": {"type": "spherical", "between": ["ground", "bob"], "point": ["0 m", "0 m", "0 m"]},
    },
}


def said(table: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read_mechanism(table, "m.toml")
    return [str(problem) for problem in caught.value.problems]


def changed(table: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with the value at a dotted path; None takes the key away."""
    result = copy.deepcopy(table)
    *way, last = path.split(".")
    inner = result
    for key in way:
        inner = inner.setdefault(key, {})
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return result


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_ready_mechanisms_are_valid(file: Path) -> None:
    mechanism = read_mechanism(tomllib.loads(file.read_text()), str(file))
    assert mechanism.description
    assert mechanism.bodies


def test_ready_mechanisms_are_there() -> None:
    assert {"boom", "boom_heavy_cylinder", "slider_crank", "four_bar", "excavator"} <= {file.stem for file in FILES}


def test_values_become_si() -> None:
    mechanism = read_mechanism(changed(BOOM, "joints.pivot.start", "90 deg"))
    pivot, lift = mechanism.joints["pivot"], mechanism.actuators["lift"]
    assert isinstance(pivot, Revolute)
    assert pivot.start == pytest.approx(pi / 2)
    assert isinstance(lift, Linear)
    assert lift.pins == ((0.15, 0.3), (0.65, 1.1))
    assert lift.drawn_length == pytest.approx(hypot(0.5, 0.8))
    assert mechanism.gravity == (0.0, -9.81)
    assert mechanism.method == "absolute"
    assert mechanism.planar
    assert mechanism.connections("lift") == ("ground", "boom")


def test_dimension_follows_from_the_components() -> None:
    mechanism = read_mechanism(PENDULUM)
    assert mechanism.gravity == (0.0, 0.0, -9.81)
    assert mechanism.method == "recursive"
    assert not mechanism.planar


def test_a_direction_has_length_one() -> None:
    guide = {"type": "prismatic", "between": ["ground", "boom"], "point": ["0 m", "0 m"], "axis": [3, 4]}
    mechanism = read_mechanism(changed(BOOM, "joints.guide", guide))
    joint = mechanism.joints["guide"]
    assert isinstance(joint, Prismatic)
    assert joint.axis == pytest.approx((0.6, 0.8))


def test_a_cylinder_with_mass_is_two_bodies_and_three_joints() -> None:
    part = {"mass": "10 kg", "inertia": "1 kg*m^2", "centre": "0.3 m"}
    table = changed(changed(BOOM, "actuators.lift.barrel", part), "actuators.lift.rod", part)
    mechanism = read_mechanism(table)
    assert [*mechanism.bodies] == ["boom", "lift.barrel", "lift.rod"]
    assert {name: joint.between for name, joint in mechanism.joints.items()} == {
        "pivot": ("ground", "boom"),
        "lift.base": ("ground", "lift.barrel"),
        "lift.head": ("boom", "lift.rod"),
        "lift.slide": ("lift.barrel", "lift.rod"),
    }
    length = hypot(0.5, 0.8)
    assert mechanism.bodies["lift.barrel"].centre == pytest.approx(
        (0.15 + 0.3 * 0.5 / length, 0.3 + 0.3 * 0.8 / length)
    )
    assert mechanism.bodies["lift.rod"].centre == pytest.approx((0.65 - 0.3 * 0.5 / length, 1.1 - 0.3 * 0.8 / length))
    assert mechanism.source == table


def test_a_rotary_actuator_turns_the_bodies_of_its_joint() -> None:
    mechanism = read_mechanism(changed(BOOM, "actuators.motor", {"type": "rotary", "joint": "pivot"}))
    assert isinstance(mechanism.actuators["motor"], Rotary)
    assert mechanism.connections("motor") == ("ground", "boom")


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("bodys", {}, "m.toml: bodys: unknown key. Did you mean bodies?"),
        ("bodies", {}, "bodies: a mechanism needs at least one body."),
        ("bodies.boom.mas", "1 kg", "bodies.boom.mas: unknown key. Did you mean mass?"),
        ("bodies.boom.mass", "1 m", 'bodies.boom.mass: "1 m" has the wrong unit'),
        ("bodies.boom.mass", "0 kg", 'bodies.boom.mass: "0 kg" is out of range: must be > 0'),
        ("bodies.boom.mass", None, "bodies.boom.mass: missing"),
        ("bodies.boom.inertia", "-1 kg*m^2", "bodies.boom.inertia: moments of inertia must be > 0"),
        ("bodies.boom.inertia", ["1 kg*m^2"] * 3, "bodies.boom.inertia: one number in a plane, 3 or 6 in space."),
        ("bodies.boom.inertia", ["1 kg*m^2"] * 2, "bodies.boom.inertia: needs 1 number (in a plane), 3 (xx, yy, zz)"),
        ("bodies.boom.centre", ["1 m"], "bodies.boom.centre: needs 2 components (in a plane) or 3 (in space), not 1"),
        ("bodies.boom.outline", [["1 m", "1 m", "1 m"]], "bodies.boom.outline[0]: has 3 components"),
        ("bodies.ground", BOOM["bodies"]["boom"], "bodies.ground: a name must not contain dots"),
        ("bodies.b", BOOM["bodies"]["boom"], 'bodies.b: no chain of joints connects it to "ground".'),
        ("bodies.boom", 3, "bodies.boom: 3 is not a table"),
        ("joints", 3, "joints: 3 is not a table"),
        ("joints.pivot", 3, "joints.pivot: 3 is not a table"),
        (
            "joints.pivot.type",
            "revolut",
            'joints.pivot.type: "revolut" is not one of its types. Did you mean',
        ),
        ("joints.pivot.type", "spherical", "joints.pivot.type: there is no spherical joint in a plane"),
        ("joints.pivot.between", ["ground", "bom"], 'joints.pivot.between: "bom" is not a body. Did you mean boom?'),
        ("joints.pivot.between", ["boom", "boom"], 'joints.pivot.between: "boom" is on both sides'),
        ("joints.pivot.axis", [0, 0, 1], "joints.pivot.axis: in a plane the axis is normal to it: leave it out."),
        ("joints.pivot.point", ["0 m", "0 m", "0 m"], "joints.pivot.point: has 3 components, but this mechanism moves"),
        ("gravity", ["0 m/s^2", "0 m/s^2", "-9.81 m/s^2"], "bodies.boom.centre: has 2 components"),
        ("actuators.lift.pins", [["0 m", "1 m"]] * 2, "actuators.lift.pins: both pins are at the same point"),
        ("actuators.lift.rod", {"mass": "1 kg"}, "actuators.lift.rod.inertia: missing"),
        (
            "actuators.lift.rod",
            {"mass": "1 kg", "inertia": "1 kg*m^2", "centre": "0.3 m"},
            "actuators.lift: give both barrel and rod a mass, or neither",
        ),
        (
            "actuators.m",
            {"type": "rotary", "joint": "pivo"},
            'actuators.m.joint: "pivo" is not a revolute joint.',
        ),
        ("actuators.m", {"type": "rotary"}, "actuators.m.joint: missing"),
        ("method", "absolut", "method: \"absolut\" is not one of 'absolute' or 'recursive'"),
    ],
)
def test_an_error_in_a_mechanism_is_located(path: str, value: object, expected: str) -> None:
    texts = said(changed(BOOM, path, value))
    assert any(expected in text for text in texts), texts


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("method", "absolute", "method: absolute coordinates are for mechanisms in a plane"),
        ("joints.ball.type", "revolute", "joints.ball.axis: missing: the axis of rotation."),
        (
            "joints.ball",
            {**PENDULUM["joints"]["ball"], "type": "universal", "axes": [[1, 0, 0], [1, 1, 0]]},
            "joints.ball.axes: the two axes of a universal joint are normal to each other.",
        ),
        (
            "joints.ball",
            {**PENDULUM["joints"]["ball"], "type": "prismatic", "axis": [0, 0, 0]},
            "joints.ball.axis: a direction must not have the length 0",
        ),
    ],
)
def test_an_error_in_a_mechanism_in_space_is_located(path: str, value: object, expected: str) -> None:
    texts = said(changed(PENDULUM, path, value))
    assert any(expected in text for text in texts), texts


def test_problems_have_the_prefix_of_the_mechanism() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_mechanism(changed(BOOM, "bodies.boom.mas", "1 kg"), "c.toml", "mechanisms.boom.definition")
    assert str(caught.value).startswith("c.toml: mechanisms.boom.definition.bodies.boom.mas: unknown key.")
    assert said(3) == ["m.toml: 3 is not a table with bodies and joints."]
