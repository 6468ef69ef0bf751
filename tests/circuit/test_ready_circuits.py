"""The ready circuits of config/circuits do over their work cycles what a calculation by hand says."""

from __future__ import annotations

import copy
import functools
import os
import re
import subprocess
import sys
from math import pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from component_bench import BAR, L_MIN, root
from scipy.integrate import solve_ivp

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.compiler.levels import V2, V3, level_of_this_machine, levels
from hilserver.compiler.loading import LEVEL_VARIABLE
from hilserver.numerics.arrays import Floats
from hilserver.simulation.circuit_run import CircuitRun, panels, read_cycle, run_circuit, run_circuit_file, step_note

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).parents[2] / "config"
NAMES = ("verification", "crane", "lowering", "regenerative", "accumulator")
WITH_MECHANISMS = ("boom", "excavator")
G = 9.81


@functools.cache
def ready(name: str) -> CircuitRun:
    return run_circuit_file(CONFIG / f"circuits/{name}.toml", standard_library(), CONFIG / f"cycles/{name}.toml")


def during(run: CircuitRun, name: str, start: float, end: float) -> Floats:
    return run.series[name][(run.time > start) & (run.time < end)]


def mean(run: CircuitRun, name: str, start: float, end: float) -> float:
    return float(during(run, name, start, end).mean())


def spread(run: CircuitRun, name: str, start: float, end: float) -> float:
    return float(np.ptp(during(run, name, start, end)))


def area(bore_mm: float, rod_mm: float = 0.0) -> float:
    return pi / 4e6 * (bore_mm**2 - rod_mm**2)


def curve(opening: float, points: tuple[tuple[float, float], tuple[float, float]]) -> tuple[float, float]:
    """C_1, C_2 of (p - p_ref)/(C_1 + C_2·p)·sqrt(p) through two points: bar above opening, l/min. theory §3."""
    p = [(opening + over) * BAR for over, _ in points]
    c = [over * BAR * sqrt(p[k]) / (flow * L_MIN) for k, (over, flow) in enumerate(points)]
    slope = (c[1] - c[0]) / (p[1] - p[0])
    return c[0] - slope * p[0], slope


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, *WITH_MECHANISMS])
def test_step_is_short_enough_for_the_fastest_motion(name: str) -> None:
    assert step_note(ready(name)) is None


AT_A_LEVEL = """
import hashlib, sys
from pathlib import Path

from hilserver.circuit.library import standard_library
from hilserver.simulation.circuit_run import run_circuit_file

config = Path(sys.argv[1])
for name in sys.argv[2:]:
    run = run_circuit_file(config / f"circuits/{name}.toml", standard_library(), config / f"cycles/{name}.toml", 0.2)
    print(name, hashlib.sha256(b"".join(run.series[key].tobytes() for key in sorted(run.series))).hexdigest())
"""


@pytest.mark.skipif(levels() != (V2, V3), reason="only x86-64 has these levels")
@pytest.mark.skipif(level_of_this_machine() != V3, reason="this processor does not have level 3")
def test_levels_of_the_program_give_the_same_bits() -> None:
    results = {}
    for level in levels():
        command = [sys.executable, "-c", AT_A_LEVEL, str(CONFIG), *NAMES, *WITH_MECHANISMS]
        environment = {**os.environ, LEVEL_VARIABLE: level}
        results[level] = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert len(results[V2].splitlines()) == len(NAMES + WITH_MECHANISMS)
    assert results[V2] == results[V3]


@pytest.mark.parametrize("name", NAMES)
def test_quarter_of_the_step_gives_the_same(name: str) -> None:
    """Nothing chatters: what a step makes by itself changes with it. RMS 0.2 bar, positions 0.1 mm of some 500 mm."""
    run = ready(name)
    source = copy.deepcopy(dict(run.circuit.source))
    source["solver"]["substeps"] *= 4
    cycle = read_cycle(CONFIG / f"cycles/{name}.toml")
    first = min(float(run.time[-1]), 8.0)
    fine = run_circuit(read_circuit(source, standard_library()), standard_library(), cycle, first)
    n = len(fine.time)
    for node in run.circuit.hydraulic_nodes():
        difference = fine.series[f"{node}.p"] - run.series[f"{node}.p"][:n]
        assert np.sqrt(np.mean(difference**2)) < 0.2 * BAR, node
    for node in run.circuit.mechanical_nodes():
        assert np.abs(fine.series[f"{node}.x"] - run.series[f"{node}.x"][:n]).max() < 1e-4, node


@pytest.mark.parametrize("name", NAMES)
def test_pump_gives_more_than_arrives(name: str) -> None:
    """Work of the pump against the load's gain in height, up to any time; pressures within the relief valve's."""
    run = ready(name)
    source = run.circuit.source["components"]
    supply = source["pump"]["ports"]["P"]
    work = np.cumsum(run.series[f"{supply}.p"] * run.series["pump.q_P"]) * 1e-3
    gained = np.zeros(len(run.time))
    for part in source.values():
        if part["type"] == "load_mass" and "gravity" not in part:
            x = run.series[f"{part['ports']['rod']}.x"]
            slope = np.sin(np.radians(float(part.get("direction", "90 deg").split()[0])))
            gained += float(part["mass"].split()[0]) * G * slope * (x - x[0])
    assert (work >= gained - 20.0).all()
    limit = float(source["relief"]["opening_pressure"].split()[0]) * BAR
    assert run.series[f"{supply}.p"].max() < limit + 25 * BAR
    for node in run.circuit.hydraulic_nodes():
        assert run.series[f"{node}.p"].min() > -1.02 * BAR


def test_readme_has_a_paragraph_and_the_command_of_each() -> None:
    """The documentation's page and its plots are made from these commands."""
    commands = r"^hilserver simulate config/circuits/(\w+)\.toml --cycle config/cycles/(\w+)\.toml$"
    text = (CONFIG / "README.md").read_text()
    assert re.findall(commands, text, re.M) == [(name, name) for name in (*NAMES, *WITH_MECHANISMS)]


def test_panels_show_the_quantities_that_differ() -> None:
    by_label = {label: lines for label, _, lines in panels(ready("crane"))}
    assert list(by_label) == ["signal", "pressure", "flow", "position", "velocity"]
    assert set(by_label["pressure"]) == set(ready("crane").circuit.hydraulic_nodes())
    assert "pump.q_P" in by_label["flow"]
    assert not {"pump.q_T", "relief.q_P"} & set(by_label["flow"])


# --- load-sensing crane -----------------------------------------------------------------------------------------------


def compensated(nominal: float, opening: float) -> float:
    """Flow in l/min: the compensator's droop of 3 bar against the metering edge, Q/Q_N = (7 + 3 - dp)/3 bar."""
    return root(lambda Q: Q - nominal * (10.0 - 7.0 * (Q / (opening * nominal)) ** 2) / 3.0, 0.0, nominal)


A_BOOM, B_BOOM = area(100), area(100, 63)
A_JIB, B_JIB = area(63), area(63, 36)


@pytest.mark.parametrize(
    ("rod", "time", "nominal", "opening", "piston"),
    [
        ("boom_rod", (2.0, 2.5), 60, 0.7, A_BOOM),
        ("boom_rod", (4.0, 4.9), 60, 0.7, A_BOOM),
        ("jib_rod", (4.0, 4.9), 40, 0.6, A_JIB),
        ("jib_rod", (5.7, 5.95), 40, 0.6, A_JIB),
        ("boom_rod", (9.3, 10.4), 60, -0.4, -B_BOOM),
        ("jib_rod", (9.6, 10.4), 40, -0.4, -B_JIB),
    ],
)
def test_crane_speed_follows_the_lever_at_any_load(
    rod: str, time: tuple[float, float], nominal: float, opening: float, piston: float
) -> None:
    """Lifting alone, both at once, and overrunning: 8 t at 100 bar beside 1.5 t at 25 bar."""
    speed = compensated(nominal, abs(opening)) * L_MIN / piston
    assert mean(ready("crane"), f"{rod}.v", *time) == pytest.approx(speed, rel=2e-3)


def test_crane_pump_delivers_its_margin_above_the_higher_load() -> None:
    """20 bar less 5 bar at 100 l/min; the load's pressure by the balance of forces with 5 % of friction."""
    run = ready("crane")
    for time, load in (((4.5, 4.9), "boom_valve_A"), ((5.8, 5.95), "jib_A"), ((9.8, 10.4), "boom_B")):
        flow = mean(run, "pump.q_P", *time) / L_MIN
        expected = mean(run, f"{load}.p", *time) / BAR + 20.0 - 5.0 * flow / 100.0
        assert mean(run, "supply.p", *time) / BAR == pytest.approx(expected, rel=2e-3)
    force = A_BOOM * mean(run, "boom_A.p", 4.5, 4.9) - B_BOOM * mean(run, "boom_B.p", 4.5, 4.9)
    assert force * 0.95 == pytest.approx(8000 * G, rel=2e-3)


def test_crane_boom_is_held_and_let_down_under_control() -> None:
    """It does not sink while held (no leakage), and the rod side is never sucked empty while the load overruns."""
    run = ready("crane")
    assert spread(run, "boom_rod.x", 6.0, 7.0) < 1e-4
    assert spread(run, "boom_rod.v", 9.3, 10.4) < 2e-3
    assert during(run, "boom_B.p", 7.5, 10.5).min() > 5 * BAR
    assert during(run, "jib_B.p", 8.9, 11.0).min() > 1 * BAR
    assert mean(run, "boom_A.p", 9.3, 10.4) > 8000 * G / A_BOOM


# --- counterbalanced lowering -----------------------------------------------------------------------------------------

A_A, A_B = area(63), area(63, 36)
PUMP = 14.5 * L_MIN
WEIGHT = 2900 * G


def test_load_is_held_without_sinking() -> None:
    run = ready("lowering")
    assert spread(run, "rod.x", 0.2, 1.0) < 2e-6
    assert spread(run, "rod.x", 5.0, 6.0) < 2e-5
    force = A_A * mean(run, "load_side.p", 0.5, 1.0) - A_B * mean(run, "rod_side.p", 0.5, 1.0)
    assert force == pytest.approx(WEIGHT, rel=1e-4)


def test_load_comes_down_as_fast_as_the_pump_fills_the_rod_side() -> None:
    """Balances of force and poppet, and the edge to the tank, solved for the pressures by hand."""
    run = ready("lowering")
    v = PUMP / A_B
    Q_A = A_A * v
    p_V = 5 * BAR * (Q_A / (40 * L_MIN)) ** 2
    c_1, c_2 = curve(120, ((20, 10), (60, 30)))

    def poppet(p_A: float) -> float:
        p_B = (A_A * p_A - WEIGHT / 1.05) / A_B  # friction of 5 % carries its part on the way down
        return p_A + 1.5 * p_B - 120 * BAR - (c_1 + c_2 * (p_A - p_V)) * Q_A / sqrt(p_A - p_V)

    p_A = root(poppet, 80 * BAR, 150 * BAR)
    p_B = (A_A * p_A - WEIGHT / 1.05) / A_B
    for name, expected in (("rod.v", -v), ("load_side.p", p_A), ("rod_side.p", p_B), ("valve_side.p", p_V)):
        assert mean(run, name, 2.8, 3.9) == pytest.approx(expected, rel=3e-3), name
    assert spread(run, "rod.v", 2.8, 3.9) < 1e-3
    assert p_B > 10 * BAR  # the load does not run away: the rod side stays under pressure


def test_load_is_lifted_by_the_whole_flow() -> None:
    run = ready("lowering")
    v = PUMP / A_A
    p_B = 5 * BAR * (A_B * v / (40 * L_MIN)) ** 2
    assert mean(run, "rod.v", 7.5, 8.9) == pytest.approx(v, rel=5e-3)
    force = A_A * mean(run, "load_side.p", 7.5, 8.9) - A_B * mean(run, "rod_side.p", 7.5, 8.9)
    assert force == pytest.approx(WEIGHT / 0.95, rel=5e-3)
    assert p_B < 1 * BAR
    assert run.series["relief.q_P"].min() == pytest.approx(0.0, abs=1e-3 * L_MIN)


# --- regenerative cylinder --------------------------------------------------------------------------------------------

PRESS_A, PRESS_B = area(80), area(80, 56)
PRESS_PUMP = 36.25 * L_MIN


@pytest.mark.parametrize(
    ("time", "effective"),
    [((0.95, 1.19), PRESS_A - PRESS_B), ((1.8, 2.0), PRESS_A), ((4.6, 5.0), -PRESS_B)],
    ids=["fast", "slow", "back"],
)
def test_press_moves_with_the_area_that_counts(time: tuple[float, float], effective: float) -> None:
    run = ready("regenerative")
    assert mean(run, "rod.v", *time) == pytest.approx(PRESS_PUMP / effective, rel=3e-3)


def test_rod_side_joins_the_pump_while_it_is_fast() -> None:
    run = ready("regenerative")
    assert mean(run, "fast_valve.q_P", 0.95, 1.19) == pytest.approx(
        PRESS_B * PRESS_PUMP / (PRESS_A - PRESS_B), rel=3e-3
    )
    assert mean(run, "rod_side.p", 0.95, 1.19) > mean(run, "piston_side.p", 0.95, 1.19)


def test_press_has_its_full_force_with_the_rod_side_at_the_tank() -> None:
    """The whole flow goes over the relief valve: its curve gives the pressure, the piston's area the force."""
    run = ready("regenerative")
    c_1, c_2 = curve(150, ((5, 15), (15, 45)))
    p = root(lambda p: (p - 150 * BAR) / (c_1 + c_2 * p) * sqrt(p) - PRESS_PUMP, 150 * BAR, 170 * BAR)
    assert mean(run, "supply.p", 2.5, 3.1) == pytest.approx(p, rel=1e-4)
    assert mean(run, "work_piece.F_rod", 2.5, 3.1) == pytest.approx(-PRESS_A * p, rel=2e-3)
    assert spread(run, "supply.p", 2.5, 3.1) < 0.01 * BAR


# --- accumulator ------------------------------------------------------------------------------------------------------

ATMOSPHERE = 101_325.0
GAS, PRECHARGE, N = 10e-3, 100 * BAR + ATMOSPHERE, 1.3
OIL = (2e-3 + 1e-3) / 1.5e9  # capacitance of pipes and of the accumulator's own oil


def gas_volume(p: float) -> float:
    return float(GAS * (PRECHARGE / (p + ATMOSPHERE)) ** (1 / N))


def switches(run: CircuitRun) -> Floats:
    times: Floats = run.time[1:][np.diff(run.series["charging.unloads"]) != 0.0]
    return times


def test_charging_time_follows_the_gas_law() -> None:
    """From 110 to 160 bar with 14.5 l/min: polytropic volume and compressed oil. Connection: laminar below 3 bar."""
    run = ready("accumulator")
    drop = root(lambda d: 50 * d * (3 - d) - 14.5, 0.0, 1.0) * 3 * BAR
    oil = gas_volume(110 * BAR) - gas_volume(160 * BAR - drop) + 50 * BAR * OIL + 52 * BAR * 0.5e-3 / 1.5e9
    assert switches(run)[0] == pytest.approx(oil / (14.5 * L_MIN), rel=2e-3)


def test_discharge_agrees_with_an_independent_solution() -> None:
    """Valve fully open, pump unloaded: gas behind the connection, valve and consumer in series. DOP853."""
    run = ready("accumulator")
    start, end = 10.2, 11.2
    series = 5 * BAR / 60**2 + 140 * BAR / 45**2  # bar per (l/min)^2 of valve and consumer
    p_0 = float(np.interp(start, run.time, run.series["system.p"]))
    gas_0 = float(np.interp(start, run.time, run.series["accumulator.p_gas"]))

    def f(t: float, y: Floats) -> list[float]:
        p, volume = y
        gas = PRECHARGE * (GAS / volume) ** N - ATMOSPHERE
        fraction = (gas - p) / (3 * BAR)
        out = 100 * L_MIN * (fraction * (3 - fraction) / 2 if fraction < 1 else sqrt(fraction))
        return [(out - sqrt(p / series) * L_MIN) / OIL, out]

    y0 = [p_0, gas_volume(gas_0)]
    solution = solve_ivp(f, (start, end), y0, "DOP853", rtol=1e-9, atol=[1.0, 1e-12], max_step=1e-3)
    assert float(np.interp(end, run.time, run.series["system.p"])) == pytest.approx(solution.y[0, -1], rel=1e-3)


def test_pressure_stays_in_its_band_and_the_pump_idles_without_load() -> None:
    """Each stroke of the consumer: cut in once, cut out once; idling costs a hundredth of the charging power."""
    run = ready("accumulator")
    assert len(switches(run)) == 5
    assert during(run, "system.p", 9.0, 40.0).max() < 161 * BAR
    assert during(run, "system.p", 9.0, 40.0).min() > 120 * BAR
    assert run.series["relief.q_P"].min() == pytest.approx(0.0, abs=1e-3 * L_MIN)
    assert mean(run, "pump.p", 20, 24) < 0.01 * mean(run, "pump.p", 14, 17)
    assert spread(run, "system.p", 20, 24) < 0.01 * BAR


def test_no_oil_is_lost() -> None:
    """What went in through the check valve and not to the consumer is in the accumulator and in the pressure."""
    run = ready("accumulator")
    inflow = np.cumsum(run.series["charging.q_A"] + run.series["consumer_valve.q_P"]) * 1e-3
    stored = run.series["accumulator.V"] + OIL * run.series["system.p"]
    a, b = 5000, 39_000
    assert inflow[b] - inflow[a] == pytest.approx(stored[b] - stored[a], abs=2e-3 * stored[b])


# --- excavator --------------------------------------------------------------------------------------------------------


def test_excavator_starts_at_rest_and_moves_all_three() -> None:
    """Forces by virtual work at the drawing hold it for the 0.5 s before the first command: 0.1 mm."""
    run = ready("excavator")
    for name in ("boom", "arm", "bucket"):
        assert spread(run, f"{name}_rod.x", 0.0, 0.5) < 1e-4, name
        assert np.ptp(run.series[f"{name}_rod.x"]) > 0.1, name


def test_excavator_by_energy() -> None:
    """What the three cylinders do is what the bodies and pistons have won, to 1 % of the 20 kJ that go to and fro."""
    run = ready("excavator")
    (front,) = run.circuit.mechanisms
    work = np.zeros(len(run.time))
    kinetic, potential = np.zeros(len(run.time)), np.zeros(len(run.time))
    for name, kg in (("boom", 25.0), ("arm", 22.0), ("bucket", 15.0)):
        v = run.series[f"{name}_rod.v"]
        power = run.series[f"{name}.cylinder.F_rod"] * v
        work += np.concatenate([[0.0], np.cumsum(0.5 * (power[1:] + power[:-1]) * 1e-3)])
        kinetic += 0.5 * kg * v * v
    for name, body in front.mechanism.bodies.items():
        x, y, w = (run.series[f"front.{name}.{part}"] for part in ("vx", "vy", "w"))
        kinetic += 0.5 * body.mass * (x * x + y * y) + 0.5 * body.inertia[0] * w * w
        potential += body.mass * G * (run.series[f"front.{name}.y"] - run.series[f"front.{name}.y"][0])
    assert np.ptp(potential) > 8e3
    assert np.abs(kinetic + potential - work).max() < 2e2


def test_excavator_with_every_solution_of_its_mechanism() -> None:
    """Solutions that two steps share change nothing that matters: 0.05 mm, 0.1 bar over the first 3 s."""
    run = ready("excavator")
    source = copy.deepcopy(dict(run.circuit.source))
    del source["solver"]["mechanics_substeps"]
    cycle = read_cycle(CONFIG / "cycles/excavator.toml")
    every = run_circuit(read_circuit(source, standard_library()), standard_library(), cycle, 3.0)
    for name in ("boom", "arm", "bucket"):
        n = len(every.time)
        assert np.abs(every.series[f"{name}_rod.x"] - run.series[f"{name}_rod.x"][:n]).max() < 5e-5
        assert np.abs(every.series[f"{name}.A.p"] - run.series[f"{name}.A.p"][:n]).max() < 0.1 * BAR
