"""Pressures that are measured before restrictions: the bridge's model against the equations of all volumes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sin
from typing import Any

import numpy as np
import pytest
from component_bench import evaluate, program
from lift_bench import FILE, lift
from scipy.integrate import solve_ivp

from hilserver.components.orifice import Orifice
from hilserver.errors import HilserverError
from hilserver.fidelity.cycle_run import run_cycle_on
from hilserver.fidelity.strategies import with_cycle
from hilserver.fidelity.sweeps import alone, sweep_of
from hilserver.fidelity.unknowns import applicable, varied
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.tick.cylinder import move_cylinder, start_cylinder
from hilserver.tick.plan import CylinderRecord
from hilserver.tick.records import blank, plain
from hilserver.tick.row import CylinderState
from hilserver.units import BAR, L_MIN

B, DEAD, LINE = 1.4e9, 1e-3, 0.8e-3
"""Bulk modulus, Pa; dead volume at each port, and its part before the restriction, m³."""
DROP, FLOW = 6.0 * BAR, 23.6 * L_MIN
STEP = 2e-4
START = 50.0 * BAR, 80.0 * BAR, 0.5
"""p_A, p_B and position."""


def line_of(transition: float = 1.0 * BAR, **changed: Any) -> CylinderRecord:
    """The lift's cylinder with restrictions, as the bridge knows it."""
    point = {"flow": f"{FLOW!r} m^3/s", "drop": f"{DROP!r} Pa", "transition_pressure": f"{transition!r} Pa"}
    stated = {
        "bulk_modulus": f"{B!r} Pa",
        **{f"dead_volume_{side}": f"{DEAD!r} m^3" for side in "AB"},
        **{f"line_volume_{side}": f"{LINE!r} m^3" for side in "AB"},
        **{f"restriction_{side}": point for side in "AB"},
    }
    return plain(lift({"rig": {"cylinders": {"lift": {**stated, **changed}}}}).plan.cylinder[0])


@dataclass(frozen=True)
class Sine:
    """Flow into port A that would move the piston at a ``speed`` of this amplitude; as much motion at port B."""

    frequency: float
    speed: float = 0.15

    def at(self, t: float) -> float:
        """Speed of the oil at both ports."""
        return self.speed * sin(2.0 * pi * self.frequency * t)


def turbulent(drop: float) -> float:
    """Flow through a restriction that is turbulent at any drop."""
    return drop / float(np.sqrt(DROP / FLOW**2 * (abs(drop) + 50.0)))


def as_an_orifice(p_tr: float) -> Callable[[float], float]:
    """Flow through the component ``orifice`` with this point and transition pressure, between points of its curve."""
    point = {"flow": f"{FLOW!r} m^3/s", "drop": f"{DROP!r} Pa"}
    orifice = Orifice.model_validate({"nominal_flow": point, "transition_pressure": f"{p_tr!r} Pa"})
    drops = np.linspace(-20.0 * BAR, 20.0 * BAR, 2001)
    flows = np.array([evaluate(orifice, p_A=float(drop), p_B=0.0)["q_B"] for drop in drops])
    return lambda drop: float(np.interp(drop, drops, flows))


def by_all_volumes(
    sine: Sine, m: CylinderRecord, time: Floats, through: Callable[[float], float] = turbulent
) -> Floats:
    """Pressures at the ports and position: lines, restrictions and chambers, each with its own equation."""
    p_A, p_B, x_0 = START
    F = m.area_A * p_A - m.area_B * p_B

    def change(t: float, state: Floats) -> list[float]:
        port_A, port_B, inner_A, inner_B, x, v = state
        into_A, into_B = through(port_A - inner_A), through(port_B - inner_B)
        V_A, V_B = DEAD - LINE + m.area_A * x, DEAD - LINE + m.area_B * (m.stroke - x)
        return [
            (m.area_A * sine.at(t) - into_A) * B / LINE,
            (-m.area_B * sine.at(t) - into_B) * B / LINE,
            (into_A - m.area_A * v) * B / V_A,
            (into_B + m.area_B * v) * B / V_B,
            v,
            (m.area_A * inner_A - m.area_B * inner_B - F) / m.mass,
        ]

    start = [p_A, p_B, p_A, p_B, x_0, 0.0]
    found = solve_ivp(change, (0.0, float(time[-1])), start, "LSODA", time, rtol=1e-8, atol=1e-10)
    return np.asarray(found.y[[0, 1, 4]].T)


def by_the_bridge(sine: Sine, m: CylinderRecord, time: Floats) -> Floats:
    """The same, as the bridge computes them."""
    k = blank(CylinderState)
    start_cylinder(*START, k, m)
    rows = [(k.p_A, k.p_B, k.x)]
    for t in time[:-1]:
        speed = sine.at(float(t) + 0.5 * STEP)
        move_cylinder(m.area_A * speed, -m.area_B * speed, k, m, STEP)
        rows.append((k.p_A, k.p_B, k.x))
    return np.array(rows)


def errors(sine: Sine, m: CylinderRecord, through: Callable[[float], float] = turbulent) -> Floats:
    """RMS of the differences, as a fraction of the range of each quantity."""
    time = np.arange(round(0.5 / STEP), dtype=np.float64) * STEP
    true = by_all_volumes(sine, m, time, through)
    return np.asarray(np.sqrt(np.mean((by_the_bridge(sine, m, time) - true) ** 2, axis=0)) / np.ptp(true, axis=0))


@pytest.mark.parametrize("frequency", [3.0, 8.0])
def test_the_oil_before_a_restriction_is_not_behind_it(frequency: float) -> None:
    """Pressures at the ports, below the natural frequency of mass and oil (15 Hz), where nothing damps but the oil.

    The model takes the piston's speed for that of the oil in the restriction. At 3 Hz it is 5 % off, and 16 % without
    the restriction.
    """
    unknown = errors(Sine(frequency), line_of(restriction_A=None, restriction_B=None))
    without_line = errors(Sine(frequency), line_of(line_volume_A="0 l", line_volume_B="0 l"))
    known = errors(Sine(frequency), line_of())
    assert np.all(known < 0.8 * unknown)
    assert np.all(known < 0.8 * without_line)
    assert np.max(known[:2]) < 0.08


def test_a_restriction_that_is_laminar_has_the_drop_of_a_laminar_one() -> None:
    """At 3 Hz and up to 0.15 m/s: a square law is 1.5 times as far from an orifice that is laminar below 8 bar."""
    through = as_an_orifice(8.0 * BAR)
    known = errors(Sine(3.0), line_of(8.0 * BAR), through)
    square = errors(Sine(3.0), line_of(1e-3 * BAR), through)
    print(known, square)
    assert np.all(known[:2] < 0.7 * square[:2])
    assert np.max(known) < 0.05


def restricted(stated: bool) -> Rig:
    """The lift with 5.4 and 6.6 bar between ports and chambers at 0.2 m/s, ``stated`` in the rig file or not."""
    rig = load_rig(FILE)
    sources = varied(rig, "rig", [each for each in applicable(rig, "rig") if each.name == "restriction"], 201)
    cylinder, parts = sources["rig"]["cylinders"]["lift"], sources["devices"]["rig"]["machine"]["components"]
    if stated:
        for side in "AB":
            cylinder[f"restriction_{side}"] = dict(parts[f"cylinder_restriction_{side}"]["nominal_flow"])
            cylinder[f"line_volume_{side}"] = parts[f"cylinder_line_{side}"]["volume"]
    return assemble(sources, FILE, rig.library)


@pytest.mark.slow
def test_flows_follow_the_virtual_circuit_through_the_resonance() -> None:
    """Sines of the joystick to twice the natural frequency (15 Hz), with `feedback`, against the reference simulation.

    While the model counted all of the oil as oil behind the restriction, and not in the change of the pressure, a
    stated one left 4.0 % at 14 Hz, more than an unknown one.
    """
    worst = {}
    for stated in (False, True):
        rig = restricted(stated)
        sweep = sweep_of(rig, "joystick", [5.0, 7.0, 14.0, 28.0])
        run = run_cycle_on(with_cycle(rig, alone(rig, "joystick", sweep)), "rig", "feedback", program(), swept=True)
        flows = [run.result.responses[f"flow {side}"] for side in "AB"]
        assert all(abs(sine.phase) < 2.2 for flow in flows for sine in flow)
        worst[stated] = max(abs(sine.ratio - 1.0) for flow in flows for sine in flow)
    assert worst[True] < 0.015
    assert worst[True] < worst[False]


def test_a_line_larger_than_the_dead_volume_is_refused() -> None:
    with pytest.raises(HilserverError, match=r"line_volume_A of 1\.2 l is a part of dead_volume_A, 1 l, and can't be"):
        line_of(line_volume_A="1.2 l")
