"""The actuator and its classical controller against their transfer functions; the criteria on known errors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import Polynomial

from hilserver.displacement.actuator import SCALE, SEEN
from hilserver.displacement.linear import LinearMotion
from hilserver.hybrid.benchmark import DT, NOMINAL, SPECIMEN
from hilserver.hybrid.criteria import criteria, delay
from hilserver.numerics.arrays import Floats
from hilserver.tick.hybrid.pi_lead import pi_lead, pi_lead_command

S = Polynomial([0.0, 1.0])


def test_the_actuator_has_the_published_transfer_function() -> None:
    """Servo valve, natural velocity feedback and position loop, put together as in the block diagram of the paper."""
    part = Polynomial([SPECIMEN.stiffness, SPECIMEN.damping, SPECIMEN.mass])
    servo = Polynomial([NOMINAL.beta2, NOMINAL.beta1, 1.0])
    inner = part * (S + NOMINAL.a3) + NOMINAL.a2 * S
    motion = NOMINAL.motion()
    for omega in (0.1, 10.0, 100.0, 431.0, 1000.0):
        s = 1j * omega
        right = NOMINAL.gain * NOMINAL.a1_beta0 / (servo(s) * inner(s) + NOMINAL.a1_beta0)
        displacement, force = SEEN @ np.linalg.solve(s * np.eye(5) - motion.A, motion.B[:, 0])
        assert displacement == pytest.approx(right, rel=1e-9)
        assert force == pytest.approx(part(s) * right, rel=1e-9)


def test_held_and_ramped_inputs_are_integrated_exactly() -> None:
    """dz/dt = -z/T + u: closed forms."""
    T, dt = 0.02, 0.005
    lag, decay = LinearMotion(np.array([[-1.0 / T]]), np.array([[1.0]])), np.exp(-dt / T)
    held = lag.held(dt)
    assert held.A[0, 0] == pytest.approx(decay)
    assert held.B[0, 0] == pytest.approx(T * (1.0 - decay))
    _, begin, end = lag.ramped(dt)
    assert end[0, 0] == pytest.approx(T - T**2 / dt * (1.0 - decay))
    assert begin[0, 0] + end[0, 0] == pytest.approx(held.B[0, 0])


def test_scaled_states_move_alike() -> None:
    motion, state = NOMINAL.motion(), np.array([1e-4, 0.02, 300.0, 2e5, -1e6])
    there = motion.held(DT).A @ state
    assert SCALE * (motion.scaled(SCALE).held(DT).A @ (state / SCALE)) == pytest.approx(there, rel=1e-9)


@pytest.mark.parametrize("frequency", [1.0, 4.0, 16.0])
def test_pi_and_lead_have_their_frequency_response(frequency: float) -> None:
    """On a sine, open loop: displacement 0. The response of an integrator to a cosine has no offset at its peaks."""
    k_P, k_I, gain, zero, pole = 2.0, 95.0, 50.8, 168.6, 8570.0
    s = 2j * np.pi * frequency
    response = (k_P + k_I / s) * gain * (s + zero) / (s + pole)
    controller = pi_lead(k_P, k_I, gain, zero, pole, DT)
    times: Floats = np.arange(round(3.0 / frequency / DT), dtype=float) * DT
    found = np.array([pi_lead_command(controller, float(np.cos(2 * np.pi * frequency * t)), 0.0, 1e-12) for t in times])
    right = np.real(response * np.exp(s * times))
    error = (found - right)[len(times) // 3 :]
    assert np.ptp(error) < 2e-3 * np.ptp(right)  # what is left is a constant, from the begin


@pytest.mark.parametrize("ticks", [0, 1, 17])
def test_the_delay_of_a_late_signal_is_found(ticks: int) -> None:
    early = np.random.default_rng(3).standard_normal(2000).cumsum()
    late = np.concatenate([np.zeros(ticks), early[: len(early) - ticks]])
    assert delay(late, early) == ticks


def test_each_criterion_is_the_error_that_it_names() -> None:
    """Each signal is a different multiple of the same sine."""
    wave = np.sin(np.linspace(0.0, 20.0 * np.pi, 4001))
    reference = np.outer(wave, [1.0, 2.0, 4.0])
    positions = np.outer(wave, [1.25, 2.2, 4.2])
    found = criteria(1.5 * wave, positions, reference, DT)
    assert found == pytest.approx((0.0, 20.0, 20.0, 50.0, 50.0, 10.0, 5.0, 10.0, 5.0), abs=1e-9)
