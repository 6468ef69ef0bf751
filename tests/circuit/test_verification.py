"""The verification circuit (theory §4) against an independent solution, and the order and stability of the integrators.

The reference writes the circuit's equations out by hand, from the theory and not from our kernels, and integrates them
with scipy's DOP853 at tight tolerances. (Its implicit Radau is no reference here: it steps over the hard limits of pump
and relief valve, whatever its tolerance.) Only the datasheet values are shared: they are read from the circuit file.
"""

from __future__ import annotations

import functools
import tomllib
from math import copysign, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from component_bench import Bench, Recording
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

Floats = NDArray[np.float64]

FILE = Path(__file__).parents[2] / "config" / "circuits" / "verification.toml"
STATES = ("supply.p", "A.p", "B.p", "rod.x", "rod.v", "pump.Q", "relief.K", "main_valve.U")
COMMANDS = ((0.0, 0.1), (0.9, 0.5), (0.5, 0.3), (0.0, 0.4), (-0.4, 0.8), (0.0, 0.3))
"""Hold, up fast and slow, hold, down, hold: joystick and seconds. Stopped at once from 0.9 port A would cavitate."""

UNITS = {
    "bar": 1e5,
    "l/min": 1e-3 / 60,
    "l": 1e-3,
    "mm": 1e-3,
    "ms": 1e-3,
    "kW": 1e3,
    "l/min/bar": 1e-3 / 60 / 1e5,
    **dict.fromkeys(("m", "Pa", "kg", "Hz", "N/m", "N*s/m", "m/s", "m/s^2", "kg/m^3", "deg"), 1.0),
}


def raw_circuit(**fluid_or_solver: Any) -> dict[str, Any]:
    circuit = tomllib.loads(FILE.read_text())
    circuit["solver"] |= fluid_or_solver
    return circuit


def si(text: str) -> float:
    number, unit = text.split()
    return float(number) * UNITS[unit]


def constants() -> SimpleNamespace:
    """The constants of the equations, in the notation of theory §2 and §3, from the datasheet values of the circuit."""
    circuit = raw_circuit()
    part = circuit["components"]
    load, cyl = part["load"], part["cylinder"]
    c = SimpleNamespace(B_o=si(circuit["fluid"]["bulk_modulus"]), V_S=si(part["supply"]["volume"]))
    assert circuit["fluid"]["air_fraction"] == 0
    assert si(part["tank"]["pressure"]) == 0
    assert si(load["direction"]) == 90
    constants_of_the_supply(c, part["pump"], part["relief"])
    nominal, leak = part["main_valve"]["nominal_flow"], part["main_valve"]["leakage"]
    assert (nominal["per"], leak["per"]) == ("edge", "edge")
    c.C_v, c.C_l = (si(point["flow"]) / np.sqrt(si(point["drop"])) for point in (nominal, leak))
    c.tau, c.p_tr = 1 / (2 * np.pi * si(part["main_valve"]["f45"])), si(part["main_valve"]["transition_pressure"])
    D, d, c.L = (si(cyl[key]) for key in ("bore", "rod_diameter", "stroke"))
    c.A_A, c.A_B = np.pi * D**2 / 4, np.pi * (D**2 - d**2) / 4
    c.V_A, c.V_B, c.C_i = (si(cyl[key]) for key in ("dead_volume_A", "dead_volume_B", "leakage"))
    c.m = si(cyl["moving_mass"]) + si(load["mass"])
    for area, line in ((c.A_A, cyl["line_A"]), (c.A_B, cyl["line_B"])):
        inside = np.pi * si(line["inner_diameter"]) ** 2 / 4
        c.m += si(circuit["fluid"]["density"]) * inside * si(line["length"]) * (area / inside) ** 2
    c.weight = si(load["mass"]) * si(load["gravity"])
    c.eta, c.v_0 = cyl["friction"]["efficiency"], si(cyl["friction"]["reversal_speed"])
    assert cyl["friction"]["factor"] == "polynomial"
    return c


def constants_of_the_supply(c: SimpleNamespace, pump: dict[str, Any], relief: dict[str, Any]) -> None:
    """Pump; relief valve: at rest (p - p_ref)·sqrt(p)/Q = C1 + C2·p at both points."""
    c.Q_max, c.p_set, c.tau_pump = (si(pump[key]) for key in ("max_flow", "set_pressure", "response_time"))
    c.k, c.power = c.Q_max / si(pump["control_range"]), si(pump["max_power"]) * pump["efficiency"]
    c.p_ref = si(relief["opening_pressure"])
    over, Q_r = (np.array([si(point[i]) for point in relief["override"]]) for i in (0, 1))
    p_r = c.p_ref + over
    c.C2, c.C1 = np.polyfit(p_r, over * np.sqrt(p_r) / Q_r, 1)
    c.C_dyn = si(relief["settling_time"]) * (c.C1 + c.C2 * p_r[1])


def g(dp: float, p_tr: float) -> float:
    """Root of a drop, laminar below the transition pressure."""
    size = abs(dp)
    root = sqrt(size) if size > p_tr else sqrt(p_tr) * size / p_tr * (3 - size / p_tr) / 2
    return copysign(root, dp)


def rise(s: float) -> float:
    """From 0 at 0 to 1 at 1, without a bend."""
    s = min(max(s, 0.0), 1.0)
    return s * s * (3 - 2 * s)


def derivatives(_t: float, y: Floats, joystick: float, c: SimpleNamespace) -> list[float]:
    """Of the states, in the order of STATES, written from theory §2 and §3."""
    p_S, p_A, p_B, x, v, Q, K, U = y
    assert 0 < x < c.L  # the end stops are not reached
    limit = min(c.Q_max, c.power / max(p_S, 1.0))
    dQ = (c.k * (c.p_set - p_S) - Q) / c.tau_pump
    if Q <= 0:
        dQ = max(dQ, 0.0)
    elif limit - Q <= 0:
        dQ = min(dQ, (limit - Q) / c.tau_pump)
    dK = ((p_S - c.p_ref) - (c.C1 + c.C2 * p_S) * K) / c.C_dyn
    if K <= 0:
        dK = max(dK, 0.0)
    leaking = c.C_l * (1 - rise(abs(U) / 0.1))
    extending, retracting = c.C_v * max(U, 0.0) + leaking, c.C_v * max(-U, 0.0) + leaking
    PA, BT = extending * g(p_S - p_A, c.p_tr), extending * g(p_B, c.p_tr)
    PB, AT = retracting * g(p_S - p_B, c.p_tr), retracting * g(p_A, c.p_tr)
    Q_relief = max(K, 0.0) * np.sqrt(max(p_S, 0.0))
    force = c.A_A * p_A - c.A_B * p_B
    xi = 1 - 0.8 * rise(abs(v) / 0.1) + 0.8 * rise((abs(v) - 0.1) / 4.9)
    friction = xi * np.tanh(v / c.v_0) * abs(force) * (1 - c.eta)
    past = c.C_i * (p_A - p_B)
    return [
        c.B_o / c.V_S * (min(Q, limit) - PA - PB - Q_relief),
        c.B_o / (c.V_A + c.A_A * x) * (PA - AT - past - c.A_A * v),
        c.B_o / (c.V_B + c.A_B * (c.L - x)) * (PB - BT + past + c.A_B * v),
        v,
        (force - friction - c.weight) / c.m,
        dQ,
        dK,
        (joystick - U) / c.tau,
    ]


def start() -> Floats:
    """The states at the start."""
    nodes = raw_circuit()["nodes"]
    pressures = [si(nodes[name]["pressure"]) for name in ("supply", "A", "B")]
    return np.array([*pressures, si(nodes["rod"]["position"]), 0.0, 0.0, 0.0, 0.0])


SCALE = np.array([1e7, 1e7, 1e7, 0.1, 0.1, 1e-3, 1e-7, 1.0])
SAMPLE = 5e-3


@functools.cache
def reference() -> Floats:
    """The states every SAMPLE seconds, one row per sample."""
    c = constants()
    rows: list[Floats] = []
    y = start()
    for joystick, duration in COMMANDS:
        times = np.arange(1, round(duration / SAMPLE) + 1) * SAMPLE
        tolerance = {"rtol": 1e-10, "atol": 1e-12 * SCALE, "max_step": 1e-3}
        solution = solve_ivp(derivatives, (0.0, times[-1]), y, "DOP853", times, args=(joystick, c), **tolerance)
        assert solution.success
        rows.append(solution.y.T)
        y = solution.y[:, -1]
    return np.vstack(rows)


def ours(integrator: str, step: float) -> Floats:
    bench = Bench(raw_circuit(integrator=integrator))
    rows = []
    for joystick, duration in COMMANDS:
        bench["joystick"] = joystick
        run = bench.record(STATES, duration, step, every=SAMPLE)
        rows.append(np.column_stack([run[name] for name in STATES]))
    return np.vstack(rows)


@pytest.mark.parametrize(
    ("integrator", "step", "of_position", "of_pressure"),
    [("rk4", 1e-4, 1e-6, 1e-5), ("rk4", 2.5e-5, 1e-7, 1e-5), ("rosenbrock", 2.5e-5, 1e-6, 1e-5)],
)
def test_circuit_agrees_with_the_independent_solution(
    integrator: str, step: float, of_position: float, of_pressure: float
) -> None:
    """At all times: position relative to its range, pressures to full scale (150 bar, where the relief valve opens).

    The first line is the circuit's own step; required is 1e-4 in position and 1e-3 in pressure of a converged solution.
    """
    difference = np.abs(ours(integrator, step) - reference()).max(axis=0)
    position = difference[STATES.index("rod.x")] / np.ptp(reference()[:, STATES.index("rod.x")])
    pressure = difference[:3].max() / 150e5
    print(f"{integrator} at {step * 1e6:.0f} us: position {position:.1e}, pressures {pressure:.1e}")
    assert position < of_position
    assert pressure < of_pressure


def test_the_sequence_reaches_every_part_of_the_circuit() -> None:
    """What the comparison is worth: the relief valve opens, the pump meets both limits, the load goes up and down."""
    p_S, p_A, _, x, v, Q, K, _ = reference().T
    assert p_S.max() > 152e5
    assert K.max() > 1e-9
    assert Q.max() == pytest.approx(1e-3, rel=1e-6)
    assert Q.min() < 1e-9
    assert x.max() > 0.2
    assert v.min() < -0.1
    assert p_A.min() > 0


# --- the integrators -------------------------------------------------------------------------------------------------


def after_a_disturbance(integrator: str, step: float) -> Floats:
    """States 20 ms after a disturbance of the pressures in steady lifting, scaled.

    Nothing switches there: all limits, joints of curves and reversals are far, so that the solution is smooth.
    """
    steady = Bench(raw_circuit())
    steady["joystick"] = 0.6
    steady.run(0.5, 1e-4)
    bench = Bench(raw_circuit(integrator=integrator))
    bench.z[:] = steady.z
    for pressure, change in (("A.p", 2e5), ("B.p", -1e5), ("supply.p", -1e5)):
        bench[pressure] += change
    bench.run(0.02, step)
    scaled: Floats = np.array([bench[name] for name in STATES]) / SCALE
    return scaled


@pytest.mark.parametrize(
    ("integrator", "order", "step"), [("euler", 1, 5e-5), ("rosenbrock", 2, 2.5e-4), ("rk4", 4, 5e-4)]
)
def test_integrators_have_their_order_where_the_solution_is_smooth(integrator: str, order: int, step: float) -> None:
    """Halving the step divides the error by 2^order; against Runge-Kutta at a step so small that rounding dominates."""
    exact = after_a_disturbance("rk4", 1e-5)
    coarse, fine = (np.linalg.norm(after_a_disturbance(integrator, h) - exact) for h in (step, step / 2))
    print(f"{integrator}: error {coarse:.1e} -> {fine:.1e}, order {np.log2(coarse / fine):.2f}")
    assert np.log2(coarse / fine) == pytest.approx(order, abs=0.15)


def lifting_with_a_tiny_supply_volume(integrator: str, step: float) -> Recording:
    circuit = raw_circuit(integrator=integrator)
    circuit["components"]["supply"]["volume"] = "1 cm^3"
    bench = Bench(circuit)
    bench["joystick"] = 0.6
    return bench.record(("supply.p", "rod.x"), 0.3, step, every=1e-2)


@pytest.mark.parametrize("step", [1e-4, 1e-3])
def test_rosenbrock_stays_stable_where_runge_kutta_explodes(step: float) -> None:
    """1 cm³ of supply: some 20 µs of time constant at steps of 100 µs and 1 ms. Rosenbrock still finds both values."""
    exact = lifting_with_a_tiny_supply_volume("rk4", 1e-6)
    stable = lifting_with_a_tiny_supply_volume("rosenbrock", step)
    pressure, position = (np.abs(stable[name] - exact[name]).max() for name in ("supply.p", "rod.x"))
    print(f"rosenbrock at {step * 1e6:.0f} us: pressure {pressure / 1e5:.2g} bar, position {position * 1e3:.2g} mm")
    assert pressure < 1e-3 * 150e5
    assert position < 1e-5
    exploded = lifting_with_a_tiny_supply_volume("rk4", 1e-4)
    assert not np.abs(exploded["supply.p"] - exact["supply.p"]).max() < 10e5
