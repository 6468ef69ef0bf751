"""After a gap: many missed ticks, in which the devices' watchdogs have closed the valves.

What the bridge assumes is judged by the true values of the simulated machine, which has gone on meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf, nan
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from lift_bench import FILE, lift, start, true_value
from rig_bench import BAR, merged
from slow_lift import DT, SlowLift, slow_lift
from tick_bench import bench

from hilserver.numerics.arrays import Floats
from hilserver.realtime.simulated_device import DeviceMemory, SimulatedDevice
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import ABSURD, CommandKind, FaultCode, Mode

WATCHDOG, SLOW_WATCHDOG = 50, 100
"""ms of the simulated device, and of the process of a slow one, and ticks."""


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
    """The relief valve opens at 140 bar. With an estimate that was simulated on, the supply fell to 86 bar."""
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


@pytest.mark.parametrize("joystick", [0.5, -0.5])
def test_it_waits_for_samples_that_were_taken_since(joystick: float) -> None:
    """A device that stood, too, gives old ones at first. With these, the position was 0.1 to 0.3 m off."""
    run = paused(joystick, 750)
    assert np.isnan(run["cylinder.lift.v"])
    assert abs(run["valve.A.volume_error"]) == 0.0
    known = []
    for _ in range(100):
        run.step()
        known.append(not np.isnan(run["cylinder.lift.v"]))
        if known[-1]:
            assert run["cylinder.lift.x"] == pytest.approx(run.positions[-2], abs=5e-3)
    assert known.index(True) <= run.every
    assert all(known[run.every :])
    assert run["mode"] == Mode.RUNNING
    assert abs(run["valve.A.command"]) < 0.8


def test_without_a_position_sensor_the_position_is_as_before() -> None:
    rig = lift({"rig": {"loop": {"max_missed": 5000}, "cylinders": {"lift": {"position": None}}}})
    run = LockstepRun(rig)
    start(run)
    run.set_input("joystick", 0.5)
    before = run.run(600)[-1, rig.layout.column("cylinder.lift.x")]
    run.miss(749)
    after = run.run(10)[:, rig.layout.column("cylinder.lift.x")]
    assert before > 0.55, "it began in the middle"
    assert after == pytest.approx(before, abs=0.01)


def test_a_gap_begins_when_the_watchdog_has_acted() -> None:
    """Until then the last command is held, and the machine is simulated over the missed ticks."""
    run = paused(0.5, SLOW_WATCHDOG - 5)
    for _ in range(100):
        assert run["cylinder.lift.x"] == pytest.approx(run.positions[-2], abs=1e-3)
        run.step()


def paused(joystick: float, ticks: int) -> SlowLift:
    """Behind a device of 100 Hz; the loop and the device stand for this number of ticks, and the loop goes on first."""
    run = SlowLift(slow_lift(100.0, "feedback", {"rig": {"loop": {"max_missed": 5000, "max_age": "1 s"}}}))
    run.start()
    run.tick(CommandKind.SET_INPUT, 0, joystick)
    run.run(0.404, ())
    run.pause(ticks, SLOW_WATCHDOG)
    run.step()
    return run


def test_the_device_process_closes_the_valves_in_ticks_that_it_has_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loop and device stand together: as in lockstep, the valves are open for the watchdog's time, and no longer."""
    now, missed, moved = [100.0], iter((0, 0, 749)), list[float]()

    class Clock:
        """Three ticks; the last one is late."""

        def __init__(self, period: float) -> None:
            self.missed = 0

        def wait(self) -> bool:
            self.missed = next(missed, -1)
            now[0] += (self.missed + 1) * DT
            return self.missed >= 0

    class Commands:
        """One of 5 V, given in the first tick."""

        width = 2

        def latest(self, got: Floats) -> int:
            got[:] = 100.0 + DT, 5.0
            return 1

    def move(plant: object, command: Floats, dt: float) -> Callable[[], None]:
        return lambda: moved.append(float(command[0]))

    readings = SimpleNamespace(width=3, publish=lambda row: None)
    memory = SimpleNamespace(commands=Commands(), readings=readings, applied=slice(2, 3))
    monkeypatch.setattr("hilserver.realtime.simulated_device.GridClock", Clock)
    monkeypatch.setattr("hilserver.realtime.simulated_device.time", SimpleNamespace(monotonic=lambda: now[0]))
    device = object.__new__(SimulatedDevice)
    device.__dict__ |= {"_period": DT, "_dt": DT, "_speed": 1.0, "_plant": None, "_stopping": False}
    device.__dict__ |= {"_watchdog": (WATCHDOG + 0.5) * DT, "_safe": np.zeros(1), "_supervisor": os.getppid()}
    bound = SimpleNamespace(bound=lambda *_: lambda: None)
    device.__dict__["_program"] = SimpleNamespace(move=SimpleNamespace(bound=move), sample=bound)
    device._run(cast(DeviceMemory, memory))
    assert moved == [0.0] + [5.0] * WATCHDOG + [0.0] * (751 - WATCHDOG)


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


@pytest.mark.parametrize("flow", [1e11, 1e16, inf])
def test_the_account_of_volumes_begins_anew_after_a_divergence(flow: float) -> None:
    """Else, what a circuit has passed while it diverged would hide all that is passed later."""
    machine = bench(Mode.RUNNING)
    for name in ("volume_virtual", "volume_lost"):
        setattr(machine.block, name, flow * DT)
    machine.row[machine.rig.plan.layout[0].circuit] = 2 * ABSURD
    machine.tick()
    assert machine["fault"] == FaultCode.DIVERGED
    b = machine.block
    assert (b.volume, b.volume_virtual, b.volume_error, b.volume_lost) == (0.0, 0.0, 0.0, 0.0)


def test_the_flow_servo_makes_up_for_nothing(rig: Rig) -> None:
    """Its integral counts the tick after a gap as one tick."""
    changes = {"rig": {"loop": {"max_missed": 5000}, "valves": {"main": {"bridge": {"strategy": "flow_servo"}}}}}
    demo = assemble(
        merged(load_rig(FILE.parent / "demo.toml").sources, changes), FILE.parent / "demo.toml", rig.library
    )
    run, rows = after_a_gap(demo, 0.5, 400, 749)
    flow = rows[:, demo.layout.column("valve.main.flow_virtual")]
    assert rows[:4, demo.layout.column("valve.main.command")].max() < 0.7, "0.92 with the gap's integral"
    assert flow[0] > 3e-4
    assert run.mode == "RUNNING"
