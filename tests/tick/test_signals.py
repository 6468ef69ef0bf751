"""Signals of the tick: channels, the operator's inputs, the work cycle."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from rig_bench import BAR, DT, L_MIN
from tick_bench import CYCLE, bench

from hilserver.tick.codes import CommandKind, Mode, ResultCode, Shape
from hilserver.tick.plan import CyclePoint, table_of
from hilserver.tick.work_cycle import cycle_value

# --- channels --------------------------------------------------------------------------------------------------------


def test_readings_are_scaled_and_absolute_pressures_become_gauge() -> None:
    """0 … 10 V is 0 … 100 bar absolute: 5 V is 50 bar - 101325 Pa gauge."""
    machine = bench(
        channels={"p_A": {"absolute": True}}, limits={"odd": {"channel": "p_A", "max": "80 bar", "action": "warn"}}
    )
    assert machine["channel.p_A"] == pytest.approx(50 * BAR - 101_325.0, rel=1e-12)
    for raw, active in ((7.99, 0.0), (8.01, 1.0)):  # the limit is absolute too
        machine.raw["p_A"] = raw
        machine.tick()
        assert machine["limit.odd"] == active


def test_the_filter_is_a_first_order_lag_that_starts_at_the_first_sample() -> None:
    """Implicit Euler: after n ticks of a unit step 1 - (T/(T + dt))^n, T = 10 ms; missed ticks count."""
    machine = bench(channels={"p_A": {"filter": "10 ms"}})
    assert machine["channel.p_A"] == pytest.approx(50 * BAR)
    machine.raw["p_A"] = 6.0
    values = machine.record("channel.p_A", 10)
    assert values[-1] == pytest.approx(BAR * (60 - 10 * (10 / 11) ** 10), rel=1e-12)
    machine.missed = 4
    assert machine.record("channel.p_A", 1)[0] == pytest.approx(BAR * (60 - 10 * (10 / 11) ** 10 * 10 / 15), rel=1e-12)


@pytest.mark.parametrize("bad", [nan, inf, -inf, 1.7e308])
def test_a_reading_that_gives_no_number_is_a_missing_sample(bad: float) -> None:
    machine = bench(Mode.RUNNING, channels={"p_A": {"filter": "10 ms"}})
    machine.raw["p_A"] = bad
    machine.tick()
    assert machine["channel.p_A"] == pytest.approx(50 * BAR)
    assert machine["stale.p_A"] == pytest.approx(DT)
    machine.raw["p_A"] = 5.0
    machine.tick()
    assert machine["channel.p_A"] == pytest.approx(50 * BAR)
    assert machine["stale.p_A"] == 0.0


@pytest.mark.parametrize("bad", [nan, inf])
def test_a_sample_without_an_age_is_a_missing_sample(bad: float) -> None:
    machine = bench(Mode.RUNNING)
    machine.ages["p_A"] = bad
    machine.record("mode", 30)
    assert machine.mode == "FAULT"


def test_the_rate_is_judged_over_the_time_between_samples() -> None:
    """A sensor that samples every 10 ms and rises by 1000 bar/s: 10 bar per sample, but never 10 000 bar/s."""
    machine = bench(Mode.RUNNING, limits={"odd": {"channel": "p_A", "max_rate": "1100 bar/s", "action": "trip"}})
    changes = []
    for k in range(41):
        machine.raw["p_A"], machine.ages["p_A"] = 5.0 + k // 10, DT * (k % 10)
        machine.tick()
        changes.append(machine["change.p_A"])
    assert machine.mode == "RUNNING"
    assert max(changes) == pytest.approx(1000 * BAR, rel=1e-9)


# --- operator inputs and work cycle ----------------------------------------------------------------------------------


def test_inputs_are_at_their_initial_values_unless_running() -> None:
    machine = bench(Mode.RUNNING, inputs={"flow": {"initial": 0.25}})
    assert machine["input.flow"] == 0.25
    machine.tick(CommandKind.SET_INPUT, 0, 0.75)
    assert machine["input.flow"] == 0.75
    machine.tick(CommandKind.STOP)
    assert machine["input.flow"] == 0.25
    assert machine["valve.main.flow_virtual"] == pytest.approx(10 * L_MIN)


@pytest.mark.parametrize(("number", "value"), [(1, 0.5), (-1, 0.5), (nan, 0.5), (0, nan), (0, inf)])
def test_unknown_inputs_and_non_finite_values_are_refused(number: float, value: float) -> None:
    machine = bench(Mode.RUNNING)
    assert machine.tick(CommandKind.SET_INPUT, number, value) == ResultCode.BAD_VALUE
    assert machine["input.flow"] == 0.0


def test_an_input_keeps_within_its_range() -> None:
    machine = bench(Mode.RUNNING, inputs={"flow": {"range": [-0.5, 0.5]}})
    machine.tick(CommandKind.SET_INPUT, 0, 3.0)
    assert machine["input.flow"] == 0.5


POINTS = [(1.0, 2.0), (2.0, 4.0), (4.0, -4.0)]
EXPECTED = {
    # time: linear, step (the cubic STEP, s²(3 - 2s)), hold
    0.0: (2.0, 2.0, 2.0),
    1.0: (2.0, 2.0, 2.0),
    1.25: (2.5, 2.0 + 2.0 * 0.15625, 2.0),
    2.0: (4.0, 4.0, 4.0),
    3.0: (0.0, 0.0, 4.0),
    3.5: (-2.0, 4.0 - 8.0 * 0.84375, 4.0),
    4.0: (-4.0, -4.0, -4.0),
    9.0: (-4.0, -4.0, -4.0),
}


@pytest.mark.parametrize("shape", [Shape.LINEAR, Shape.SMOOTH, Shape.JUMP])
def test_the_shapes_of_a_work_cycle(shape: int) -> None:
    """By hand, plain Python; another input's points before and after are not taken; exact but for rounding."""
    lines = [(0, 0, 9, 0), *[(1, t, value, shape) for t, value in POINTS], (2, 0, 9, 0)]
    table = table_of(CyclePoint, [dict(zip(CyclePoint.names(), (*line, 0.0, 0.0), strict=True)) for line in lines])
    for t, values in EXPECTED.items():
        assert cycle_value(table, 1, t, 7.0) == pytest.approx(values[shape], abs=1e-12)
    assert cycle_value(table, 3, 1.0, 7.0) == 7.0  # not driven by the cycle


def test_a_work_cycle_of_many_points_and_inputs() -> None:
    """Against the linear interpolation of NumPy, at the points too, and before and after them."""
    rng = np.random.default_rng(1)
    points = {i: (np.unique(rng.uniform(0.0, 10.0, 50)), rng.normal(size=50)) for i in (0, 1, 3)}
    lines = [
        (i, t, value, Shape.LINEAR, 0.0, 0.0) for i, series in points.items() for t, value in zip(*series, strict=True)
    ]
    table = table_of(CyclePoint, [dict(zip(CyclePoint.names(), line, strict=True)) for line in lines])
    for i, (at, values) in points.items():
        times = [-1.0, 11.0, *at.tolist(), *rng.uniform(0.0, 10.0, 100).tolist()]
        found = [cycle_value(table, i, t, nan) for t in times]
        assert found == pytest.approx(np.interp(times, at, values), abs=1e-9)
    assert [cycle_value(table, i, 5.0, 7.0) for i in (2, 4)] == [7.0, 7.0]


def test_a_work_cycle_ends_and_leaves_its_last_value() -> None:
    machine = bench(Mode.RUNNING, cycle=CYCLE)
    machine.tick(CommandKind.CYCLE, 1.0)
    values = [machine["input.flow"], *machine.record("input.flow", 12)]
    assert values == pytest.approx([min(0.1 * k, 1.0) for k in range(13)], abs=1e-9)
    assert machine["cycle_time"] == -1.0
    machine.tick(CommandKind.SET_INPUT, 0, 0.3)
    assert machine["input.flow"] == 0.3


def test_a_work_cycle_repeats_without_losing_time() -> None:
    """10 ms long at 1 ms ticks: the same values again every 10 ticks."""
    machine = bench(Mode.RUNNING, cycle={**CYCLE, "repeat": True})
    machine.tick(CommandKind.CYCLE, 1.0)
    values = machine.record("input.flow", 45)
    assert values[10:40] == pytest.approx(np.tile(values[10:20], 3), abs=1e-9)
    assert machine.tick(CommandKind.CYCLE, 0.0) == ResultCode.DONE
    assert machine["cycle_time"] == -1.0


def test_a_stop_ends_the_work_cycle() -> None:
    machine = bench(Mode.RUNNING, cycle={**CYCLE, "repeat": True})
    machine.tick(CommandKind.CYCLE, 1.0)
    machine.tick(CommandKind.STOP)
    assert (machine["cycle_time"], machine["input.flow"]) == (-1.0, 0.0)
    machine.tick(CommandKind.START)
    assert machine.record("input.flow", 5)[-1] == 0.0


def test_without_a_work_cycle_none_is_started() -> None:
    assert bench(Mode.RUNNING).tick(CommandKind.CYCLE, 1.0) == ResultCode.BAD_VALUE
