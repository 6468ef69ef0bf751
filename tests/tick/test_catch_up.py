"""After the slew limit the spool catches up; the judges are another integrator of the spool, and the simulated rig."""

from __future__ import annotations

from math import pi

import numpy as np
import pytest
from component_bench import program
from lift_bench import both, lift, of_valves, true_valves
from scipy.signal import cont2discrete

from hilserver.fidelity.cycle_run import run_cycle_on
from hilserver.fidelity.strategies import with_cycle
from hilserver.fidelity.sweeps import alone, sweep_of
from hilserver.numerics.arrays import Floats
from hilserver.rig.valves import catch_up_gains, spool_matrix
from hilserver.tick.bridge.catch_up import POLE, catching_up, note_withheld
from hilserver.tick.codes import Saturation
from hilserver.tick.plan import SUBSTEPS_OF_MACHINE, ValveRecord
from hilserver.tick.records import blank
from hilserver.tick.row import ValveState

Spool = tuple[float, float]
"""-90° frequency, Hz, and damping; of first order, -45° frequency and 0."""


def discrete(spool: Spool, dt: float) -> tuple[Floats, Floats]:
    """Transition and effect of a held command, by SciPy's zero-order hold."""
    f, d = spool
    w = 2.0 * pi * f
    A, B = ([[0.0, 1.0], [-w * w, -2.0 * d * w]], [[0.0], [w * w]]) if d > 0.0 else ([[-w]], [[w]])
    n = len(A)
    transition, effect, *_ = cont2discrete((np.array(A), np.array(B), np.eye(n), np.zeros((n, 1))), dt)
    return transition, effect[:, 0]


def valve(spool: Spool, dt: float, slew: float = 400.0) -> ValveRecord:
    v, (f, d) = blank(ValveRecord), spool
    tau, omega = (0.0, 2.0 * pi * f) if d > 0.0 else (1.0 / (2.0 * pi * f), 0.0)
    v.slew_rate = slew
    v.spool_11, v.spool_12, v.spool_21, v.spool_22 = spool_matrix(tau, omega, d, dt / SUBSTEPS_OF_MACHINE)
    v.catch_up, v.catch_up_speed = catch_up_gains(spool_matrix(tau, omega, d, dt))
    return v


@pytest.mark.parametrize("dt", [1e-3, 2.5e-4])
@pytest.mark.parametrize("spool", [(70.0, 0.85), (20.0, 0.6), (300.0, 1.2), (40.0, 0.0), (400.0, 0.0)])
def test_what_is_behind_decays_as_stated(spool: Spool, dt: float) -> None:
    """By the pole in each tick, or as fast as the spool itself, if that is faster."""
    transition, effect = discrete(spool, dt)
    v, n = valve(spool, dt), len(effect)
    closed = transition - np.outer(effect, [v.catch_up, v.catch_up_speed][:n])
    own = abs(np.linalg.det(transition)) ** (1.0 / n)
    assert abs(np.linalg.det(closed)) ** (1.0 / n) == pytest.approx(min(POLE, own), abs=1e-6)
    assert np.max(np.abs(np.linalg.eigvals(closed))) == pytest.approx(min(POLE, own), abs=1e-3)


@pytest.mark.parametrize("spool", [(70.0, 0.85), (40.0, 0.0)])
def test_what_is_behind_is_the_distance_between_two_spools(spool: Spool) -> None:
    """One that follows the wanted command, and one that follows the limited command."""
    random, dt = np.random.default_rng(1), 1e-3
    (transition, effect), v, b = discrete(spool, dt), valve(spool, dt), blank(ValveState)
    wanted, limited = np.zeros(len(effect)), np.zeros(len(effect))
    for _ in range(50):
        one, other = random.uniform(-1.0, 1.0, 2)
        wanted, limited = transition @ wanted + effect * one, transition @ limited + effect * other
        note_withheld(one - other, b, v)
        assert [b.behind, b.behind_speed][: len(effect)] == pytest.approx(wanted - limited, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_it_ends_whatever_was_withheld(seed: int) -> None:
    """A feedback behind a rate limiter may oscillate: this one does not, however slow the limit and the spool."""
    random = np.random.default_rng(seed)
    dt = float(random.choice([1e-3, 5e-4, 2.5e-4]))
    v = valve((random.uniform(10.0, 150.0), random.uniform(0.5, 1.2)), dt, slew=random.uniform(20.0, 600.0))
    b, u, most = blank(ValveState), 0.0, v.slew_rate * dt
    for k in range(round(0.7 / dt)):
        wanted = 0.1 if k * dt > 0.3 else float(random.uniform(-1.0, 1.0))
        u = float(np.clip(np.clip(wanted + catching_up(b, v, dt), -1.0, 1.0), u - most, u + most))
        note_withheld(wanted - u, b, v)
    assert u == pytest.approx(0.1, abs=1e-9)
    assert b.behind == pytest.approx(0.0, abs=1e-9)


def test_nothing_is_caught_up_where_nothing_was_withheld() -> None:
    v, b = valve((70.0, 0.85), 1e-3), blank(ValveState)
    note_withheld(0.0, b, v)
    assert catching_up(b, v, 1e-3) == 0.0
    assert (b.behind, b.behind_speed) == (0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("amplitude", [0.1, 0.3])
def test_jumps_across_the_overlap_that_the_slew_limit_cuts_leave_the_amplitude(amplitude: float) -> None:
    """Near the frequency at which the spool lags by 45° (32 Hz), the flows were up to 10 % and 10° off."""
    spool = {"f90": "70 Hz", "damping": 0.85, "overlap": 0.03}
    rig = lift(both(of_valves(**spool, slew="250 1/s"), true_valves(**spool)))
    sweep = sweep_of(rig, "joystick", [28.0, 32.0], amplitude)
    swept = with_cycle(rig, alone(rig, "joystick", sweep))
    result = run_cycle_on(swept, "rig", "feedback", program(), swept=True).result
    assert min(np.mean(flags.astype(int) & Saturation.SLEW > 0) for flags in result.saturation.values()) > 0.02
    for quantity in ("flow A", "flow B"):
        for response in result.responses[quantity]:
            assert response.ratio == pytest.approx(1.0, abs=0.02), (quantity, response)
            assert response.phase == pytest.approx(0.0, abs=3.2), (quantity, response)
