"""How much softer than stated chambers may be: against the poles of the same loop, and a rig that oscillates."""

from __future__ import annotations

from dataclasses import replace
from math import pi, sqrt

import numpy as np
import pytest
from component_bench import program
from lift_bench import both, lift, of_valves
from linear_bench import linear

from hilserver.circuit.analysis import LinearModel
from hilserver.margins import softness
from hilserver.margins.delay import DelayResult, OperatingPoint, delay_margins, warnings
from hilserver.margins.softness import ANY, MIN_SHARE, Correction, Softness, softness_of
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind
from hilserver.tick.volumes import AHEAD_TIME

pytestmark = pytest.mark.slow

C, A, MASS = 1e-12, 2e-3, 400.0
"""Of a chamber that moves a mass: m³/Pa, m², kg."""


def damped_by(G: float) -> tuple[LinearModel, LinearModel]:
    """The chamber with the mass and a virtual restrictor, connected directly; and this restrictor alone."""
    closed = linear([[-G / C, -A / C], [A / MASS, 0.0]], [[1.0 / C], [0.0]], [[1.0, 0.0]], [[0.0]])
    return closed, linear(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), [[-G]])


def poles_with(share: float, G: float, time: float) -> Floats:
    """Poles of the loop whose valve has no lag, from its equations in the time domain.

    States: pressure, speed, volume error as the bridge knows it, its late part. (C + dC)·p' = q_real - A·v, m·v' = A·p,
    q_virtual = -G·(p + V_ahead/C), q_real = q_virtual + V/T, V' = q_virtual - q_found, V_ahead' = V' + (q_found -
    q_real) + (V - V_ahead)/T - V_ahead/T_ahead, with q_found = A·v + C·p'.
    """
    p, v, V, ahead = np.eye(4)
    virtual = -G * (p + ahead / C)
    real = virtual + V / time
    dp = (real - A * v) / (C * (1.0 + share))
    found = A * v + C * dp
    late = virtual - found + (found - real) + (V - ahead) / time - ahead / AHEAD_TIME
    return np.asarray(np.linalg.eigvals(np.array([dp, A * p / MASS, virtual - found, late])))


def least_damping(poles: Floats) -> tuple[float, float]:
    """The lowest damping ratio of an oscillation, and its frequency, Hz."""
    found = min((pole for pole in poles if pole.imag > 0.0), key=lambda pole: -pole.real / abs(pole))
    return -found.real / abs(found), found.imag / (2.0 * pi)


@pytest.mark.parametrize("time", [0.01, 0.03, 0.1])
@pytest.mark.parametrize("damping", [0.0, 0.02, 0.05])
def test_the_share_is_that_at_which_a_pole_begins_to_grow(damping: float, time: float) -> None:
    G = 2.0 * damping * A * sqrt(C / MASS)
    found = softness_of(*damped_by(G), Correction(np.array([C]), np.array([time]), np.zeros(1)))
    if found == ANY:
        assert all(least_damping(poles_with(s, G, time))[0] > -softness.GROWTH for s in np.linspace(0.01, 2.0, 50))
        return
    ratio, frequency = least_damping(poles_with(found.share, G, time))
    assert ratio / sqrt(1.0 - ratio**2) == pytest.approx(-softness.GROWTH, abs=5e-4)
    assert found.frequency == pytest.approx(frequency, rel=0.03)
    assert least_damping(poles_with(0.9 * found.share, G, time))[0] > -softness.GROWTH


def test_a_lag_of_the_valve_counts() -> None:
    """The correction acts like a conductance -dC·Re(s/(1 + x)); at 100 1/s with 0, 4 and 15 ms: -30, -36, -2 dC."""
    correction = Correction(np.array([C]), np.array([0.03]), np.zeros(1))
    lags = (np.zeros(1), np.array([4e-3]), np.array([15e-3]))
    at_once, late, turned = (softness_of(*damped_by(0.0), replace(correction, lag=lag)).share for lag in lags)
    assert late < at_once < turned


def test_a_circuit_that_is_unstable_itself_has_no_such_margin() -> None:
    """It grows with any chamber; with a softer one, below another frequency, it might seem to come to rest."""
    for damping in (-0.03, -0.3, -2.0):
        closed, Y = damped_by(2.0 * damping * A * sqrt(C / MASS))
        assert softness_of(closed, Y, Correction(np.array([C]), np.array([0.03]), np.zeros(1))) == ANY


# --- a rig ------------------------------------------------------------------------------------------------------------


def with_more_oil(share: float, strategy: str = "feedback") -> Rig:
    """The lift rig in the middle of its stroke, with chambers that hold more oil than the rig file says."""
    cylinder = lift().settings.cylinders["lift"]
    area_A, area_B = cylinder.areas()
    volumes = {
        f"dead_volume_{side}": f"{dead + share * (dead + 0.5 * area * cylinder.stroke)!r} m^3"
        for side, dead, area in (("A", 4e-4, area_A), ("B", 4e-4, area_B))
    }
    machine = {"components": {"cylinder": volumes}, "nodes": {"rod": {"position": "0.5 m"}}}
    channels = {"p_A": {"noise": "0.05 bar"}, "p_B": {"noise": "0.05 bar"}, "x": {"noise": "0.2 mm"}}
    told = {"devices": {"rig": {"machine": machine}}, "rig": {"channels": channels}}  # the sensors have less noise
    return lift(both(told, of_valves(bridge={"strategy": strategy})))


def after_a_pulse(rig: Rig) -> Floats:
    """Pressure in chamber A, Pa, over 4 s after the joystick was moved for 0.2 s."""
    with LockstepRun(rig, program=program()) as run:
        run.run(10)
        for kind in (CommandKind.ARM, CommandKind.START):
            run.command(kind)
            run.run(200)
        run.command(CommandKind.SET_INPUT, 0, 0.3)
        run.run(200)
        run.command(CommandKind.SET_INPUT, 0, 0.0)
        rows = run.run(4000)
    return rows[:, rig.layout.column("channel.p_A")]


def swing(p: Floats) -> float:
    """Of a pressure around its slow part, from peak to peak."""
    return float(np.ptp(p - np.polyval(np.polyfit(np.arange(len(p)), p, 2), np.arange(len(p)))))


def test_a_rig_oscillates_from_the_share_that_the_margins_state() -> None:
    """0.17 of the capacitance, at rest in the middle of the stroke, where the circuit's damping is 0.002."""
    points = delay_margins(lift(), program()).points
    (point,) = (p for p in points if not p.inputs["joystick"] and not p.load and p.stroke == 0.5)
    assert 0.15 < point.softness.share < 0.2
    assert point.softness.frequency == pytest.approx(18.7, abs=0.5)
    below = after_a_pulse(with_more_oil(0.8 * point.softness.share))
    above = after_a_pulse(with_more_oil(1.5 * point.softness.share))
    assert swing(below[-500:]) < 0.1e5
    assert swing(above[-500:]) > 50e5
    alone = after_a_pulse(with_more_oil(1.5 * point.softness.share, "prediction"))
    assert swing(alone[-500:]) < 0.1e5


def test_small_shares_are_warned_of_for_strategies_that_correct_the_volume() -> None:
    point = OperatingPoint({"joystick": 0.0}, 0.5, 0.0, (), 0.01, 7.0, Softness(0.5 * MIN_SHARE, 7.0))
    found = DelayResult("a test", (point,), (), True)
    (text,) = warnings(found, ["prediction", "feedback"])
    assert "with strategy feedback the loop oscillates at 7 Hz (joystick 0, 50% of the stroke)" in text
    assert "8% softer" in text
    assert not list(warnings(found, ["prediction"]))
    assert not list(warnings(replace(found, points=(replace(point, softness=Softness(0.5, 7.0)),)), ["feedback"]))


def test_without_a_measured_position_no_chamber_enters_the_volume() -> None:
    rig = lift({"rig": {"cylinders": {"lift": {"position": None}}}})
    assert delay_margins(rig, program()).least_tolerant() is None
