"""A speed-limited spool is suspected; the judge is a simulated valve with a speed limit, which no model here has."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from identification_coverage import changed_rig
from lift_bench import both, lift, of_valves, true_valves
from rig_bench import merged

from hilserver.identify.identification import Identified, identify_valve
from hilserver.identify.report import fragment
from hilserver.identify.simulated_sequence import recorded_sequence
from hilserver.identify.speed_limit import lag_by_speed
from hilserver.identify.suspicions import suspicions
from hilserver.identify.zeros import without_zero_errors
from hilserver.rig.build import assemble

SLOW = {"opening_rate": "30 1/s"}
SIZE = 0.6
"""Largest command of the sequence."""


def identified(*changes: dict[str, Any]) -> Identified:
    rig = lift(both(*changes))
    return identify_valve(rig, recorded_sequence(rig, ["A"], 20.0, SIZE, end_stops=False), "A")


def suspected(found: Identified) -> bool:
    return any("speed-limited spool" in each.structure for each in suspicions(found))


def test_a_spool_without_limit_is_as_late_in_fast_movements() -> None:
    found = identified()
    lag = lag_by_speed(found.best)
    assert lag is not None
    assert lag.fast == pytest.approx(lag.slow, abs=0.1 * lag.usual)
    assert not suspected(found)


@pytest.mark.slow
def test_a_speed_limited_spool_is_suspected_until_its_slew_is_stated() -> None:
    """Without a limit, the largest steps would be made at up to 100 full strokes per second."""
    limited = true_valves(opening_rate="70 1/s")
    assert suspected(identified(limited))
    assert not suspected(identified(limited, of_valves(slew="70 1/s")))


@pytest.mark.slow
def test_nothing_is_merged_of_a_speed_limited_spool_until_its_slew_is_stated() -> None:
    """With all unknowns: no flow-signal curve either, since the mean flows at an opening are also those on the way."""
    rig = changed_rig("demo", 201)
    valve = rig.sources["devices"]["rig"]["drive"]["components"]["servo_valve"]
    sources = merged(rig.sources, {"devices": {"rig": {"drive": {"components": {"servo_valve": SLOW | valve}}}}})
    rig = assemble(sources, rig.file, rig.library)
    recording = without_zero_errors(rig, recorded_sequence(rig, ["main"], 20.0, SIZE, end_stops=False))
    found = identify_valve(rig, recording, "main")
    assert suspected(found)
    assert not found.suggested_curve
    text = fragment([found], recording)
    assert "enter its slew, and identify again" in text
    assert "# nominal_flow" in text
    assert all(not table for tables in tomllib.loads(text).values() for table in tables.values())
