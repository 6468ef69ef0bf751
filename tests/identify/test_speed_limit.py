"""A speed-limited spool is suspected; the judge is a simulated valve with a speed limit, which no model here has."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from lift_bench import both, lift, of_valves, true_valves

from hilserver.identify import identification, report
from hilserver.identify.evaluation import Evaluation
from hilserver.identify.excitation import Extent
from hilserver.identify.identification import Identified, curve_to_enter, identify_valve
from hilserver.identify.recorded import Recording
from hilserver.identify.report import fragment
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.identify.speed_limit import lag_by_speed
from hilserver.identify.suspicions import suspicions

CURVE = [(0.0, 0.0), (1.0, 1e-3)]
SIZE = 0.6
"""Largest command of the sequence."""


def recorded_and_identified(*changes: dict[str, Any], seconds: float = 20.0) -> tuple[Recording, Identified]:
    rig = lift(both(*changes))
    recording = recorded_excitation(rig, ["A"], Extent(seconds, SIZE, end_stops=False))
    return recording, identify_valve(rig, recording, "A")


def identified(*changes: dict[str, Any]) -> Identified:
    return recorded_and_identified(*changes)[1]


def suspected(found: Identified) -> bool:
    return any("speed-limited spool" in each.structure for each in suspicions(found))


def test_a_spool_without_limit_is_as_late_in_fast_movements(monkeypatch: pytest.MonkeyPatch) -> None:
    found = identified()
    lag = lag_by_speed(found.best)
    assert lag is not None
    assert lag.fast == pytest.approx(lag.slow, abs=0.1 * lag.usual)
    assert not suspected(found)
    monkeypatch.setattr(identification, "suggested_curve", lambda *_: CURVE)
    assert curve_to_enter(found.best) == CURVE


@pytest.mark.slow
def test_a_speed_limited_spool_is_suspected_until_its_slew_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, the largest steps would be made at up to 100 full strokes per second.

    Until then, nothing is merged or removed, and no flow-signal curve: the mean flows are also those on the way.
    """
    limited = true_valves(opening_rate="70 1/s")
    recording, found = recorded_and_identified(limited)
    assert suspected(found)
    evaluation = Evaluation([found], recording)
    text = fragment(evaluation)
    assert "enter its slew, and identify again" in text
    assert "# nominal_flow = " in text
    assert all(not table for tables in tomllib.loads(text).values() for table in tables.values())
    assert evaluation.corrected(evaluation.valves[0]) == []
    with monkeypatch.context() as patched:
        patched.setattr(identification, "suggested_curve", lambda *_: CURVE)
        assert not curve_to_enter(found.best)
        patched.setattr(report, "_of_other_order", lambda _: ("f45",))
        assert report.obsolete(evaluation) == {}
    again = identified(limited, of_valves(slew="63 1/s"))
    assert not suspected(again)
    assert again.values["damping"] == pytest.approx(0.7, rel=0.01)


@pytest.mark.slow
def test_a_spool_that_is_always_at_its_highest_speed_is_suspected() -> None:
    """It is equally late in all movements, and its mean flows are those on its way."""
    _, found = recorded_and_identified(true_valves(opening_rate="5 1/s"), seconds=10.0)
    assert suspected(found)
    lag = found.lag_by_speed
    assert lag is not None
    assert not lag.is_later_if_fast
    assert found.is_speed_limited
    assert not found.suggested_curve
