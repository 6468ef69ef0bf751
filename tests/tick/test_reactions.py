"""Reactions in the tick: they fire in the very tick in which their condition is met, and never against a limit."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
import pytest
from rig_bench import Bench
from tick_bench import CYCLE, bench

from hilserver.record.row_events import DISARMED, RowEvents
from hilserver.tick.codes import CommandKind, FaultCode, Mode, Reacting, ReactionState, ResultCode

BAR = 1e5
WHEN, THEN, RELEASE = CommandKind.REACT_WHEN, CommandKind.REACT_THEN, CommandKind.RELEASE
EDGE, REPEAT = 1.0, 2.0


def reacting(mode: int = Mode.RUNNING, **changes: Any) -> Bench:
    """The bench's rig with room for two reactions. 1 raw is 10 bar at p_A, which is at 50 bar."""
    loop = {"reactions": 2, **changes.pop("loop", {})}
    return bench(mode, loop=loop, **changes)


def arm(
    machine: Bench, action: int, *, number: int = 0, above: float = 60.0, direction: int = 1, hysteresis: float = 0.0,
    hold: float = 0.0, value: float = 0.5, ramp: float = 0.0, options: float = 0.0,
) -> tuple[int, int]:  # fmt: skip
    """Arm a reaction to p_A, levels in bar; returns the results of both commands."""
    column = machine.rig.layout.column("channel.p_A")
    first = machine.tick(WHEN, number, column, direction, above * BAR, hysteresis * BAR, hold)
    return first, machine.tick(THEN, number, action, 0, value, ramp, options)


def run(machine: Bench, pressures: list[float], *names: str) -> list[tuple[float, ...]]:
    """One tick with each of these pressures at p_A, bar; returns these columns of each row."""
    rows = []
    for pressure in pressures:
        machine.raw["p_A"] = pressure / 10.0
        machine.tick()
        rows.append(tuple(machine[name] for name in names))
    return rows


def test_it_acts_in_the_first_tick_in_which_the_condition_holds() -> None:
    machine = reacting()
    assert arm(machine, Reacting.SET) == (ResultCode.DONE, ResultCode.DONE)
    rows = run(machine, [50, 59.9, 60, 60.1, 70, 50], "channel.p_A", "input.flow", "reaction.0.count")
    first = next(k for k, row in enumerate(rows) if row[0] > 60 * BAR)
    assert first == 3
    assert [row[1:] for row in rows] == [(0, 0)] * 3 + [(0.5, 1)] * 3
    assert machine["reaction.0.state"] == ReactionState.DONE


def test_below_a_level() -> None:
    machine = reacting()
    arm(machine, Reacting.SET, above=40.0, direction=-1)
    assert run(machine, [50, 40, 39.9], "input.flow") == [(0.0,), (0.0,), (0.5,)]


@pytest.mark.parametrize(("options", "fires"), [(0.0, [1, 1, 1, 1]), (EDGE, [0, 0, 0, 1])])
def test_a_level_that_is_met_already_and_an_edge(options: float, fires: list[int]) -> None:
    machine = reacting()
    run(machine, [70])
    arm(machine, Reacting.SET, options=options)
    assert [int(n) for (n,) in run(machine, [70, 70, 50, 70], "reaction.0.count")] == fires


def test_the_condition_must_hold_for_a_time_and_ends_below_the_hysteresis() -> None:
    """5 ms above 60 bar; 56 bar, within the hysteresis of 5 bar, do not interrupt it, 55 bar do."""
    machine = reacting()
    arm(machine, Reacting.SET, hold=5e-3, hysteresis=5.0)
    held = run(machine, [61, 56, 56, 55, 61, 56, 56, 56, 56, 56], "reaction.0.held", "reaction.0.count")
    assert [round(1e3 * time) if time >= 0 else -1 for time, _ in held] == [0, 1, 2, -1, 0, 1, 2, 3, 4, 5]
    assert [count for _, count in held] == [0] * 9 + [1]


def test_missed_ticks_count_for_the_time() -> None:
    machine = reacting()
    arm(machine, Reacting.SET, hold=5e-3)
    run(machine, [61])
    machine.missed = 4
    assert run(machine, [61], "reaction.0.count") == [(1.0,)]


def test_it_repeats_each_time_the_condition_is_met_again() -> None:
    machine = reacting()
    arm(machine, Reacting.SET, hysteresis=5.0, options=REPEAT)
    counts = run(machine, [61, 61, 58, 61, 54, 61, 50, 62], "reaction.0.count")
    assert [int(count) for (count,) in counts] == [1, 1, 1, 1, 1, 2, 2, 3]


def test_a_ramp_moves_the_input_in_its_time() -> None:
    """From 0 to 0.5 in 10 ms: 0.05 per tick, from the tick in which it fires on; an input set by a person ends it."""
    machine = reacting()
    arm(machine, Reacting.SET, ramp=10e-3)
    ramp = [value for (value,) in run(machine, [61] * 12, "input.flow")]
    assert ramp == pytest.approx([0.05 * k for k in range(1, 10)] + [0.5] * 3)
    assert machine["reaction.0.state"] == ReactionState.DONE
    again = reacting()
    arm(again, Reacting.SET, ramp=10e-3)
    run(again, [61] * 3)
    again.tick(CommandKind.SET_INPUT, 0, -0.3)
    assert again["input.flow"] == -0.3
    assert run(again, [61] * 3, "input.flow") == [(-0.3,)] * 3


def test_an_input_that_it_sets_is_no_longer_moved_by_the_work_cycle() -> None:
    machine = reacting(cycle=CYCLE)
    machine.tick(CommandKind.CYCLE, 1.0)
    arm(machine, Reacting.SET, value=-0.2)
    assert run(machine, [50], "input.flow")[0][0] > 0.0
    assert run(machine, [61, 61], "input.flow", "cycle_time") == [(-0.2, -1.0)] * 2


def test_hold_keeps_the_commands_while_the_condition_holds() -> None:
    machine = reacting()
    machine.tick(CommandKind.SET_INPUT, 0, 0.2)
    run(machine, [50] * 200)
    arm(machine, Reacting.HOLD)
    before = machine["valve.main.command"]
    machine.tick(CommandKind.SET_INPUT, 0, 0.9)
    assert machine["valve.main.command"] != before
    held = run(machine, [61] * 5, "valve.main.command")
    assert len(set(held)) == 1
    after = run(machine, [50] * 50, "valve.main.command")
    assert after[-1] > held[0]
    assert machine["reaction.0.state"] == ReactionState.DONE  # once is enough


def test_stop_needs_a_person_to_go_on() -> None:
    machine = reacting()
    arm(machine, Reacting.STOP)
    arm(machine, Reacting.SET, number=1)
    assert run(machine, [61], "mode", "input.flow") == [(Mode.ARMED, 0.0)]
    assert machine["reaction.0.state"] == ReactionState.ENDED
    run(machine, [50] * 3)
    assert machine["reaction.1.state"] == ReactionState.FREE
    assert machine.tick(CommandKind.START) == ResultCode.REACTION_ENDED
    assert arm(machine, Reacting.SET)[1] == ResultCode.REACTION_ENDED  # its number is not to be had otherwise
    assert machine.tick(CommandKind.DISARM) == ResultCode.DONE
    assert machine.tick(CommandKind.ARM) == ResultCode.REACTION_ENDED
    assert machine.tick(RELEASE, 0) == ResultCode.DONE
    assert machine.tick(CommandKind.ARM) == ResultCode.DONE
    assert machine.tick(CommandKind.START) == ResultCode.DONE


def test_trip_is_a_fault() -> None:
    machine = reacting()
    arm(machine, Reacting.TRIP)
    assert run(machine, [61], "mode", "fault") == [(Mode.FAULT, FaultCode.REACTION)]
    assert machine.tick(CommandKind.START) == ResultCode.WRONG_MODE
    machine.raw["p_A"] = 5.0
    assert machine.tick(CommandKind.RESET) == ResultCode.DONE
    assert machine.tick(CommandKind.ARM) == ResultCode.DONE


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0)])
def test_a_trip_acts_although_another_reaction_stops_the_run_in_the_same_tick(numbers: tuple[int, int]) -> None:
    machine = reacting()
    arm(machine, Reacting.STOP, number=numbers[0])
    arm(machine, Reacting.TRIP, number=numbers[1])
    assert run(machine, [61, 61], "mode", "fault") == [(Mode.FAULT, FaultCode.REACTION)] * 2
    assert machine[f"reaction.{numbers[0]}.state"] == ReactionState.ENDED


def test_of_two_that_ramp_the_same_input_the_last_one_does() -> None:
    """To and fro: both ramps of 10 ms; the way back begins while the way there is not over."""
    machine = reacting()
    arm(machine, Reacting.SET, value=0.5, ramp=10e-3, options=REPEAT)
    arm(machine, Reacting.SET, number=1, above=40.0, direction=-1, value=-0.5, ramp=10e-3, options=REPEAT)
    run(machine, [61] * 4)
    assert run(machine, [39] * 12, "input.flow")[-1] == (-0.5,)
    run(machine, [39.0, 39.0, 50.0])
    assert run(machine, [61] * 12, "input.flow")[-1] == (0.5,)


def test_a_work_cycle_that_starts_ends_a_ramp() -> None:
    """Otherwise the input would go on to the reaction's value when the cycle is over."""
    machine = reacting(cycle=CYCLE)
    arm(machine, Reacting.SET, value=-0.5, ramp=1.0)
    run(machine, [61] * 3)
    machine.tick(CommandKind.CYCLE, 1.0)
    assert machine["reaction.0.state"] == ReactionState.DONE
    run(machine, [61] * 20)
    assert machine["input.flow"] == pytest.approx(1.0)


# --- limits and commands go first ------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [Reacting.SET, Reacting.HOLD, Reacting.STOP, Reacting.TRIP])
def test_a_limit_goes_first(action: int) -> None:
    """A limit that trips in the same tick is the fault, and the reaction does not act."""
    machine = reacting(limits={"high": {"channel": "p_A", "max": "60 bar", "action": "trip"}})
    arm(machine, action)
    first = 100 + machine.rig.layout.limits.index("high")
    rows = run(machine, [61], "mode", "fault", "input.flow", "reaction.0.count")
    assert rows == [(Mode.FAULT, first, 0.0, 0)]


@pytest.mark.parametrize("command", [CommandKind.STOP, CommandKind.DISARM, CommandKind.TRIP])
def test_a_stop_goes_first(command: int) -> None:
    machine = reacting()
    arm(machine, Reacting.SET)
    machine.raw["p_A"] = 6.1
    machine.tick(command)
    assert (machine["reaction.0.count"], machine["input.flow"]) == (0, 0.0)
    assert machine["reaction.0.state"] == ReactionState.FREE


def test_a_hold_can_not_weaken_a_limit_that_ramps() -> None:
    machine = reacting(limits={"high": {"channel": "p_A", "max": "65 bar", "action": "ramp"}})
    arm(machine, Reacting.HOLD)
    assert run(machine, [61, 66], "mode") == [(Mode.RUNNING,), (Mode.ARMED,)]
    assert machine["reaction.0.state"] == ReactionState.FREE


def test_reactions_end_with_the_run_and_may_be_armed_before_it() -> None:
    machine = reacting(Mode.ARMED)
    arm(machine, Reacting.SET)
    run(machine, [70] * 3)
    assert (machine["reaction.0.state"], machine["reaction.0.count"]) == (ReactionState.ARMED, 0)
    machine.tick(CommandKind.START)
    assert (machine["input.flow"], machine["reaction.0.count"]) == (0.5, 1)
    machine.tick(CommandKind.STOP)
    assert machine["reaction.0.state"] == ReactionState.FREE


def test_a_switch_of_the_circuit_disarms_reactions_to_its_values() -> None:
    machine = reacting()
    column = machine.rig.plan.layout[0].circuit
    for number, place in ((0, column), (1, column - 1)):
        machine.tick(WHEN, number, place, 1.0, 1e9, 0.0, 0.0)
        machine.tick(THEN, number, Reacting.STOP)
    machine.tick(CommandKind.SWAP, 2.0, 1.0)  # other parameters: the values keep their columns
    assert machine["reaction.0.state"] == ReactionState.WATCHING
    machine.tick(CommandKind.SWAP, 3.0)
    states = [machine[f"reaction.{number}.state"] for number in (0, 1)]
    assert states == [ReactionState.FREE, ReactionState.WATCHING]


def test_a_switch_of_the_circuit_does_not_stop_a_ramp_halfway() -> None:
    machine = reacting()
    machine.tick(WHEN, 0, machine.rig.plan.layout[0].circuit, 1.0, -1e9, 0.0, 0.0)
    machine.tick(THEN, 0, Reacting.SET, 0, 0.5, 10e-3, REPEAT)
    rows = [machine.row.copy()]
    machine.tick(CommandKind.SWAP, 2.0)
    events = RowEvents(machine.rig.layout.names).find(np.array([*rows, machine.row]), {})
    assert [(row, event["kind"]) for row, event in events] == [(1, DISARMED)]  # it will not repeat
    assert run(machine, [50] * 12, "input.flow")[-1] == (0.5,)
    assert machine["reaction.0.state"] == ReactionState.DONE  # what is in this column now is something else


def test_a_value_that_is_not_finite_meets_no_condition_and_ends_none() -> None:
    """It fires once at 1 > 0; after the gap the value is still above the level, which is no second time."""
    machine = reacting()
    column = len(machine.row) - 1  # of the space for circuits: this one does not use it
    machine.tick(WHEN, 0, column, 1.0, 0.0, 0.0, 0.0)
    machine.tick(THEN, 0, Reacting.SET, 0, 0.5, 0.0, REPEAT)
    counts = []
    for value in (np.nan, 1.0, np.nan, 1.0, 0.0, 1.0):
        machine.row[column] = value
        machine.tick()
        counts.append(int(machine["reaction.0.count"]))
    assert counts == [0, 1, 1, 1, 1, 2]


@pytest.mark.parametrize(
    "given",
    [
        (2, 0, 1.0, 0.0, 0.0, 0.0),
        (-1, 0, 1.0, 0.0, 0.0, 0.0),
        (nan, 0, 1.0, 0.0, 0.0, 0.0),
        (0, -1, 1.0, 0.0, 0.0, 0.0),
        (0, 1e9, 1.0, 0.0, 0.0, 0.0),
        (0, 0, 1.0, nan, 0.0, 0.0),
        (0, 0, 1.0, 0.0, -1.0, 0.0),
        (0, 0, 1.0, 0.0, 0.0, nan),
    ],
)
def test_values_that_would_lead_out_of_the_row_are_refused(given: tuple[float, ...]) -> None:
    assert reacting().tick(WHEN, *given) == ResultCode.BAD_VALUE


@pytest.mark.parametrize(
    "given", [(0, 0), (0, 5), (0, nan), (0, 1, 1), (0, 1, nan), (0, 1, 0, nan), (0, 1, 0, 0, -1), (0, 4, 0, 0, 0, nan)]
)
def test_actions_that_do_not_exist_are_refused(given: tuple[float, ...]) -> None:
    assert reacting().tick(THEN, *given) == ResultCode.BAD_VALUE


@pytest.mark.parametrize("mode", [Mode.SAFE, Mode.FAULT])
def test_they_are_armed_in_armed_and_running_only(mode: int) -> None:
    machine = reacting(Mode.SAFE)
    machine.tick()
    if mode == Mode.FAULT:
        machine.tick(CommandKind.TRIP)
    assert arm(machine, Reacting.STOP) == (ResultCode.WRONG_MODE, ResultCode.WRONG_MODE)


def test_a_rig_without_reactions_refuses_them() -> None:
    assert bench(Mode.RUNNING).tick(WHEN, 0, 0, 1.0) == ResultCode.BAD_VALUE
