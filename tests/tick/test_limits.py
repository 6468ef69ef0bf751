"""Limits of the tick: what they watch, what they do, the age of every channel."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import pytest
from rig_bench import BAR, DT, Bench, bench_rig
from tick_bench import bench

from hilserver.tick.codes import FIRST_LIMIT_FAULT, Action, CommandKind, Mode, ResultCode, Watched

P_A_HIGH = {"channel": "p_A", "max": "80 bar"}
MODES = {"warn": "RUNNING", "hold": "RUNNING", "ramp": "ARMED", "trip": "FAULT"}


def by_value(machine: Bench) -> None:
    machine.raw["p_A"] = 9.0  # 90 bar


def by_age(machine: Bench) -> None:
    machine.ages["p_A"] = 0.011


def by_rate(machine: Bench) -> None:
    machine.raw["p_A"] = 5.2  # 2 bar in a tick of 1 ms: 2000 bar/s


LIMITS: dict[Callable[[Bench], None], dict[str, str]] = {
    by_value: P_A_HIGH,
    by_age: {"channel": "p_A", "max_age": "10 ms"},
    by_rate: {"channel": "p_A", "max_rate": "1900 bar/s"},
}


SUFFIX: dict[Callable[[Bench], None], str] = {by_value: "", by_age: ".age", by_rate: ".rate"}


@pytest.mark.parametrize("violate", list(LIMITS))
@pytest.mark.parametrize("action", ["warn", "hold", "ramp", "trip"])
def test_a_limit_acts(violate: Callable[[Bench], None], action: str) -> None:
    machine = bench(Mode.RUNNING, limits={"odd": {**LIMITS[violate], "action": action}})
    machine.tick(CommandKind.SET_INPUT, 0, 0.5)
    command = machine.record("valve.main.command", 20)[-1]
    assert machine["warnings"] == 0
    violate(machine)
    machine.tick(CommandKind.SET_INPUT, 0, 0.9)
    assert machine["warnings"] == 1
    assert machine.mode == MODES[action]
    assert (machine["valve.main.command"] == command) == (action == "hold")
    if action == "trip":
        number = machine.rig.layout.limits.index("odd" + SUFFIX[violate])
        assert machine["fault"] == FIRST_LIMIT_FAULT + number


def test_limits_of_all_kinds_do_not_act_within_their_bounds() -> None:
    machine = bench(
        Mode.RUNNING,
        limits={
            "value": {"channel": "p_A", "min": "50 bar", "max": "52 bar", "action": "trip"},
            "age": {"channel": "p_A", "max_age": "10 ms", "action": "trip"},
            "rate": {"channel": "p_A", "max_rate": "2001 bar/s", "action": "trip"},
        },
    )
    machine.raw["p_A"], machine.ages["p_A"] = 5.2, 0.01
    machine.tick()
    assert (machine.mode, machine["warnings"]) == ("RUNNING", 0)


def test_the_severest_action_wins() -> None:
    limits = {name: {**P_A_HIGH, "action": name} for name in ("trip", "warn", "ramp", "hold")}
    machine = bench(Mode.RUNNING, limits=limits)
    by_value(machine)
    machine.tick()
    assert (machine.mode, machine["warnings"]) == ("FAULT", 4)


def test_a_violated_limit_refuses_arming_and_starting() -> None:
    cases = (
        ("trip", ResultCode.LIMIT_ACTIVE, ResultCode.WRONG_MODE),
        ("ramp", ResultCode.DONE, ResultCode.LIMIT_ACTIVE),
        ("hold", ResultCode.DONE, ResultCode.DONE),
    )
    for action, arm, start in cases:
        machine = bench(Mode.SAFE, limits={"odd": {**P_A_HIGH, "action": action}})
        by_value(machine)
        assert machine.tick(CommandKind.ARM) == arm
        assert machine.tick(CommandKind.START) == start


def test_every_measured_channel_has_an_age_limit() -> None:
    """loop.max_age, action trip, unless a limit watches the channel's age; a fixed channel needs none."""
    rig = bench_rig({"limits": {"old": {"channel": "p_S", "max_age": "1 s", "action": "warn"}}})
    assert [name for name in rig.layout.limits if name.endswith(".age")] == ["old.age", "p_A.age", "Q_A.age"]
    limit = rig.plan.limit[1]
    assert (limit.channel, limit.watched, limit.lower) == (0, Watched.AGE, -inf)
    assert (limit.upper, limit.action) == (0.02, Action.TRIP)


@pytest.mark.parametrize("break_it", ["raw is NaN", "age grows"])
def test_a_channel_that_is_not_sampled_trips_after_max_age(break_it: str) -> None:
    """20.5 ms at 1 kHz: 20 ticks without a sample are allowed."""
    machine = bench(Mode.RUNNING, loop={"max_age": "20.5 ms"})
    for k in range(1, 23):
        if break_it == "age grows":
            machine.ages["p_A"] = k * DT
        else:
            machine.raw["p_A"] = nan
        machine.tick()
        assert machine["channel.p_A"] == pytest.approx(50 * BAR)  # the last value is kept
        assert machine.mode == ("RUNNING" if k <= 20 else "FAULT"), k
    assert machine["fault"] == FIRST_LIMIT_FAULT + machine.rig.layout.limits.index("p_A.age")
