"""Oscillation of the loop, seen on the demanded opening: what counts as one, and what does not."""

from __future__ import annotations

from math import exp, nan, pi, sin

import numpy as np
import pytest
from lift_bench import both, delays, lift, of_valves
from numpy.typing import NDArray
from rig_bench import DT, bench_rig

from hilserver.numerics.arrays import Floats
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.bridge.oscillation import forget_oscillation, watch_oscillation
from hilserver.tick.codes import CommandKind, Saturation
from hilserver.tick.plan import ValveRecord
from hilserver.tick.records import blank, cells_of
from hilserver.tick.row import ValveState

V: ValveRecord = bench_rig().plan.valve[0]


def flagged(demand: Floats, travel: Floats | None = None) -> NDArray[np.bool_]:
    """At each tick, whether the flag is set under this demand; ``travel``: how far the inputs move in each."""
    block, flags = blank(ValveState), np.zeros(len(demand))
    forget_oscillation(block, V)
    for k, value in enumerate(demand):
        block.demand, block.saturation = value, 0
        watch_oscillation(block, V, 0.0 if travel is None else travel[k], DT)
        flags[k] = block.saturation & Saturation.OSCILLATION
    return flags > 0


K = np.arange(3000)


@pytest.mark.parametrize("frequency", [5.0, 20.0, 60.0])
def test_a_self_excited_oscillation_is_reported_until_it_ends(frequency: float) -> None:
    """Within six periods; cleared within 0.3 s of rest."""
    demand = 0.1 * np.sin(2 * pi * frequency * DT * K) * (K < 2000)
    flags = flagged(demand)
    assert flags[round(6 / frequency / DT) + 20 : 2000].all()
    assert not flags[2300:].any()


@pytest.mark.parametrize("frequency", [2.0, 5.0, 10.0, 20.0])
def test_sines_of_the_operator_are_no_oscillation(frequency: float) -> None:
    inputs = 0.3 * np.sin(2 * pi * frequency * DT * K)
    travel = np.abs(np.diff(inputs, prepend=0.0))
    assert not flagged(0.8 * inputs, travel).any()


def test_noise_ringing_and_rest_are_no_oscillation() -> None:
    noise = 0.003 * np.random.default_rng(1).normal(size=len(K))
    ringing = np.array([0.3 * exp(-k * DT / 0.08) * sin(2 * pi * 15 * k * DT) for k in K])
    for demand in (noise, ringing, np.zeros(len(K)), 0.5 + noise):
        assert not flagged(demand).any()


def test_non_finite_values_reset_the_detection() -> None:
    block = blank(ValveState)
    block.oscillation_mean = nan
    watch_oscillation(block, V, 0.0, DT)
    assert np.all(np.isfinite(cells_of(block)))


def test_an_oscillating_loop_is_reported_and_its_command_limited() -> None:
    """40 ms of delay that the bridge does not know: the rig oscillates at the end of the stroke, into which it goes at
    full speed; the command stays within range and slew.
    """
    late = delays("1 ms", "40 ms")
    late["rig"]["valves"] = {}
    rig = lift(both(late, of_valves(bridge={"strategy": "feedback"}, range=[-0.6, 0.6])))
    with LockstepRun(rig) as run:
        run.run(1)
        run.command(CommandKind.ARM)
        run.command(CommandKind.START)
        run.set_input("joystick", 1.0)
        rows = run.run(4000)
    flags = rig.layout.values(rows, "valve.A.saturation") & Saturation.OSCILLATION
    command = rows[:, rig.layout.column("valve.A.command")]
    assert flags.any() or run.mode == "FAULT"
    assert np.abs(command).max() <= 0.6
    assert np.abs(np.diff(command)).max() <= 0.4 + 1e-12
