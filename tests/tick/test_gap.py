"""After a gap: many missed ticks, in which the devices' watchdogs have closed the valves.

What the bridge assumes is judged by the true values of the simulated machine, which has gone on meanwhile.
"""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from lift_bench import lift, start, true_value
from rig_bench import BAR
from tick_bench import bench

from hilserver.numerics.arrays import Floats
from hilserver.rig.build import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import ABSURD, FaultCode, Mode

WATCHDOG = 50
"""ms of the simulated device, and ticks."""


@pytest.fixture(scope="module")
def rig() -> Rig:
    return lift({"rig": {"loop": {"max_missed": 5000}}})


def after_a_gap(rig: Rig, joystick: float, ticks: int, missed: int) -> tuple[LockstepRun, Floats]:
    """The machine moves, and this number of ticks is missed; the run, and the 200 rows after that."""
    run = LockstepRun(rig, trace=True)
    start(run)
    run.set_input("joystick", joystick)
    run.run(ticks)
    run.miss(missed)
    return run, run.run(200)


@pytest.mark.parametrize("joystick", [0.5, -0.5])
def test_the_estimate_starts_again_from_the_samples(rig: Rig, joystick: float) -> None:
    """Simulated on with open valves, as before, pressures were 24 to 139 bar off."""
    run, rows = after_a_gap(rig, joystick, 300, 749)
    for name, true, most in (("p_A", "A.p", 10 * BAR), ("p_B", "B.p", 10 * BAR), ("x", "rod.x", 1e-3)):
        estimate, truth = rows[:, rig.layout.column(f"cylinder.lift.{name}")], true_value(run, true)[-200:]
        assert np.abs(estimate[1:] - truth[:-1]).max() < most, name


def test_the_virtual_circuit_goes_on_quietly(rig: Rig) -> None:
    """The relief valve opens at 140 bar. With an estimate that was simulated on: 86 to 1700 bar."""
    for joystick in (1.0, -1.0, 0.5, -0.2):
        for missed in (100, 749, 1500):
            _, rows = after_a_gap(rig, joystick, 400, missed)
            supply = rows[:, rig.plan.layout[0].circuit + rig.packed.names.index("supply.p")]
            assert 100 * BAR < supply.min() <= supply.max() < 180 * BAR, (joystick, missed)


def test_what_was_passed_in_a_gap_is_lost_and_not_made_up_for(rig: Rig) -> None:
    """V_virtual = V_real + V_error + V_lost, and V_error starts again at 0."""
    _, rows = after_a_gap(rig, 0.5, 400, 749)
    for port in "AB":
        volume = {
            name: rows[:, rig.layout.column(f"valve.{port}.{name}")]
            for name in ("volume_virtual_before", "volume", "volume_error", "volume_lost")
        }
        assert volume["volume_error"][0] == 0.0
        assert abs(volume["volume_error"][1]) < 2e-6, "one tick's flow at most"
        assert abs(volume["volume_lost"][0]) > 1e-4, "the virtual machine has moved on"
        found = volume["volume_error"] + volume["volume_lost"] - volume["volume_virtual_before"] + volume["volume"]
        assert np.ptp(found[1:]) < 1e-12


@pytest.mark.parametrize(("missed", "acts"), [(WATCHDOG, False), (WATCHDOG + 1, True)])
def test_the_watchdog_of_a_simulated_device_acts_in_missed_ticks(rig: Rig, missed: int, acts: bool) -> None:
    run, rows = after_a_gap(rig, 0.5, 400, missed)
    confirmed = rows[0, rig.layout.column("confirmed.valve.A")]
    assert (confirmed == 0.0) == acts
    assert run.mode == "RUNNING"


# --- values that are absurd ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [2 * ABSURD, -2 * ABSURD, nan, inf])
def test_a_circuit_with_an_absurd_value_trips(value: float) -> None:
    machine = bench(Mode.RUNNING)
    machine.row[machine.rig.plan.layout[0].circuit] = value
    machine.tick()
    assert machine["fault"] == FaultCode.DIVERGED
    assert np.abs(machine.row[machine.rig.plan.layout[0].circuit :]).max() < ABSURD


@pytest.mark.parametrize("value", [2 * ABSURD, -2 * ABSURD, nan, inf])
def test_an_absurd_estimate_of_the_machine_starts_again(rig: Rig, value: float) -> None:
    run, _ = after_a_gap(rig, 0.0, 100, 0)
    for name in ("p_A", "v"):
        run.row[rig.layout.column(f"cylinder.lift.{name}")] = value
        rows = run.run(100)
        assert rows[-1, rig.layout.column("cylinder.lift.p_A")] == pytest.approx(true_value(run, "A.p")[-1], abs=BAR)
    assert run.mode == "RUNNING"
