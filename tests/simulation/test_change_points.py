"""Mechanisms at their limits: change points of loops, a body on a ball joint, inertia that no body has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chain_bench import BALL

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.mechanics.model import read_mechanism
from hilserver.simulation.circuit_run import CircuitRun, run_circuit, write_animations, write_run


def point(x: float, y: float) -> list[str]:
    return [f"{x} m", f"{y} m"]


def linkage(method: str, coupler: float, speed: str) -> dict[str, Any]:
    """Two cranks of 0.3 m on a base of 0.5 m; with a coupler as long as that, a parallelogram. No gravity."""
    bar = {"mass": "1 kg", "inertia": "0.01 kg*m^2"}
    rise = (0.09 - (coupler - 0.5) ** 2) ** 0.5
    return {
        "method": method,
        "gravity": ["0 m/s^2", "0 m/s^2"],
        "bodies": {
            "left": {**bar, "centre": point(0.0, 0.15)},
            "coupler": {**bar, "centre": point(0.25, 0.3)},
            "right": {**bar, "centre": point(0.5, 0.15)},
        },
        "joints": {
            "base_left": {"type": "revolute", "between": ["ground", "left"], "point": point(0, 0),
                          "start_speed": speed},
            "top_left": {"type": "revolute", "between": ["left", "coupler"], "point": point(0, 0.3)},
            "top_right": {"type": "revolute", "between": ["coupler", "right"], "point": point(coupler, rise)},
            "base_right": {"type": "revolute", "between": ["right", "ground"], "point": point(0.5, 0)},
        },
    }  # fmt: skip


def run(definition: dict[str, Any], seconds: float) -> CircuitRun:
    library = standard_library()
    return run_circuit(read_circuit({"mechanisms": {"m": {"definition": definition}}}, library), library, None, seconds)


@pytest.mark.parametrize("method", ["absolute", "recursive"])
@pytest.mark.parametrize(("speed", "at"), [("60 rpm", "0.25"), ("58.7 rpm", "0.25"), ("73.1 rpm", "0.20")])
def test_a_parallelogram_passing_its_dead_centre_is_reported(method: str, speed: str, at: str) -> None:
    """From upright, the bars are in one line after a quarter of a turn: said in the run's notes, or why it diverged."""
    try:
        text = " ".join(run(linkage(method, 0.5, speed), 0.4).notes)
    except HilserverError as error:
        text = str(error)
    assert f"mechanism m reaches a change point at {at}" in text
    assert "shorter step does not help" in text


@pytest.mark.parametrize("method", ["absolute", "recursive"])
def test_regular_motions_have_no_change_point(method: str) -> None:
    """A parallelogram that stays clear of its dead centre, and a linkage that has none, turned once."""
    assert run(linkage(method, 0.5, "60 rpm"), 0.2).notes == ()
    assert run(linkage(method, 0.42, "-60 rpm"), 0.3).notes == ()


def test_one_body_on_a_ball_joint_is_simulated_plotted_and_animated(tmp_path: Path) -> None:
    found = run(BALL, 0.2)
    files = [*write_run(found, tmp_path), *write_animations(found, tmp_path)]
    assert {path.suffix for path in files} >= {".html", ".csv", ".gif"}
    assert found.error is not None
    assert found.error.deviations
    assert not found.error.too_long


@pytest.mark.parametrize(
    ("moments", "text"),
    [
        (["0.02", "0.03", "0.08"], "no body has one that exceeds the sum of the other two"),
        (["0.02", "0.03", "0.04", "0.03", "0", "0"], "all must be > 0"),
    ],
)
def test_impossible_inertia_is_refused(moments: list[str], text: str) -> None:
    top = {**BALL["bodies"]["top"], "inertia": [f"{J} kg*m^2" for J in moments]}
    with pytest.raises(ConfigurationError, match=text):
        read_mechanism({**BALL, "bodies": {"top": top}})
    thin = {**BALL["bodies"]["top"], "inertia": ["1 kg*m^2", "1 kg*m^2", "2.005 kg*m^2"]}  # a plate, rounded
    read_mechanism({**BALL, "bodies": {"top": thin}})
