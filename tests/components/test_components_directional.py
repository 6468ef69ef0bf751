"""Directional valves: edges, centre positions, opening curves, how the spool moves, load sensing."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, pi, sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import BAR, L_MIN, Bench, program, refusal, root
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from hilserver.circuit.analysis import Analysis
from hilserver.components.base import Component, Fluid, Table
from hilserver.components.directional_valve_2_2 import DirectionalValve22
from hilserver.components.directional_valve_3_2 import DirectionalValve32
from hilserver.components.directional_valve_4_2 import DirectionalValve42
from hilserver.components.directional_valve_4_3 import DirectionalValve43
from hilserver.components.load_sensing_valve import LoadSensingValve
from hilserver.components.proportional_valve_4_3 import ProportionalValve43
from hilserver.components.shared.edges import larger
from hilserver.components.shared.spool import SpoolValve
from hilserver.numerics.spool import EMPTY, LINE_SIZE, PLACES, through_delay
from hilserver.numerics.table import interpolate

Floats = NDArray[np.float64]

pressures = st.floats(-0.9 * BAR, 350 * BAR)
spools = st.floats(-1.0, 1.0)
openings = st.floats(0.0, 1.0)

POINT = {"flow": "40 l/min", "drop": "5 bar"}
EDGE = {**POINT, "per": "edge"}
C_V = 40 * L_MIN / sqrt(5 * BAR)
CENTRES = ("closed", "open", "tandem", "float")


def valve_2_2(**values: Any) -> DirectionalValve22:
    return DirectionalValve22.model_validate({"nominal_flow": POINT, "f45": "30 Hz", **values})


def valve_3_2(**values: Any) -> DirectionalValve32:
    return DirectionalValve32.model_validate({"nominal_flow": POINT, "f45": "30 Hz", **values})


def valve_4_2(**values: Any) -> DirectionalValve42:
    return DirectionalValve42.model_validate({"nominal_flow": EDGE, "f45": "30 Hz", **values})


def valve_4_3(**values: Any) -> DirectionalValve43:
    return DirectionalValve43.model_validate({"nominal_flow": EDGE, "f45": "30 Hz", **values})


def sensing(**values: Any) -> LoadSensingValve:
    return LoadSensingValve.model_validate({"nominal_flow": EDGE, "f45": "30 Hz", **values})


def flows(valve: Component, U: float, **bar: float) -> dict[str, float]:
    """Flows into the ports in l/min with the spool at U and pressures in bar (0 where not given)."""
    known: dict[str, Any] = {"U": U, **{f"p_{port}": 0.0 for port in valve.hydraulic}}
    known |= {f"p_{port}": p * BAR for port, p in bar.items()}
    for name, value in valve.parameters(Fluid()).items():
        known[name] = (np.array([len(value.x), *value.x, *value.y]), 0) if isinstance(value, Table) else value
    (kernel,) = (k for k in valve.kernels if "q_P" in k.results)
    results = dict(zip(kernel.results, kernel.function(*(known[name] for name in kernel.arguments)), strict=True))
    return {name.removeprefix("q_"): q / L_MIN for name, q in results.items() if name.startswith("q_")}


# --- edges -----------------------------------------------------------------------------------------------------------


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


# --- centre positions ------------------------------------------------------------------------------------------------


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


def fed(lines: str, ports: str = "") -> str:
    """A four-way valve to tank and two lines of 0.5 l at 50 bar, without a supply."""
    return f"""
        [nodes]
        A = {{ pressure = "50 bar" }}
        B = {{ pressure = "50 bar" }}
        [components.valve]
        {lines}
        ports = {{ P = "P", T = "T", A = "A", B = "B"{ports} }}
        command = "u"
        nominal_flow = {{ flow = "40 l/min", drop = "5 bar", per = "edge" }}
        [components.tank]
        type = "tank"
        ports = {{ T = "T" }}
        [components.A_line]
        type = "volume"
        ports = {{ P = "A" }}
        volume = "0.5 l"
        [components.B_line]
        type = "volume"
        ports = {{ P = "B" }}
        volume = "0.5 l"
        """


SUPPLY = """
        [components.supply]
        type = "pressure_source"
        ports = { P = "P" }
        command = 1
        pressure = "140 bar"
        """


def test_connections_of_the_centre_close_with_the_spools_travel() -> None:
    """Evenly from null to 0.4: at 0.3 a quarter is left; beyond, P-A has no rival but its own opening."""
    valve = valve_4_3(centre="tandem", centre_travel=0.4)
    for U, share in ((0.0, 1.0), (0.3, 0.25), (-0.3, 0.25), (0.4, 0.0), (1.0, 0.0)):
        assert flows(valve, U, P=5, A=5, B=5)["P"] == pytest.approx(-40 * share, abs=1e-12)
    floating = valve_4_3(centre="float", centre_opening=0.2, centre_travel=0.4)
    for U, share in ((0.0, 0.2), (0.2, 0.1), (0.4, 0.0), (-0.1, 0.2), (-0.2, 0.2), (-0.6, 0.6)):
        assert flows(floating, U, P=5, A=5, B=0)["T"] == pytest.approx(40 * share, abs=1e-12)


# --- what holds for all ----------------------------------------------------------------------------------------------

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


def test_plain_it_is_the_proportional_valve() -> None:
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


# --- the spool: proportional -----------------------------------------------------------------------------------------


def spool(lines: str, kind: str = "directional_valve_4_3") -> Bench:
    """A valve alone between supply and tank; ``u`` is its command."""
    ports = {"directional_valve_2_2": 'P = "P", A = "T"', "directional_valve_3_2": 'P = "P", A = "T", T = "T"'}
    per = ', per = "edge"' if "4_" in kind else ""
    bench = Bench(
        f"""
        [components.valve]
        type = "{kind}"
        {lines}
        ports = {{ {ports.get(kind, 'P = "P", T = "T", A = "P", B = "T"')} }}
        command = "u"
        nominal_flow = {{ flow = "40 l/min", drop = "5 bar"{per} }}
        [components.tank]
        type = "tank"
        ports = {{ T = "T" }}
        {SUPPLY}
        """
    )
    bench.run(1e-4, 1e-4)  # a command of 0 is known to have been there before the first change
    return bench


def response(bench: Bench, frequency: float, amplitude: float = 0.4) -> complex:
    """Complex gain from command to spool at a frequency, from one period after ten, commands held over 50 µs."""
    h = 5e-5
    n = round(1.0 / frequency / h)
    w = 2 * pi / (n * h)
    total = 0j
    for step in range(5 * n):
        bench["u"] = amplitude * np.sin(w * (step + 0.5) * h)
        bench.run(h, h)
        if step >= 4 * n:
            total += bench["valve.U"] * np.exp(-1j * w * (step + 1) * h)
    return 2j * total / (n * amplitude)


@pytest.mark.parametrize("frequency", [20.0, 50.0, 200.0])
def test_first_order_spool_has_the_frequency_response_of_its_f45(frequency: float) -> None:
    """1/(1 + jf/f45), analytic; -45° at f45 itself."""
    gain = response(spool('f45 = "50 Hz"'), frequency)
    assert gain == pytest.approx(1 / (1 + 1j * frequency / 50), rel=2e-3)


@pytest.mark.parametrize("frequency", [25.0, 50.0, 100.0])
@pytest.mark.parametrize(
    "lines",
    [
        'f90 = "50 Hz"\ndamping = 0.7',
        'bode = [["10 Hz", 0.0, -16.26], ["50 Hz", -2.9226, -90], ["80 Hz", -8.7, -124.87]]',
    ],
    ids=["f90", "bode"],
)
def test_second_order_spool_has_the_frequency_response_of_its_f90(lines: str, frequency: float) -> None:
    """1/(1 - r² + 2jdr), analytic; -90° and 1/(2d) at f90. The Bode points are those of the same f90 and damping."""
    r = frequency / 50
    assert response(spool(lines), frequency) == pytest.approx(1 / (1 - r * r + 1.4j * r), rel=5e-3)


@pytest.mark.parametrize("kind", ["directional_valve_4_3", "directional_valve_4_2", "directional_valve_2_2"])
def test_step_response_of_the_first_order_is_exponential_and_within_the_stroke(kind: str) -> None:
    bench = spool('time_constant = "5 ms"', kind)
    for command, target in ((7.0, 1.0), (-7.0, -1.0 if kind.endswith("4_3") else 0.0)):
        start = bench["valve.U"]
        bench["u"] = command
        bench.run(0.01, 1e-4)
        assert bench["valve.U"] == pytest.approx(target + (start - target) * exp(-2), rel=1e-6, abs=1e-9)
        bench.run(0.2, 1e-3)
        assert bench["valve.U"] == pytest.approx(target, abs=1e-12)


@pytest.mark.parametrize("motion", ['f45 = "200 Hz"', 'f90 = "200 Hz"'])
def test_opening_rate_limits_the_speed_in_both_directions(motion: str) -> None:
    bench = spool(f'{motion}\nopening_rate = "20 1/s"')
    for command in (1.0, -1.0):
        bench["u"] = command
        U = bench.record(("valve.U",), 0.15, 1e-4)["valve.U"]
        assert np.abs(np.diff(U)).max() == pytest.approx(20 * 1e-4, rel=1e-6)
        assert U[-1] == pytest.approx(command, abs=1e-3)


@pytest.mark.parametrize("step", [1e-4, 2.5e-4])
def test_delay_is_exact(step: float) -> None:
    """Steps every 3 ms: for the first order the spool without delay, 5 ms later, to the last digits."""
    late, prompt = spool('f45 = "60 Hz"\ndelay = "5 ms"'), spool('f45 = "60 Hz"')
    commands = np.repeat([0.0, 0.8, -0.3, 0.31, 0.0, 1.0, 1.0, 0.0, 0.0], round(3e-3 / step))
    shifted = np.concatenate([np.zeros(round(5e-3 / step)), commands[: -round(5e-3 / step)]])
    difference = 0.0
    for now, before in zip(commands, shifted, strict=True):
        late["u"], prompt["u"] = now, before
        late.run(step, step)
        prompt.run(step, step)
        difference = max(difference, abs(late["valve.U"] - prompt["valve.U"]))
    assert prompt["valve.U"] > 0.5
    assert difference < 1e-12


def test_delay_of_a_command_that_never_rests_is_sampled_finely_enough() -> None:
    """A sine of 5 Hz through 40 ms: right to within the sampling, a fifteenth of the delay later at most."""
    line, delayed, h = (np.full(LINE_SIZE, EMPTY), 0), 0.0, 1e-4
    worst = 0.0
    for step in range(4000):
        t = step * h
        delayed = through_delay(line, t, np.sin(10 * pi * t), 0.04, 0.04, delayed)
        worst = max(worst, abs(delayed - np.sin(10 * pi * max(t - 0.04, 0.0))))
        assert 0 <= line[0][0] <= PLACES
    assert worst < 1.05 * 10 * pi * 0.04 / 15


@given(changes=st.lists(st.tuples(st.integers(1, 40), st.floats(-1, 1)), max_size=60), delay=st.integers(1, 60))
def test_delay_line_ends_at_the_last_command_and_hands_on_nothing_else(
    changes: list[tuple[int, float]], delay: int
) -> None:
    """Whatever the commands: what leaves is what entered, not before its time, and in the end the last of all."""
    line, delayed, t, h = (np.full(LINE_SIZE, EMPTY), 0), 0.0, 0.0, 1e-3
    entered: list[tuple[float, float]] = []
    for steps, u in [(1, 0.0), *changes, (2 * delay + 2, 0.5)]:
        for _ in range(steps):
            entered.append((t, u))
            delayed = through_delay(line, t, u, delay * h, delay * h, delayed)
            assert delayed in {0.0, *(value for when, value in entered if when <= t - delay * h + 1e-6)}
            t += h
    assert delayed == 0.5


def test_a_valve_in_use_from_the_start_does_not_wait_for_its_delay() -> None:
    """The equilibrium of a circuit is that of its command, although nothing moves while the delay lasts."""
    bench = spool('f45 = "30 Hz"\ndelay = "30 ms"')
    values = bench.z.copy()
    program().load(bench.packed.index, bench.packed.value, values)
    values[bench.packed.values.index("u")] = 0.4
    rest = Analysis(program(), bench.packed, values).steady_state()
    assert rest[bench.packed.values.index("valve.U")] == pytest.approx(0.4, abs=1e-6)


def test_hysteresis_is_a_loop_of_its_width_and_full_command_full_stroke() -> None:
    """Slow triangle of the command: at the same spool position the commands up and down are 6 % apart. Analytic."""
    bench = spool('f45 = "200 Hz"\nhysteresis = "6 %"')
    h = 1e-3
    up, down = np.linspace(-1, 1, 801), np.linspace(1, -1, 801)
    travel = []
    for command in (*np.linspace(0, 1, 400), *down, *up, *down):
        bench["u"] = command
        bench.run(0.01, h)
        travel.append(bench["valve.U"])
    rising, falling = np.array(travel[-1602:-801]), np.array(travel[-801:])
    assert rising.max() == pytest.approx(1.0, abs=1e-6)
    assert falling.min() == pytest.approx(-1.0, abs=1e-6)
    for U in (-0.5, 0.0, 0.3, 0.9):
        command_up, command_down = np.interp(U, rising, up), np.interp(-U, -falling, down)
        assert command_up - command_down == pytest.approx(0.06, abs=1e-4)


def test_small_commands_within_the_play_move_nothing() -> None:
    bench = spool('f45 = "100 Hz"\nhysteresis = 0.1')
    for command in (0.05, -0.05, 0.02):
        bench["u"] = command
        bench.run(0.1, 1e-3)
        assert bench["valve.U"] == 0.0


def test_null_offset_moves_the_spool_at_rest() -> None:
    bench = spool('f45 = "100 Hz"\nnull_offset = -0.03')
    bench.run(0.1, 1e-4)
    assert bench["valve.U"] == pytest.approx(-0.03, rel=1e-6)
    bench["u"] = -1.0
    bench.run(0.1, 1e-4)
    assert bench["valve.U"] == pytest.approx(-1.0, abs=1e-9)


# --- the spool: on/off -----------------------------------------------------------------------------------------------

SWITCHING = 'switching = { on = "40 ms", off = "30 ms" }'


def time_until(bench: Bench, arrived: Callable[[float], bool]) -> float:
    """Seconds until the spool's position satisfies ``arrived``, in steps of 0.1 ms."""
    for step in range(1, 2000):
        bench.run(1e-4, 1e-4)
        if arrived(bench["valve.U"]):
            return step * 1e-4
    raise AssertionError("the spool did not arrive")


@pytest.mark.parametrize(
    "kind", ["directional_valve_2_2", "directional_valve_3_2", "directional_valve_4_2", "directional_valve_4_3"]
)
def test_switching_times_are_those_of_the_datasheet(kind: str) -> None:
    """Nothing moves in the dead half; 95 % of the way are made at the switching time; then it reaches the end."""
    bench = spool(SWITCHING, kind)
    bench["u"] = 1.0
    bench.run(0.02, 1e-4)
    assert bench["valve.U"] == 0.0
    assert 0.02 + time_until(bench, lambda U: U >= 0.95) == pytest.approx(0.04, abs=2e-4)
    bench.run(0.1, 1e-4)
    assert bench["valve.U"] == pytest.approx(1.0, abs=1e-9)
    bench["u"] = 0.0
    bench.run(0.015, 1e-4)
    assert bench["valve.U"] == pytest.approx(1.0, abs=1e-9)
    assert 0.015 + time_until(bench, lambda U: U <= 0.05) == pytest.approx(0.03, abs=2e-4)
    bench.run(0.1, 1e-4)
    assert bench["valve.U"] == pytest.approx(0.0, abs=1e-9)


def test_an_on_off_spool_moves_at_constant_speed_until_it_lands() -> None:
    """Speed 0.1/tau; tau = (1 - dead)·T/(9 + ln 2): constant over nine tenths, then exponential to 95 %. Analytic."""
    bench = spool('switching = { on = "40 ms", off = "30 ms", dead_share = 0 }')
    bench["u"] = 1.0
    travel = bench.record(("valve.U",), 0.04, 1e-4)["valve.U"]
    tau = 0.04 / (9 + log(2))
    t = np.arange(1, 401) * 1e-4
    assert travel == pytest.approx(np.where(t < 9 * tau, 0.1 * t / tau, 1 - 0.1 * np.exp(9 - t / tau)), abs=1e-6)


def test_on_off_valves_switch_at_half_the_command_whatever_its_size() -> None:
    bench = spool(SWITCHING)
    for command, end in ((0.4, 0.0), (0.6, 1.0), (0.9, 1.0), (0.4, 0.0), (-0.6, -1.0), (1.0, 1.0), (-0.4, 0.0)):
        bench["u"] = command
        bench.run(0.25, 1e-3)
        assert bench["valve.U"] == pytest.approx(end, abs=1e-6)


def test_a_pulse_shorter_than_the_dead_time_does_not_move_the_valve() -> None:
    bench = spool('switching = { on = "60 ms", off = "20 ms" }')
    bench["u"] = 1.0
    bench.run(0.01, 1e-4)
    bench["u"] = 0.0
    assert np.all(bench.record(("valve.U",), 0.2, 1e-3)["valve.U"] == 0.0)


def test_a_detent_keeps_the_valve_where_it_was_last_sent() -> None:
    bench = spool('switching = { on = "40 ms", off = "30 ms", detent = true }', "directional_valve_4_2")
    for command, end in ((0.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.3, 1.0), (-1.0, 0.0), (0.0, 0.0)):
        bench["u"] = command
        bench.run(0.2, 1e-3)
        assert bench["valve.U"] == pytest.approx(end, abs=1e-6)


# --- in a circuit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("integrator", "step"), [("rk4", 2.5e-5), ("rosenbrock", 2.5e-5)])
def test_a_valve_with_everything_agrees_with_an_independent_solution(integrator: str, step: float) -> None:
    """Float centre, overlap, a curve, second order: pressures in both lines against DOP853 on equations by hand."""
    lines = """type = "directional_valve_4_3"
        f90 = "40 Hz"
        damping = 0.6
        overlap = 0.1
        centre = "float"
        centre_opening = 0.2
        openings = { PA = [[0.1, 0], [0.5, 0.2], [1, 1]] }
        """
    bench = Bench(fed(lines) + SUPPLY + f'\n[solver]\nintegrator = "{integrator}"')
    C = 0.5e-3 / 1.5e9

    def g(dp: float) -> float:
        r = abs(dp) / BAR
        return float(np.sign(dp)) * (sqrt(abs(dp)) if r > 1 else sqrt(BAR) * r * (3 - r) / 2)

    def tank_edge(U: float) -> float:
        """Opening of B-T; A-T at -U: a float centre of 20 % that closes up to 0.3, then (U - 0.1)/0.9."""
        return max((U - 0.1) / 0.9, 0.2 if U >= 0 else 0.2 * (1 + U / 0.3), 0.0)

    def f(t: float, y: Floats, u: float) -> list[float]:
        p_A, p_B, U, W = y
        PA, PB = C_V * np.interp(U, [0.1, 0.5, 1], [0, 0.2, 1]), C_V * max(-U - 0.1, 0.0) / 0.9
        AT, BT = C_V * tank_edge(-U), C_V * tank_edge(U)
        w = 2 * pi * 40
        return [
            (PA * g(140 * BAR - p_A) - AT * g(p_A)) / C,
            (PB * g(140 * BAR - p_B) - BT * g(p_B)) / C,
            W,
            w * w * (u - U) - 1.2 * w * W,
        ]

    y = np.array([50 * BAR, 50 * BAR, 0.0, 0.0])
    for u, duration in ((0.3, 0.02), (-0.5, 0.02), (0.0, 0.03)):
        bench["u"] = u
        bench.run(duration, step)
        y = solve_ivp(f, (0, duration), y, "DOP853", rtol=1e-9, atol=1e-7, args=(u,), max_step=1e-4).y[:, -1]
        ours = [bench[name] for name in ("A.p", "B.p", "valve.U")]
        assert ours == pytest.approx(y[:3], rel=1e-4, abs=100.0)
        assert bench["valve.U"] == pytest.approx(y[2], abs=1e-5)


# --- load sensing ----------------------------------------------------------------------------------------------------


def sensing_bench(more: str = "") -> Bench:
    """A load-sensing valve with its working ports at given pressures: signals A_level and B_level, in 100 bar."""
    return Bench(
        f"""
        [components.valve]
        type = "load_sensing_valve"
        ports = {{ P = "P", T = "T", A = "A", B = "B", LS = "LS" }}
        command = "u"
        nominal_flow = {{ flow = "40 l/min", drop = "5 bar", per = "edge" }}
        f45 = "100 Hz"
        overlap = 0.1
        {more}
        [components.tank]
        type = "tank"
        ports = {{ T = "T" }}
        pressure = "2 bar"
        {SUPPLY}
        [components.A_load]
        type = "pressure_source"
        ports = {{ P = "A" }}
        command = "A_level"
        pressure = "100 bar"
        [components.B_load]
        type = "pressure_source"
        ports = {{ P = "B" }}
        command = "B_level"
        pressure = "100 bar"
        """
    )


@pytest.mark.parametrize("step", [1e-4, 1e-3])
def test_ls_is_the_pressure_of_the_fed_port_while_actuated_and_vented_at_neutral(step: float) -> None:
    """It needs no volume of the user's, follows falling loads too, and draws nothing at rest; up to RK4 at 1 ms."""
    bench = sensing_bench()
    for u, A, B, LS in (
        (0.0, 1.2, 0.3, 2.0),
        (0.5, 1.2, 0.3, 120.0),
        (0.5, 0.5, 0.3, 50.0),
        (0.5, 0.5, 0.9, 50.0),  # an overrunning load: the port that returns oil has more
        (-0.5, 0.5, 0.9, 90.0),
        (-0.5, 0.6, 0.6, 60.0),
        (0.0, 0.6, 1.0, 2.0),
    ):
        bench["u"], bench["A_level"], bench["B_level"] = u, A, B
        bench.run(0.3, step)
        assert bench["LS.p"] / BAR == pytest.approx(LS, rel=1e-4)
        assert bench["valve.q_LS"] == pytest.approx(0.0, abs=1e-4 * L_MIN)


def test_ls_line_fills_as_its_volume_and_orifice_say() -> None:
    """dp/dt = C_s·g(p_A - p)/(V/B_o) from tank pressure to 120 bar, by DOP853; then the time to three quarters."""
    bench = sensing_bench('ls_orifice = { flow = "0.8 l/min", drop = "10 bar" }\nls_volume = "0.2 l"')
    C_s, C = 0.8 * L_MIN / sqrt(10 * BAR), 0.2e-3 / 1.5e9
    bench["A_level"], bench["u"] = 1.2, 1.0
    bench.z[bench.packed.values.index("valve.U")] = 1.0  # the spool is there already
    bench["LS.content"] = 2 * BAR
    bench.run(0.02, 1e-4)
    expected = solve_ivp(
        lambda t, p: C_s * np.sqrt(120 * BAR - p) / C, (0, 0.02), [2 * BAR], "DOP853", rtol=1e-10, atol=1e-3
    ).y[0, -1]
    assert 20 * BAR < expected < 110 * BAR
    assert bench["LS.p"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("U", "share"), [(0.0, 0.0), (0.02, 0.0), (0.03, 0.5), (0.04, 1.0), (1.0, 1.0), (-0.03, 0.5)])
def test_ls_changes_over_between_half_its_travel_and_its_travel(U: float, share: float) -> None:
    """1 l/min at 5 bar to LS, the rest of the way to T. STEP between 0.02 and 0.04: half of both at 0.03."""
    fed, other = ("A", "B") if U >= 0 else ("B", "A")
    q = flows(sensing(overlap=0.1, ls_travel=0.04), U, **{fed: 10, other: 0}, LS=5, T=0)
    assert q["LS"] == pytest.approx(share - (1 - share), abs=1e-9)


def test_a_load_sensing_pump_follows_the_load_and_goes_to_standby() -> None:
    """By hand, from both datasheets: the pump delivers 100·(20 bar - dp)/(5 bar) l/min at the margin dp over the load,
    the metering edge at 0.5 takes 20 l/min·sqrt(dp/5): both agree at dp = 18.10 bar.
    Centred, LS is vented and the pump delivers nothing."""
    bench = Bench(
        """
        [components.valve]
        type = "load_sensing_valve"
        ports = { P = "P", T = "T", A = "A", B = "B", LS = "LS" }
        command = "u"
        nominal_flow = { flow = "40 l/min", drop = "5 bar", per = "edge" }
        f45 = "20 Hz"
        [components.pump]
        type = "load_sensing_pump"
        ports = { P = "P", T = "T", LS = "LS" }
        max_flow = "100 l/min"
        margin = "20 bar"
        max_pressure = "250 bar"
        [components.P_line]
        type = "volume"
        ports = { P = "P" }
        volume = "2 l"
        [components.tank]
        type = "tank"
        ports = { T = "T" }
        [components.load]
        type = "pressure_source"
        ports = { P = "A" }
        command = "load"
        pressure = "100 bar"
        [components.B_line]
        type = "tank"
        ports = { T = "B" }
        """
    )
    dp = root(lambda dp: 100 * (20 - dp) / 5 - 20 * sqrt(dp / 5), 10, 20)
    for u, load in ((0.0, 1.5), (0.5, 1.5), (0.5, 0.6), (0.0, 0.6)):
        bench["u"], bench["load"] = u, load
        bench.run(1.5, 1e-4)
        assert bench["LS.p"] / BAR == pytest.approx(100 * load if u else 0.0, rel=1e-3, abs=1e-2)
        if u:
            assert bench["P.p"] / BAR == pytest.approx(100 * load + dp, rel=1e-3)
            assert bench["valve.q_A"] / L_MIN == pytest.approx(20 * sqrt(dp / 5), rel=1e-3)
        else:
            assert bench["pump.q_P"] == pytest.approx(0.0, abs=1e-3 * L_MIN)


def test_two_sections_with_compensators_share_a_pump_through_a_shuttle_valve() -> None:
    """Loads of 150 and 60 bar, openings 0.5 and 0.8: each compensator holds its drop (at its nominal flow, 60 l/min;
    2 bar more at none) over its edge, so each section gets its own flow, and the pump follows the higher load.
    By hand: 40 l/min·U·sqrt(d/5) where the compensator's line d = 8 + 2·(1 - Q/60) bar meets it."""

    def section(name: str) -> str:
        return f"""
        [components.{name}]
        type = "load_sensing_valve"
        ports = {{ P = "{name}_in", T = "T", A = "{name}_A", B = "T", LS = "{name}_LS" }}
        command = "u_{name}"
        nominal_flow = {{ flow = "40 l/min", drop = "5 bar", per = "edge" }}
        f45 = "20 Hz"
        [components.{name}_compensator]
        type = "pressure_compensator"
        ports = {{ P = "P", A = "{name}_in", X = "{name}_LS" }}
        drop = "8 bar"
        nominal_flow = {{ flow = "60 l/min", drop = "5 bar" }}
        [components.{name}_passage]
        type = "volume"
        ports = {{ P = "{name}_in" }}
        volume = "0.2 l"
        [components.{name}_load]
        type = "pressure_source"
        ports = {{ P = "{name}_A" }}
        command = "load_{name}"
        pressure = "100 bar"
        """

    bench = Bench(
        section("one")
        + section("two")
        + """
        [components.shuttle]
        type = "shuttle_valve"
        ports = { A = "one_LS", B = "two_LS", X = "LS" }
        nominal_flow = { flow = "5 l/min", drop = "3 bar" }
        [components.LS_line]
        type = "volume"
        ports = { P = "LS" }
        volume = "0.2 l"
        [components.pump]
        type = "load_sensing_pump"
        ports = { P = "P", T = "T", LS = "LS" }
        max_flow = "160 l/min"
        margin = "20 bar"
        max_pressure = "250 bar"
        [components.P_line]
        type = "volume"
        ports = { P = "P" }
        volume = "2 l"
        [components.tank]
        type = "tank"
        ports = { T = "T" }
        """
    )

    def by_hand(U: float) -> float:
        return root(lambda q: q - 40 * U * sqrt((8 + 2 * (1 - q / 60)) / 5), 0, 60)

    for U_one, U_two in ((0.5, 0.8), (0.0, 0.8), (0.5, 0.0)):
        bench["u_one"], bench["u_two"], bench["load_one"], bench["load_two"] = U_one, U_two, 1.5, 0.6
        bench.run(1.5, 1e-4)
        for name, U in (("one", U_one), ("two", U_two)):
            assert bench[f"{name}.q_A"] / L_MIN == pytest.approx(by_hand(U), rel=2e-3, abs=1e-2)
        assert bench["LS.p"] / BAR == pytest.approx(150 if U_one else 60, rel=1e-3)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "the spool's motion is given by nothing: give one of f45, time_constant"),
        ({"f45": "20 Hz", "f90": "40 Hz"}, "the spool's motion is given by f45 and f90"),
        ({"f45": "20 Hz", "damping": 0.7}, "damping belongs to f90"),
        ({"switching": {"on": "40 ms", "off": "30 ms"}, "hysteresis": 0.04}, "hysteresis: of a proportional valve"),
        ({"switching": {"on": "40 ms"}}, "switching.off: missing"),
        ({"switching": {"on": "40 ms", "off": "30 ms", "detent": True}}, "never come back to its centre"),
        ({"bode": [["20 Hz", 0, 25], ["40 Hz", -3, 90]]}, "negative where the valve lags"),
        ({"f45": "20 Hz", "delay": "-2 ms"}, "must be >= 0"),
        ({"f45": "20 Hz", "centre": "tandom"}, '"tandom" is not one of'),
        ({"f45": "20 Hz", "openings": {"PA": [[0.5, 0], [0.2, 1]]}}, "the spool rising from point to point"),
        ({"f45": "20 Hz", "openings": {"PA": [[0.5, 0]]}}, "at least two points"),
        ({"f45": "20 Hz", "openings": {"PA": [[0, 0], [1, -1]]}}, "must be >= 0"),
        ({"f45": "20 Hz", "openings": {"PX": [[0, 0], [1, 1]]}}, "unknown key. Allowed: AT, BT, PA, PB, PT"),
        ({"f45": "20 Hz", "overlap": 0.6}, "must be < 0.5"),
    ],
)
def test_what_can_not_be_a_4_3_valve_is_refused_with_a_reason(values: dict[str, Any], reason: str) -> None:
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
    with pytest.raises(ValueError, match="flow_signal: the curve holds the overlap already"):
        DirectionalValve43.model_validate(
            {
                "nominal_flow": {"flow": "40 l/min", "drop": "35 bar", "per": "edge"},
                "flow_signal": [[0.0, "0 l/min"], [1.0, "40 l/min"]],
                "overlap": 0.1,
                "f45": "30 Hz",
            }
        )
