"""The parts of the predicting bridge, each against an independent computation."""

from __future__ import annotations

from math import inf, nan, pi, sin
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig_bench import BAR, DT, L_MIN, bench_rig
from scipy.integrate import solve_ivp
from scipy.signal import TransferFunction, step
from valve_bench import valve

from hilserver.numerics.arrays import Floats
from hilserver.numerics.valve import opening_past_overlap
from hilserver.rig.kalman import BIAS_A, BIAS_B, P_A, X
from hilserver.tick.bridge.compensation import cubic, cubic_bend, cubic_slope
from hilserver.tick.codes import Saturation
from hilserver.tick.correction import correct_cylinder, gains_for
from hilserver.tick.cylinder import (
    NEGLIGIBLE,
    add_volumes,
    expected,
    is_known,
    move_cylinder,
    remember,
    share_of_rise,
    start_cylinder,
)
from hilserver.tick.estimator import SUPPLY_TIME, follow_supply
from hilserver.tick.gain_tables import DEVIATION_A, GAINS, GRID, LINES
from hilserver.tick.plan import (
    MEASUREMENTS,
    REMEMBERED,
    SENSED,
    STATES,
    SUBSTEPS_OF_MACHINE,
    Plan,
)
from hilserver.tick.records import blank, cells_of, plain
from hilserver.tick.row import CylinderState, ValveState, trend
from hilserver.tick.valve import (
    characteristic,
    command_at,
    move_spool,
    opening_for,
    reset_nonfinite,
    valve_flow,
)

CYLINDER: dict[str, Any] = {
    "port_A": "A",
    "port_B": "B",
    "position": "x",
    "bore": "50 mm",
    "rod_diameter": "30 mm",
    "stroke": "1 m",
    "dead_volume_A": "0.4 l",
    "dead_volume_B": "0.3 l",
    "mass": "400 kg",
}
WITH_CYLINDER: dict[str, Any] = {
    "devices": {"card": {"columns": ["A", "S", "Q", "B", "x"]}},
    "channels": {
        "p_B": {"device": "card", "source": "B", "scale": {"raw": [0, 10], "value": ["0 bar", "200 bar"]}},
        "x": {"device": "card", "source": "x", "scale": {"raw": [0, 10], "value": ["0 mm", "1000 mm"]}},
    },
    "ports": {"B": "p_B"},
    "cylinders": {"lift": CYLINDER},
}
SUPPLIED = {"leakage": {"flow": "1 l/min", "drop": "70 bar", "per": "edge"}, "overlap": 0.03}


def block() -> ValveState:
    """A bridge's block of the row, with the flow gains of the datasheet."""
    memory = blank(ValveState)
    memory.gain_PA = memory.gain_AT = 1.0
    return memory


def cylinder_plan(**channels: Any) -> Plan:
    """The plan of a rig with a cylinder."""
    changes = {**WITH_CYLINDER, "channels": {**WITH_CYLINDER["channels"], **channels}}
    return bench_rig({**changes, "valves": {"main": {"flow": None}}}).plan


# --- the valve's characteristic and its inverse ----------------------------------------------------------------------

drops = st.floats(2 * BAR, 150 * BAR)
small_drops = st.floats(0.01 * BAR, 2 * BAR) | drops


@given(q=st.floats(-60 * L_MIN, 60 * L_MIN), up=drops, down=drops, overlap=st.sampled_from([0.0, 0.03, 0.2]))
def test_the_inverse_gives_the_opening_that_passes_the_flow(q: float, up: float, down: float, overlap: float) -> None:
    """Outside of the eased overlap the valve passes the flow to 1e-6 of its nominal one (1e-7 of the stroke)."""
    v, memory = valve(**{**SUPPLIED, "overlap": overlap}), block()
    p_S, p, p_T = up + down, down, 0.0
    U = opening_for(q, p, p_S, p_T, overlap, memory, v)
    passed = valve_flow(U, p, p_S, p_T, memory, v)
    if int(memory.saturation) & Saturation.CAPACITY:
        assert abs(U) == 1.0
        assert abs(passed) < abs(q)
    elif abs(U) > overlap + v.null_band:
        assert passed == pytest.approx(q, abs=2e-6 * v.Q_nominal)
    else:  # eased: what flows there is no more than at the overlap's ends, and the leakage
        most = max(abs(valve_flow(s * (overlap + v.null_band), p, p_S, p_T, memory, v)) for s in (-1.0, 1.0))
        assert abs(q) <= most + 3 * L_MIN


def eased_opening(U: float, overlap: float, band: float) -> float:
    """Opening past the overlap, which rises linearly up to ``band`` beyond it."""
    knee = overlap + band
    return U / knee * opening_past_overlap(knee, overlap) if abs(U) < knee else opening_past_overlap(U, overlap)


@given(
    q=st.floats(-6 * L_MIN, 6 * L_MIN),
    up=small_drops,
    down=small_drops,
    overlap=st.sampled_from([0.0, 0.03, 0.2]),
    leak=st.sampled_from([0.05, 1.0, 5.0]),
    gone=st.sampled_from([0.02, 0.1, 1.0]),
    band=st.sampled_from([1e-4, 0.005, 0.2]),
)
def test_the_inverse_is_exact_within_easing_and_leakage(
    q: float, up: float, down: float, overlap: float, leak: float, gone: float, band: float
) -> None:
    """To 1e-9 of the nominal flow; the characteristic is that of `valve_flow`, with the overlap eased.

    Also where it is not monotonic, because much leakage fades within a small opening.
    """
    leakage = {"flow": f"{leak} l/min", "drop": "70 bar", "per": "edge", "gone_at": gone}
    v, memory = valve(leakage=leakage, overlap=overlap, bridge={"null_band": band}), block()
    U = opening_for(q, down, up + down, 0.0, overlap, memory, v)
    passed = characteristic(eased_opening(U, overlap, v.null_band), abs(U), up, down, memory, v)
    if int(memory.saturation) & Saturation.CAPACITY:
        assert abs(U) == 1.0
        assert abs(passed) < abs(q)
    else:
        assert passed == pytest.approx(q, abs=1e-9 * v.Q_nominal)


def test_the_inverse_reports_impossible_flows() -> None:
    """No drop in the direction of the flow: null, and said so; a port above the supply, below the tank."""
    v = valve()
    for q, p in ((10 * L_MIN, 170 * BAR), (-10 * L_MIN, -0.5 * BAR)):
        memory = block()
        assert opening_for(q, p, 160 * BAR, 0.0, 0.0, memory, v) == 0.0
        assert int(memory.saturation) == Saturation.NO_DROP


def test_the_tracked_gain_is_part_of_the_characteristic() -> None:
    v, memory = valve(), block()
    memory.gain_PA = 0.5
    wanted = valve_flow(0.4, 60 * BAR, 160 * BAR, 0.0, block(), v)
    assert opening_for(wanted, 60 * BAR, 160 * BAR, 0.0, 0.0, memory, v) == pytest.approx(0.8, abs=1e-6)


# --- the spool -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("f90", "damping"), [("80 Hz", 0.7), ("150 Hz", 0.4), ("40 Hz", 1.5)])
def test_a_second_order_spool_steps_as_its_transfer_function(f90: str, damping: float) -> None:
    """Against scipy.signal's step response of omega²/(s² + 2·d·omega·s + omega²): exact, 1e-9."""
    v, memory = valve(f45=None, f90=f90, damping=damping), block()
    omega = v.omega
    times = DT / SUBSTEPS_OF_MACHINE * np.arange(200)
    _, wanted = step(TransferFunction([omega**2], [1.0, 2 * damping * omega, omega**2]), T=times)
    got = []
    for _ in times:
        got.append(memory.spool)
        move_spool(1.0, memory, v)
    assert np.abs(np.array(got) - wanted).max() < 1e-9


def test_a_first_order_spool_steps_exponentially() -> None:
    v, memory = valve(f45="30 Hz"), block()
    for _ in range(4 * SUBSTEPS_OF_MACHINE):
        move_spool(1.0, memory, v)
    assert memory.spool == pytest.approx(1.0 - np.exp(-4 * DT * 2 * pi * 30), rel=1e-12)


def test_commands_act_after_the_delay() -> None:
    """Commands 3, 2, 1 were given 1, 2, 3 ticks ago and held; with 1.5 ms of delay the change comes in mid-tick."""
    past = np.array([3.0, 2.0, 1.0])
    felt = [command_at(past, 1.5e-3, at * 1e-3, 1e-3) for at in (-0.9, -0.6, -0.4, 0.4, 0.6, 5.0)]
    assert felt == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert command_at(past, 1.0, 0.0, 1e-3) == 1.0  # older than what is remembered


# --- the cubic -------------------------------------------------------------------------------------------------------


@given(c=st.lists(st.floats(-5, 5), min_size=4, max_size=4), s=st.floats(0, 3))
def test_the_cubic_has_the_derivatives_of_the_polynomial_it_goes_through(c: list[float], s: float) -> None:
    polynomial = np.polynomial.Polynomial(c)
    w = polynomial(np.arange(4.0))
    for mine, order in ((cubic, 0), (cubic_slope, 1), (cubic_bend, 2)):
        true = polynomial.deriv(order)(s) if order else polynomial(s)
        assert mine(w, s) == pytest.approx(true, abs=1e-11)


# --- the cylinder ----------------------------------------------------------------------------------------------------


def test_the_cylinder_model_agrees_with_its_equations() -> None:
    """DOP853 on the equations written out by hand, sine flows of 5 Hz for 0.2 s: 2e-3 of the ranges at 0.25 ms.

    The midpoint rule is of second order: a quarter of that at half the step, 10 % allowed.
    """
    m = cylinder_plan().cylinder[0]
    A_A, A_B, mass, B = 0.25 * pi * 0.05**2, 0.25 * pi * (0.05**2 - 0.03**2), 400.0, 1.5e9
    load = 400.0 * 9.81

    def flows(t: float) -> tuple[float, float]:
        return 1e-4 * sin(10 * pi * t), -6e-5 * sin(10 * pi * t)

    def motion(t: float, y: Floats) -> list[float]:
        p_A, p_B, x, v = y
        q_A, q_B = flows(t)
        C_A, C_B = (0.4e-3 + A_A * x) / B, (0.3e-3 + A_B * (1.0 - x)) / B
        return [(q_A - A_A * v) / C_A, (q_B + A_B * v) / C_B, v, (A_A * p_A - A_B * p_B - load) / mass]

    start = [40e5, (A_A * 40e5 - load) / A_B, 0.3, 0.0]
    worst = []
    for h in (2.5e-4, 1.25e-4):
        times = h * np.arange(round(0.2 / h))
        wanted = solve_ivp(motion, (0, 0.2), start, "DOP853", times, rtol=1e-11, atol=1e-9).y
        k = blank(CylinderState)
        start_cylinder(start[0], start[1], start[2], k, m)
        assert pytest.approx(load) == k.F
        got = []
        for t in times:
            got.append(cells_of(k)[:4].copy())
            move_cylinder(*flows(t + 0.5 * h), k, m, h)
        worst.append(np.abs(np.array(got).T - wanted).max(axis=1) / np.ptp(wanted, axis=1))
    assert worst[0].max() < 2e-3
    assert worst[0].max() / worst[1].max() == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("steps_per_time_constant", [1e4, 10.0, 1.0, 0.1, 0.001])
def test_a_flow_that_falls_with_its_pressure_is_followed_however_stiff(steps_per_time_constant: float) -> None:
    """C·p' = -K·p, K·h/C = a: a step at the mean pressure passes the volume that leaves e^-a of it, for any a."""
    a, p = 1.0 / steps_per_time_constant, 40e5
    mean = p - a * p * share_of_rise(a)
    assert p - a * mean == pytest.approx(p * np.exp(-a), rel=1e-9 + a**3 * (a < NEGLIGIBLE), abs=1e-6)


def test_volumes_add_up_to_the_flow() -> None:
    """What went into the chambers, from positions and pressures alone, is the integral of the flows: 1e-4 of it."""
    m, k, total = cylinder_plan().cylinder[0], blank(CylinderState), 0.0
    start_cylinder(40e5, 20e5, 0.3, k, m)
    for i in range(2000):
        before = cells_of(k)[:3].copy()
        q = 2e-4 * (1 - np.cos(2 * pi * 5 * i * 2.5e-4))
        move_cylinder(q, -0.64 * q, k, m, 2.5e-4)
        add_volumes(before[0], before[1], before[2], k, m, 2.5e-4)
        total += 2.5e-4 * q
    assert k.volume_A == pytest.approx(total, rel=1e-4)
    assert k.volume_B == pytest.approx(-0.64 * total, rel=1e-4)


def test_the_piston_stops_at_both_ends() -> None:
    m, k = cylinder_plan().cylinder[0], blank(CylinderState)
    start_cylinder(50e5, 5e5, 0.99, k, m)
    k.v = 1.0
    for _ in range(400):
        move_cylinder(2e-4, 0.0, k, m, 2.5e-4)
        assert 0.0 <= k.x <= 1.0
    assert k.x > 0.95


# --- the filter ------------------------------------------------------------------------------------------------------

CLOSED = (0.0, 0.0)
"""Rates of closed valves: an error of a pressure does not decay."""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 1.0, 2.4, 6.0])
@pytest.mark.parametrize("noise", [0.0, 0.25])
def test_the_filter_finds_load_and_unknown_flow_from_late_and_noisy_sensors(delay: float, noise: float) -> None:
    """A cylinder with a load and a flow of 3 l/min that no valve accounts for: found within 0.5 s, and not lost again.

    The estimated flow is right within 4 of its own standard deviations, and within 3 % of the nominal flow.
    """
    late = {"delay": f"{delay} ms", "noise": f"{max(noise, 0.05)} bar"}
    sensors = {name: {**WITH_CYLINDER["channels"].get(name, {}), **late} for name in ("p_A", "p_B")}
    plan = cylinder_plan(**sensors, x={**WITH_CYLINDER["channels"]["x"], "noise": "0.01 mm"})
    m, table, length = plain(plan.cylinder[0]), plan.kalman, len(plan.kalman[0])
    gains = np.zeros(length)
    lines = 4 + round(max(delay, 0.0) + 0.499)
    assert (length - GAINS) == MEASUREMENTS * (STATES + SENSED * (lines - 1))
    truth, k = blank(CylinderState), blank(CylinderState)
    start_cylinder(40e5, 20e5, 0.3, truth, m)
    start_cylinder(40e5, 20e5, 0.3, k, m)
    past, seen = np.zeros((REMEMBERED, lines)), np.tile(cells_of(truth)[:3], (16, 1))
    for _ in range(lines):
        remember(past, k, m)
    random, errors = np.random.default_rng(3), []
    truth.F += 2000.0
    hidden = 3 * L_MIN
    for i in range(1500):
        q = 10 * L_MIN * sin(2 * pi * 2 * i * DT)
        for _ in range(SUBSTEPS_OF_MACHINE):
            move_cylinder(q + hidden, -0.6 * q, truth, m, DT / SUBSTEPS_OF_MACHINE)
            move_cylinder(q + k.bias_A, -0.6 * q + k.bias_B, k, m, DT / SUBSTEPS_OF_MACHINE)
        remember(past, k, m)
        seen = np.vstack([cells_of(truth)[:3], seen[:-1]])
        n, rest = int(delay), delay - int(delay)
        sample = seen[n] + rest * (seen[n + 1] - seen[n]) + noise * BAR * np.array([1, 1, 0]) * random.normal(size=3)
        sample[2] = seen[0, 2]
        innovation = np.zeros(MEASUREMENTS)
        innovation[:2] = [sample[s] - expected(past, s, delay) for s in range(2)]
        innovation[2] = sample[2] - expected(past, 2, 0.0)
        gains_for(table, 0.0, CLOSED, k, m, gains)
        correct_cylinder(innovation, np.zeros(MEASUREMENTS), gains, CLOSED, past, k, blank(CylinderState), m, DT)
        errors.append([k.bias_A - hidden, k.p_A - truth.p_A])
    off = np.abs(np.array(errors)[500:])
    assert off[:, 0].max() < 0.03 * 60 * L_MIN
    assert off[:, 0].std() < 4 * table[4, DEVIATION_A]
    assert off[:, 1].max() < (1.0 + 2 * noise) * BAR
    assert pytest.approx(truth.F, abs=400.0) == k.F


@pytest.mark.parametrize("late", [0.0, 0.4, 0.8, 1.0, 1.6, 2.5, 3.0, "varies", "is lost"])
def test_a_wrong_estimate_is_corrected_whatever_the_age_of_the_samples(late: float | str) -> None:
    """A device with a clock of its own has samples of up to a tick and more. The cylinder has 15 ticks per period.

    Nothing passes the valve. From a wrong start and after a blow, the estimate is right again within 0.3 s, and
    meanwhile it is never off by much more than the cylinder oscillates.
    """
    rate = 500.0
    plan = bench_rig({**WITH_CYLINDER, "loop": {"rate": f"{rate} Hz"}, "valves": {"main": {"flow": None}}}).plan
    m, gains, dt = plain(plan.cylinder[0]), np.zeros(plan.kalman.shape[1]), 1.0 / rate
    fine, random = 10, np.random.default_rng(5)
    truth, k, change = blank(CylinderState), blank(CylinderState), blank(CylinderState)
    start_cylinder(40e5, 20e5, 0.3, truth, m)
    start_cylinder(44e5, 22e5, 0.301, k, m)
    past, seen = np.zeros((REMEMBERED, plan.layout[0].cylinder_past_ticks)), [cells_of(truth)[:SENSED].copy()] * 1000
    for _ in range(past.shape[1]):
        remember(past, k, m)
    off = []
    for i in range(400):
        truth.v += 0.05 if i == 200 else 0.0
        for _ in range(fine):
            move_cylinder(0.0, 0.0, truth, m, dt / fine)
            seen.append(cells_of(truth)[:SENSED].copy())
        for _ in range(SUBSTEPS_OF_MACHINE):
            move_cylinder(k.bias_A, k.bias_B, k, m, dt / SUBSTEPS_OF_MACHINE)
        remember(past, k, m)
        age = late if isinstance(late, float) else random.choice([0.0, 0.5, 0.8, 1.2, 2.0])
        innovation = np.zeros(MEASUREMENTS)
        if late != "is lost" or random.random() < 0.7:
            sample = seen[-1 - round(age * fine)]
            innovation[:SENSED] = [sample[s] - expected(past, s, age) for s in range(SENSED)]
        gains_for(plan.kalman, 0.0, CLOSED, k, m, gains)
        correct_cylinder(innovation, np.full(MEASUREMENTS, age), gains, CLOSED, past, k, change, m, dt)
        off.append(k.p_A - truth.p_A)
    amplitude, least = np.ptp([sample[0] for sample in seen]), (2.0 if late == "is lost" else 0.5) * BAR
    assert np.abs(off[150:200]).max() < least
    assert np.abs(off[200:]).max() < 0.75 * amplitude
    assert np.abs(off[350:]).max() < least


def test_without_a_position_sensor_the_flows_are_those_of_the_valves() -> None:
    """Nothing tells the biases then: their gains are zero, and the pressures are still followed."""
    cylinder = {key: value for key, value in CYLINDER.items() if key != "position"}
    plan = bench_rig(
        {**WITH_CYLINDER, "cylinders": {"lift": {**cylinder, "position": None}}, "valves": {"main": {"flow": None}}}
    ).plan
    gains = plan.kalman[:, GAINS:].reshape(LINES, -1, MEASUREMENTS)
    assert not gains[:, [X, BIAS_A, BIAS_B]].any()
    assert (gains[:GRID, P_A, 0] > 0.01).all(), "with closed valves"


@pytest.mark.parametrize("poison", [nan, inf])
def test_non_finite_values_are_discarded(poison: float) -> None:
    v = valve()
    for field in ("spool", "spool_speed", "volume_error", "spool_error"):
        memory = block()
        setattr(memory, field, poison)
        reset_nonfinite(memory, v)
        assert np.all(np.isfinite(cells_of(memory)))
        assert memory.gain_PA == 1.0
    k = blank(CylinderState)
    assert is_known(k)
    k.v = poison
    assert not is_known(k)


# --- the supply -------------------------------------------------------------------------------------------------------


def test_a_steady_trend_of_the_supply_is_followed_without_lag() -> None:
    """From the first sample, which may be any; and once more with 20 missed ticks in the meantime."""
    b, rate = block(), -40.0 * BAR
    b.supply = nan
    for k in range(400):
        if not 200 <= k < 220:
            follow_supply(200 * BAR + rate * k * DT, b, DT * (21 if k == 220 else 1))
        if k == 0:
            assert (b.supply, b.supply_trend) == (200 * BAR, 0.0)
        if k in (199, 220, 399):
            assert b.supply == pytest.approx(200 * BAR + rate * k * DT, abs=0.001 * BAR)
            assert b.supply_trend == pytest.approx(rate, rel=1e-3)


def test_a_supply_that_is_switched_on_or_fails_is_seen_at_once() -> None:
    b = block()
    for p_S in (0.0, 0.0, 210 * BAR, 210 * BAR, 150 * BAR, 2 * BAR, 0.0, 0.0):
        follow_supply(p_S, b, DT)
        assert (b.supply, b.supply_trend) == (p_S, 0.0)


@pytest.mark.parametrize(("frequency", "most"), [(2.0, 1.1), (50.0, 1.0), (100.0, 0.55), (300.0, 0.25)])
def test_the_pulsation_of_a_pump_is_not_extrapolated(frequency: float, most: float) -> None:
    """Amplitude of the supply 6 ms ahead; by the transfer function (1 + (2·T + h)·s) / (1 + T·s)²."""
    b, ahead, found = block(), 6e-3, []
    b.supply = nan
    for k in range(3000):
        follow_supply(20.0 + sin(2 * pi * frequency * k * DT), b, DT)
        found.append(b.supply + ahead * b.supply_trend)
    turn = np.exp(-2j * pi * frequency * DT * np.arange(1000, 3000))
    amplitude = abs(np.mean(found[1000:] * turn)) * 2.0
    s = 2j * pi * frequency
    assert amplitude == pytest.approx(abs((1 + (2 * SUPPLY_TIME + ahead) * s) / (1 + SUPPLY_TIME * s) ** 2), abs=0.08)
    assert amplitude < most


# --- the operator's input --------------------------------------------------------------------------------------------


def foreseen_input(values: Floats) -> Floats:
    """What is carried on of an input three ticks ahead, at each tick."""
    from hilserver.tick.inputs import note_trends

    rig = bench_rig()
    row = np.zeros(rig.layout.width)
    ahead = np.empty(len(values))
    for k, value in enumerate(values):
        row[rig.plan.layout[0].input] = value
        note_trends(rig.plan, row, DT)
        t = trend(rig.plan, row, 0)
        ahead[k] = value + 3 * t.slope + 6 * t.bend
    return ahead


def test_only_a_smooth_input_is_extrapolated() -> None:
    k = np.arange(2000)
    sine = 0.3 * np.sin(2 * pi * 10 * k * DT)
    assert np.abs(foreseen_input(sine)[10:-3] - sine[13:]).max() < 0.02 * 0.3  # held: 3 ticks late, 19 %
    jump = np.where(k < 1000, 0.0, 0.5)
    assert np.array_equal(foreseen_input(jump), jump)
    ramp = np.maximum(k - 1000, 0) * 1e-3
    ahead = foreseen_input(ramp)
    assert np.array_equal(ahead[:1001], ramp[:1001])
    assert np.abs(ahead[1003:-3] - ramp[1006:]).max() < 1e-12


def test_the_corner_frequency_of_a_second_order_spool_is_where_its_phase_is_45_degrees() -> None:
    """80 Hz, d 0.7: about 41.6 Hz; the phase of the transfer function there, by hand."""
    from hilserver.rig.valves import corner_frequency

    settings = bench_rig({"valves": {"main": {"f45": None, "f90": "80 Hz", "damping": 0.7}}}).settings.valves["main"]
    r = corner_frequency(settings) / 80.0
    assert np.degrees(np.angle(1 / (1 - r * r + 2j * 0.7 * r))) == pytest.approx(-45.0, abs=1e-9)
