"""Directional valves: edges, centre positions, opening curves, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import BAR, Bench, pressures, refusal
from directional_bench import EDGE, POINT, SUPPLY, fed, flows, openings, sensing
from hypothesis import given
from hypothesis import strategies as st

from hilserver.components.base import Component, Fluid, Table
from hilserver.components.directional_valve_2_2 import DirectionalValve22
from hilserver.components.directional_valve_3_2 import DirectionalValve32
from hilserver.components.directional_valve_4_2 import DirectionalValve42
from hilserver.components.directional_valve_4_3 import DirectionalValve43
from hilserver.components.load_sensing_valve import LoadSensingValve
from hilserver.components.proportional_valve_4_3 import ProportionalValve43
from hilserver.components.shared.edges import larger
from hilserver.components.shared.spool import SpoolValve
from hilserver.numerics.table import interpolate

spools = st.floats(-1.0, 1.0)
CENTRES = ("closed", "open", "tandem", "float")


def valve_2_2(**values: Any) -> DirectionalValve22:
    return DirectionalValve22.model_validate({"nominal_flow": POINT, "f45": "30 Hz", **values})


def valve_3_2(**values: Any) -> DirectionalValve32:
    return DirectionalValve32.model_validate({"nominal_flow": POINT, "f45": "30 Hz", **values})


def valve_4_2(**values: Any) -> DirectionalValve42:
    return DirectionalValve42.model_validate({"nominal_flow": EDGE, "f45": "30 Hz", **values})


def valve_4_3(**values: Any) -> DirectionalValve43:
    return DirectionalValve43.model_validate({"nominal_flow": EDGE, "f45": "30 Hz", **values})


@pytest.mark.parametrize("rest", ["closed", "open"])
def test_2_2_passes_its_nominal_flow_where_it_is_open_and_nothing_where_it_is_shut(rest: str) -> None:
    valve = valve_2_2(rest=rest)
    opened, shut = (1.0, 0.0) if rest == "closed" else (0.0, 1.0)
    assert flows(valve, opened, P=25, A=20) == {"P": pytest.approx(-40), "A": pytest.approx(40)}
    assert flows(valve, opened, P=20, A=25)["A"] == pytest.approx(-40)
    assert flows(valve, shut, P=350)["A"] == 0.0
    assert flows(valve, 0.5, P=25, A=20)["A"] == pytest.approx(20)


@pytest.mark.parametrize("rest", ["A-T", "P-A"])
def test_3_2_passes_its_nominal_flow_in_both_positions(rest: str) -> None:
    valve = valve_3_2(rest=rest)
    to_P, to_T = (1.0, 0.0) if rest == "A-T" else (0.0, 1.0)
    assert flows(valve, to_P, P=25, A=20) == pytest.approx({"P": -40, "A": 40, "T": 0})
    assert flows(valve, to_T, P=25, A=5) == pytest.approx({"P": 0, "A": -40, "T": 40})
    assert flows(valve, 0.5, P=100, A=50) == pytest.approx({"P": 0, "A": 0, "T": 0})


@pytest.mark.parametrize("rest", ["crossed", "parallel"])
def test_4_2_passes_its_nominal_flow_over_each_edge(rest: str) -> None:
    valve = valve_4_2(rest=rest)
    parallel, crossed = (1.0, 0.0) if rest == "crossed" else (0.0, 1.0)
    assert flows(valve, parallel, P=100, A=95, B=5) == pytest.approx({"P": -40, "A": 40, "B": -40, "T": 40})
    assert flows(valve, crossed, P=100, B=95, A=5) == pytest.approx({"P": -40, "B": 40, "A": -40, "T": 40})
    assert flows(valve, 0.5, P=100, A=50, B=50) == pytest.approx({"P": 0, "A": 0, "B": 0, "T": 0})


@pytest.mark.parametrize("make", [valve_4_3, sensing])
@pytest.mark.parametrize("centre", CENTRES)
def test_4_3_passes_its_nominal_flow_over_each_edge_whatever_its_centre(
    make: Callable[..., Component], centre: str
) -> None:
    valve = make(centre=centre)
    LS = {"LS": 95} if "LS" in valve.hydraulic else {}
    nothing = dict.fromkeys(LS, 0.0)
    forward, backward = {"P": -40, "A": 40, "B": -40, "T": 40}, {"P": -40, "B": 40, "A": -40, "T": 40}
    assert flows(valve, 1.0, P=100, A=95, B=5, **LS) == pytest.approx({**forward, **nothing})
    assert flows(valve, -1.0, P=100, B=95, A=5, **LS) == pytest.approx({**backward, **nothing})


def test_a_drop_per_loop_is_that_of_two_edges() -> None:
    """60 l/min round the loop P-A-B-T at 10 bar: each edge takes 5 bar."""
    valve = valve_4_3(nominal_flow={"flow": "60 l/min", "drop": "10 bar", "per": "loop"})
    assert flows(valve, 1.0, P=10, A=5, B=5) == pytest.approx({"P": -60, "A": 60, "B": -60, "T": 60})


def test_overlap_and_underlap_by_pairs_of_edges() -> None:
    """By hand: opening (U - overlap)/(1 - overlap); with an underlap of 0.1 it is 0.1/1.1 at null."""
    valve = valve_4_3(overlap=0.2, overlap_T=-0.1)
    for U in (0.0, 0.1, 0.2, -0.2):
        assert flows(valve, U, P=5)["P"] == 0.0
    assert flows(valve, 0.6, P=5)["A"] == pytest.approx(40 * 0.5)
    assert flows(valve, -0.6, P=5)["B"] == pytest.approx(40 * 0.5)
    assert flows(valve, 0.0, A=5, B=5)["T"] == pytest.approx(2 * 40 * 0.1 / 1.1)
    assert flows(valve, 0.1, A=5)["T"] == pytest.approx(0.0, abs=1e-12)
    assert flows(valve, 0.45, B=5)["T"] == pytest.approx(40 * 0.5)
    two = valve_4_2(overlap=0.1)
    assert flows(two, 0.35, P=5) == pytest.approx({"P": -40 * 0.05 / 0.4, "B": 40 * 0.05 / 0.4, "A": 0, "T": 0})
    assert flows(two, 0.6, P=5, A=3, B=3) == pytest.approx({"P": 0, "A": 0, "B": 0, "T": 0}, abs=1e-12)
    assert flows(valve_2_2(overlap=0.2), 0.6, P=5)["A"] == pytest.approx(20)
    assert flows(valve_3_2(overlap=-0.1), 0.5, P=10, A=5) == pytest.approx(
        {"P": -40 * 0.1 / 0.6, "A": 0, "T": 40 * 0.1 / 0.6}
    )


def test_opening_curves_are_met_at_their_points_edge_by_edge() -> None:
    """Flow-signal curves as on a datasheet, at 5 bar over the edge; B-T stays as it would be without."""
    curves = {
        "PA": [[0.1, 0.0], [0.5, 0.1], [0.8, 0.6], [1.0, 1.0]],
        "PB": [[-1.0, 0.5], [-0.1, 0.0]],
        "AT": [[-1.0, 2.0], [-0.1, 0.0]],
        "PT": [[-0.1, 0.0], [0.0, 0.25], [0.1, 0.0]],
    }
    valve = valve_4_3(openings=curves)
    for edge, source, sink in (("PA", "P", "A"), ("PB", "P", "B"), ("AT", "A", "T"), ("PT", "P", "T")):
        for U, opening in curves[edge]:
            other = dict.fromkeys({"P", "A", "B", "T"} - {source, sink}, 5.0)
            q = flows(valve, U, **{**other, source: 10.0, sink: 5.0})
            assert min(q[sink], -q[source]) == pytest.approx(40 * opening, abs=1e-12)
    assert flows(valve, 0.65, P=5)["A"] == pytest.approx(40 * 0.35)
    assert flows(valve, 0.7, B=5)["T"] == pytest.approx(40 * 0.7)
    for simple in (valve_2_2(openings={"PA": curves["PA"]}), valve_3_2(openings={"PA": curves["PA"]})):
        assert flows(simple, 0.65, P=5)["A"] == pytest.approx(40 * 0.35)


def test_leakage_of_a_4_3_valve_is_that_of_its_datasheet_at_null_and_gone_at_ten_percent() -> None:
    """Per edge: 0.6 l/min at 70 bar. The nominal flow is not changed by it."""
    valve = valve_4_3(leakage={"flow": "0.6 l/min", "drop": "70 bar", "per": "edge"}, overlap=0.1)
    assert flows(valve, 0.0, P=70) == pytest.approx({"P": -1.2, "A": 0.6, "B": 0.6, "T": 0})
    assert flows(valve, 0.05, P=70, A=70, B=70)["T"] == pytest.approx(2 * 0.3)
    assert flows(valve, 0.1, P=70)["P"] == 0.0
    assert flows(valve, 1.0, P=5)["A"] == pytest.approx(40)
    whole = valve_4_3(leakage={"flow": "0.6 l/min", "drop": "70 bar", "per": "valve"})
    assert flows(whole, 0.0, P=70, A=35, B=35) == pytest.approx({"P": -0.6, "A": 0, "B": 0, "T": 0.6})


@pytest.mark.parametrize("U", [0.0, 0.5, 1.0])
def test_shut_edges_of_two_position_valves_leak_everywhere(U: float) -> None:
    """0.6 l/min at 100 bar over each shut edge, also where it is laminar; an open one passes its nominal flow."""
    leaking = {"leakage": {"flow": "0.6 l/min", "drop": "100 bar"}, "overlap": 0.1}
    four = flows(valve_4_2(**leaking), U, P=100, A=100 if U == 1.0 else 0, B=100 if U == 0.0 else 0)
    assert four["P"] == pytest.approx(-0.6 * (2 if U == 0.5 else 1))
    assert flows(valve_3_2(**leaking), 0.0, P=100)["A"] == pytest.approx(0.6)
    assert flows(valve_3_2(**leaking), 1.0, P=100, A=100)["T"] == pytest.approx(0.6)
    assert flows(valve_2_2(**leaking), 0.0, P=100)["A"] == pytest.approx(0.6)
    assert flows(valve_2_2(**leaking), 1.0, P=5)["A"] == pytest.approx(40)


@given(x=st.lists(spools, min_size=4, max_size=8, unique=True), y=st.lists(openings, min_size=8, max_size=8), at=spools)
def test_the_larger_of_two_curves_is_the_larger_everywhere(x: list[float], y: list[float], at: float) -> None:
    def value(table: Table) -> float:
        return float(np.interp(at, table.x, table.y))

    half = len(x) // 2
    one, other = (
        Table(tuple(sorted(x[:half])), tuple(y[:half])),
        Table(tuple(sorted(x[half:])), tuple(y[half : len(x)])),
    )
    both = larger(one, other)
    assert all(b > a for a, b in zip(both.x, both.x[1:], strict=False))
    assert value(both) == pytest.approx(max(value(one), value(other)), abs=1e-6)


def test_closed_centre_blocks_all_ports() -> None:
    assert set(flows(valve_4_3(), 0.0, P=200, A=120, B=30).values()) == {0.0}


def test_float_centre_relieves_the_working_ports_and_blocks_the_pump() -> None:
    """By hand: Q = 3 % of 40 l/min·sqrt(20/5) over A-T, ·sqrt(45/5) over B-T."""
    q = flows(valve_4_3(centre="float", centre_opening=0.03), 0.0, P=200, A=20, B=45)
    assert q == pytest.approx({"P": 0, "A": -2.4, "B": -3.6, "T": 6.0})


def test_tandem_centre_lets_the_pump_run_to_tank_and_holds_the_load() -> None:
    """By hand: half the opening, 40 l/min·0.5·sqrt(20/5)."""
    q = flows(valve_4_3(centre="tandem", centre_opening=0.5), 0.0, P=20, A=150, B=30)
    assert q == pytest.approx({"P": -40, "A": 0, "B": 0, "T": 40})


def test_open_centre_connects_all() -> None:
    """By hand: over A-T and B-T 40 l/min·sqrt(p/5), over P-A and P-B ·sqrt((45 - p)/5)."""
    q = flows(valve_4_3(centre="open"), 0.0, P=45, A=25, B=20)
    PA, PB, AT, BT = (40 * sqrt(p / 5) for p in (20, 25, 25, 20))
    assert q == pytest.approx({"P": -PA - PB, "A": PA - AT, "B": PB - BT, "T": AT + BT})


@pytest.mark.parametrize(
    ("centre", "supply", "port"),
    [("closed", 155.0, None), ("tandem", 1.25, None), ("float", 155.0, 0.0), ("open", 0.625, 0.3125)],
)
def test_centre_positions_in_a_circuit_with_a_pump(centre: str, supply: float, port: float | None) -> None:
    """20 l/min from the pump, A and B blocked. By hand: shut, the relief valve takes it at 155 bar; tandem: one edge,
    5·(20/40)² bar; open: two ways of 10 l/min over two edges of 5·(10/40)² bar each. A and B started at 50 bar."""
    bench = Bench(
        fed(f'type = "directional_valve_4_3"\nf45 = "30 Hz"\ncentre = "{centre}"\ntransition_pressure = "0.2 bar"')
        + """
        [components.pump]
        type = "flow_source"
        ports = { P = "P", T = "T" }
        command = 1
        flow = "20 l/min"
        [components.P_line]
        type = "volume"
        ports = { P = "P" }
        volume = "0.5 l"
        [components.relief]
        type = "relief_valve"
        ports = { P = "P", T = "T" }
        opening_pressure = "150 bar"
        override = [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]]
        """
    )
    bench.run(1.0, 5e-5)
    assert bench["P.p"] / BAR == pytest.approx(supply, rel=1e-4)
    for name in ("A.p", "B.p"):
        assert bench[name] / BAR == pytest.approx(50.0 if port is None else port, rel=1e-3, abs=1e-3)


def test_connections_of_the_centre_close_with_the_spools_travel() -> None:
    """Evenly from null to 0.4: at 0.3 a quarter is left; beyond, P-A has no rival but its own opening."""
    valve = valve_4_3(centre="tandem", centre_travel=0.4)
    for U, share in ((0.0, 1.0), (0.3, 0.25), (-0.3, 0.25), (0.4, 0.0), (1.0, 0.0)):
        assert flows(valve, U, P=5, A=5, B=5)["P"] == pytest.approx(-40 * share, abs=1e-12)
    floating = valve_4_3(centre="float", centre_opening=0.2, centre_travel=0.4)
    for U, share in ((0.0, 0.2), (0.2, 0.1), (0.4, 0.0), (-0.1, 0.2), (-0.2, 0.2), (-0.6, 0.6)):
        assert flows(floating, U, P=5, A=5, B=0)["T"] == pytest.approx(40 * share, abs=1e-12)


FOUR_WAY = {
    **{f"4/3 {centre}": valve_4_3(centre=centre, centre_opening=0.4, overlap=0.1) for centre in CENTRES},
    "leaking": valve_4_3(overlap_T=-0.05, leakage={"flow": "0.6 l/min", "drop": "70 bar", "per": "edge"}),
    "curves": valve_4_3(openings={"PA": [[-0.2, 0.3], [0.1, 0], [0.4, 0.9], [1, 0.2]], "PT": [[0, 1], [0.5, 0]]}),
    "load sensing": sensing(centre="float", overlap=-0.1),
}
ALL = {
    **FOUR_WAY,
    "4/2": valve_4_2(overlap=-0.1, leakage={"flow": "0.1 l/min", "drop": "100 bar"}),
    "3/2": valve_3_2(overlap=-0.1, leakage={"flow": "0.1 l/min", "drop": "100 bar"}),
    "2/2": valve_2_2(leakage={"flow": "0.1 l/min", "drop": "100 bar"}),
}


@pytest.mark.parametrize("valve", ALL.values(), ids=ALL)
@given(U=spools, p=st.lists(pressures, min_size=5, max_size=5))
def test_valves_only_dissipate_and_keep_the_oil(valve: SpoolValve, U: float, p: list[float]) -> None:
    at = dict(zip(valve.hydraulic, p, strict=False))
    q = flows(valve, max(U, valve.least), **{port: value / BAR for port, value in at.items()})
    scale = sum(map(abs, q.values()))
    assert abs(sum(q.values())) <= 1e-14 * scale
    assert sum(q[port] * at[port] for port in at) <= 1e-13 * scale * max(map(abs, p))


@pytest.mark.parametrize("kind", [k for k in FOUR_WAY if k != "curves"])
@given(U=spools, p=st.lists(pressures, min_size=5, max_size=5))
def test_a_mirrored_spool_gives_mirrored_flows(kind: str, U: float, p: list[float]) -> None:
    """Curves given by the user need not be symmetric; all others are."""
    P, T, A, B, LS = (value / BAR for value in p)
    more = {"LS": LS} if kind == "load sensing" else {}
    forward = flows(FOUR_WAY[kind], U, P=P, T=T, A=A, B=B, **more)
    backward = flows(FOUR_WAY[kind], -U, P=P, T=T, A=B, B=A, **more)
    expected = {"P": forward["P"], "T": forward["T"], "A": forward["B"], "B": forward["A"]}
    scale = max(map(abs, forward.values()))
    assert backward == pytest.approx(expected | {port: forward[port] for port in more}, abs=1e-12 * scale, rel=1e-12)


def test_defaults_give_the_plain_proportional_valve() -> None:
    """Without options both types are the same valve, in spool and flows, at every step."""
    plain, full = (
        Bench(fed(f'type = "{kind}"\nf45 = "30 Hz"') + SUPPLY)
        for kind in ("proportional_valve_4_3", "directional_valve_4_3")
    )
    for u in (0.5, -1.0, 0.02, 3.0):
        for bench in (plain, full):
            bench["u"] = u
            bench.run(0.02, 1e-4)
        for name in ("valve.U", "A.p", "B.p", "valve.q_A", "valve.q_P"):
            assert full[name] == pytest.approx(plain[name], rel=1e-12)
    assert isinstance(ProportionalValve43.model_validate({"nominal_flow": EDGE, "f45": "30 Hz"}), Component)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "spool dynamics: give one of f45, time_constant"),
        ({"f45": "20 Hz", "f90": "40 Hz"}, 'switching (on/off), or lag = "none", not f45 and f90'),
        ({"f45": "20 Hz", "damping": 0.7}, "damping belongs to f90"),
        (
            {"switching": {"on": "40 ms", "off": "30 ms"}, "hysteresis": 0.04},
            "hysteresis: for proportional valves only",
        ),
        ({"switching": {"on": "40 ms"}}, "switching.off: missing"),
        ({"switching": {"on": "40 ms", "off": "30 ms", "detent": True}}, "never return to its centre"),
        ({"bode": [["20 Hz", 0, 25], ["40 Hz", -3, 90]]}, "negative where the valve lags"),
        ({"f45": "20 Hz", "delay": "-2 ms"}, "must be >= 0"),
        ({"f45": "20 Hz", "centre": "tandom"}, '"tandom" is not one of'),
        ({"f45": "20 Hz", "openings": {"PA": [[0.5, 0], [0.2, 1]]}}, "with increasing spool position"),
        ({"f45": "20 Hz", "openings": {"PA": [[0.5, 0]]}}, "at least two points"),
        ({"f45": "20 Hz", "openings": {"PA": [[0, 0], [1, -1]]}}, "must be >= 0"),
        ({"f45": "20 Hz", "openings": {"PX": [[0, 0], [1, 1]]}}, "unknown key. Allowed: AT, BT, PA, PB, PT"),
        ({"f45": "20 Hz", "overlap": 0.6}, "must be < 0.5"),
    ],
)
def test_impossible_4_3_valves_are_refused_with_a_reason(values: dict[str, Any], reason: str) -> None:
    assert reason in refusal(DirectionalValve43, nominal_flow=EDGE, **values)


def test_nominal_points_below_the_transition_are_refused_for_valves_with_edges() -> None:
    low = {"flow": "40 l/min", "drop": "1 bar", "per": "loop"}
    for kind in (DirectionalValve42, DirectionalValve43, LoadSensingValve):
        assert "below the transition_pressure of 1 bar" in refusal(kind, nominal_flow=low, f45="20 Hz")


def test_two_position_valves_have_only_the_curves_of_their_edges() -> None:
    curves = {"BT": [[0, 0], [1, 1]]}
    assert "unknown key" in refusal(DirectionalValve22, nominal_flow=POINT, f45="20 Hz", openings=curves)
    assert "unknown key" in refusal(DirectionalValve32, nominal_flow=POINT, f45="20 Hz", openings=curves)


def test_flow_follows_the_flow_signal_curve_of_the_datasheet() -> None:
    """At each point of the curve, at the drop it was measured at, the steady flow is the datasheet's to 1e-12."""
    points = [[0.1, "0 l/min"], [0.5, "12 l/min"], [1.0, "40 l/min"]]
    valve = DirectionalValve43.model_validate(
        {
            "nominal_flow": {"flow": "40 l/min", "drop": "35 bar", "per": "edge"},
            "flow_signal": points,
            "f45": "30 Hz",
        }
    )
    table = valve.parameters(Fluid())["table_PA"]
    C_v = valve.parameters(Fluid())["C_v"]
    for signal, flow in ((0.1, 0.0), (0.5, 12.0), (1.0, 40.0)):
        values = np.array([len(table.x), *table.x, *table.y], dtype=float)
        assert C_v * interpolate((values, 0), signal) * sqrt(35e5) == pytest.approx(flow / 6e4, rel=1e-12, abs=1e-18)


def test_a_flow_signal_curve_and_an_overlap_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="flow_signal: the curve already contains the overlap"):
        DirectionalValve43.model_validate(
            {
                "nominal_flow": {"flow": "40 l/min", "drop": "35 bar", "per": "edge"},
                "flow_signal": [[0.0, "0 l/min"], [1.0, "40 l/min"]],
                "overlap": 0.1,
                "f45": "30 Hz",
            }
        )
