"""A piston that presses against something stiff: what is learned of it, and what the bridge makes of that.

The judges are the spring that a simulated piston presses against, and, for a press at its workpiece, the reference
simulation.
"""

from __future__ import annotations

import numpy as np
import pytest
from component_bench import program
from port_account import installed, judged, run_with
from port_family import Ready

from hilserver.numerics.arrays import Floats
from hilserver.tick.contact import note_stiffness
from hilserver.tick.cylinder import chamber_A, chamber_B, start_cylinder
from hilserver.tick.plan import CylinderRecord, Plan, plan_on
from hilserver.tick.records import blank
from hilserver.tick.row import CylinderState

DT = 1e-3
PLACE = 0.3
"""m: where the piston meets the spring."""
FORCE = 40e3
"""N: with which it presses."""
PRESS = Ready("regenerative")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return PRESS.rig().plan


def started(m: CylinderRecord) -> CylinderState:
    """A cylinder at the spring, at rest and without load."""
    k = blank(CylinderState)
    start_cylinder(50e5 * m.area_B / m.area_A, 50e5, PLACE, k, m)
    return k


def oil_of(m: CylinderRecord) -> float:
    """Stiffness of the oil there, N/m."""
    k = started(m)
    return float(m.area_A**2 / chamber_A(k.x, k.p_A, m) + m.area_B**2 / chamber_B(k.x, k.p_B, m))


def follow(k: CylinderState, m: CylinderRecord, forces: Floats, positions: Floats) -> float:
    """The stiffness learned from an estimate with these forces and positions, one per tick."""
    for F, x in zip(forces, positions, strict=True):
        k.F, k.x, k.p_A = float(F), float(x), float((F + m.area_B * k.p_B) / m.area_A)
        note_stiffness(k, m, DT, DT)
    return k.stiffness


def press(k: CylinderState, m: CylinderRecord, spring: float, forces: Floats) -> float:
    """The same of a piston that presses against a spring with these forces."""
    return follow(k, m, forces, PLACE + forces / spring)


RISE = np.linspace(0.0, FORCE, 80)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 3.0])
def test_a_spring_is_found_and_not_overestimated(plan: Plan, ratio: float) -> None:
    m = plan.cylinder[0]
    spring = ratio * oil_of(m)
    assert 0.6 * spring < press(started(m), m, spring, RISE) < 1.01 * spring


def test_a_spring_pushed_the_other_way_is_the_same(plan: Plan) -> None:
    m = plan.cylinder[0]
    spring = oil_of(m)
    assert press(started(m), m, spring, -RISE) == pytest.approx(press(started(m), m, spring, RISE), rel=1e-3)


def test_a_wall_counts_as_three_times_as_stiff_as_the_oil(plan: Plan) -> None:
    m = plan.cylinder[0]
    assert press(started(m), m, 1e12, RISE) == pytest.approx(3.0 * oil_of(m), rel=0.01)


def test_free_motion_and_soft_springs_have_no_stiffness(plan: Plan) -> None:
    m = plan.cylinder[0]
    moving = PLACE + 0.1 * DT * np.arange(300.0)
    assert follow(started(m), m, np.full(300, 2e3), moving) == 0.0
    assert press(started(m), m, 0.1 * oil_of(m), RISE) == 0.0


def test_it_is_kept_at_rest_and_lost_with_the_load(plan: Plan) -> None:
    m = plan.cylinder[0]
    spring, k = oil_of(m), started(m)
    pressed = press(k, m, spring, RISE)
    assert press(k, m, spring, np.full(2000, FORCE)) == pytest.approx(pressed, rel=0.02)
    assert press(k, m, spring, RISE[::-1]) == pytest.approx(0.0, abs=0.02 * spring)
    assert follow(k, m, np.zeros(20), PLACE - 0.05 * DT * np.arange(20.0)) == 0.0


def test_nothing_is_learned_without_a_position_sensor(plan: Plan) -> None:
    blind = plan_on(plan.block.copy())
    blind.cylinder["sensor_x"][0] = -1
    m = blind.cylinder[0]
    assert press(started(m), m, oil_of(m), RISE) == 0.0


def test_a_contact_that_is_too_fast_for_the_tick_counts_as_softer(plan: Plan) -> None:
    """The mass on oil and contact turns by less than 1 rad per tick: with late sensors, the filter is stable then."""
    light = plan_on(plan.block.copy())
    light.cylinder["mass"][0] = 45.0
    m = light.cylinder[0]
    found = press(started(m), m, 1e12, RISE)
    assert 0.0 < found < 3.0 * oil_of(m)
    assert np.sqrt((found + oil_of(m)) / m.mass) * DT == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("stiffness", ["2e7 N/m", "2e8 N/m"])
def test_a_press_holds_its_pressures_at_the_workpiece(stiffness: str) -> None:
    """Both pressures oscillated, by 2 and 3 bar RMS in front of the softer workpiece, by 29 and 9 bar of the other."""
    workpiece = {"components": {"work_piece": {"stiffness": stiffness}}}
    rig = PRESS.rig({"devices": {"rig": {"machine": workpiece}}})
    run, trip = run_with(rig, "feedback", program(), installed(rig))
    assert run is not None, trip
    time = run.record.columns["cycle_time"]
    held = (time > 2.3) & (time < 3.2)
    assert np.std(run.true["piston_side.p"][held]) < 0.2e5
    assert np.std(run.true["rod_side.p"][held]) < 0.5e5
    assert judged(run, ()).pressure < 0.03
