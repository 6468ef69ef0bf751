"""The filter that follows a cylinder is stable whatever its valves do to the pressures.

An open valve with a small drop settles the pressure of a small chamber within a tick, or a fraction of it. The judge is
linear algebra outside of the product: the transition of cylinder and valves by a matrix exponential, and the largest
eigenvalue of the filter's error from tick to tick.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from rig_bench import bench_rig
from scipy.linalg import expm

from hilserver.numerics.arrays import Floats
from hilserver.rig.kalman import BIAS_A, BIAS_B, FORCE, P_A, P_B, TYPICAL_PRESSURE, V, X
from hilserver.tick.contact import FASTEST
from hilserver.tick.correction import correct_cylinder, gains_for
from hilserver.tick.cylinder import chamber_A, chamber_B
from hilserver.tick.plan import MEASUREMENTS, REMEMBERED, SENSED, STATES, CylinderRecord, Plan
from hilserver.tick.records import blank, cells_of
from hilserver.tick.row import CylinderState

OPEN = (0.0, 100.0, 400.0, 1e3, 3e3, 5e3, 1e4, 1e5, 1e6)
"""1/s: from closed valves to a chamber that follows its valve at once."""
Rates = tuple[float, float]


def rig_plan(delay: str, dead_volume: str, mass: str, flow_drift: float = 0.02) -> Plan:
    """A press cylinder at 1 kHz whose pressures and position are measured with this delay."""
    scale = {"raw": [0, 10], "value": ["0 bar", "400 bar"]}
    sensor: dict[str, Any] = {"device": "card", "source": "A", "scale": scale, "delay": delay, "noise": "0.08 bar"}
    stroke = {"raw": [0, 10], "value": ["0 mm", "500 mm"]}
    channels = {
        "p_A": sensor,
        "p_B": sensor | {"source": "S"},
        "x": {"device": "card", "source": "Q", "scale": stroke, "delay": delay, "noise": "0.005 mm"},
    }
    size = {"bore": "80 mm", "rod_diameter": "56 mm", "stroke": "500 mm", "mass": mass}
    dead = {"dead_volume_A": dead_volume, "dead_volume_B": dead_volume}
    cylinder = {**size, **dead, "port_A": "A", "port_B": "B", "position": "x"}
    changes = {
        "ports": {"B": "p_B"},
        "channels": channels,
        "cylinders": {"press": cylinder},
        "valves": {"main": {"flow": None, "other_port": "B", "flow_drift": flow_drift}},
    }
    return bench_rig(changes).plan


def transition(
    m: CylinderRecord, x: float, rates: Rates, past: int, dt: float, held: float = 0.0, fixed: tuple[int, ...] = ()
) -> Floats:
    """Errors of the states and of the past values, a tick later.

    ``held``: stiffness of what the piston presses against, as a multiple of the oil's; ``fixed``: states that nothing
    changes.
    """
    C_A, C_B = chamber_A(x, TYPICAL_PRESSURE, m), chamber_B(x, TYPICAL_PRESSURE, m)
    motion = np.zeros((STATES, STATES))
    motion[P_A, [P_A, V, BIAS_A]] = -rates[0], -m.area_A / C_A, 1.0 / C_A
    motion[P_B, [P_B, V, BIAS_B]] = -rates[1], m.area_B / C_B, 1.0 / C_B
    motion[X, V] = 1.0
    oil = m.area_A**2 / C_A + m.area_B**2 / C_B
    stiffness = min(held * oil, max(m.mass * (FASTEST / dt) ** 2 - oil, 0.0))
    damping = 2.0 * np.sqrt(stiffness * m.mass)
    motion[V, [P_A, P_B, V, FORCE]] = m.area_A / m.mass, -m.area_B / m.mass, -damping / m.mass, -1.0 / m.mass
    motion[FORCE, V] = stiffness
    motion[list(fixed)] = 0.0
    size = STATES + SENSED * past
    whole = np.zeros((size, size))
    whole[:STATES, :STATES] = expm(motion * dt)
    for s in range(STATES, size):
        whole[s, s - STATES if s < STATES + SENSED else s - SENSED] = 1.0
    return whole


def corrections(
    plan: Plan, x: float, rates: Rates, past: int, at_stop: float = 0.0, voids: tuple[float, float] = (0.0, 0.0)
) -> Floats:
    """What a unit difference between sample and estimate adds to states and past values: a column per sensor."""
    columns, gains, dt = [], np.zeros(plan.kalman.shape[1]), float(plan.loop[0].dt)
    per_tick = (rates[0] * dt, rates[1] * dt)
    for sensor in range(SENSED):
        k, remembered = blank(CylinderState), np.zeros((REMEMBERED, past + 1))
        k.x, k.void_A, k.void_B, innovation = x, *voids, np.zeros(MEASUREMENTS)
        gains_for(plan.kalman, at_stop, per_tick, k, plan.cylinder[0], gains)
        innovation[sensor] = unit = (1.0, 1.0, 1e-9)[sensor]
        late, spare = np.zeros(MEASUREMENTS), blank(CylinderState)
        correct_cylinder(innovation, late, gains, per_tick, remembered, k, spare, plan.cylinder[0], dt)
        states = cells_of(k)[:STATES].copy()
        states[X] -= x
        columns.append(np.concatenate([states, remembered[:SENSED, 1:].T.ravel()]) / unit)
    return np.array(columns).T


def what_sensors_see(m: CylinderRecord, past: int) -> Floats:
    """A line per sensor: weights of the states and of the past values."""
    seen = np.zeros((SENSED, STATES + SENSED * past))
    for sensor, age in enumerate((m.age_A, m.age_B, m.age_x)):
        back = min(int(age), past - 1)
        for ticks, share in ((back, 1.0 - (age - back)), (back + 1, age - back)):
            seen[sensor, sensor if ticks == 0 else STATES + SENSED * (ticks - 1) + sensor] += share
    return seen


def largest_eigenvalue(plan: Plan, held: float = 0.0) -> float:
    """Of the error of the estimate from tick to tick, anywhere in the stroke, whatever the valves pass."""
    m, dt, past = plan.cylinder[0], float(plan.loop[0].dt), int(plan.layout[0].cylinder_past_ticks) - 1
    seen, worst = what_sensors_see(m, past), 0.0
    for place, *rates in itertools.product(np.linspace(0.0, 1.0, 5), OPEN, OPEN):
        x, pair = place * m.stroke, (rates[0], rates[1])
        error = (np.eye(seen.shape[1]) - corrections(plan, x, pair, past) @ seen) @ transition(
            m, x, pair, past, dt, held
        )
        worst = max(worst, float(np.abs(np.linalg.eigvals(error)).max()))
    return worst


@pytest.mark.parametrize("delay", ["0 ms", "1 ms", "2.4 ms"])
@pytest.mark.parametrize(("dead_volume", "mass"), [("0.5 l", "230 kg"), ("0.05 l", "230 kg")])
def test_errors_of_the_estimate_decay_whatever_the_valves_pass(delay: str, dead_volume: str, mass: str) -> None:
    assert largest_eigenvalue(rig_plan(delay, dead_volume, mass)) < 1.0


@pytest.mark.parametrize("flow_drift", [1e-4, 0.3])
def test_so_they_do_however_far_the_valves_are_trusted(flow_drift: float) -> None:
    assert largest_eigenvalue(rig_plan("1 ms", "0.5 l", "230 kg", flow_drift)) < 1.0


@pytest.mark.parametrize("held", [0.3, 1.0, 3.0])
@pytest.mark.parametrize(
    ("delay", "dead_volume", "mass"),
    [
        ("1 ms", "0.5 l", "230 kg"),
        ("1 ms", "0.5 l", "5000 kg"),
        ("2.4 ms", "0.5 l", "50 kg"),
        ("2.4 ms", "0.05 l", "230 kg"),
    ],
)
def test_so_they_do_when_the_piston_presses_against_something(
    held: float, delay: str, dead_volume: str, mass: str
) -> None:
    """The gains are those of a free piston; the model between the samples contains the stiffness."""
    assert largest_eigenvalue(rig_plan(delay, dead_volume, mass), held) < 1.0


VOIDS = {"none": (0.0, 0.0), "in A": (1e-6, 0.0), "in B": (0.0, 1e-6), "in both": (1e-6, 1e-6)}


@pytest.mark.parametrize("voids", VOIDS)
@pytest.mark.parametrize("at_stop", [False, True])
@pytest.mark.parametrize(
    ("delay", "dead_volume", "mass"),
    [("1 ms", "0.1 l", "100 kg"), ("1 ms", "0.5 l", "5000 kg"), ("2.4 ms", "0.5 l", "50 kg")],
)
def test_so_they_do_at_the_end_stop_and_with_voids(
    voids: str, at_stop: bool, delay: str, dead_volume: str, mass: str
) -> None:
    """What the piston and a void hold fixed is not corrected at all; the rest decays, and neither moves the other.

    With the gains of a free piston with full chambers, force and flow ran away at the stop, and those of a void did.
    """
    plan = rig_plan(delay, dead_volume, mass)
    m, dt, past = plan.cylinder[0], float(plan.loop[0].dt), int(plan.layout[0].cylinder_past_ticks) - 1
    held = (X, V, FORCE) if at_stop else ()
    fixed = held + tuple(
        s for void, pair in zip(VOIDS[voids], ((P_A, BIAS_A), (P_B, BIAS_B)), strict=True) if void for s in pair
    )
    still = [s for s in range(STATES + SENSED * past) if (s if s < STATES else (s - STATES) % SENSED) in fixed]
    free = np.setdiff1d(np.arange(STATES + SENSED * past), still)
    seen = what_sensors_see(m, past)
    for place, *rates in itertools.product((0.0, 1.0) if at_stop else np.linspace(0.0, 1.0, 5), OPEN, OPEN):
        x, pair = place * m.stroke, (0.0 if P_A in fixed else rates[0], 0.0 if P_B in fixed else rates[1])
        gain = corrections(plan, x, pair, past, float(at_stop), VOIDS[voids])
        assert not gain[still].any()
        assert not gain[:, [s for s in range(SENSED) if s in fixed]].any()
        moved = transition(m, x, pair, past, dt, fixed=fixed)
        error = ((np.eye(len(moved)) - gain @ seen) @ moved)[np.ix_(free, free)]
        assert not len(free) or np.abs(np.linalg.eigvals(error)).max() < 1.0
