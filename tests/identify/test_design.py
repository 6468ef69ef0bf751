"""The second part of the excitation: as long as what is least certain needs, within its limit."""

from __future__ import annotations

from collections.abc import Iterable
from math import pi

import numpy as np
import pytest
from unknown_rigs import changed_rig

from hilserver.identify import design, excitation
from hilserver.identify.design import RoundPart, response_deviation, still_needed, uncertain
from hilserver.identify.excitation import NULL_REGION, Extent, by_hand, excite
from hilserver.identify.experiment import NotIdentifiable
from hilserver.identify.identification import Identified, identify_valve
from hilserver.identify.recorded import Recording
from hilserver.identify.simulated_excitation import LockstepBench, recorded_excitation
from hilserver.rig.rig import Rig

SECONDS = 12.0


@pytest.fixture(scope="module")
def rig() -> Rig:
    """A lift rig with all unknowns."""
    return changed_rig("lift", 105)


@pytest.fixture(scope="module")
def found(rig: Rig) -> Identified:
    """Its valve A, from a short sequence."""
    return identify_valve(rig, recorded_excitation(rig, ["A"], Extent(SECONDS, 0.6, end_stops=False)), "A", order=2)


def test_the_deviation_of_the_response_is_that_of_many_samples(found: Identified) -> None:
    """From a normal distribution of frequency, damping and lag, without what all sensors have in common."""
    names = ["frequency", "damping", "lag"]
    places = [list(found.fit.deviations).index(name) for name in names]
    covariance = found.fit.covariance[np.ix_(places, places)].copy()
    covariance[2, 2] -= found.fit.parameters["lag"].inseparable ** 2
    mean = np.array([found.values[name] for name in names])
    samples = np.random.default_rng(1).multivariate_normal(mean, 1e-4 * covariance, 20_000)
    f45 = mean[0] * (np.sqrt(mean[1] ** 2 + 1.0) - mean[1])

    def response(frequency: float, damping: float, lag: float) -> complex:
        ratio = f45 / frequency
        delay = lag - damping / (pi * frequency)
        return complex(np.exp(-2j * pi * f45 * delay) / complex(1.0 - ratio**2, 2.0 * damping * ratio))

    scatter = np.array([response(*sample) for sample in samples]) / response(*mean) - 1.0
    assert response_deviation(found) == pytest.approx(100.0 * float(np.sqrt(np.mean(np.abs(scatter) ** 2))), rel=0.03)
    assert np.angle(response(*mean)) + 2.0 * pi * f45 * (mean[2] - mean[1] / (pi * mean[0])) == pytest.approx(-pi / 4)


def test_what_is_least_certain_takes_longest(monkeypatch: pytest.MonkeyPatch, rig: Rig, found: Identified) -> None:
    """A standard deviation decreases with the square root of the time; all together take at most what is left."""
    excess = {RoundPart.NULL: 0.5, RoundPart.STAIRS: 2.0, RoundPart.STEPS: 3.0}
    monkeypatch.setattr(design, "identify_valve", lambda *_: found)
    monkeypatch.setattr(design, "uncertain", lambda _: excess)
    recording = found.experiment.recording.last(10.0)
    assert recording.duration == pytest.approx(10.0)
    assert still_needed(rig, recording, ["A"], 1000.0) == pytest.approx({RoundPart.STAIRS: 30.0, RoundPart.STEPS: 80.0})
    assert still_needed(rig, recording, ["A"], 55.0) == pytest.approx(
        {RoundPart.STAIRS: 55.0 * 30 / 85, RoundPart.STEPS: 55.0 * 55 / 85}
    )
    assert still_needed(rig, recording, ["A"], 4.0) == {}
    excess |= {RoundPart.STAIRS: 1.0, RoundPart.STEPS: 1.01}
    assert still_needed(rig, recording, ["A"], 1000.0) == {RoundPart.STEPS: design.LEAST}


def test_unidentified_properties_are_uncertain(found: Identified) -> None:
    """Those of the spool without limit; what no recording shows, however long, is not counted."""
    certain = uncertain(found)
    assert 1.0 < certain[RoundPart.STEPS] < 100.0  # of 3 s of steps with noisy sensors
    names = [name for name in found.fit.values if name not in ("frequency", "damping")]
    known = Identified(
        found.experiment, True, found.fit.of(names), {"frequency": 20.0, "damping": 0.3, "leakage": 0.02}, found.fitted
    )
    assert uncertain(known)[RoundPart.STEPS] == float("inf")
    assert uncertain(known)[RoundPart.NULL] == pytest.approx(0.02 / design.WANTED[RoundPart.NULL]["leakage"])


def test_what_can_not_be_identified_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, rig: Rig, found: Identified
) -> None:
    def refuse(*_: object) -> Identified:
        raise NotIdentifiable("no flow is known")

    monkeypatch.setattr(design, "identify_valve", refuse)
    assert still_needed(rig, found.experiment.recording, ["A"], 100.0) == {}


def test_the_sequence_goes_on_with_what_is_asked_for(monkeypatch: pytest.MonkeyPatch, rig: Rig) -> None:
    asked: list[tuple[list[str], float, float]] = []

    def needed(_: Rig, recording: Recording, valves: Iterable[str], most: float) -> dict[RoundPart, float]:
        asked.append((list(valves), recording.duration, most))
        return {RoundPart.NULL: 3.0, RoundPart.STEPS: 4.0}

    monkeypatch.setattr(excitation, "still_needed", needed)

    def recorded(longest: float) -> Recording:
        bench = LockstepBench(by_hand(rig, 0.6))
        excite(rig, bench, ["A"], Extent(SECONDS, 0.6, longest, end_stops=False))
        return bench.recording()

    short, longer = recorded(SECONDS), recorded(30.0)
    (valves, last, most), *others = asked
    assert valves == ["A"]
    assert not others
    assert last == pytest.approx(SECONDS / 4, abs=0.5)
    assert most == pytest.approx(30.0 - SECONDS, abs=0.5)
    assert longer.duration - short.duration == pytest.approx(7.0, abs=0.5)
    command, begin = longer.commands["A"], len(short.commands["A"])
    null = np.abs(command[begin : begin + 3000])
    assert np.mean(null <= NULL_REGION + 0.01) > 0.8  # the rest brings the piston to the middle
    assert np.abs(command[begin + 3200 :]).max() > 2.0 * NULL_REGION


@pytest.mark.slow
def test_a_rig_with_noisy_sensors_becomes_known_better(rig: Rig, found: Identified) -> None:
    longer = recorded_excitation(rig, ["A"], Extent(SECONDS, 0.6, longest=3.0 * SECONDS, end_stops=False))
    assert longer.duration > 2.0 * SECONDS
    assert response_deviation(identify_valve(rig, longer, "A", order=2)) < 0.7 * response_deviation(found)
