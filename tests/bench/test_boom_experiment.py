"""The experiment of [Asikainen] as a command: the figures that docs/mechanics.md shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from hilserver.bench.boom import RUNS, BoomExperiment
from hilserver.bench.boom_reference import LIGHT

CONFIG = Path(__file__).parents[2] / "config"
EXPERIMENT = BoomExperiment(CONFIG / "circuits/boom.toml", CONFIG / "mechanisms", 0.6)


@pytest.mark.parametrize("step", [1e-3, 1e-4])
def test_boom_run_agrees_with_the_independent_solution(step: float) -> None:
    """While the valve opens: 1e-7 rad and 100 Pa, as in the source with 2.5e-3 rad and 1.5e5 Pa."""
    angle, p_A, p_B = EXPERIMENT.differences(LIGHT, "boom", step, substeps=10)
    assert angle < 1e-7
    assert p_A < 100.0
    assert p_B < 100.0


def test_a_shared_solution_of_the_mechanism_differs_less_than_the_source() -> None:
    _, solver, _ = next(run for run in RUNS if "mechanics_substeps" in run[1])
    angle, p_A, _ = EXPERIMENT.differences(LIGHT, "boom", 1e-4, **solver)
    assert 0.0 < angle < 1e-5
    assert p_A < 1e3


def test_tables_have_a_line_for_every_run() -> None:
    short = BoomExperiment(EXPERIMENT.circuit, EXPERIMENT.mechanisms, 0.1)
    assert len(list(short.accuracy())) == 1 + 2 * len(RUNS)
