"""The bridge's strategies against the valve they command: inverse orifice, leakage, lag compensation, flow servo."""

from __future__ import annotations

from math import exp, inf, nan, pi

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig_bench import BAR, DT, L_MIN
from valve_bench import ASYMMETRICAL, flow_of, valve

from hilserver.numerics.arrays import Floats
from hilserver.tick.bridge.control_laws import (
    flow_servo,
    inverse,
    inverse_orifice,
    lag_compensation,
    leakage,
)
from hilserver.tick.bridge.strategies import Strategy, prepare_strategy
from hilserver.tick.codes import Saturation
from hilserver.tick.plan import SUBSTEPS_OF_MACHINE, ValveRecord
from hilserver.tick.records import blank
from hilserver.tick.row import ValveState
from hilserver.tick.valve import move_spool

pressures = st.floats(-1 * BAR, 300 * BAR)


def memory() -> ValveState:
    """A bridge's block of the row, before anything."""
    return blank(ValveState)


def follow_spool(command: float, block: ValveState, v: ValveRecord) -> None:
    """The spool of the bridge under a command held for a tick."""
    for _ in range(SUBSTEPS_OF_MACHINE):
        move_spool(command, block, v)


# --- inverse-orifice transform ---------------------------------------------------------------------------------------


@given(q=st.floats(-20 * L_MIN, 20 * L_MIN), p=pressures, p_S=pressures, p_T=pressures)
def test_the_inverse_passes_the_required_flow_or_reports_the_reason(q: float, p: float, p_S: float, p_T: float) -> None:
    """theory §1.1 against the forward edge law (numerics/valve.py), laminar region included: rounding only, 1e-12."""
    v, block = valve(**ASYMMETRICAL), memory()
    w = inverse_orifice(q, p, p_S, p_T, block, v)
    drop = p_S - p if q >= 0 else p - p_T
    assert block.drop == drop
    if int(block.saturation) & Saturation.NO_DROP:
        assert drop <= 1e-300
        assert w == 0.0
    elif int(block.saturation) & Saturation.CAPACITY:
        assert abs(w) == 1.0
        assert abs(flow_of(w, p, p_S, p_T, v)) < abs(q)
    else:
        assert flow_of(w, p, p_S, p_T, v) == pytest.approx(q, rel=1e-12, abs=1e-30)


def test_the_sign_of_the_flow_picks_the_edge() -> None:
    """By hand: C = Q_N/sqrt(dp_N): 15 l/min at 35 bar is 1/4 of the P-A edge (60 l/min), 1/2 of the A-T edge (30)."""
    v = valve(**ASYMMETRICAL)
    assert inverse_orifice(15 * L_MIN, 65 * BAR, 100 * BAR, 0.0, memory(), v) == pytest.approx(0.25, rel=1e-12)
    assert inverse_orifice(-15 * L_MIN, 35 * BAR, 100 * BAR, 0.0, memory(), v) == pytest.approx(-0.5, rel=1e-12)


def test_flow_is_laminar_at_a_small_drop() -> None:
    """Ellman & Piché at dp = p_tr/2 (0.5 bar): g = sqrt(p_tr)·0.5·2.5/2 = 0.625·sqrt(p_tr)."""
    v, q = valve(), 1 * L_MIN
    expected = q / (60 * L_MIN / (35 * BAR) ** 0.5 * 0.625 * BAR**0.5)
    assert inverse_orifice(q, 99.5 * BAR, 100 * BAR, 0.0, memory(), v) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("drop", [0.0, -1.0, -50 * BAR, -inf, nan])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_flow_against_the_drop_gives_null_and_is_reported(drop: float, sign: float) -> None:
    v, block = valve(), memory()
    p_S, p_T = (50 * BAR + drop, 0.0) if sign > 0 else (200 * BAR, 50 * BAR - drop)
    assert inverse_orifice(sign * L_MIN, 50 * BAR, p_S, p_T, block, v) == 0.0
    assert int(block.saturation) == Saturation.NO_DROP


def test_no_flow_needs_no_drop() -> None:
    block = memory()
    assert inverse_orifice(0.0, 50 * BAR, 10 * BAR, 0.0, block, valve()) == 0.0
    assert block.saturation == 0


def test_too_small_a_valve_opens_fully_and_is_reported() -> None:
    """At a drop of 35 bar the valve passes 60 l/min: 61 is too much, 59 is not."""
    for q, flags in ((61.0, Saturation.CAPACITY), (59.0, 0)):
        block = memory()
        w = inverse_orifice(q * L_MIN, 65 * BAR, 100 * BAR, 0.0, block, valve())
        assert w == pytest.approx(min(q / 60.0, 1.0), rel=1e-12)
        assert int(block.saturation) == flags


# --- leakage ---------------------------------------------------------------------------------------------------------


def test_leakage_is_counted_positive_into_the_port() -> None:
    """theory §1.1, note on eq. 5.4: q = Q_A - q_leak, q_leak = leak(P-A) - leak(A-T), here one edge at a time."""
    v = valve(**ASYMMETRICAL)
    assert leakage(0.0, 10 * BAR, 80 * BAR, 10 * BAR, v) == pytest.approx(1 * L_MIN, rel=1e-12)
    assert leakage(0.0, 70 * BAR, 70 * BAR, 0.0, v) == pytest.approx(-1 * L_MIN, rel=1e-12)
    assert leakage(0.1, 10 * BAR, 80 * BAR, 10 * BAR, v) == 0.0  # gone at 10 % of the opening
    assert leakage(-0.05, 10 * BAR, 80 * BAR, 10 * BAR, v) == pytest.approx(0.5 * L_MIN, rel=1e-12)


@given(
    q=st.floats(-3 * L_MIN, 3 * L_MIN),
    p=st.floats(20 * BAR, 80 * BAR),
    spool=st.floats(-0.2, 0.2),
)
def test_leakage_compensation_makes_leakage_and_edge_together_pass_the_flow(q: float, p: float, spool: float) -> None:
    """With the spool where the estimate has it, edge flow and leakage sum up to q: rounding only."""
    v, block = valve(**ASYMMETRICAL), memory()
    p_S, p_T = 100 * BAR, 1 * BAR
    w = inverse_orifice(q - leakage(spool, p, p_S, p_T, v), p, p_S, p_T, block, v)
    assert flow_of(w, p, p_S, p_T, v, spool) == pytest.approx(q, rel=1e-9, abs=1e-12)


def test_leakage_compensation_in_the_strategy_takes_away_the_offset_at_null() -> None:
    """Held at no flow against a leaking valve: without compensation the leakage flows, with it nothing does."""
    v, p, p_S, p_T = valve(**ASYMMETRICAL), 20 * BAR, 100 * BAR, 0.0
    left = {}
    for strategy in (Strategy.inverse_lag, Strategy.inverse_lag_leakage):
        block = memory()
        for _ in range(2000):  # the spool's estimate and the command settle
            u = inverse(strategy.compensates, 0.0, p, p_S, p_T, block, v, DT, DT)
            follow_spool(u, block, v)
        left[strategy] = flow_of(block.spool, p, p_S, p_T, v, block.spool)
    assert left[Strategy.inverse_lag] > 0.4 * L_MIN
    assert abs(left[Strategy.inverse_lag_leakage]) < 1e-6 * left[Strategy.inverse_lag]


# --- lag compensation ------------------------------------------------------------------------------------------------


def spool_behind(wanted: Floats, v: ValveRecord, compensated: bool, dt: float = DT) -> Floats:
    """A first-order spool under the command for ``wanted``, held over each tick: where it is at each tick."""
    share = 1.0 - exp(-dt / v.tau)
    block, spool, places = memory(), 0.0, np.empty(len(wanted))
    block.opening_filtered = nan
    for k, w in enumerate(wanted):
        places[k] = spool
        u = lag_compensation(w, block, v, dt, dt) if compensated else w
        spool += (u - spool) * share
    return places


@pytest.mark.parametrize("dt", [1e-4, 1e-3, 5e-3])
def test_a_ramp_is_followed_without_error(dt: float) -> None:
    """Analytic: U = W + tau_d·dW/dt, tau_d = dt/(1 - exp(-dt/tau)), leaves no steady error; without it rate·tau_d."""
    v, rate = valve(bridge={"lead_filter": "2 ms"}), 2.0
    wanted: Floats = rate * dt * np.arange(round(0.2 / dt), dtype=np.float64) - 0.2
    lag = dt / (1.0 - exp(-dt / v.tau))
    assert spool_behind(wanted, v, True, dt)[-1] - wanted[-1] == pytest.approx(0.0, abs=1e-9)
    assert spool_behind(wanted, v, False, dt)[-1] - wanted[-1] == pytest.approx(-rate * lag, rel=1e-9)


@pytest.mark.parametrize("frequency", [2.0, 10.0, 25.0])
def test_a_sine_is_followed_far_better_with_lead(frequency: float) -> None:
    """What is left of the lag's error is at most omega·(T_f + dt) of it, the derivative's own lag: filter and tick.

    From (1 + tau·s/(1 + T·s))/(1 + tau·s) - 1 = -tau·T·s²/((1 + tau·s)(1 + T·s)) against -tau·s/(1 + tau·s) without.
    """
    v = valve(bridge={"lead_filter": "0.5 ms"})
    wanted = 0.5 * np.sin(2 * pi * frequency * DT * np.arange(2000))
    errors = [np.sqrt(np.mean((spool_behind(wanted, v, lead) - wanted)[1000:] ** 2)) for lead in (True, False)]
    assert errors[0] < 2 * pi * frequency * (0.5e-3 + DT) * errors[1]


def test_tau_of_the_lead_approaches_the_datasheet_value_for_small_ticks() -> None:
    """The discrete lead is the theory's tau·dW/dt in the limit: within dt/(2·tau) + O(dt²)."""
    v, dt = valve(), 1e-6
    v.tau_W = 0.0
    block = memory()
    u = lag_compensation(1e-6, block, v, dt, dt)  # from 0: dW/dt = 1 per second
    assert u - 1e-6 == pytest.approx(1.0 / (2 * pi * 70.0), rel=1e-3)


def test_the_lead_begins_at_rest() -> None:
    """A strategy that takes over has no memory of W: its first command has no derivative in it."""
    v, block = valve(), memory()
    block.opening_filtered = 0.7
    prepare_strategy(Strategy.inverse_lag, 0.0, 0.0, block, v)
    assert lag_compensation(0.2, block, v, DT, DT) == 0.2


# --- flow servo ------------------------------------------------------------------------------------------------------


def servo(
    flows: Floats, v: ValveRecord, gain: float, ticks: int, block: ValveState | None = None
) -> tuple[Floats, Floats]:
    """PID on a plant Q = gain·(last command); the reference is ``flows[k]``. Returns flows and commands."""
    block = memory() if block is None else block
    flow, commands, u = np.empty(ticks), np.empty(ticks), 0.0
    for k in range(ticks):
        block.flow_measured = flow[k] = gain * u
        block.saturation = 0
        commands[k] = u = flow_servo(flows[k], block, v, DT)
    return flow, commands


def test_the_flow_servo_settles_without_error() -> None:
    """On a static plant of gain 1 the loop's time constant is T_I·(1 + K)/K = 90 ms: after 2.7 s e^-30 is left."""
    flow, _ = servo(np.full(2700, 20 * L_MIN), valve(), 60 * L_MIN, 2700)
    assert flow[-1] == pytest.approx(20 * L_MIN, rel=1e-9)


def test_the_flow_servo_comes_out_of_saturation_at_once() -> None:
    """1 s of a flow that can't be had (twice full): without anti-windup the integral would take seconds to unwind.

    With it the command leaves the limit in the first tick, and the flow is there after six time constants (90 ms) of
    the loop: e^-6 of the error of 40 l/min is 0.1 l/min.
    """
    reference = np.concatenate([np.full(1000, 120 * L_MIN), np.full(900, 20 * L_MIN)])
    flow, commands = servo(reference, valve(), 60 * L_MIN, len(reference))
    assert commands[999] == 1.0
    assert commands[1000] < 1.0
    assert np.abs(flow[1540:] - 20 * L_MIN).max() < 0.15 * L_MIN


def test_saturation_of_the_flow_servo_is_reported() -> None:
    block = memory()
    servo(np.full(1000, 120 * L_MIN), valve(), 60 * L_MIN, 1000, block)
    assert int(block.saturation) == Saturation.CAPACITY


def test_the_derivative_acts_on_the_measured_flow_only() -> None:
    """A jump of the reference gives the gain's share and no kick: the same command with and without derivative."""
    settings = {"derivative_filter": "2 ms", "integral_time": "0 s"}
    with_d, without = (
        valve(bridge={"derivative_time": t, "derivative_filter": "2 ms", **settings}) for t in ("50 ms", "0 s")
    )
    jump = 10 * L_MIN
    assert flow_servo(jump, memory(), with_d, DT) == flow_servo(jump, memory(), without, DT) == pytest.approx(0.5 / 6)
    block = memory()
    block.flow_measured = jump  # the measured flow jumps: the derivative brakes
    assert flow_servo(jump, block, with_d, DT) < -0.5


def test_without_integral_time_the_servo_has_no_bias() -> None:
    """Taking over from a command of 0.5 with integral_time 0: the command is the proportional part alone."""
    v, block = valve(bridge={"integral_time": "0 s"}), memory()
    prepare_strategy(Strategy.flow_servo, 0.0, 0.5, block, v)
    assert flow_servo(0.0, block, v, DT) == 0.0


@given(command=st.floats(-1, 1), q=st.floats(-60 * L_MIN, 60 * L_MIN), measured=st.floats(-60 * L_MIN, 60 * L_MIN))
def test_the_flow_servo_takes_over_from_a_command(command: float, q: float, measured: float) -> None:
    """Unless the integral is at its limit: the first command is the old one and one tick of integration."""
    v, block = valve(), memory()
    block.flow_measured = measured
    prepare_strategy(Strategy.flow_servo, q, command, block, v)
    if abs(block.integral) < 1.0:
        step = v.K_p * (q - measured) * DT / v.T_i
        assert flow_servo(q, block, v, DT) == pytest.approx(command, abs=abs(step) + 1e-12)
