"""Flow valves: two-way and three-way flow control, pressure compensators."""

from __future__ import annotations

from math import exp, sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import BAR, L_MIN, Bench, evaluate, pressures, refusal, root
from hypothesis import given
from hypothesis import strategies as st

from hilserver.circuit.engine import INTEGRATOR
from hilserver.circuit.pack import INTEGRATORS
from hilserver.components.flow_control_valve_2_way import FlowControlValve2Way
from hilserver.components.flow_control_valve_3_way import FlowControlValve3Way
from hilserver.components.pressure_compensator import PressureCompensator

openings = st.floats(0.0, 1.0)

TWO_WAY: dict[str, Any] = {
    "flow": "20 l/min",
    "minimal_drop": "8 bar",
    "reverse_check": {"flow": "40 l/min", "drop": "5 bar"},
    "response_time": "20 ms",
}
THREE_WAY: dict[str, Any] = {
    "flow": "20 l/min",
    "drop": "8 bar",
    "bypass_flow": {"flow": "40 l/min", "drop": "6 bar"},
    "control_range": "2 bar",
    "response_time": "10 ms",
}
COMPENSATOR: dict[str, Any] = {
    "drop": "7 bar",
    "nominal_flow": {"flow": "40 l/min", "drop": "5 bar"},
    "control_range": "2 bar",
    "response_time": "10 ms",
}


def source(name: str, node: str, signal: str = "1", bar: float = 100.0) -> str:
    return f"""
        [components.{name}]
        type = "pressure_source"
        ports = {{ P = "{node}" }}
        command = {signal}
        pressure = "{bar} bar"
        """


def throttle(name: str, a: str, b: str, flow: float, drop: float) -> str:
    return f"""
        [components.{name}]
        type = "orifice"
        ports = {{ A = "{a}", B = "{b}" }}
        nominal_flow = {{ flow = "{flow} l/min", drop = "{drop} bar" }}
        """


def volume(node: str, litres: float = 1.0) -> str:
    return f'[components.V_{node}]\ntype = "volume"\nports = {{ P = "{node}" }}\nvolume = "{litres} l"\n'


def pump(node: str, flow: float) -> str:
    return (
        f'[components.pump]\ntype = "flow_source"\nports = {{ P = "{node}", T = "T" }}\ncommand = 1\n'
        f'flow = "{flow} l/min"\n'
    )


TANK = '[components.tank]\ntype = "tank"\nports = { T = "T" }\n'


def passive(flows: dict[str, float], **p: float) -> None:
    """Fails if oil is lost or energy made; ``p``: pressure by port."""
    q = np.array([flows[f"q_{port}"] for port in p])
    level = np.array(list(p.values()))
    assert abs(q.sum()) <= 1e-15 * abs(q).sum()
    assert q @ level <= 1e-14 * abs(q).sum() * abs(level).max()


# --- two-way flow control --------------------------------------------------------------------------------------------

HELD = """
[components.valve]
type = "flow_control_valve_2_way"
ports = { A = "A", B = "T" }
flow = "20 l/min"
minimal_drop = "8 bar"
response_time = "20 ms"
"""


@pytest.mark.parametrize("drop", [8.0, 20.0, 100.0, 315.0])
@pytest.mark.parametrize("command", [0.1, 0.5, 1.0, 3.0])
def test_two_way_valve_holds_its_flow_over_the_drop(drop: float, command: float) -> None:
    bench = Bench(HELD + f"command = {command}\n" + source("supply", "A", bar=drop) + TANK)
    bench.run(1.0, 1e-3)
    assert bench["valve.q_B"] == pytest.approx(min(command, 1.0) * 20 * L_MIN, rel=1e-9)


def test_two_way_valve_needs_no_command() -> None:
    bench = Bench(HELD + source("supply", "A") + TANK)
    bench.run(1.0, 1e-3)
    assert bench["valve.q_B"] == pytest.approx(20 * L_MIN, rel=1e-9)


def test_two_way_valve_is_a_throttle_below_its_minimal_drop() -> None:
    """Half the flow at a quarter of the minimal drop."""
    bench = Bench(HELD + source("supply", "A", bar=2.0) + TANK)
    bench.run(1.0, 1e-3)
    assert bench["valve.q_B"] == pytest.approx(10 * L_MIN, rel=1e-9)


def test_two_way_valve_recovers_from_a_pressure_step_with_its_response_time() -> None:
    """From rest at the minimal drop to 100 bar: sqrt(100/8) times the flow, decaying as exp(-t/tau). Analytic."""
    bench = Bench(HELD + source("supply", "A", '"level"') + TANK)
    bench["level"] = 0.08
    bench.run(1.0, 1e-3)
    bench["level"] = 1.0
    q = bench.record(("valve.q_B",), 0.06, 1e-4)["valve.q_B"] / (20 * L_MIN)
    t = np.arange(1, 601) * 1e-4
    assert q == pytest.approx(1.0 + (sqrt(100 / 8) - 1.0) * np.exp(-t / 0.02), rel=1e-6)


def test_two_way_valve_passes_freely_backwards_through_its_check() -> None:
    """5 bar backwards at command 0: the check's 40 l/min; without check nothing."""
    flows = evaluate(FlowControlValve2Way.model_validate(TWO_WAY), p_A=0.0, p_B=5 * BAR, U=0.0, u_command=0.0)
    assert flows["q_A"] == pytest.approx(40 * L_MIN, rel=1e-12)
    plain = FlowControlValve2Way.model_validate({"flow": "20 l/min"})
    assert evaluate(plain, p_A=0.0, p_B=5 * BAR, U=0.0, u_command=0.0)["q_A"] == 0.0


@given(p_A=pressures, p_B=pressures, U=openings, u=st.floats(-2, 2))
def test_two_way_valve_only_dissipates(p_A: float, p_B: float, U: float, u: float) -> None:
    flows = evaluate(FlowControlValve2Way.model_validate(TWO_WAY), p_A=p_A, p_B=p_B, U=U, u_command=u)
    passive(flows, A=p_A, B=p_B)
    assert -1e-12 <= U + 0.02 * flows["dU"] <= 1.0 + 1e-12  # where it would rest


def test_two_way_valve_meters_a_changing_load() -> None:
    """Supply 200 bar, load pressure from 20 to 160 bar: the settled flow is the same within 1e-6."""
    flows = []
    for load in (20.0, 90.0, 160.0):
        bench = Bench(
            HELD.replace('B = "T"', 'B = "B"')
            + source("supply", "A", bar=200.0)
            + volume("B")
            + throttle("load", "B", "T", 20.0, load)
            + TANK
        )
        bench.run(2.0, 1e-4)
        assert bench["B.p"] == pytest.approx(load * BAR, rel=1e-5)
        flows.append(bench["valve.q_B"])
    assert flows == pytest.approx([20 * L_MIN] * 3, rel=1e-6)


# --- three-way flow control ------------------------------------------------------------------------------------------


def three_way(delivered: float, load: float, command: float = 1.0) -> Bench:
    """Pump flow in l/min; a load orifice that takes 20 l/min at this pressure in bar."""
    return Bench(
        f"""
        [components.valve]
        type = "flow_control_valve_3_way"
        ports = {{ P = "P", A = "A", T = "T" }}
        command = {command}
        flow = "20 l/min"
        drop = "8 bar"
        bypass_flow = {{ flow = "40 l/min", drop = "6 bar" }}
        control_range = "2 bar"
        """
        + pump("P", delivered)
        + volume("P")
        + volume("A")
        + throttle("load", "A", "T", 20.0, load)
        + TANK
    )


@pytest.mark.parametrize("load", [10.0, 60.0, 200.0])
def test_three_way_valve_holds_its_flow_at_its_bypass_flow(load: float) -> None:
    """Pump 60 l/min: 40 to the tank, 20 to the load, whatever its pressure; the pump is 8 bar above the load."""
    bench = three_way(60.0, load)
    bench.run(3.0, 1e-4)
    assert bench["valve.q_A"] == pytest.approx(20 * L_MIN, rel=1e-5)
    assert (bench["P.p"] - bench["A.p"]) / BAR == pytest.approx(8.0, abs=1e-3)
    assert bench["A.p"] / BAR == pytest.approx(load, rel=1e-4)


@pytest.mark.parametrize("load", [10.0, 100.0])
def test_three_way_valve_droops_with_a_small_bypass_flow(load: float) -> None:
    """Pump 30 l/min: with x l/min to the load, the drop is 6 bar + 2 bar·(30 - x)/40 = 8 bar·(x/20)². By hand."""
    x = root(lambda x: 6.0 + 2.0 * (30.0 - x) / 40.0 - 8.0 * (x / 20.0) ** 2, 10.0, 20.0)
    bench = three_way(30.0, load)
    bench.run(3.0, 1e-4)
    assert bench["valve.q_A"] == pytest.approx(x * L_MIN, rel=1e-5)


def test_three_way_valve_in_proportion_to_its_command() -> None:
    """Pump 50 l/min, half command: 10 l/min at 8 bar drop, 40 l/min to the tank."""
    bench = three_way(50.0, 100.0, 0.5)
    bench.run(3.0, 1e-4)
    assert bench["valve.q_A"] == pytest.approx(10 * L_MIN, rel=1e-5)


@given(p_P=pressures, p_A=pressures, p_T=pressures, U=openings, u=st.floats(-2, 2), check=st.booleans())
def test_three_way_valve_only_dissipates(p_P: float, p_A: float, p_T: float, U: float, u: float, check: bool) -> None:
    extra = {"reverse_check": TWO_WAY["reverse_check"]} if check else {}
    valve = FlowControlValve3Way.model_validate({**THREE_WAY, **extra})
    flows = evaluate(valve, p_P=p_P, p_A=p_A, p_T=p_T, U=U, u_command=u)
    passive(flows, P=p_P, A=p_A, T=p_T)
    assert -1e-12 <= U + 0.01 * flows["dU"] <= 1.0 + 1e-12


# --- pressure compensator --------------------------------------------------------------------------------------------


def upstream(supply: float, load: float, edge: float = 40.0) -> Bench:
    """Compensator, metering edge (``edge`` l/min at 7 bar), load orifice (40 l/min at ``load`` bar)."""
    return Bench(
        """
        [components.compensator]
        type = "pressure_compensator"
        ports = { P = "P", A = "M", X = "A" }
        drop = "7 bar"
        nominal_flow = { flow = "40 l/min", drop = "5 bar" }
        """
        + source("supply", "P", bar=supply)
        + throttle("edge", "M", "A", edge, 7.0)
        + volume("M", 0.3)
        + volume("A")
        + throttle("load", "A", "T", 40.0, load)
        + TANK
    )


@pytest.mark.parametrize(("supply", "load"), [(100.0, 20.0), (200.0, 20.0), (315.0, 20.0), (200.0, 150.0)])
def test_compensator_before_the_edge_keeps_its_drop_at_nominal_flow(supply: float, load: float) -> None:
    bench = upstream(supply, load)
    bench.run(2.0, 1e-4)
    assert (bench["M.p"] - bench["A.p"]) / BAR == pytest.approx(7.0, abs=1e-3)
    assert bench["edge.q_B"] == pytest.approx(40 * L_MIN, rel=1e-4)


def test_compensator_droops_by_its_control_range() -> None:
    """A metering edge a quarter as large: x/10 = sqrt(drop/7), drop = 7 bar + 2 bar·(1 - x/40); solved by hand."""
    x = root(lambda x: 7.0 + 2.0 * (1.0 - x / 40.0) - 7.0 * (x / 10.0) ** 2, 5.0, 20.0)
    bench = upstream(200.0, 20.0, edge=10.0)
    bench.run(2.0, 1e-4)
    assert bench["edge.q_B"] == pytest.approx(x * L_MIN, rel=1e-4)


def test_compensator_is_fully_open_at_insufficient_supply() -> None:
    bench = upstream(30.0, 20.0)
    bench.run(2.0, 1e-4)
    assert bench["compensator.U"] == pytest.approx(1.0, abs=1e-9)
    assert bench["edge.q_B"] < 40 * L_MIN


def test_flow_sharing_by_compensators_behind_the_edges() -> None:
    """Two sections of a pump too small for both: the flows keep the ratio of their edges whatever the loads.

    Both compensators hold the pressure behind their edge at the highest load's plus 5 bar less droop. Behind the edge
    of the higher load it is the same as of the lower: the drops over the edges are alike within the droop.
    """
    sections = [
        f"""
        [components.share_{i}]
        type = "pressure_compensator"
        place = "downstream"
        ports = {{ P = "M{i}", A = "A{i}", X = "A1" }}
        drop = "5 bar"
        control_range = "0.5 bar"
        nominal_flow = {{ flow = "40 l/min", drop = "4 bar" }}
        """
        + throttle(f"edge_{i}", "P", f"M{i}", edge, 10.0)
        + volume(f"M{i}", 0.5)
        + volume(f"A{i}")
        + throttle(f"load_{i}", f"A{i}", "T", 20.0, load)
        for i, edge, load in ((1, 40.0, 120.0), (2, 20.0, 30.0))
    ]
    bench = Bench("".join(sections) + pump("P", 40.0) + volume("P") + TANK)
    bench.run(3.0, 1e-4)
    first, second = bench["edge_1.q_B"], bench["edge_2.q_B"]
    assert bench["A1.p"] > bench["A2.p"] + 50 * BAR
    assert first + second == pytest.approx(40 * L_MIN, rel=1e-6)
    assert first / second == pytest.approx(2.0, rel=0.05)


def test_compensator_as_bypass_of_a_fixed_pump() -> None:
    """P to the tank, pump 8 bar above the load-sensing line at 40 l/min bypass flow."""
    bench = Bench(
        """
        [components.bypass]
        type = "pressure_compensator"
        place = "downstream"
        ports = { P = "P", A = "T", X = "LS" }
        drop = "8 bar"
        nominal_flow = { flow = "40 l/min", drop = "6 bar" }
        """
        + pump("P", 40.0)
        + volume("P")
        + source("load", "LS", bar=110.0)
        + TANK
    )
    bench.run(2.0, 1e-4)
    assert bench["P.p"] / BAR == pytest.approx(118.0, abs=1e-3)


def test_compensator_moves_with_its_response_time() -> None:
    """Pressures held: U = U_rest + (1 - U_rest)·exp(-t/tau) from fully open. Analytic."""
    bench = Bench(
        """
        [components.compensator]
        type = "pressure_compensator"
        ports = { P = "P", A = "M", X = "T" }
        drop = "7 bar"
        nominal_flow = { flow = "40 l/min", drop = "5 bar" }
        response_time = "15 ms"
        """
        + source("supply", "P", bar=100.0)
        + source("held", "M", bar=8.0)
        + TANK
    )
    bench.run(0.03, 1e-4)
    rest = 0.5 * sqrt(5.0 / 92.0)  # half of the range above its drop: half the nominal flow, at 92 bar
    assert bench["compensator.U"] == pytest.approx(rest + (1.0 - rest) * exp(-2.0), rel=1e-6)


@pytest.mark.parametrize("blocks", [False, True])
def test_compensator_with_check_function_holds_the_load(blocks: bool) -> None:
    valve = PressureCompensator.model_validate({**COMPENSATOR, "blocks_reverse_flow": blocks})
    flows = evaluate(valve, p_P=50 * BAR, p_A=55 * BAR, p_X=55 * BAR, U=1.0)
    assert flows["q_P"] == pytest.approx(0.0 if blocks else 40 * L_MIN, rel=1e-12)


@given(p_P=pressures, p_A=pressures, p_X=pressures, U=openings, place=st.sampled_from(["upstream", "downstream"]))
def test_compensator_only_dissipates(p_P: float, p_A: float, p_X: float, U: float, place: str) -> None:
    valve = PressureCompensator.model_validate({**COMPENSATOR, "place": place})
    flows = evaluate(valve, p_P=p_P, p_A=p_A, p_X=p_X, U=U)
    passive(flows, P=p_P, A=p_A)
    assert -1e-12 <= U + 0.01 * flows["dU"] <= 1.0 + 1e-12


# --- all -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("integrator", ["rk4", "rosenbrock"])
def test_flow_valves_come_to_rest_at_100_microseconds(integrator: str) -> None:
    """Started from nothing with default times: no chatter is left after 1 s."""
    for bench, name in ((three_way(40.0, 60.0), "P.p"), (upstream(160.0, 60.0), "M.p")):
        bench.packed.index[INTEGRATOR] = INTEGRATORS[integrator]
        bench.run(1.5, 1e-4)
        assert np.ptp(bench.record((name,), 0.1, 1e-4)[name]) < 1e-3 * BAR


def test_impossible_flow_valves_are_refused() -> None:
    low = "minimal_drop of 0.5 bar is below the transition_pressure of 1 bar"
    assert low in refusal(FlowControlValve2Way, **{**TWO_WAY, "minimal_drop": "0.5 bar"})
    wide = "control_range 9 bar must be less than the drop of 8 bar"
    assert wide in refusal(FlowControlValve3Way, **{**THREE_WAY, "control_range": "9 bar"})
    open_at_rest = "the compensator would be open at zero difference"
    assert open_at_rest in refusal(
        PressureCompensator, **{**COMPENSATOR, "place": "downstream", "control_range": "9 bar"}
    )
    assert "not one of 'upstream' or 'downstream'" in refusal(PressureCompensator, **COMPENSATOR, place="above")
    assert "must be > 0" in refusal(FlowControlValve2Way, **{**TWO_WAY, "flow": "0 l/min"})
