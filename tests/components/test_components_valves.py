"""Orifice, relief valve, 4/3 valves."""

from __future__ import annotations

from math import exp, pi, sqrt
from typing import Any

import numpy as np
import pytest
from circuit_text import component, flow_source, pressure_source, tank, volume
from component_bench import BAR, L_MIN, Bench, evaluate, pressures, refusal, root
from hypothesis import given
from hypothesis import strategies as st

from hilserver.components.base import Fluid
from hilserver.components.orifice import Orifice
from hilserver.components.proportional_valve_4_3 import ProportionalValve43
from hilserver.components.relief_valve import ReliefValve
from hilserver.components.servo_valve import ServoValve

spools = st.floats(-1.0, 1.0)

# --- orifice ---------------------------------------------------------------------------------------------------------


def orifice(drop: str = "5 bar", p_tr: str = "1 bar") -> Orifice:
    return Orifice.model_validate({"nominal_flow": {"flow": "10 l/min", "drop": drop}, "transition_pressure": p_tr})


@pytest.mark.parametrize("drop", [5.0, 0.5])
def test_orifice_passes_its_nominal_flow_laminar_or_turbulent(drop: float) -> None:
    flows = evaluate(orifice(f"{drop} bar"), p_A=(20 + drop) * BAR, p_B=20 * BAR)
    assert flows["q_B"] == pytest.approx(10 * L_MIN, rel=1e-12)


def test_orifice_follows_the_root_law_above_transition() -> None:
    assert evaluate(orifice(), p_A=20 * BAR, p_B=0.0)["q_B"] == pytest.approx(20 * L_MIN, rel=1e-12)


def test_orifice_is_linear_through_zero_and_smooth_at_the_joint() -> None:
    """Slope at 0 is 1.5·K/sqrt(p_tr); at the joint value and slope meet. Source: Ellman & Piché 1999."""
    K = 10 * L_MIN / sqrt(5 * BAR)

    def slope(dp: float, h: float) -> float:
        return (evaluate(orifice(), p_A=dp + h, p_B=0.0)["q_B"] - evaluate(orifice(), p_A=dp, p_B=0.0)["q_B"]) / h

    assert slope(0.0, 1.0) == pytest.approx(1.5 * K / sqrt(BAR), rel=1e-4)
    assert slope(BAR, -1.0) == pytest.approx(slope(BAR, 1.0), rel=1e-4)


@given(p_A=pressures, p_B=pressures)
def test_orifice_only_dissipates_and_keeps_the_oil(p_A: float, p_B: float) -> None:
    flows = evaluate(orifice(), p_A=p_A, p_B=p_B)
    assert flows["q_A"] + flows["q_B"] == 0.0
    assert p_A * flows["q_A"] + p_B * flows["q_B"] <= 0.0
    assert evaluate(orifice(), p_A=p_B, p_B=p_A)["q_B"] == -flows["q_B"]


def test_volume_empties_through_an_orifice_in_the_analytic_time() -> None:
    """Turbulent: sqrt(p) falls linearly, sqrt(p) = sqrt(p_0) - K·t/(2·C)."""
    bench = Bench(
        """
        [components.orifice]
        type = "orifice"
        ports = { A = "node", B = "tank" }
        nominal_flow = { flow = "10 l/min", drop = "5 bar" }
        [components.tank]
        type = "tank"
        ports = { T = "tank" }
        [components.volume]
        type = "volume"
        ports = { P = "node" }
        volume = "50 l"
        [nodes.node]
        pressure = "100 bar"
        """
    )
    bench.run(0.3, 1e-3)
    K, C = 10 * L_MIN / sqrt(5 * BAR), 0.05 / 1.5e9
    expected = (sqrt(100 * BAR) - K * 0.3 / (2 * C)) ** 2
    assert 5 * BAR < expected < 60 * BAR
    assert bench["node.p"] == pytest.approx(expected, rel=1e-9)


# --- relief valve ----------------------------------------------------------------------------------------------------

RELIEF: dict[str, Any] = {
    "opening_pressure": "150 bar",
    "override": [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]],
    "settling_time": "20 ms",
}


def relief_fed(flow: str) -> str:
    """A flow source feeds a relief valve and a volume."""
    return (
        flow_source("P=node T=tank", flow)
        + tank("tank", pressure="2 bar")
        + volume("node", "1 l")
        + component("relief", "relief_valve", "P=node T=tank", **RELIEF)
    )


RELIEF_HELD = (
    pressure_source("source", "node", "level")
    + tank("tank")
    + component("relief", "relief_valve", "P=node T=tank", **RELIEF)
)


@pytest.mark.parametrize(("flow", "pressure"), [("20 l/min", 155.0), ("60 l/min", 165.0)])
def test_relief_curve_passes_through_both_datasheet_points(flow: str, pressure: float) -> None:
    """At rest in a circuit, above a tank at 2 bar."""
    bench = Bench(relief_fed(flow))
    bench.run(1.0, 1e-4)
    assert bench["node.p"] - 2 * BAR == pytest.approx(pressure * BAR, rel=1e-6)


def test_relief_parameters_solve_the_two_linear_equations() -> None:
    """C_1 + C_2·p_i = (p_i - p_ref)·sqrt(p_i)/Q_i for both points, as a linear system. Source: theory §3."""
    p, over, q = np.array([155e5, 165e5]), np.array([5e5, 15e5]), np.array([20, 60]) * L_MIN
    C_1, C_2 = np.linalg.solve(np.array([[1.0, p[0]], [1.0, p[1]]]), over * np.sqrt(p) / q)
    parameters = ReliefValve.model_validate(RELIEF).parameters(Fluid())
    assert parameters["C_1"] == pytest.approx(C_1, rel=1e-9)
    assert parameters["C_2"] == pytest.approx(C_2, rel=1e-9)


def test_relief_opens_with_its_time_constant_and_without_wind_up() -> None:
    """After a long time at no pressure, a step to the second point opens it as K = K_end·(1 - exp(-t/T)). Analytic."""
    bench = Bench(RELIEF_HELD)
    bench["level"] = 0.0
    bench.run(2.0, 1e-3)
    assert bench["relief.K"] == 0.0
    bench["level"] = 1.65
    bench.run(0.02, 1e-4)
    assert bench["relief.q_T"] == pytest.approx(60 * L_MIN * (1 - exp(-1)), rel=1e-6)


@pytest.mark.parametrize("level", [-0.5, 0.0, 1.0, 1.5])
def test_relief_is_shut_up_to_its_opening_pressure(level: float) -> None:
    bench = Bench(RELIEF_HELD)
    bench["level"] = level
    bench.run(0.5, 1e-3)
    assert bench["relief.K"] == 0.0
    assert bench["relief.q_T"] == 0.0


@given(p_P=pressures, p_T=pressures, K=st.floats(0, 1e-6))
def test_relief_passes_no_flow_backwards_and_keeps_the_oil(p_P: float, p_T: float, K: float) -> None:
    flows = evaluate(ReliefValve.model_validate(RELIEF), p_P=p_P, p_T=p_T, K=K)
    assert flows["q_T"] >= 0.0
    assert flows["q_P"] + flows["q_T"] == 0.0
    assert p_P * flows["q_P"] + p_T * flows["q_T"] <= 0.0


@given(over=st.floats(1, 30), share=st.floats(0.1, 0.9), bend=st.floats(0.7, 1.3), opening=st.floats(20, 300))
def test_accepted_relief_curves_rise_from_the_opening_pressure_to_the_end_of_their_range(
    over: float, share: float, bend: float, opening: float
) -> None:
    """What the model accepts has a positive flow all over its range; what it refuses is said to bend too much."""
    points = [[f"{share * over} bar", f"{share**bend * 60} l/min"], [f"{over} bar", "60 l/min"]]
    values = {"opening_pressure": f"{opening} bar", "override": points}
    try:
        valve = ReliefValve.model_validate(values)
    except ValueError:
        assert "bends too much" in refusal(ReliefValve, **values)
        return
    parameters = valve.parameters(Fluid())
    p = np.linspace(opening, max(400.0, opening + over), 50)[1:] * BAR
    assert np.all(parameters["C_1"] + parameters["C_2"] * p > 0)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ([["5 bar", "60 l/min"], ["15 bar", "20 l/min"]], "rising pressure and flow"),
        ([["-5 bar", "20 l/min"], ["15 bar", "60 l/min"]], "rising pressure and flow"),
        ([["5 bar", "20 l/min"], ["5 bar", "60 l/min"]], "rising pressure and flow"),
        ([["5 bar", "20 l/min"], ["6 bar", "100 l/min"]], "C1 + C2·p is not positive at 400 bar"),
        ([["5 bar", "20 l/min"]], "at least two points"),
    ],
)
def test_impossible_relief_curves_are_refused(override: Any, reason: str) -> None:
    assert reason in refusal(ReliefValve, **{**RELIEF, "override": override})


# --- 4/3 valves ------------------------------------------------------------------------------------------------------


def datasheet(per: str = "edge", leak_per: str | None = None) -> dict[str, Any]:
    leakage = {"leakage": {"flow": "0.6 l/min", "drop": "70 bar", "per": leak_per}} if leak_per else {}
    return {"nominal_flow": {"flow": "40 l/min", "drop": "35 bar", "per": per}, **leakage}


def proportional(per: str = "edge", leak_per: str | None = None) -> ProportionalValve43:
    return ProportionalValve43.model_validate({**datasheet(per, leak_per), "f45": "30 Hz"})


def servo(**values: Any) -> ServoValve:
    return ServoValve.model_validate({**datasheet(leak_per="edge"), "f90": "100 Hz", **values})


def flows_of(
    valve: ProportionalValve43 | ServoValve, U: float, P: float, T: float, A: float, B: float
) -> dict[str, float]:
    """Flows with pressures in bar."""
    return evaluate(valve, U=U, W=0.0, u_command=U, p_P=P * BAR, p_T=T * BAR, p_A=A * BAR, p_B=B * BAR)


@pytest.mark.parametrize("valve", [proportional(), servo()], ids=["proportional", "servo"])
def test_full_command_passes_the_nominal_flow_over_each_edge(valve: ProportionalValve43 | ServoValve) -> None:
    forward = flows_of(valve, 1.0, 100, 0, 65, 35)
    assert forward["q_A"] == pytest.approx(40 * L_MIN, rel=1e-12)
    assert forward["q_B"] == pytest.approx(-40 * L_MIN, rel=1e-12)
    backward = flows_of(valve, -1.0, 100, 0, 35, 65)
    assert backward["q_A"] == pytest.approx(-40 * L_MIN, rel=1e-12)
    assert backward["q_B"] == pytest.approx(40 * L_MIN, rel=1e-12)


def test_per_loop_halves_the_drop_over_an_edge() -> None:
    """P at 35 bar, A joined to B: 40 l/min run round; per edge the same figures mean sqrt(2) less."""
    p_AB = root(lambda p: sum(flows_of(proportional("loop"), 1.0, 35, 0, p, p)[q] for q in ("q_A", "q_B")), 0, 35)
    assert flows_of(proportional("loop"), 1.0, 35, 0, p_AB, p_AB)["q_A"] == pytest.approx(40 * L_MIN, rel=1e-9)
    assert flows_of(proportional("edge"), 1.0, 35, 0, p_AB, p_AB)["q_A"] == pytest.approx(
        40 / sqrt(2) * L_MIN, rel=1e-9
    )


def test_leakage_per_valve_is_what_flows_from_p_to_t_with_blocked_ports() -> None:
    valve = proportional(leak_per="valve")
    p = root(lambda p: flows_of(valve, 0.0, 70, 0, p, p)["q_A"], 0, 70)
    assert flows_of(valve, 0.0, 70, 0, p, p)["q_T"] == pytest.approx(0.6 * L_MIN, rel=1e-9)
    assert flows_of(valve, 0.0, 70, 0, p, p)["q_P"] == pytest.approx(-0.6 * L_MIN, rel=1e-9)


def test_each_port_has_two_leakage_flows() -> None:
    """Per edge: at null 0.6 l/min from P into A at 70 bar drop, 0.6 l/min out of A to T at 70 bar drop."""
    valve = proportional(leak_per="edge")
    assert flows_of(valve, 0.0, 70, 0, 0, 0)["q_A"] == pytest.approx(0.6 * L_MIN, rel=1e-12)
    assert flows_of(valve, 0.0, 70, 0, 70, 70)["q_A"] == pytest.approx(-0.6 * L_MIN, rel=1e-12)
    assert flows_of(valve, 0.0, 140, 0, 70, 70)["q_A"] == pytest.approx(0.0, abs=1e-18)


@pytest.mark.parametrize(("U", "share"), [(0.0, 1.0), (0.05, 0.5), (0.1, 0.0), (-0.05, 0.5), (-0.6, 0.0)])
def test_leakage_is_gone_at_ten_percent_of_the_opening(U: float, share: float) -> None:
    leaking, tight = (
        flows_of(proportional(leak_per="edge"), U, 70, 0, 70, 70),
        flows_of(proportional(), U, 70, 0, 70, 70),
    )
    assert leaking["q_T"] - tight["q_T"] == pytest.approx(2 * 0.6 * share * L_MIN, abs=1e-15)


@pytest.mark.parametrize("valve", [proportional(leak_per="edge"), servo(overlap=0.04)], ids=["proportional", "servo"])
@given(U=spools, P=pressures, T=pressures, A=pressures, B=pressures)
def test_valves_only_dissipate_and_keep_the_oil(
    valve: ProportionalValve43 | ServoValve, U: float, P: float, T: float, A: float, B: float
) -> None:
    flows = flows_of(valve, U, P / BAR, T / BAR, A / BAR, B / BAR)
    q = [flows[f"q_{port}"] for port in "PTAB"]
    scale = sum(map(abs, q))
    assert abs(sum(q)) <= 1e-15 * scale
    assert sum(x * p for x, p in zip(q, (P, T, A, B), strict=True)) <= 1e-14 * scale * max(map(abs, (P, T, A, B)))


@given(U=spools, A=pressures, B=pressures)
def test_reversed_spool_swaps_the_ports(U: float, A: float, B: float) -> None:
    valve = proportional(leak_per="edge")
    forward, backward = flows_of(valve, U, 200, 0, A / BAR, B / BAR), flows_of(valve, -U, 200, 0, B / BAR, A / BAR)
    assert (forward["q_A"], forward["q_B"]) == (backward["q_B"], backward["q_A"])


@pytest.mark.parametrize("command", [1.0, 7.0, -1.0, -7.0])
def test_spool_follows_with_a_lag_of_45_degrees_at_f45_and_stays_within_its_stroke(command: float) -> None:
    """Step response 1 - exp(-2·pi·f45·t), analytic; commands beyond full scale are clipped."""
    bench = Bench(valve_circuit('type = "proportional_valve_4_3"\nf45 = "30 Hz"'))
    bench["joystick"] = command
    bench.run(0.005, 1e-4)
    assert bench["valve.U"] == pytest.approx(np.sign(command) * (1 - exp(-2 * pi * 30 * 0.005)), rel=1e-7)
    bench.run(1.0, 1e-3)
    assert abs(bench["valve.U"]) <= 1.0


def valve_circuit(lines: str) -> str:
    return f"""
        [components.valve]
        {lines}
        ports = {{ P = "P", T = "T", A = "P", B = "T" }}
        command = "joystick"
        nominal_flow = {{ flow = "40 l/min", drop = "35 bar", per = "edge" }}
        [components.supply]
        type = "pressure_source"
        ports = {{ P = "P" }}
        command = 1
        pressure = "200 bar"
        [components.tank]
        type = "tank"
        ports = {{ T = "T" }}
        """


@pytest.mark.parametrize("d", [0.4, 0.8])
def test_servo_spool_overshoot_follows_its_damping(d: float) -> None:
    """Peak of a second-order step response: 1 + exp(-pi·d/sqrt(1-d²)) at pi/(omega·sqrt(1-d²)). Analytic."""
    bench = Bench(valve_circuit(f'type = "servo_valve"\nf90 = "50 Hz"\ndamping = {d}'))
    bench["joystick"] = 0.5
    U = bench.record(("valve.U",), 0.1, 1e-4)["valve.U"]
    root_d = sqrt(1 - d * d)
    assert U.max() == pytest.approx(0.5 * (1 + exp(-pi * d / root_d)), rel=1e-3)
    assert (U.argmax() + 1) * 1e-4 == pytest.approx(1 / (2 * 50 * root_d), abs=2e-4)
    assert U[-1] == pytest.approx(0.5, rel=1e-2)


def test_servo_spool_lags_by_90_degrees_at_f90() -> None:
    """Driven by a sine at f90, the spool is at its peak -gain 1/(2·d)- when the command crosses zero. Analytic."""
    bench = Bench(valve_circuit('type = "servo_valve"\nf90 = "50 Hz"\ndamping = 0.7'))
    h, w = 1e-4, 2 * pi * 50
    for step in range(2000):
        bench["joystick"] = 0.3 * np.sin(w * (step + 0.5) * h)
        bench.run(h, h)
    assert bench["valve.U"] == pytest.approx(
        -0.3 / (2 * 0.7), rel=1e-3
    )  # t = 10 periods: the sine crosses zero upwards


def test_servo_spool_keeps_its_opening_rate() -> None:
    bench = Bench(valve_circuit('type = "servo_valve"\nf90 = "200 Hz"\nopening_rate = "20 1/s"'))
    bench["joystick"] = 1.0
    U = bench.record(("valve.U",), 0.1, 1e-4)["valve.U"]
    assert np.diff(U).max() <= 20 * 1e-4 * (1 + 1e-9)
    assert U[249] == pytest.approx(0.5, abs=0.03)  # 25 ms at 20 strokes per second, less the start
    assert U[-1] == pytest.approx(1.0, abs=1e-3)


def test_servo_valve_stays_shut_within_its_overlap() -> None:
    valve = ServoValve.model_validate({**datasheet(), "f90": "100 Hz", "overlap": 0.05})
    for U in (-0.05, 0.0, 0.03, 0.05):
        assert flows_of(valve, U, 100, 0, 50, 50)["q_A"] == 0.0
    assert flows_of(valve, 0.06, 100, 0, 50, 50)["q_A"] > 0.0
    assert flows_of(valve, 1.0, 100, 0, 65, 35)["q_A"] == pytest.approx(40 * L_MIN, rel=1e-12)


def test_null_offset_moves_the_spool_at_rest() -> None:
    bench = Bench(valve_circuit('type = "servo_valve"\nf90 = "100 Hz"\nnull_offset = 0.02'))
    bench["joystick"] = 0.0
    bench.run(0.2, 1e-4)
    assert bench["valve.U"] == pytest.approx(0.02, rel=1e-6)


def test_servo_valve_with_hysteresis_follows_a_loop_of_its_width() -> None:
    """Slowly to full command and back: the spool lags by half of the width each way; full command is full stroke.

    By hand: the play operator, Brokate & Sprekels 1996, ch. 2. A smaller reversal than the width moves nothing.
    """
    width = 0.04
    bench = Bench(valve_circuit(f'type = "servo_valve"\nf90 = "500 Hz"\nhysteresis = {width}'))

    def spool(*commands: float) -> float:
        for command in commands:
            bench["joystick"] = command
            bench.run(0.02, 1e-4)
        return float(bench["valve.U"])

    assert spool(0.5) == pytest.approx((0.5 - width / 2) / (1 - width / 2), abs=1e-6)
    assert spool(0.47) == pytest.approx((0.5 - width / 2) / (1 - width / 2), abs=1e-6)
    assert spool(1.0) == pytest.approx(1.0, abs=1e-6)
    assert spool(0.5) == pytest.approx((0.5 + width / 2) / (1 - width / 2), abs=1e-6)
    assert spool(0.0) == pytest.approx((width / 2) / (1 - width / 2), abs=1e-6)


@pytest.mark.parametrize("edge", ["PA", "PB", "AT", "BT"])
def test_each_edge_of_a_servo_valve_can_pass_another_flow(edge: str) -> None:
    """At full command, 35 bar over each edge: the nominal flow, of this edge 0.9 of it."""
    valve = servo(edges={edge: 0.9})
    forward, backward = flows_of(valve, 1.0, 70, 0, 35, 35), flows_of(valve, -1.0, 70, 0, 35, 35)
    found = {"PA": forward["q_A"], "BT": -forward["q_B"], "PB": backward["q_B"], "AT": -backward["q_A"]}
    for name, flow in found.items():
        assert flow == pytest.approx((0.9 if name == edge else 1.0) * 40 * L_MIN, rel=1e-12)


def test_incomplete_or_impossible_valves_are_refused() -> None:
    per_missing = {"nominal_flow": {"flow": "40 l/min", "drop": "35 bar"}, "f45": "30 Hz"}
    assert "nominal_flow.per: missing" in refusal(ProportionalValve43, **per_missing)
    wrong = {**datasheet("valve"), "f45": "30 Hz"}
    assert "\"valve\" is not one of 'edge' or 'loop'" in refusal(ProportionalValve43, **wrong)
    low = {**datasheet(), "f45": "30 Hz", "transition_pressure": "50 bar"}
    assert "nominal_flow.drop is 35 bar across one edge, below the transition_pressure of 50 bar" in refusal(
        ProportionalValve43, **low
    )
    assert "must be > 0" in refusal(ProportionalValve43, **datasheet(), f45="0 Hz")
    assert "must be < 0.5" in refusal(ServoValve, **datasheet(), f90="50 Hz", overlap=0.7)
