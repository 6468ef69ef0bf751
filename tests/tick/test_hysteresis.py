"""The hysteresis of a real valve: the output takes up its play, so that the spool is where the command wants it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from lift_bench import both, errors_of, lift, of_valves, true_valves
from tick_bench import SUPPLIED, bench

from hilserver.numerics.arrays import Floats
from hilserver.tick.codes import CommandKind, Mode
from hilserver.tick.outputs import take_up_play

WIDTH, DT = 0.02, 1e-3


def outputs_for(commands: Floats, width: float = WIDTH, slew: float = 50.0) -> Floats:
    """What the valve gets for these commands, tick by tick."""
    b: Any = SimpleNamespace(command=0.0, play=0.0, direction=0.0, farthest=0.0)
    v: Any = SimpleNamespace(hysteresis=width, dither=0.0)
    found = []
    for command in commands:
        most, b.command = max(slew * DT - abs(command - b.command), 0.0), command
        take_up_play(b, v, DT, most, True)
        found.append(command + b.play)
    return np.array(found)


def behind_play(inputs: Floats, width: float) -> Floats:
    """The play operator: it follows its input when that is half of the width away."""
    found, at = [], 0.0
    for u in inputs:
        at = min(max(at, u - 0.5 * width), u + 0.5 * width)
        found.append(at)
    return np.array(found)


def sine(amplitude: float, hertz: float, seconds: float) -> Floats:
    values: Floats = amplitude * np.sin(2.0 * np.pi * hertz * DT * np.arange(round(seconds / DT)))
    return values


def test_the_spool_is_at_the_command_except_while_that_turns() -> None:
    commands = sine(0.3, 1.0, 3.0)
    spool, left_alone = behind_play(outputs_for(commands), WIDTH), behind_play(commands, WIDTH)
    error = np.abs(spool - commands)[50:]
    turning = 0.3 - np.abs(commands[50:]) < WIDTH
    assert error.max() < 0.51 * WIDTH
    assert error[~turning].max() < 1e-12
    assert error.mean() < 0.1 * np.abs(left_alone - commands)[50:].mean()


@pytest.mark.parametrize("width", [0.004, 0.01, 0.05])
def test_noise_does_not_move_the_output_to_and_fro(width: float) -> None:
    """Up to a seventh of the hysteresis, peak to peak; without it, the noise of the output is that of the command."""
    noise = 0.07 * width * np.random.default_rng(3).uniform(-1.0, 1.0, 5000)
    commands = 0.1 + noise
    added = outputs_for(commands, width) - commands
    assert np.ptp(added[100:]) < 1e-12
    assert np.array_equal(outputs_for(commands, 0.0), commands)


def test_the_output_keeps_the_slew_limit() -> None:
    rng = np.random.default_rng(4)
    slew = 20.0
    commands = np.cumsum(rng.choice([-1.0, 1.0, 0.2, 0.0], 4000) * slew * DT)
    outputs = outputs_for(commands, 0.05, slew)
    assert np.abs(np.diff(outputs)).max() < slew * DT * (1.0 + 1e-9)
    assert np.ptp(outputs - commands) == pytest.approx(0.05)


def test_a_known_hysteresis_costs_less_than_an_unknown_one() -> None:
    true = true_valves(type="directional_valve_4_3", hysteresis=WIDTH)  # the type that models it
    unknown, known = errors_of(lift(true)), errors_of(lift(both(true, of_valves(hysteresis=WIDTH))))
    assert unknown.keys() == known.keys()
    for name, error in known.items():
        assert error < 0.6 * unknown[name], name


def test_the_safe_output_has_no_play() -> None:
    machine = bench(Mode.RUNNING, valves={"main": {"hysteresis": WIDTH, "stop_time": "50 ms"}}, circuit=SUPPLIED)
    for _ in range(200):
        machine.tick()
    assert abs(machine["valve.main.play"]) == pytest.approx(0.5 * WIDTH)
    machine.tick(CommandKind.STOP)
    for _ in range(200):
        machine.tick()
    assert machine.mode != "RUNNING"
    assert machine["valve.main.play"] == 0.0
    assert machine["valve.main.command"] == 0.0
    assert machine["valve.main.output"] == machine.rig.plan.valve[0].raw_offset


def test_a_command_that_is_given_by_hand_is_the_output() -> None:
    machine = bench(Mode.RUNNING, valves={"main": {"hysteresis": WIDTH, "bridge": {"strategy": "manual"}}})
    line = machine.rig.plan.valve[0]
    machine.tick(CommandKind.JOG, 0, 0.05)
    for _ in range(20):
        machine.tick()
    assert machine["valve.main.command"] == pytest.approx(0.05)
    assert machine["valve.main.output"] == line.raw_offset + line.raw_gain * machine["valve.main.command"]
