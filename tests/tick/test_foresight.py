"""The inputs in the look-ahead: those that the loop itself moves are known, and the real flow is then in time."""

from __future__ import annotations

from math import degrees
from typing import Any

import numpy as np
import pytest
from lift_bench import SMALL, both, delays, errors_of, lift, ratio, sines
from rig_bench import Bench
from test_playout import Plant, Played
from tick_bench import CYCLE, bench

from hilserver.compiler import standard_program
from hilserver.fidelity.comparison import Comparison
from hilserver.fidelity.segments import CycleSegment, passes, trip_in
from hilserver.numerics.arrays import Floats
from hilserver.tick.codes import CommandKind, Mode, PlayoutState, ResultCode
from hilserver.tick.foresight import foresee_inputs

BAR = 1e5
AHEAD = 12
"""Ticks."""
SHAPES: dict[str, dict[str, Any]] = {
    "linear": {"points": [["5 ms", 0.0], ["20 ms", 1.0], ["30 ms", -0.5]]},
    "step": {"shape": "step", "points": [["0 s", 0.0], ["30 ms", 1.0]]},
    "jumps": {"shape": "hold", "points": [["0 s", 0.3], ["11 ms", -0.7], ["12 ms", 0.2], ["25 ms", 0.9]]},
    "sweep": {"sweep": {"rest": "3 ms", "frequencies": ["60 Hz", "100 Hz"], "settle": "0 s", "measure": "0 s"}},
}


def foreseen(machine: Bench) -> Floats:
    """The first input over the next ticks, from the present one on."""
    ahead = np.zeros(32 * machine.rig.plan.input.shape[0])
    foresee_inputs(machine.rig.plan, machine.row, AHEAD, ahead)
    return ahead[:AHEAD]


def largest_error(machine: Bench, ticks: int) -> float:
    """Of the foreseen values, compared with those that the input then has."""
    guesses, values = [], []
    for _ in range(ticks + AHEAD):
        machine.ticks(1) if isinstance(machine, Played) else machine.tick()
        values.append(machine["input.flow"])
        guesses.append(foreseen(machine))
    came = np.lib.stride_tricks.sliding_window_view(values, AHEAD)[:ticks]
    return float(np.max(np.abs(np.array(guesses)[:ticks] - came)))


def started(cycle: dict[str, Any]) -> Bench:
    machine = bench(Mode.RUNNING, cycle=cycle)
    assert machine.tick(CommandKind.CYCLE, 1) == ResultCode.DONE
    return machine


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_work_cycle_is_foreseen_also_across_its_end(shape: str, repeat: bool) -> None:
    assert largest_error(started({"inputs": {"flow": SHAPES[shape]}, "repeat": repeat}), 150) < 1e-12


def test_a_jump_by_hand_is_not_foreseen() -> None:
    """With ``foreseen = false`` the bridge knows no more of a work cycle than of an operator."""
    known = started({"inputs": {"flow": SHAPES["jumps"]}})
    unknown = started({"inputs": {"flow": SHAPES["jumps"]}, "foreseen": False})
    for machine in (known, unknown):
        machine.record("mode", 6)  # with that of the command, seven ticks: it is at 6 ms, and jumps at 11, 12 ms
    assert list(foreseen(known)[:8]) == [0.3, 0.3, 0.3, 0.3, 0.3, -0.7, 0.2, 0.2]
    assert np.all(foreseen(unknown) == 0.3)


def test_inputs_that_the_cycle_does_not_move_are_extrapolated() -> None:
    """What an operator does meanwhile."""
    machine = bench(Mode.RUNNING, cycle=CYCLE, inputs={"other": {"range": [0, 1], "initial": 0.0}})
    assert machine.tick(CommandKind.CYCLE, 1) == ResultCode.DONE
    for k in range(6):
        assert machine.tick(CommandKind.SET_INPUT, 1, 0.01 * k) == ResultCode.DONE
    ahead = np.zeros(64)
    foresee_inputs(machine.rig.plan, machine.row, AHEAD, ahead)
    assert ahead[32 : 32 + AHEAD] == pytest.approx(0.05 + 0.01 * np.arange(AHEAD))


def test_a_playout_is_foreseen() -> None:
    """While its drive rises, with its full drive, and while it fades, but for the last tick of that."""
    machine = Played(Plant())
    machine.play(2 * BAR, gain=0.0, tolerance=10.0, cycles=6, mean=0.2)
    machine.ticks(1)
    while machine.state == PlayoutState.WAITING:
        machine.ticks(1)
    assert largest_error(machine, 5 * 50 - 2 * AHEAD) < 1e-12
    while machine.state != PlayoutState.FADING:
        machine.ticks(1)
    assert largest_error(machine, 50 - AHEAD - 2) < 1e-12
    machine.ticks(3)
    assert machine.state == PlayoutState.COMPLETED


def response(foreseen: bool, frequency: float, actuators: str) -> complex:
    """Real flow of port A against that of the reference simulation, for a sine of the joystick."""
    change, ((first, last),) = sines((frequency,), 0.3)
    change["cycle"]["foreseen"] = foreseen
    rig = lift(both(SMALL, delays("0 s", actuators), change))
    comparison = Comparison.of(rig, standard_program())
    record, true_values = comparison.bridged(rig, "feedback")
    assert trip_in(record, rig) is None
    found, _ = comparison.evaluated(record, true_values, CycleSegment(passes(record)[0], 0.0))
    return ratio(found.actual["flow A"][first:last], found.reference["flow A"][first:last], frequency)


def test_the_real_flow_follows_a_fast_sine_in_time() -> None:
    """At the frequency at which the real valve lags by about 45°, with 3 ms of delay: against the same by hand."""
    known, by_hand = response(True, 40.0, "3 ms"), response(False, 40.0, "3 ms")
    assert abs(known) == pytest.approx(1.0, abs=0.015)  # 4 % while the lead passed a filter of one tick
    assert abs(degrees(np.angle(known))) < 0.5
    assert abs(abs(by_hand) - 1.0) > 0.2


def test_a_jump_of_the_cycle_comes_in_time() -> None:
    """The real flow of a jump that the bridge knows is not late; by hand it is, by delay and lag of the valve."""
    points = [["0 s", 0.0], ["0.3 s", 0.4], ["0.8 s", 0.0], ["1.2 s", -0.3], ["1.6 s", 0.0], ["2 s", 0.0]]
    errors = []
    for known in (True, False):
        cycle = {"inputs": {"joystick": {"shape": "hold", "points": points}}, "foreseen": known, "length": "2 s"}
        errors.append(errors_of(lift(both(SMALL, delays("1 ms", "2 ms"), {"cycle": cycle}))))
    assert errors[0]["flow A"] < 0.5 * errors[1]["flow A"]
