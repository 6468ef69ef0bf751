"""Where a mechanism in a plane starts, and its degrees of freedom: impossible starts, redundant constraints."""

from __future__ import annotations

import re
from math import cos, pi, sin, sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import Bench
from planar_bench import G, alone, body, lagrange, packed_of, pin, table

from hilserver.bench.boom_reference import LIGHT
from hilserver.errors import ConfigurationError
from hilserver.mechanics.assembly import mobility, start
from hilserver.mechanics.model import read_mechanism

# --- start ------------------------------------------------------------------------------------------------------------


def test_a_start_other_than_the_drawing() -> None:
    """The boom at a piston of 0.40 m that extends with 50 mm/s: the triangle's angle, and w = v / arm."""
    definition = table("boom")
    definition["actuators"]["lift"] |= {"start": "0.40 m", "start_speed": "50 mm/s"}
    bench = Bench(alone(definition))
    bench.run(0.0, 1e-3)
    assert bench["lift.x"] == pytest.approx(0.40, abs=1e-9)
    assert bench["lift.v"] == pytest.approx(0.05, abs=1e-9)
    length, arm, *_ = LIGHT.geometry(bench["m.boom.angle"])
    assert length == pytest.approx(0.40 + 0.6233981, abs=1e-9)
    assert bench["m.boom.w"] == pytest.approx(0.05 / arm, rel=1e-9)


def test_an_angle_of_a_joint_at_the_start() -> None:
    definition = table("slider_crank")
    definition["joints"]["shaft"] |= {"start": "75 deg", "start_speed": "60 rpm"}
    states = start(read_mechanism(definition)).reshape(-1, 6)
    assert states[0, 2] == pytest.approx(75 * pi / 180)
    assert states[0, 5] == pytest.approx(2 * pi)
    angle = pi / 4 + 75 * pi / 180
    assert states[2, 0] == pytest.approx(0.1 * cos(angle) + sqrt(0.35**2 - (0.1 * sin(angle)) ** 2), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"start": "2 m"}, "m.actuators.lift.start: the mechanism can't reach this start"),
        (
            {"start_speed": "1 m/s", "pivot": "1 rpm"},
            "joints.pivot, actuators.lift.start_speed: the mechanism can't have",
        ),
    ],
)
def test_an_impossible_start_is_refused(change: dict[str, str], expected: str) -> None:
    definition = table("boom")
    if speed := change.pop("pivot", ""):
        definition["joints"]["pivot"]["start_speed"] = speed
    definition["actuators"]["lift"] |= change
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        packed_of(definition)


# --- mobility ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "freedom"),
    [("boom", 1), ("boom_heavy_cylinder", 1), ("slider_crank", 1), ("four_bar", 1), ("excavator", 3)],
)
def test_degrees_of_freedom_of_the_ready_mechanisms(name: str, freedom: int) -> None:
    found = mobility(read_mechanism(table(name)))
    assert found.freedom == freedom
    assert found.redundant == {}


def parallelogram(cranks: int, length: float = 0.5) -> dict[str, Any]:
    """A level bar on upright cranks: with more than two one constraint each says nothing new."""
    bodies = {"bar": body(5.0, 1.0, 0.5, length)}
    joints = {}
    for k in range(cranks):
        x = k / (cranks - 1)
        bodies[f"crank{k}"] = body(1.0, 0.02, x, 0.5 * length)
        joints[f"foot{k}"] = pin("ground", f"crank{k}", x, 0.0)
        joints[f"top{k}"] = pin(f"crank{k}", "bar", x, length)
    return {"bodies": bodies, "joints": joints}


def test_a_redundant_constraint_is_named_and_left_out() -> None:
    """Three cranks do what two do: the same motion as with two, whose third crank is then on the second (1e-7 rad)."""
    mechanism = read_mechanism(parallelogram(3))
    found = mobility(mechanism)
    assert found.freedom == 1
    assert found.redundant == {"top2": 1}
    definition = parallelogram(3)
    definition["joints"]["foot0"]["start_speed"] = "20 rpm"
    bench = Bench(alone(definition))
    bench.run(1.0, 1e-3)
    inertia = 3 * (0.02 + 1.0 * 0.25**2) + 5.0 * 0.5**2
    weight = G * (3 * 1.0 * 0.25 + 5.0 * 0.5)
    expected = lagrange(lambda _: inertia, lambda q: weight * cos(q), [0.0, 2 * pi / 3], np.array([1.0]))
    assert bench["m.crank2.angle"] == pytest.approx(expected[0, -1], abs=1e-7)
    assert bench["m.bar.angle"] == pytest.approx(0.0, abs=1e-9)


def test_a_dead_centre_at_the_start_is_no_redundancy_and_refused() -> None:
    """A flat parallelogram could go on as one or as a crossed one."""
    definition = parallelogram(2)
    for name, centre, x in (("crank0", 0.25, 0.0), ("crank1", 1.25, 1.0)):
        definition["bodies"][name]["centre"] = [f"{centre} m", "0 m"]
        definition["joints"][f"top{name[-1]}"]["point"] = [f"{x + 0.5} m", "0 m"]
    definition["bodies"]["bar"]["centre"] = ["1 m", "0 m"]
    with pytest.raises(ConfigurationError, match=r"mechanisms\.m: the start is a dead centre"):
        packed_of(definition)


def test_a_locked_mechanism_has_no_freedom() -> None:
    definition = parallelogram(2)
    brace = body(1.0, 0.02, 0.75, 0.25)
    definition["bodies"]["brace"] = brace
    definition["joints"] |= {"b0": pin("ground", "brace", 1.5, 0.0), "b1": pin("brace", "bar", 0.4, 0.5)}
    found = mobility(read_mechanism(definition))
    assert (found.freedom, found.redundant) == (0, {})
