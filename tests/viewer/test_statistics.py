"""Figures over a span against NumPy on all samples, and against exact arithmetic where floats are delicate."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from viewer_bench import SPIKE, Run, record

from hilserver.record.format import RecordError
from hilserver.viewer.opening import open_log
from hilserver.viewer.statistics import CHUNK, figures, sample_at, statistics


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return record(tmp_path_factory.mktemp("statistics") / "run.arrow")


@pytest.mark.parametrize(("begin", "end"), [(-1.0, 99.0), (4.19, 4.21), (2.0, 2.0), (0.0, 3.0)])
def test_figures_are_those_of_all_samples_in_the_span(run: Run, begin: float, end: float) -> None:
    log = open_log(run.path)
    time, values = run.values["time"], run.values["channel.p_A"]
    inside = values[(time >= begin) & (time <= end)]
    found = statistics(log, "channel.p_A", begin, end)
    assert (found.count, found.missing) == (len(inside), 0)
    assert (found.minimum, found.maximum) == (inside.min(), inside.max())
    assert found.mean == pytest.approx(inside.mean(), rel=1e-12)
    assert found.rms == pytest.approx(np.sqrt(np.mean(inside**2)), rel=1e-12)
    assert found.std == pytest.approx(inside.std(), rel=1e-9, abs=1e-6)


def test_missing_samples_are_counted_and_left_out(run: Run) -> None:
    found = statistics(open_log(run.path), "channel.gap", 2.9, 3.3)
    assert (found.count, found.missing) == (202, 199)
    assert found.maximum == 3.3
    nothing = statistics(open_log(run.path), "circuit.relief.q", 0.0, 1.0)
    assert (nothing.count, nothing.missing) == (0, 1001)
    assert math.isnan(nothing.mean)


def test_a_small_ripple_on_a_large_mean_keeps_its_digits() -> None:
    """1 Pa around 35 MPa, in three parts, against exact fractions."""
    values = 3.5e7 + np.random.default_rng(3).normal(size=900)
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    variance = sum((value - mean) ** 2 for value in exact) / len(exact)
    found = figures(np.split(values, [100, 700]))
    assert found.mean == pytest.approx(float(mean), rel=1e-15)
    assert found.std == pytest.approx(math.sqrt(variance), rel=1e-7)


def test_parts_are_bounded() -> None:
    values = np.random.default_rng(1).normal(size=CHUNK + 5)
    assert figures([values[:CHUNK], values[CHUNK:]]).std == pytest.approx(values.std(), rel=1e-12)


def test_the_cursor_shows_the_nearest_sample(run: Run) -> None:
    log = open_log(run.path)
    at = run.spike / 1000
    for moved in (-4e-4, 0.0, 4e-4):
        assert sample_at(log, "channel.p_A", at + moved) == (at, SPIKE)
    assert sample_at(log, "channel.p_A", at + 6e-4)[0] == pytest.approx(at + 1e-3)
    assert all(map(math.isnan, sample_at(log, "channel.p_A", 7.0)))
    with pytest.raises(RecordError, match="has no signal p"):
        sample_at(log, "p", 1.0)


def test_an_unknown_signal_is_refused(run: Run) -> None:
    with pytest.raises(RecordError, match="has no signal"):
        statistics(open_log(Path(run.path)), "nothing", 0.0, 1.0)
