"""Paced offline runs: the same results, never earlier than the clock, lateness reported."""

from __future__ import annotations

import json
import time
from math import nan
from pathlib import Path

import numpy as np
import pytest
from component_bench import program
from rig_bench import bench_rig

from hilserver.circuit.library import standard_library
from hilserver.errors import HilserverError
from hilserver.fidelity.strategies import simulate
from hilserver.realtime.clock import GridClock
from hilserver.rig.build import load_rig
from hilserver.rig.rig import at_speed
from hilserver.simulation.circuit_report import write_run
from hilserver.simulation.circuit_run import CircuitRun, RunSettings, run_circuit_file
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.pacing import Paced, Pacing
from hilserver.simulation.step_error import Quantity

CONFIG = Path(__file__).parents[2] / "config"
NOTHING = np.zeros(0)


def circuit_run(speed: float | None, seen: list[float] | None = None) -> CircuitRun:
    def watch(now: float, quantities: list[Quantity]) -> None:
        assert {label: len(lines) for label, _, lines in quantities}["pressure"] > 0
        if seen is not None:
            seen.append(now)

    circuit, cycle = CONFIG / "circuits" / "verification.toml", CONFIG / "cycles" / "verification.toml"
    return run_circuit_file(circuit, standard_library(), cycle, 0.8, RunSettings(speed=speed), watch)


@pytest.mark.parametrize("speed", [2.0, 300.0])
def test_a_circuit_run_by_the_clock_has_the_same_values_and_takes_its_time(speed: float, tmp_path: Path) -> None:
    seen: list[float] = []
    began = time.monotonic()
    paced = circuit_run(speed, seen)
    took = time.monotonic() - began
    free = circuit_run(None)
    assert free.paced is None
    assert all(np.array_equal(paced.series[name], free.series[name]) for name in free.series)
    assert paced.paced is not None
    assert paced.paced.took <= took
    assert paced.paced.took > 0.8 / speed - max(1e-3, 1e-3 / speed) - 1e-3  # the last tick begins then
    assert paced.paced.ticks == 800
    assert paced.paced.ran == pytest.approx(0.8)
    assert all(0.0 < now <= 0.8 for now in seen)
    assert len(seen) >= (2 if speed == 2.0 else 0)
    files = write_run(paced, tmp_path)
    figures = json.loads(next(file for file in files if file.suffix == ".json").read_text())
    assert figures["paced"]["speed"] == speed
    page = next(file for file in files if file.suffix == ".html").read_text()
    assert f"at {speed:g} times real time" in page


def test_ticks_that_are_not_done_in_their_time_are_counted() -> None:
    """Ticks of 2 ms on the clock: the first is done in time or the test machine is slow; the third takes 50 ms."""
    pacing = Pacing(1e-3, 0.5)
    granted = 0
    while granted < 3:
        granted += 1
        assert pacing.due() >= 1
        if granted == 3:
            time.sleep(0.05)
        pacing.computed(1, NOTHING)
    before = pacing.paced()
    assert before.late >= 1
    assert before.lateness >= 0.05 - 2e-3
    for _ in range(2):  # those that were due before the third began may come first
        pacing.computed(pacing.due(), NOTHING)
    assert pacing.paced().ticks >= 3 + 20  # made up for without waiting
    assert pacing.paced().late >= before.late + 20
    assert "ticks were late, by up to" in str(pacing.paced())


def test_a_pause_at_the_start_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes the processor away just after the clock has started: the ticks are late by this time.

    Here the clock has started 20 ms ago when its start returns.
    """
    pacing, start = Pacing(1e-3, 1.0), GridClock.start
    monkeypatch.setattr(GridClock, "start", lambda clock: start(clock, -0.02))
    granted = pacing.due()
    pacing.computed(granted, NOTHING)
    found = pacing.paced()
    assert granted >= 20
    assert found.took >= 0.02 - 1e-9
    assert found.late >= 19
    assert found.lateness >= 0.019 - 1e-9


def test_fast_ticks_are_computed_together() -> None:
    """At 10 times real time, ticks of 1 ms are due every 0.1 ms: ten each millisecond."""
    assert Pacing(1e-3, 10.0).due() % 10 == 0
    assert Pacing(1e-3, 1.0).due() >= 1


def test_runs_together() -> None:
    runs = [Paced(0.5, 1.0, 2.0, 1000, 0, 0.0), Paced(0.5, 1.0, 2.1, 1000, 3, 0.01)]
    assert Paced.all_of(runs) == Paced(0.5, 2.0, 4.1, 2000, 3, 0.01)
    assert Paced.all_of([]) is None
    assert "all 1000 ticks were completed in time" in str(runs[0])


def test_a_rig_in_lockstep_by_the_clock_gives_the_same_rows() -> None:
    rig = load_rig(CONFIG / "rigs" / "demo.toml")
    pacing = Pacing(1e-3, 5.0)
    with LockstepRun(rig, program=program()) as free, LockstepRun(rig, program=program(), pacing=pacing) as paced:
        one, other = (np.concatenate([run.start(), run.run(997)]) for run in (free, paced))
    assert np.array_equal(one, other, equal_nan=True)
    found = pacing.paced()
    assert found.ticks == len(other) == 1001
    assert found.took >= 0.2 - 1e-9  # tick 1000 begins then, five ticks a millisecond; the clock counts nanoseconds


def test_simulate_reports_how_a_rig_kept_to_the_clock() -> None:
    rig = load_rig(CONFIG / "rigs" / "demo.toml")
    seen: list[tuple[str, float]] = []
    result = simulate(rig, ["inverse_static"], 50.0, lambda strategy, now: seen.append((strategy, now)))
    assert result.paced is not None
    assert result.paced.speed == 50.0
    assert result.paced.ticks >= rig.settings.loop.rate * (rig.cycle.duration if rig.cycle else 0.0)
    assert {strategy for strategy, _ in seen} <= {"inverse_static"}


@pytest.mark.parametrize("speed", [0.0, -1.0, 1e5, nan])
def test_impossible_speeds_are_refused(speed: float) -> None:
    with pytest.raises(HilserverError, match=r"outside the range 0\.0001 … 10000"):
        RunSettings(speed=speed)
    with pytest.raises(HilserverError, match="outside the range"):
        Pacing(1e-3, speed)
    with pytest.raises(HilserverError, match=r"a speed of 0\.001 … 20 at loop\.rate = 1000 Hz"):
        at_speed(load_rig(CONFIG / "rigs" / "demo.toml"), speed)


def test_a_rig_with_a_real_device_runs_in_real_time_only() -> None:
    with pytest.raises(HilserverError, match="device card is real, and its physics can't be slowed down"):
        at_speed(bench_rig(), 0.5)
    assert at_speed(bench_rig(), 1.0).speed == 1.0
