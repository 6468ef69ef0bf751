"""Figures against what is known of a second-order system (Ogata, Modern Control Engineering, ch. 5)."""

from __future__ import annotations

from math import exp, nan, pi, sqrt
from typing import Any

import numpy as np
import pytest

from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.studies.figures import read_figures

TIME: Floats = np.linspace(1e-3, 40.0, 40_000)
DAMPING, FREQUENCY = 0.4, 2.0
NAMES = {"rod.x": "m", "supply.p": "Pa"}


def step_response() -> Floats:
    """From 2 to 5."""
    damped = FREQUENCY * sqrt(1.0 - DAMPING**2)
    decay = np.exp(-DAMPING * FREQUENCY * TIME)
    part = 1.0 - decay * (np.cos(damped * TIME) + DAMPING * FREQUENCY / damped * np.sin(damped * TIME))
    return np.asarray(2.0 + 3.0 * part)


def figure(text: str | dict[str, Any], values: Floats, nominal: Floats | None = None) -> float:
    (found,) = read_figures({"it": text}, NAMES, 40.0, "study.toml")
    return found.of(TIME, values, values if nominal is None else nominal)


def test_overshoot_rise_and_settling_of_a_step_response() -> None:
    y = step_response()
    overshoot = exp(-pi * DAMPING / sqrt(1.0 - DAMPING**2))
    assert figure("overshoot(rod.x)", y) == pytest.approx(overshoot, abs=1e-5)
    assert figure("final(rod.x)", y) == pytest.approx(5.0, abs=1e-9)
    assert figure("max(rod.x)", y) == pytest.approx(2.0 + 3.0 * (1.0 + overshoot), abs=1e-5)
    part = (y - 2.0) / 3.0
    rises = np.interp([0.1, 0.9], part[:1500], TIME[:1500])
    assert figure("rise_time(rod.x)", y) == pytest.approx(rises[1] - rises[0], abs=2e-3)
    settled = figure("settling_time(rod.x)", y)
    assert abs(part[np.searchsorted(TIME, settled) - 2] - 1.0) > 0.019
    assert np.abs(part[np.searchsorted(TIME, settled + 3e-3) :] - 1.0).max() <= 0.0201


def test_mean_rms_and_range_of_a_sine() -> None:
    y = 3.0 + 2.0 * np.sin(2.0 * pi * 5.0 * TIME)
    assert figure("mean(rod.x)", y) == pytest.approx(3.0, abs=1e-9)
    assert figure("rms(rod.x)", y) == pytest.approx(sqrt(9.0 + 2.0), rel=1e-9)
    assert figure("range(rod.x)", y) == pytest.approx(4.0, rel=1e-9)
    assert figure("nrmse(rod.x)", y + 0.4, y) == pytest.approx(0.1, rel=1e-9)
    assert figure({"figure": "max(rod.x)", "start": "0.1 s", "end": "0.12 s"}, TIME) == pytest.approx(0.12)


def test_a_quantity_that_rests_has_no_rise_time() -> None:
    rest = np.full(len(TIME), 2.0)
    for name in ("rise_time", "overshoot", "settling_time"):
        assert figure(f"{name}(rod.x)", rest) is nan or np.isnan(figure(f"{name}(rod.x)", rest))


@pytest.mark.parametrize(
    ("given", "key", "said"),
    [
        ({"a": "maximum(supply.p)"}, "figures.a", "Did you mean max?"),
        ({"a": "max(suply.p)"}, "figures.a", "Did you mean supply.p?"),
        ({"a": "supply.p"}, "figures.a", 'write it like "max(supply.p)"'),
        ({"a": {"figure": "max(supply.p)", "start": "2 s", "end": "1 s"}}, "figures.a", "start must be less than end"),
        ({"a": {"figure": "max(supply.p)", "start": "50 s"}}, "figures.a", "after the end of the run"),
        ({"a": {"figure": "max(supply.p)", "under": "2 bar"}}, "figures.a.under", "unknown key"),
        ({"a": {"figure": "max(supply.p)", "below": "2 l/min"}}, "figures.a", "the figure in Pa"),
        ({"variant": "max(supply.p)"}, "figures.variant", "another name"),
        ({}, "figures", "at least one"),
    ],
)
def test_wrong_figures_are_refused(given: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_figures(given, NAMES, 40.0, "study.toml")
    (problem,) = refused.value.problems
    assert (problem.file, problem.key) == ("study.toml", key)
    assert said in problem.message
