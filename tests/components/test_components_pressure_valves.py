"""Pressure valves: relief (many points, static), reducing, sequence, unloading; all come to rest."""

from __future__ import annotations

import tomllib
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuit_text import toml
from component_bench import BAR, L_MIN, Bench, evaluate, pressures, refusal
from hypothesis import given
from hypothesis import strategies as st
from pressure_bench import COUNTERBALANCE, fed, passive

from hilserver.components.base import Fluid
from hilserver.components.reducing_valve import ReducingValve
from hilserver.components.relief_valve import ReliefValve
from hilserver.components.sequence_valve import SequenceValve
from hilserver.components.static_relief_valve import StaticReliefValve
from hilserver.components.unloading_valve import UnloadingValve
from hilserver.toml import read_toml

RELIEF: dict[str, Any] = {
    "opening_pressure": "150 bar",
    "override": [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]],
}
CURVE = [["3 bar", "11 l/min"], ["6 bar", "23 l/min"], ["10 bar", "41 l/min"], ["15 bar", "60 l/min"]]


# --- relief valves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ReliefValve, StaticReliefValve])
def test_relief_curve_is_fitted_to_more_than_two_points(kind: type[Any]) -> None:
    """At rest, within the error that ``parameters`` reports."""
    valve = kind.model_validate({**RELIEF, "override": CURVE})
    parameters = valve.parameters(Fluid())
    assert 0.0 < parameters["fit_error"] < 0.06
    errors = []
    for over, flow in valve.override:
        p = 150 * BAR + over
        K = over / (parameters["C_1"] + parameters["C_2"] * p)
        assert evaluate(ReliefValve.model_validate(RELIEF), p_P=p, p_T=0.0, K=K)["q_T"] == pytest.approx(K * sqrt(p))
        errors.append(abs(K * sqrt(p) / flow - 1.0))
    assert max(errors) == pytest.approx(parameters["fit_error"], rel=1e-9)


def test_relief_curves_that_cannot_be_fitted_are_refused() -> None:
    points = [["5 bar", "20 l/min"], ["10 bar", "60 l/min"], ["15 bar", "62 l/min"]]
    message = refusal(ReliefValve, **{**RELIEF, "override": points})
    assert "override: no curve" in message
    assert "misses a point by" in message


@pytest.mark.parametrize(("over", "flow"), [(5, 20), (15, 60)])
def test_static_relief_passes_through_its_points(over: float, flow: float) -> None:
    valve = StaticReliefValve.model_validate(RELIEF)
    assert evaluate(valve, p_P=(152 + over) * BAR, p_T=2 * BAR)["q_T"] == pytest.approx(flow * L_MIN, rel=1e-9)


@given(p_P=pressures, p_T=pressures)
def test_static_relief_only_dissipates_and_is_shut_below_opening(p_P: float, p_T: float) -> None:
    flows = passive(StaticReliefValve.model_validate(RELIEF), "PT", p_P=p_P, p_T=p_T)
    assert flows["q_T"] >= 0.0
    if p_P - p_T < 148.9 * BAR:
        assert flows["q_T"] == 0.0


def test_static_relief_flow_is_smooth_and_rises() -> None:
    """Slopes before and behind each joint of the rounded corner meet; the flow never falls with pressure."""
    valve = StaticReliefValve.model_validate(RELIEF)

    def q(bar: float) -> float:
        return evaluate(valve, p_P=bar * BAR, p_T=0.0)["q_T"]

    for joint in (149.0, 151.0):
        before, behind = (q(joint) - q(joint - 1e-5)) / 1e-5, (q(joint + 1e-5) - q(joint)) / 1e-5
        assert before == pytest.approx(behind, abs=2e-4 * L_MIN)
    assert np.all(np.diff([q(bar) for bar in np.linspace(140, 600, 300)]) >= 0.0)


def test_static_and_dynamic_relief_settle_at_the_same_pressure() -> None:
    """Fed with 35 l/min, with RK4 at 0.1 ms."""
    ends = []
    for kind in ("relief_valve", "static_relief_valve"):
        bench = Bench(fed(f'[components.valve]\ntype = "{kind}"\nports = {{ P = "P", T = "T" }}', 35, **RELIEF))
        bench.run(2.0, 1e-4)
        ends.append(bench["P.p"])
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)
    assert 155 * BAR < ends[0] < 165 * BAR


def test_static_relief_refuses_a_corner_beyond_its_first_point() -> None:
    assert "at most 5 bar" in refusal(StaticReliefValve, **RELIEF, rounding="6 bar")


# --- reducing valve --------------------------------------------------------------------------------------------------


REDUCING: dict[str, Any] = {
    "set_pressure": "50 bar",
    "nominal_flow": {"flow": "40 l/min", "drop": "8 bar"},
    "control_range": "5 bar",
    "relief_flow": {"flow": "20 l/min", "drop": "8 bar"},
    "relief_step": "3 bar",
    "relief_range": "6 bar",
    "leakage": "0 l/min/bar",
    "response_time": "10 ms",
}


def reducing_circuit(supply: float, drawn: float, **values: Any) -> Bench:
    """Supply pressure in bar, flow drawn from A in l/min (negative: pushed into it); the drain is at 2 bar."""
    return Bench(
        f"""
        [components.valve]
        type = "reducing_valve"
        ports = {{ P = "P", A = "A", T = "T" }}
        {toml({**REDUCING, **values})}
        [components.supply]
        type = "pressure_source"
        ports = {{ P = "P" }}
        command = 1
        pressure = "{supply} bar"
        [components.drawn]
        type = "flow_source"
        ports = {{ P = "T", T = "A" }}
        command = "share"
        flow = "{abs(drawn)} l/min"
        [components.line]
        type = "volume"
        ports = {{ P = "A" }}
        volume = "1 l"
        [components.tank]
        type = "tank"
        ports = {{ T = "T" }}
        pressure = "2 bar"
        """.replace('"share"', "1" if drawn >= 0 else "-1")
    )


@pytest.mark.parametrize("supply", [80.0, 160.0, 315.0])
@pytest.mark.parametrize(
    ("drawn", "reduced"), [(1.0, 49.875), (10.0, 48.75), (40.0, 45.0), (-1.0, 53.3), (-10.0, 56.0), (-20.0, 59.0)]
)
def test_reduced_pressure_follows_its_droop_at_any_supply(supply: float, drawn: float, reduced: float) -> None:
    """At rest, above the drain's 2 bar: 50 bar less 5 bar per 40 l/min; relieving, 53 bar and 6 bar per 20 l/min."""
    bench = reducing_circuit(supply, drawn)
    bench.run(2.0, 1e-4)
    assert bench["A.p"] / BAR - 2.0 == pytest.approx(reduced, abs=0.002)


def test_reducing_valve_is_fully_open_at_low_supply() -> None:
    """Supply 40 bar: 40 l/min take the nominal 8 bar."""
    bench = reducing_circuit(40.0, 40.0)
    bench.run(1.0, 1e-4)
    assert bench["A.p"] / BAR == pytest.approx(32.0, abs=1e-3)
    assert bench["valve.U"] == pytest.approx(1.0, abs=1e-9)


def test_two_way_reducing_valve_relieves_nothing() -> None:
    values = {key: value for key, value in REDUCING.items() if key != "relief_flow"}
    valve = ReducingValve.model_validate(values)
    flows = evaluate(valve, p_P=100 * BAR, p_A=90 * BAR, p_T=0.0, U=-1.0)
    assert flows["q_T"] == 0.0
    assert evaluate(valve, p_P=100 * BAR, p_A=90 * BAR, p_T=0.0, U=0.0)["dU"] == 0.0


def test_reducing_spool_moves_with_its_response_time() -> None:
    """Pressures held: the spool opens as 1 - exp(-t/tau). Analytic."""
    valve = ReducingValve.model_validate(REDUCING)
    rest = evaluate(valve, p_P=100 * BAR, p_A=46 * BAR, p_T=0.0, U=0.0)["dU"] * 0.01
    assert rest == pytest.approx(0.8 * sqrt(8 / 54), rel=1e-12)
    assert evaluate(valve, p_P=100 * BAR, p_A=46 * BAR, p_T=0.0, U=rest)["dU"] == pytest.approx(0.0, abs=1e-12)
    assert evaluate(valve, p_P=100 * BAR, p_A=46 * BAR, p_T=0.0, U=0.5 * rest)["dU"] == pytest.approx(50 * rest)


@given(p_P=pressures, p_A=pressures, p_T=pressures, U=st.floats(-1, 1))
def test_reducing_valve_only_dissipates(p_P: float, p_A: float, p_T: float, U: float) -> None:
    flows = passive(ReducingValve.model_validate(REDUCING), "PAT", p_P=p_P, p_A=p_A, p_T=p_T, U=U)
    assert -1.0 - 1e-12 <= U + 0.01 * flows["dU"] <= 1.0 + 1e-12  # where it would rest


def test_impossible_reducing_valves_are_refused() -> None:
    assert "must be less than set_pressure 50 bar" in refusal(ReducingValve, **{**REDUCING, "control_range": "60 bar"})
    low = {**REDUCING, "relief_flow": {"flow": "20 l/min", "drop": "0.5 bar"}}
    assert "relief_flow.drop of 0.5 bar is below the transition_pressure of 1 bar" in refusal(ReducingValve, **low)


# --- sequence valve --------------------------------------------------------------------------------------------------


POPPET: dict[str, Any] = {
    "opening_pressure": "80 bar",
    "override": [["4 bar", "20 l/min"], ["12 bar", "60 l/min"]],
    "nominal_flow": {"flow": "60 l/min", "drop": "6 bar"},
}
SEQUENCE = {**POPPET, "reverse_check": {"flow": "60 l/min", "drop": "5 bar"}}


@pytest.mark.parametrize(("flow", "pressure"), [(20.0, 84.0), (60.0, 92.0)])
def test_sequence_valve_with_internal_pilot_follows_its_curve(flow: float, pressure: float) -> None:
    lines = '[components.valve]\ntype = "sequence_valve"\nports = { P = "P", A = "T", X = "P", Y = "T" }'
    bench = Bench(fed(lines, flow, **SEQUENCE))
    bench.run(1.0, 1e-4)
    assert bench["P.p"] / BAR == pytest.approx(pressure, abs=1e-3)


@pytest.mark.parametrize("p_Y", [0.0, 30.0])
def test_sequence_valve_opens_by_pilot_above_spring_chamber(p_Y: float) -> None:
    valve = SequenceValve.model_validate(SEQUENCE)

    def dK(p_X: float) -> float:
        return evaluate(valve, p_P=20 * BAR, p_A=0.0, p_X=p_X * BAR, p_Y=p_Y * BAR, K=0.0)["dK"]

    assert dK(79.9 + p_Y) < 0.0 < dK(80.1 + p_Y)


def test_sequence_valve_as_unloading_valve_by_pilot_is_fully_open_at_its_nominal_drop() -> None:
    """Pilot 100 bar above opening: 60 l/min from P to the tank take 6 bar."""
    lines = '[components.valve]\ntype = "sequence_valve"\nports = { P = "P", A = "T", X = "pilot", Y = "T" }'
    source = '[components.pilot]\ntype = "pressure_source"\nports = { P = "pilot" }\ncommand = 1\npressure = "180 bar"'
    bench = Bench(f"{source}\n{fed(lines, 60, **SEQUENCE)}")
    bench.run(1.0, 1e-4)
    assert bench["P.p"] / BAR == pytest.approx(6.0, abs=1e-6)


def test_sequence_valve_passes_freely_backwards() -> None:
    valve = SequenceValve.model_validate(SEQUENCE)
    flows = evaluate(valve, p_P=0.0, p_A=5 * BAR, p_X=0.0, p_Y=0.0, K=0.0)
    assert flows["q_P"] == pytest.approx(60 * L_MIN, rel=1e-12)
    without = SequenceValve.model_validate(POPPET)
    assert evaluate(without, p_P=0.0, p_A=5 * BAR, p_X=0.0, p_Y=0.0, K=0.0)["q_P"] == 0.0


def test_sequence_valve_opens_with_its_settling_time_at_the_last_point() -> None:
    """K = K_end·(1 - exp(-t/T)) at the last point's pressure. Analytic."""
    valve = SequenceValve.model_validate({**SEQUENCE, "settling_time": "15 ms"})
    K_end = 60 * L_MIN / sqrt(92 * BAR)
    for K in (0.0, 0.4 * K_end, K_end):
        dK = evaluate(valve, p_P=92 * BAR, p_A=0.0, p_X=92 * BAR, p_Y=0.0, K=K)["dK"]
        assert dK == pytest.approx((K_end - K) / 0.015, rel=1e-9, abs=1e-9 * K_end / 0.015)


@given(p_P=pressures, p_A=pressures, p_X=pressures, K=st.floats(0, 1e-6))
def test_sequence_valve_only_dissipates(p_P: float, p_A: float, p_X: float, K: float) -> None:
    passive(SequenceValve.model_validate(SEQUENCE), "PAX", p_P=p_P, p_A=p_A, p_X=p_X, K=K, p_Y=0.0)


def test_poppets_refuse_a_curve_beyond_full_opening_and_a_check_that_never_opens() -> None:
    small = {**POPPET, "nominal_flow": {"flow": "20 l/min", "drop": "60 bar"}}
    assert "more than the fully open valve passes at that pressure, 25 l/min" in refusal(SequenceValve, **small)
    late = {**POPPET, "reverse_check": {"flow": "60 l/min", "drop": "1 bar", "cracking_pressure": "2 bar"}}
    assert "cracking_pressure 2 bar must be below the drop of 1 bar" in refusal(SequenceValve, **late)


# --- unloading valve -------------------------------------------------------------------------------------------------


UNLOADING: dict[str, Any] = {
    "cut_out_pressure": "160 bar",
    "cut_in_pressure": "140 bar",
    "nominal_flow": {"flow": "40 l/min", "drop": "4 bar"},
    "check": {"flow": "40 l/min", "drop": "3 bar"},
}


def test_accumulator_is_charged_between_cut_in_and_cut_out() -> None:
    """The example circuit. Charging and drained times against volume·pressure/flow, the drain taken at 150 bar."""
    bench = Bench(read_toml(Path(__file__).parents[2] / "docs" / "examples" / "unloading_valve.toml"))
    recorded = bench.record(("accumulator.p", "pump.p", "charging.unloads"), 6.0, 1e-4, 1e-3)
    p, state = recorded["accumulator.p"][1000:] / BAR, recorded["charging.unloads"][1000:]
    assert p.max() == pytest.approx(160.0, abs=4.0)  # opening and closing take the valve its response time
    assert p.min() == pytest.approx(140.0, abs=4.0)
    assert set(np.unique(state)) == {0.0, 1.0}
    switched = np.flatnonzero(np.diff(state))
    assert p[switched[state[switched] == 0.0]] == pytest.approx(160.0, abs=0.25)
    assert p[switched[state[switched] == 1.0]] == pytest.approx(140.0, abs=0.25)
    C = 20e-3 / 1.5e9
    drained = np.diff(switched)[state[switched][:-1] == 0.0].mean() * 1e-3  # from cut-out to cut-in
    assert drained == pytest.approx(C * 20 * BAR / (4 * L_MIN), rel=0.25)
    settled = recorded["pump.p"][1000:][np.r_[False, state[:-1] > 0] & (p < 145) & (state > 0)]
    assert settled == pytest.approx(4 * BAR * (20 / 40) ** 2, rel=0.02)


def test_unloading_pilot_keeps_its_state_within_the_band() -> None:
    valve = UnloadingValve.model_validate(UNLOADING)

    def pilot(p_A: float, unloads: float) -> float:
        state = evaluate(valve, p_P=0.0, p_T=2 * BAR, p_A=(p_A + 2) * BAR, K=0.0, unloads=unloads)
        return state["next_unloads"]

    assert [pilot(p, 0.0) for p in (139, 141, 159, 161)] == [0.0, 0.0, 0.0, 1.0]
    assert [pilot(p, 1.0) for p in (139, 141, 159, 161)] == [0.0, 1.0, 1.0, 1.0]


def test_unloading_band_by_share_of_the_cut_out_pressure() -> None:
    values = {key: value for key, value in UNLOADING.items() if key != "cut_in_pressure"}
    assert UnloadingValve.model_validate(values).parameters(Fluid())["p_in"] == pytest.approx(144 * BAR)
    assert "either cut_in_pressure or switching_difference" in refusal(
        UnloadingValve, **UNLOADING, switching_difference=0.2
    )
    high = {**UNLOADING, "cut_in_pressure": "170 bar"}
    assert "cut_in_pressure 170 bar must be below cut_out_pressure 160 bar" in refusal(UnloadingValve, **high)


def test_unloading_valve_opens_and_closes_with_its_response_time() -> None:
    """Lag of 20 ms towards the coefficient of 40 l/min at 4 bar, and towards closed. Analytic."""
    K_max = 40 * L_MIN / sqrt(4 * BAR)
    valve = UnloadingValve.model_validate(UNLOADING)
    for unloads, K in ((1.0, 0.0), (1.0, 0.7 * K_max), (0.0, K_max)):
        dK = evaluate(valve, p_P=150 * BAR, p_T=0.0, p_A=150 * BAR, K=K, unloads=unloads)["dK"]
        assert dK == pytest.approx((unloads * K_max - K) / 0.02, rel=1e-12)


def test_unloading_valve_without_check_only_senses_the_accumulator() -> None:
    values = {key: value for key, value in UNLOADING.items() if key != "check"}
    valve = UnloadingValve.model_validate(values)
    assert evaluate(valve, p_P=200 * BAR, p_T=0.0, p_A=100 * BAR, K=0.0, unloads=0.0)["q_A"] == 0.0


@given(p_P=pressures, p_T=pressures, p_A=pressures, K=st.floats(0, 1e-6))
def test_unloading_valve_only_dissipates(p_P: float, p_T: float, p_A: float, K: float) -> None:
    passive(UnloadingValve.model_validate(UNLOADING), "PTA", p_P=p_P, p_T=p_T, p_A=p_A, K=K, unloads=1.0)


# --- stability -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("volume", ["0.2 l", "1 l", "5 l"])
def test_pressure_valves_come_to_rest_with_rk4_at_100_microseconds(volume: str) -> None:
    """A step of 40 l/min into a small, a usual and a large volume, with default times: no chatter is left after 1 s."""
    relief = {**RELIEF, "override": [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]]}
    valves = {
        "relief_valve": ('{ P = "P", T = "T" }', relief),
        "static_relief_valve": ('{ P = "P", T = "T" }', relief),
        "sequence_valve": ('{ P = "P", A = "T", X = "P", Y = "T" }', SEQUENCE),
        "counterbalance_valve": ('{ C = "P", V = "T", X = "T", Y = "T" }', COUNTERBALANCE),
    }
    for kind, (ports, values) in valves.items():
        bench = Bench(fed(f'[components.valve]\ntype = "{kind}"\nports = {ports}', 40, volume, **values))
        bench.run(1.0, 1e-4)
        p = bench.record(("P.p",), 0.1, 1e-4)["P.p"]
        assert np.ptp(p) < 1e-3 * BAR, kind


@pytest.mark.parametrize("kind", ["relief_valve", "static_relief_valve"])
def test_relief_valves_on_a_very_small_volume_come_to_rest_with_rosenbrock(kind: str) -> None:
    """10 ml take 60 l/min from no pressure, 300 bar per step of 0.2 ms if nothing opened."""
    raw = tomllib.loads(
        fed(f'[components.valve]\ntype = "{kind}"\nports = {{ P = "P", T = "T" }}', 60, "10 ml", **RELIEF)
    )
    bench = Bench({**raw, "solver": {"integrator": "rosenbrock"}})
    bench.run(0.5, 2e-4)
    assert bench["P.p"] / BAR == pytest.approx(165.0, abs=1e-3)
