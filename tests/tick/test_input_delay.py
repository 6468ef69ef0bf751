"""Inputs with a delay: what an operator sets acts later, and the bridge knows it in advance."""

from __future__ import annotations

from collections import deque
from math import degrees

import numpy as np
import pytest
from lift_bench import SMALL, both, delays, lift, ratio, sines
from rig_bench import Bench
from test_reactions import arm, reacting, run
from tick_bench import bench

from hilserver.compiler import standard_program
from hilserver.errors import HilserverError
from hilserver.fidelity.comparison import Comparison
from hilserver.fidelity.segments import CycleSegment, passes, trip_in
from hilserver.numerics.arrays import Floats
from hilserver.tick.codes import CommandKind, Mode, Reacting, ResultCode
from hilserver.tick.foresight import foresee_inputs

DELAY = 5
"""Ticks: at 1 kHz, ms."""
DELAYED = {"flow": {"range": [-1.0, 1.0], "delay": f"{DELAY} ms"}}
AHEAD = 12


def foreseen(machine: Bench) -> Floats:
    ahead = np.zeros(32 * machine.rig.plan.input.shape[0])
    foresee_inputs(machine.rig.plan, machine.row, AHEAD, ahead)
    return ahead[:AHEAD]


def set_to(machine: Bench, value: float) -> float:
    """One tick in which the operator sets this value; returns the input's."""
    assert machine.tick(CommandKind.SET_INPUT, 0, value) == ResultCode.DONE
    return machine["input.flow"]


def test_a_value_acts_after_the_delay() -> None:
    machine = bench(Mode.RUNNING, inputs=DELAYED)
    found = [set_to(machine, 0.7), *machine.record("input.flow", 10)]
    assert found == [0.0] * DELAY + [0.7] * (11 - DELAY)


def test_without_one_it_acts_at_once_and_takes_no_room() -> None:
    machine = bench(Mode.RUNNING)
    assert set_to(machine, 0.7) == 0.7
    assert not [name for name in machine.rig.layout.names if name.startswith("input_ahead")]


def test_two_inputs_have_delays_of_their_own() -> None:
    inputs = {**DELAYED, "other": {"range": [0, 1], "delay": "2 ms"}, "third": {"range": [0, 1]}}
    machine = bench(Mode.RUNNING, inputs=inputs)
    for number in range(3):
        assert machine.tick(CommandKind.SET_INPUT, number, 1.0) == ResultCode.DONE
    found = [[machine[f"input.{name}"] for name in inputs], *([] for _ in range(6))]
    for k in range(1, 7):
        machine.tick()
        found[k] = [machine[f"input.{name}"] for name in inputs]
    assert np.argmax(np.array(found) > 0.0, axis=0).tolist() == [DELAY - 2, 1, 0]


def test_it_is_foreseen_as_far_as_it_is_set_and_extrapolated_beyond() -> None:
    machine, random = bench(Mode.RUNNING, inputs=DELAYED), np.random.default_rng(3)
    guesses, values = [], []
    for value in random.uniform(-1.0, 1.0, 60):
        values.append(set_to(machine, value) if value > -0.3 else machine.record("input.flow", 1)[0])
        guesses.append(foreseen(machine))
    came = np.lib.stride_tricks.sliding_window_view(values, DELAY + 1)
    assert np.array_equal(np.array(guesses)[: len(came), : DELAY + 1], came)
    for k in range(20):
        set_to(machine, 0.01 * k)
    assert foreseen(machine) == pytest.approx(machine["input.flow"] + 0.01 * np.arange(AHEAD))


def test_whatever_moves_it_and_whenever_ticks_are_missed_it_is_as_in_a_queue() -> None:
    """The judge is a queue in Python: commands enter it, a work cycle or the end of RUNNING empties it."""
    cycle = {"inputs": {"flow": {"points": [["0 s", 0.2], ["9 ms", 0.9]]}}}
    machine = bench(Mode.RUNNING, inputs=DELAYED, cycle=cycle, loop={"max_missed": 20})
    random = np.random.default_rng(7)
    queue, now, left, seen = deque([0.0] * DELAY), 0.0, -1, set()
    for _ in range(3000):
        machine.missed = int(random.choice([0, 0, 0, 1, 3, 8]))
        ticks, choice = machine.missed + 1, random.random()
        if choice < 0.3:
            value = float(random.uniform(-1.0, 1.0))
            assert machine.tick(CommandKind.SET_INPUT, 0, value) == ResultCode.DONE
        elif choice < 0.33:
            assert machine.tick(CommandKind.CYCLE, 1) == ResultCode.DONE
            left = 1
        else:
            machine.tick()
        for _ in range(ticks):
            now = queue.popleft()
            queue.append(queue[-1])
        if choice < 0.3:
            queue[-1] = value
        if left >= 0:  # the cycle's shape is not the subject here
            now, left = machine["input.flow"], 0 if machine["cycle_time"] >= 0.0 else -1
            queue = deque([now] * DELAY)
        assert machine["input.flow"] == now
        seen.add("cycle" if left >= 0 else "set" if choice < 0.3 else "")
    assert seen == {"cycle", "set", ""}


def test_a_cycle_that_stands_for_an_operator_is_known_as_far_as_one() -> None:
    """The same values, by a cycle and by commands that are given as much earlier as the delay."""
    points = [["0 s", 0.0], ["20 ms", 0.2], ["40 ms", 0.8], ["60 ms", 0.0]]
    cycle = {"inputs": {"flow": {"points": points}}, "foreseen": False}
    by_cycle, by_hand = bench(Mode.RUNNING, inputs=DELAYED, cycle=cycle), bench(Mode.RUNNING, inputs=DELAYED)
    values = np.interp(np.arange(80.0), [0.0, 20.0, 40.0, 60.0], [0.0, 0.2, 0.8, 0.0])
    for k in range(DELAY):
        set_to(by_hand, values[k])
    assert by_cycle.tick(CommandKind.CYCLE, 1) == ResultCode.DONE
    for k in range(60):
        assert set_to(by_hand, values[k + DELAY]) == pytest.approx(by_cycle["input.flow"], abs=1e-12)
        if k >= 3:  # the cycle began with a motion that it did not have before
            assert foreseen(by_cycle) == pytest.approx(foreseen(by_hand), abs=1e-12), k
        by_cycle.tick()


def test_a_delay_below_a_tick_is_one_tick() -> None:
    plan = bench(Mode.SAFE, inputs={"flow": {"range": [-1, 1], "delay": "0.1 ms"}}).rig.plan
    assert plan.input[0].delay == 1


def test_a_reaction_acts_at_once_and_what_was_set_before_does_not_act_after_it() -> None:
    machine = reacting(inputs=DELAYED)
    arm(machine, Reacting.SET, value=-0.5)
    set_to(machine, 0.7)
    assert run(machine, [70], "input.flow") == [(-0.5,)]
    assert set(machine.record("input.flow", 10)) == {-0.5}
    assert [set_to(machine, 0.3), *machine.record("input.flow", DELAY)] == [-0.5] * DELAY + [0.3]


def test_a_ramp_of_a_reaction_is_extrapolated_and_not_taken_for_known() -> None:
    machine = reacting(inputs=DELAYED)
    arm(machine, Reacting.SET, value=1.0, ramp=0.1)
    run(machine, [70] * 20, "input.flow")
    assert foreseen(machine) == pytest.approx(machine["input.flow"] + 0.01 * np.arange(AHEAD))


def test_the_end_of_the_run_does_not_wait_for_it() -> None:
    machine = bench(Mode.RUNNING, inputs=DELAYED)
    set_to(machine, 0.7)
    machine.record("mode", 10)
    set_to(machine, 0.9)
    assert machine.tick(CommandKind.STOP) == ResultCode.DONE
    assert machine["input.flow"] == 0.0
    assert machine.tick(CommandKind.START) == ResultCode.DONE
    assert set(machine.record("input.flow", 10)) == {0.0}, "nothing of the last run acts in the next"


def test_the_real_flow_follows_an_operator_in_time() -> None:
    """40 Hz, at which the valve lags by 45°, with 3 ms of delay, by hand: against the flow of the delayed input."""
    change, ((first, last),) = sines((40.0,), 0.3)
    change["cycle"]["foreseen"] = False
    known = {"rig": {"inputs": {"joystick": {"delay": "20 ms"}}}}
    rig = lift(both(SMALL, delays("0 s", "3 ms"), change, known))
    comparison = Comparison.of(rig, standard_program())
    record, true_values = comparison.bridged(rig, "feedback")
    assert trip_in(record, rig) is None
    found, _ = comparison.evaluated(record, true_values, CycleSegment(passes(record)[0], 0.0))
    response = ratio(found.actual["flow A"][first:last], found.reference["flow A"][first:last], 40.0)
    assert abs(response) == pytest.approx(1.0, abs=0.015)
    assert abs(degrees(np.angle(response))) < 0.5


def test_more_than_a_person_would_bear_is_refused() -> None:
    with pytest.raises(HilserverError, match=r"inputs\.joystick\.delay: .*0\.1"):
        lift({"rig": {"inputs": {"joystick": {"delay": "0.5 s"}}}})
