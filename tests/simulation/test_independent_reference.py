"""Random machines against an independent reference: a run is within its stated error, or reports a step too long.

The reference (independent_reference.py) shares no code with the product. The steps range from far too long to fine,
with all methods. ``--machines 200`` compares as many machines; docs/decisions/0034 has the result.
"""

from __future__ import annotations

import numpy as np
import pytest
from independent_reference import MACHINES, Undecided, random_case
from step_comparison import KINDS, compared, run_of

pytestmark = pytest.mark.slow

FOUND = (32, 39, 53, 59, 67, 71, 152)
"""Rosenbrock divided the step and half of it into the same parts, which missed the same events: no difference."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "machine" in metafunc.fixturenames:
        seeds = dict.fromkeys((*range(metafunc.config.getoption("--machines")), *FOUND))
        metafunc.parametrize("machine", list(seeds))


def test_a_run_is_right_within_its_stated_error(machine: int) -> None:
    try:
        found = compared(machine)
    except Undecided as reason:
        pytest.skip(f"the reference can't solve this machine: {reason}")
    assert not found.wrong, found


@pytest.mark.parametrize("seed", range(len(MACHINES)))
def test_the_reference_agrees_with_another_method(seed: int) -> None:
    """By another method (Radau), a hundred times as coarse: 1e-5 of each state's range."""
    _, case, _, _ = random_case(seed)
    times = np.arange(1.0, round(case.duration * 1e3) + 1.0) * 1e-3
    one, other = case.solved(times), case.solution(times, "Radau", 1e-7)
    for name, values in one.items():
        assert np.abs(values - other[name]).max() <= 1e-5 * max(np.abs(values).max(), 1e-12), name


@pytest.mark.parametrize("seed", [5, 6, 8, 119])
def test_a_fine_run_agrees_with_the_reference(seed: int) -> None:
    """RK4 at 10 µs: all shown states within 2e-4 of their range; so equations and datasheet values are the same."""
    _, case, _, _ = random_case(seed)
    run = run_of(case, "rk4", 100)
    exact = case.solved(run.time)
    for state in (name for name in case.states if " " in name):
        label, node = state.split()
        found = run.series[f"{node}.{KINDS[label]}"]
        expected = np.maximum(exact[state], -1e5) if label == "pressure" else exact[state]
        assert np.abs(found - expected).max() < 2e-4 * np.abs(expected).max(), state
