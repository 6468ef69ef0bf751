"""The flow servo's loop: margins against formulas and oscillating loops, tuning against Skogestad's."""

from __future__ import annotations

from math import asin, degrees, inf, pi

import numpy as np
import pytest
from rig_bench import DT, L_MIN, bench_rig

from hilserver.circuit.analysis import Complexes
from hilserver.margins.servo_loop import (
    M_S,
    M_T,
    PHASE_MARGIN,
    FlowPlant,
    Pid,
    ServoLoop,
    frequencies,
    gain_margin,
    load_margin,
    phase_margin,
    sensitivity,
    tuned,
)
from hilserver.numerics.arrays import Floats
from hilserver.tick.bridge.control_laws import flow_servo
from hilserver.tick.records import blank
from hilserver.tick.row import ValveState

OMEGA = np.geomspace(1e-2, 1e5, 40_000)


# --- formulas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0.1, 0.5, 1.0, 1.4])
def test_an_integrator_with_dead_time(k: float) -> None:
    """L = k·e^-s/s: phase -90° - omega. Gain margin pi/(2k) at pi/2, phase margin 90° - k at k, Re L >= -k."""
    L = k * np.exp(-1j * OMEGA) / (1j * OMEGA)
    assert gain_margin(OMEGA, L) == pytest.approx((pi / (2 * k), pi / 2), rel=1e-4)
    assert phase_margin(OMEGA, L) == pytest.approx((90.0 - degrees(k), k, (pi / 2 - k) / k), rel=1e-4)
    assert load_margin(L) == pytest.approx(1.0 / k, rel=1e-4)


def test_two_lags_without_dead_time_have_no_gain_margin() -> None:
    """L = 1/(s(s + 1)): its phase never reaches -180°. |L| = 1 at omega² = (√5 - 1)/2, where the phase margin is 51.8°.

    With w = omega², |1/(1 + L)|² = w(w + 1)/((1 - w)² + w), whose maximum is the square of M_S.
    """
    omega = OMEGA[:30_000]
    s = np.asarray(1j * omega, dtype=np.complex128)
    L = np.asarray(1.0 / (s * (s + 1.0)), dtype=np.complex128)
    assert gain_margin(omega, L)[0] > 1e4
    margin, at, _ = phase_margin(omega, L)
    assert (margin, at) == pytest.approx((51.827, np.sqrt((np.sqrt(5.0) - 1.0) / 2.0)), rel=1e-4)
    w = np.linspace(0.01, 10.0, 100_001)
    assert sensitivity(L) == pytest.approx(np.sqrt(np.max(w * (w + 1.0) / ((1.0 - w) ** 2 + w))), rel=1e-4)


@pytest.mark.parametrize(("tau", "theta"), [(0.02, 0.005), (0.005, 0.02)])
def test_skogestads_rule_for_a_lag_with_dead_time(tau: float, theta: float) -> None:
    """SIMC with tau_c = theta: K = tau/(2·theta), T_i = tau. Published: GM 3.14, PM 61.4°, M_S 1.59, 2.14·theta.

    Skogestad, J. Process Control 13 (2003) 291, table 1. Sampled so fast that the hold does not matter (0.5 %).
    """
    dt = theta / 1000.0
    loop = ServoLoop(FlowPlant(2.0, tau, 0.0, 0.0, theta, 0.0, dt), Pid(0.5 * tau / (2.0 * theta), tau, 0.0, 0.0))
    m = loop.margins()
    assert (m.gain, m.phase, m.M_S, m.delay / theta) == pytest.approx((3.14, 61.4, 1.59, 2.14), rel=5e-3)
    assert 2.0 * pi * m.gain_at * theta == pytest.approx(pi / 2, rel=5e-3)


@pytest.mark.parametrize("theta", [0.0, 1e-3, 2.4e-3, 7e-3])
@pytest.mark.parametrize(("tau", "omega", "damping"), [(2e-3, 0.0, 0.0), (0.0, 500.0, 0.4), (0.0, 500.0, 1.5)])
def test_the_sampled_plant_is_the_plant_with_its_hold(theta: float, tau: float, omega: float, damping: float) -> None:
    """Poisson's sum: the response of the sampled plant is the sum over all aliases of the held continuous one."""
    w = np.array([1.0, 50.0, 300.0, 1500.0, 3000.0])
    s = 1j * (w[:, None] + 2.0 * pi / DT * np.arange(-4000, 4001))
    spool = 1.0 / (s * s / omega**2 + 2.0 * damping * s / omega + 1.0) if omega else 1.0 / (1.0 + tau * s)
    aliases = spool * np.exp(-s * theta) * (1.0 - np.exp(-s * DT)) / (s * DT)
    plant = FlowPlant(1.3, tau, omega, damping, theta, 0.0, DT)
    rough = 1e-3 if omega == 0.0 and theta == 0.0 else 1e-4  # a first-order spool leaves the sum with a slow tail
    assert plant.response(np.exp(1j * w * DT)) == pytest.approx(1.3 * aliases.sum(axis=1), abs=rough)


def test_a_servo_without_gain_has_infinite_margins() -> None:
    m = ServoLoop(FlowPlant(1.0, 2e-3, 0.0, 0.0, 1e-3, 0.0, DT), Pid(0.0, 10e-3, 0.0, 0.0)).margins()
    assert m.gain == m.phase == m.delay == m.load == inf


# --- the loop of the tick ---------------------------------------------------------------------------------------------


def step_response(plant: FlowPlant, pid: Pid, seconds: float) -> Floats:
    """Flow after a jump of the virtual flow: the tick's flow servo on a delayed spool, in steps of 10 µs."""
    pieces = round(DT / 1e-5)
    bridge = {
        "gain": pid.gain,
        "integral_time": f"{pid.T_i} s",
        "derivative_time": f"{pid.T_d} s",
        "derivative_filter": f"{pid.tau_d} s",
    }
    v = bench_rig({"valves": {"main": {"bridge": bridge, "range": [-1, 1]}}}).plan.valve[0]
    block, full = blank(ValveState), 60.0 * L_MIN
    late = [0.0] * (round(plant.dead_time / 1e-5) + 1)
    U = speed = 0.0
    flow = np.empty(round(seconds / DT))
    for k in range(len(flow)):
        flow[k] = plant.gain * U * full
        block.flow_measured += (flow[k] - block.flow_measured) * DT / (DT + plant.filter)
        command = flow_servo(1e-6 * full, block, v, DT)
        for _ in range(pieces):
            late.append(command)
            del late[0]
            speed += 1e-5 * (plant.omega**2 * (late[0] - U) - 2.0 * plant.damping * plant.omega * speed)
            U += 1e-5 * speed
    return flow / (1e-6 * full)


LOOPS = [
    (FlowPlant(2.0, 0.0, 2 * pi * 80, 0.8, 1e-3, 0.0, DT), Pid(0.27, 2.2e-3, 1.5e-3, 0.2e-3)),
    (FlowPlant(1.0, 0.0, 2 * pi * 40, 0.5, 2.3e-3, 1e-3, DT), Pid(0.3, 5e-3, 2e-3, 1e-3)),
    (FlowPlant(1.5, 0.0, 2 * pi * 60, 1.0, 0.0, 0.0, DT), Pid(0.5, 4e-3, 0.0, 0.0)),
]


@pytest.mark.parametrize(("plant", "pid"), LOOPS)
def test_beyond_its_gain_margin_the_loop_oscillates_at_the_stated_frequency(plant: FlowPlant, pid: Pid) -> None:
    """At 0.95 of the stated gain it comes to rest, at 1.05 it grows; the frequency is that stated, within 3 %."""
    m = ServoLoop(plant, pid).margins()
    stable, unstable = (
        step_response(plant, Pid(pid.gain * m.gain * share, pid.T_i, pid.T_d, pid.tau_d), 0.6) for share in (0.95, 1.05)
    )
    assert np.abs(stable[-100:] - 1.0).max() < 0.1 * np.abs(stable[:100] - 1.0).max()
    assert np.abs(unstable[-100:] - 1.0).max() > 3.0 * np.abs(unstable[100:200] - 1.0).max()
    late = unstable[-256:] - unstable[-256:].mean()
    spectrum = np.abs(np.fft.rfft(late * np.hanning(256), 8192))
    assert np.fft.rfftfreq(8192, DT)[int(np.argmax(spectrum))] == pytest.approx(m.gain_at, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "pid"), LOOPS)
def test_beyond_its_delay_margin_the_loop_oscillates(plant: FlowPlant, pid: Pid) -> None:
    more = ServoLoop(plant, pid).margins().delay
    stable, unstable = (
        step_response(FlowPlant(*plant_with(plant, plant.dead_time + share * more)), pid, 1.2) for share in (0.9, 1.1)
    )
    assert np.abs(stable[-100:] - 1.0).max() < 0.5 * np.abs(stable[150:250] - 1.0).max()
    assert np.abs(unstable[-100:] - 1.0).max() > 2.0 * np.abs(unstable[150:250] - 1.0).max()


def plant_with(plant: FlowPlant, dead_time: float) -> tuple[float, ...]:
    return plant.gain, plant.tau, plant.omega, plant.damping, dead_time, plant.filter, plant.dt


# --- tuning -----------------------------------------------------------------------------------------------------------

PLANTS = [
    FlowPlant(gain, tau, 2.0 * pi * f, d, theta, filtered, dt)
    for gain, tau, f, d, theta, filtered, dt in (
        (2.0, 0.0, 80.0, 0.8, 1e-3, 0.0, 1e-3),
        (1.0, 0.0, 80.0, 0.4, 0.0, 0.0, 1e-3),
        (0.3, 0.0, 20.0, 2.5, 3e-3, 2e-3, 1e-3),
        (1.0, 0.0, 300.0, 0.7, 0.2e-3, 0.0, 1e-4),
        (1.0, 2e-3, 0.0, 0.0, 5e-3, 0.0, 1e-3),
        (1.0, 1e-4, 0.0, 0.0, 0.0, 0.0, 1e-3),
    )
]


@pytest.mark.parametrize("plant", PLANTS)
def test_tuned_settings_have_the_required_margins(plant: FlowPlant) -> None:
    """M_S and the phase margin, and thus the gain margin M_S/(M_S - 1); no resonance; any passive load."""
    loop = ServoLoop(plant, tuned(plant))
    m = loop.margins()
    assert m.M_S <= 1.005 * M_S
    assert m.gain >= 0.99 * M_S / (M_S - 1.0)
    assert m.phase >= max(PHASE_MARGIN, degrees(2.0 * asin(0.5 / M_S))) - 0.5
    assert np.abs(loop.closed(frequencies(plant.dt))).max() <= 1.01 * M_T
    assert m.load > 1.5


@pytest.mark.parametrize("plant", PLANTS)
def test_tuned_settings_are_no_slower_than_needed(plant: FlowPlant) -> None:
    """15 % more gain breaks one of the three requirements."""
    pid = tuned(plant)
    loop = ServoLoop(plant, Pid(1.15 * pid.gain, pid.T_i, pid.T_d, pid.tau_d))
    m = loop.margins()
    resonance = np.abs(loop.closed(frequencies(plant.dt))).max()
    assert m.M_S > M_S or m.phase < PHASE_MARGIN or resonance > M_T


@pytest.mark.parametrize(("tau", "theta"), [(0.02, 0.005), (0.005, 0.02)])
def test_a_spool_of_first_order_is_tuned_as_by_skogestad(tau: float, theta: float) -> None:
    """The highest integral gain with M_S 1.6 is at least that of his rule (M_S 1.59), and at most a fifth above it."""
    plant = FlowPlant(2.0, tau, 0.0, 0.0, theta, 0.0, theta / 200.0)
    pid = tuned(plant)
    assert 1.0 <= plant.gain * pid.gain / pid.T_i * 2.0 * theta <= 1.2


def test_the_tuned_gain_goes_with_the_inverse_of_the_flow_gain() -> None:
    one, other = tuned(PLANTS[0]), tuned(FlowPlant(1.0, *plant_with(PLANTS[0], PLANTS[0].dead_time)[1:]))
    assert other.gain == pytest.approx(2.0 * one.gain, rel=1e-3)
    assert other.T_i == one.T_i


def test_within_the_load_margin_the_loop_is_stable_with_any_passive_load() -> None:
    """A mass on the oil of a chamber, at frequencies and strengths across the servo's range, behind the same valve."""
    loop = ServoLoop(PLANTS[0], tuned(PLANTS[0]))
    omega = frequencies(DT)
    L = loop.open(omega)
    worst = min(gain_margin(omega, L * reduced(omega, hertz, strength))[0] for hertz in TUNES for strength in STRENGTHS)
    assert load_margin(L) < worst < gain_margin(omega, L)[0]


TUNES, STRENGTHS = np.geomspace(1.0, 300.0, 25), np.geomspace(0.1, 1e3, 9)


def reduced(omega: Floats, hertz: float, strength: float) -> Complexes:
    """1/(1 + K_c·Z) with the impedance of a lossless oscillator, damped by 1 %, Z = s/(s² + 2·d·w·s + w²)."""
    s, w = 1j * omega, 2.0 * pi * hertz
    response: Complexes = 1.0 / (1.0 + strength * w * s / (s * s + 0.02 * w * s + w * w))
    return response
