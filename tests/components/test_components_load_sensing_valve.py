"""Load-sensing valve: the pressure at LS, alone and with pumps, compensators and shuttle valves."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from circuit_text import component, pressure_source, tank, volume
from component_bench import BAR, L_MIN, Bench, root
from directional_bench import SUPPLY, flows, sensing
from scipy.integrate import solve_ivp

EDGE = {"flow": "40 l/min", "drop": "5 bar", "per": "edge"}


def pump(max_flow: str) -> str:
    """A load-sensing pump and the volume of its line."""
    return component(
        "pump", "load_sensing_pump", "P=P T=T LS=LS", max_flow=max_flow, margin="20 bar", max_pressure="250 bar"
    ) + volume("P", "2 l")


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
        """
        + pressure_source("A_load", "A", "A_level")
        + pressure_source("B_load", "B", "B_level")
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


def test_ls_line_fills_with_its_time_constant() -> None:
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
        component("valve", "load_sensing_valve", "P=P T=T A=A B=B LS=LS", command="u", nominal_flow=EDGE, f45="20 Hz")
        + pump("100 l/min")
        + tank()
        + pressure_source("load", "A", "load")
        + component("B_line", "tank", "T=B")
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
        entry = f"{name}_in"
        return (
            component(
                name,
                "load_sensing_valve",
                f"P={entry} T=T A={name}_A B=T LS={name}_LS",
                command=f"u_{name}",
                nominal_flow=EDGE,
                f45="20 Hz",
            )
            + component(
                f"{name}_compensator",
                "pressure_compensator",
                f"P=P A={entry} X={name}_LS",
                drop="8 bar",
                nominal_flow={"flow": "60 l/min", "drop": "5 bar"},
            )
            + volume(entry, "0.2 l")
            + pressure_source(f"{name}_load", f"{name}_A", f"load_{name}")
        )

    bench = Bench(
        section("one")
        + section("two")
        + component(
            "shuttle", "shuttle_valve", "A=one_LS B=two_LS X=LS", nominal_flow={"flow": "5 l/min", "drop": "3 bar"}
        )
        + volume("LS", "0.2 l")
        + pump("160 l/min")
        + tank()
    )

    def by_hand(U: float) -> float:
        return root(lambda q: q - 40 * U * sqrt((8 + 2 * (1 - q / 60)) / 5), 0, 60)

    for U_one, U_two in ((0.5, 0.8), (0.0, 0.8), (0.5, 0.0)):
        bench["u_one"], bench["u_two"], bench["load_one"], bench["load_two"] = U_one, U_two, 1.5, 0.6
        bench.run(1.5, 1e-4)
        for name, U in (("one", U_one), ("two", U_two)):
            assert bench[f"{name}.q_A"] / L_MIN == pytest.approx(by_hand(U), rel=2e-3, abs=1e-2)
        assert bench["LS.p"] / BAR == pytest.approx(150 if U_one else 60, rel=1e-3)
