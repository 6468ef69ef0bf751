"""A speed-limited spool is suspected; the judge is a simulated valve with a speed limit, which no model here has."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from lift_bench import both, lift, of_valves, true_valves

from hilserver.cli.identify import _refuse_nothing
from hilserver.identify import identification, report
from hilserver.identify.estimate import Estimate
from hilserver.identify.evaluation import Evaluation
from hilserver.identify.excitation import Extent
from hilserver.identify.identification import Identified, curve_to_enter, identify_valve
from hilserver.identify.model import lag_of
from hilserver.identify.recorded import Recording
from hilserver.identify.report import fragment
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.identify.speed_limit import LagBySpeed, lag_by_speed
from hilserver.identify.suspicions import suspicions
from hilserver.identify.withheld import OF_ALWAYS_LATE, OF_VARYING, WIDER

CURVE = [(0.0, 0.0), (1.0, 1e-3)]
SIZE = 0.6
"""Largest command of the sequence."""
Plain = tuple[Recording, Identified]


def recorded_and_identified(*changes: dict[str, Any], seconds: float = 20.0) -> tuple[Recording, Identified]:
    rig = lift(both(*changes))
    recording = recorded_excitation(rig, ["A"], Extent(seconds, SIZE, end_stops=False))
    return recording, identify_valve(rig, recording, "A")


def identified(*changes: dict[str, Any]) -> Identified:
    return recorded_and_identified(*changes)[1]


def suspected(found: Identified) -> bool:
    return any("speed-limited spool" in each.structure for each in suspicions(found))


@pytest.fixture(scope="module")
def plain() -> Plain:
    """A valve whose spool has no limit."""
    return recorded_and_identified()


def test_a_spool_without_limit_is_as_late_in_fast_movements(plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = plain
    lag = lag_by_speed(found.best)
    assert lag is not None
    assert lag.fast == pytest.approx(lag.slow, abs=0.1 * lag.usual)
    assert not suspected(found)
    monkeypatch.setattr(identification, "suggested_curve", lambda *_: CURVE)
    assert curve_to_enter(found.best) == CURVE


def spool(found: Identified, fast: float, slow: float) -> Identified:
    """The same valve, as if its spool had these lags, s, in fast and slow movements: 0.1 ms is usual, 10 ms most."""
    changed = replace(found)
    changed.__dict__["lag_by_speed"] = LagBySpeed(fast, slow, 1e-5, 1e-4, 1e-2)
    return changed


def test_beside_a_spool_that_lags_more_in_fast_movements_only_its_motion_is_not_merged(plain: Plain) -> None:
    """Its flows are those of any other spool, but less certain; the delay belongs to the motion of the rig file."""
    recording, found = plain
    varying = spool(found, 6e-3, 5e-3)
    text, usual = (fragment(Evaluation([each], recording)) for each in (varying, found))
    tables, all_of_them = tomllib.loads(text), tomllib.loads(usual)
    withheld = {"f90", "damping", "hysteresis"}
    assert withheld <= all_of_them["valves"]["A"].keys()
    assert tables["valves"]["A"].keys() == all_of_them["valves"]["A"].keys() - withheld
    assert {name: table.keys() for name, table in tables["cylinders"].items()} == {
        name: table.keys() for name, table in all_of_them["cylinders"].items()
    }
    for key in withheld:
        assert re.search(rf"(?m)^# {key} = .* # ± .*, not merged: a mean of slow and fast movements$", text)
    assert "enter its slew, and identify again" in text
    assert "its frequency depends on the amplitude" in text
    flows = [{f.key: f.estimate for f in Evaluation([each], recording).valves[0].findings} for each in (varying, found)]
    assert flows[0]["nominal_flow"].deviation == pytest.approx(WIDER * flows[1]["nominal_flow"].deviation)
    tau = lag_of(80.0, 0.7)
    assert flows[0]["delay"].value == pytest.approx(found.values["lag"] - tau)
    assert any(OF_VARYING in line for line in report.notes(Evaluation([varying], recording).valves[0]))
    first = replace(varying, second_order=False)
    first.__dict__["lag_by_speed"] = varying.lag_by_speed
    assert report.obsolete(Evaluation([first], recording)) == {"A": ()}


def test_beside_a_spool_at_its_highest_speed_only_noise_and_zeros_are_merged(
    plain: Plain, capsys: pytest.CaptureFixture[str]
) -> None:
    recording, found = plain
    recording = replace(recording, noise={"p_A": Estimate(2e4, 1e3)})
    evaluation = Evaluation([spool(found, 20e-3, 20e-3)], recording)
    text = fragment(evaluation)
    tables = tomllib.loads(text)
    assert not tables["valves"]["A"].get("bridge")
    assert not tables["valves"]["A"].keys() - {"bridge"}
    assert not tables["cylinders"]["lift"]
    assert {key for channel in tables["channels"].values() for key in channel} == {"noise"}
    assert "# mass = " in text
    assert "highest speed all the time" in text
    assert evaluation.corrected(evaluation.valves[0]) == []
    _refuse_nothing(Path("lift.toml"), text, evaluation)
    without = "\n".join(line for line in text.splitlines() if not line.startswith("noise"))
    with pytest.raises(typer.Exit) as ended:
        _refuse_nothing(Path("lift.toml"), without, evaluation)
    assert ended.value.exit_code == 1
    said = capsys.readouterr().out
    assert "Nothing was merged: lift.toml stays as it is." in said
    assert f"Valve A: {OF_ALWAYS_LATE}" in said


@pytest.mark.slow
def test_a_speed_limited_spool_is_suspected_until_its_slew_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, the largest steps would be made at up to 100 full strokes per second.

    Until then, its flows and null are right within what is stated, but there is no flow-signal curve: the mean flows
    are also those on the way.
    """
    limited = true_valves(opening_rate="70 1/s")
    recording, found = recorded_and_identified(limited)
    assert suspected(found)
    evaluation = Evaluation([found], recording)
    values = {f.key: f.estimate for f in evaluation.valves[0].findings}
    for key, true in (("nominal_flow", 1e-3), ("nominal_flow_to_tank", 1e-3), ("overlap", 0.0), ("null", 0.0)):
        assert abs(values[key].value - true) < 2.0 * values[key].deviation
    assert "nominal_flow" in tomllib.loads(fragment(evaluation))["valves"]["A"]
    with monkeypatch.context() as patched:
        patched.setattr(identification, "suggested_curve", lambda *_: CURVE)
        assert not curve_to_enter(found.best)
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
