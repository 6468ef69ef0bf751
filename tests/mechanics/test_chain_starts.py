"""The start of a chain: positions and speeds that a file prescribes, and what it can't have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chain_bench import bar_chain, joint, mechanism, read, run

from hilserver.bench.generated_loop import loop_table
from hilserver.compiler import standard_program
from hilserver.errors import ConfigurationError
from hilserver.mechanics.cutting import tree_of
from hilserver.mechanics.initial import start_of
from hilserver.mechanics.model import (
    GROUND,
    read_mechanism,
)


@pytest.fixture(scope="module")
def program() -> Any:
    return standard_program()


def test_starts_are_reached(program: Any) -> None:
    """The crank at 100 degrees and 60 rpm: the slider where the closed kinematics has it, and as fast."""
    tree = tree_of(read("spatial_slider_crank", shaft={"start": "100 deg", "start_speed": "60 rpm"}))
    y, names = start_of(tree), tree.coordinate_names()

    def slider(a: float) -> float:
        return float(np.sqrt(0.09 - (0.1 - 0.08 * np.sin(a)) ** 2 - (0.12 + 0.08 * np.cos(a)) ** 2)) - 0.2

    a, w, e = np.radians(100.0), 2.0 * np.pi, 1e-5
    assert y[names.index("shaft")] == pytest.approx(a, abs=1e-12)
    assert y[names.index("guide")] == pytest.approx(slider(a), abs=1e-11)
    speed = w * (slider(a + e) - slider(a - e)) / (2.0 * e)
    assert y[tree.n_coordinates + names.index("guide")] == pytest.approx(speed, rel=1e-8)
    _, gap = run(program, tree, y, 0.01)
    assert gap < 1e-10


@pytest.mark.parametrize(
    ("joints", "text"),
    [
        ({"guide": {"start": "200 mm"}}, "joints.guide.start: the mechanism can't reach this start: it fails at step"),
        (
            {"shaft": {"start_speed": "60 rpm"}, "guide": {"start_speed": "5 m/s"}},
            "joints.guide.start_speed: the mechanism can't have these speeds at the same time",
        ),
    ],
)
def test_impossible_starts_are_refused(joints: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        start_of(tree_of(read("spatial_slider_crank", **joints)), "crank.toml")
    assert text in str(caught.value)


def test_a_start_for_every_joint_of_a_loop_is_refused() -> None:
    given = {name: {"start": "0 deg"} for name in ("pin_1", "pin_2", "pin_3", "pin_4")}
    raw = loop_table(4)
    for name, more in given.items():
        raw["joints"][name] |= more
    with pytest.raises(ConfigurationError, match="start is given for every joint of this loop"):
        start_of(tree_of(read_mechanism(raw)))


def test_a_dead_centre_is_named() -> None:
    """Three bars in a straight line between two pins: stretched as far as they go."""
    bodies, joints = bar_chain("a", "b", "c", length=0.5, mass=1.0)
    joints["end"] = joint("revolute", "c", GROUND, 1.5, 0.0, 0.0, axis=[0, -1, 0])
    with pytest.raises(ConfigurationError, match="the start is a dead centre"):
        start_of(tree_of(mechanism(bodies, joints)))
