"""An independent reference for circuit runs: random machines with equations written by hand, solved by LSODA.

Nothing of the product's equations is used: the right-hand sides follow theory.md and the datasheets' values; there is
no step, no sub-step and no aid for explicit methods in them. Between two corners of the inputs they are integrated with
a relative tolerance of 1e-9.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count, pairwise
from math import copysign, pi, sqrt, tanh
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

Floats = NDArray[np.float64]
Rates = Callable[[Floats, Mapping[str, float]], list[float]]
BAR, L_MIN, G, VAPOUR = 1e5, 1e-3 / 60, 9.81, -1e5
ATMOSPHERE = 101_325.0
WAYS = (("LSODA", 1e-9), ("DOP853", 1e-8), ("RK23", 1e-6))
MAX_EVALUATIONS = 100_000
"""Of the rates, between two corners: some machines hammer at the edge of cavitation, where solvers lose their way."""
TANK = {"type": "tank", "ports": {"T": "tank"}}


class Undecided(Exception):
    """The reference can't solve a machine."""


@dataclass(frozen=True)
class Case:
    """A machine: its circuit as a table, and what the reference needs of it.

    ``points``: each input's corners; ``start`` and ``typical``: of the states; those with a space in their
    name are shown; ``rates``: time derivatives of the states under the inputs; ``floors``: states that end at 0.
    """

    circuit: dict[str, Any]
    points: dict[str, list[tuple[float, float]]]
    states: tuple[str, ...]
    start: tuple[float, ...]
    typical: tuple[float, ...]
    rates: Rates
    duration: float
    floors: tuple[str, ...] = ()

    def solution(self, times: Floats, method: str = "LSODA", tolerance: float = 1e-9) -> dict[str, Floats]:
        """The states over time, by name; integrated anew at each corner of an input, and where a floor acts."""
        ends = sorted({0.0, self.duration, *(t for line in self.points.values() for t, _ in line)})
        ends = [t for t in ends if t <= self.duration]
        scale, y = np.array(self.typical), np.array(self.start) / np.array(self.typical)
        found = np.empty((len(times), len(y)))
        held: set[int] = set()
        for begin, end in pairwise(ends):
            t = begin
            while t < end:
                here = (times > t + 1e-12) & (times <= end + 1e-12)
                at = np.union1d(np.minimum(times[here], end), [end])
                done = self._course((t, end), y, held, at, method, tolerance)
                found[np.flatnonzero(here)[: len(done.t)]] = done.y.T[: int(here.sum())]
                t, y = end, done.y[:, -1]
                for k, when, there in zip(self._limited, done.t_events or (), done.y_events or (), strict=True):
                    if len(when):
                        t, y = float(when[0]), there[0].copy()
                        y[k] = 0.0
                        held ^= {k}
        return {name: found[:, k] * scale[k] for k, name in enumerate(self.states)}

    @property
    def _limited(self) -> list[int]:
        return [self.states.index(name) for name in self.floors]

    def _course(
        self, span: tuple[float, float], y: Floats, held: set[int], at: Floats, method: str, tolerance: float
    ) -> Any:
        """The scaled states up to the end of a span, or until one comes to its floor or leaves it."""
        scale = np.array(self.typical)

        evaluations = count()
        inputs = [(name, *np.array(line).T) for name, line in self.points.items()]

        def free(t: float, y: Floats) -> Floats:
            if next(evaluations) > MAX_EVALUATIONS:
                raise Undecided(f"more than {MAX_EVALUATIONS} evaluations from {span[0]:g} s on, now at {t:g} s")
            given = {name: float(np.interp(t, times, values)) for name, times, values in inputs}
            rate: Floats = np.array(self.rates(y * scale, given)) / scale
            return rate

        def kept(t: float, y: Floats) -> Floats:
            rate = free(t, y)
            if held:
                rate[list(held)] = 0.0
            return rate

        def leaves(k: int) -> Callable[[float, Floats], float]:
            def event(t: float, y: Floats) -> float:
                return float(free(t, y)[k]) if k in held else float(y[k])

            event.terminal, event.direction = True, 1.0 if k in held else -1.0  # type: ignore[attr-defined]
            return event

        for k in self._limited:
            if y[k] <= 0.0 and free(span[0], y)[k] < -1e-9:
                held.add(k)
        done = solve_ivp(
            kept, span, y, method, at, rtol=tolerance, atol=1e-2 * tolerance, max_step=2e-3,
            events=[leaves(k) for k in self._limited] or None,
        )  # fmt: skip
        if not done.success:
            raise Undecided(done.message)
        return done

    def solved(self, times: Floats) -> dict[str, Floats]:
        """The solution by the most precise way that succeeds. Raises Undecided if none does."""
        for method, tolerance in WAYS[:-1]:
            with contextlib.suppress(Undecided):
                return self.solution(times, method, tolerance)
        return self.solution(times, *WAYS[-1])


# --- laws -------------------------------------------------------------------------------------------------------------


def root(dp: float, p_tr: float) -> float:
    """The orifice law of Ellman & Piché."""
    r = dp / p_tr
    return copysign(sqrt(abs(dp)), dp) if abs(r) >= 1.0 else sqrt(p_tr) * r * (3.0 - abs(r)) / 2.0


def fade(s: float) -> float:
    s = min(max(s, 0.0), 1.0)
    return s * s * (3.0 - 2.0 * s)


def stop(depth: float, speed: float, K: float, D: float, zone: float) -> float:
    return fade(depth / zone) * max(K * depth + D * speed, 0.0) if depth > 0.0 else 0.0


def seal(v: float, F_p: float, loss: float) -> float:
    """The friction of the source's eqs. 3.48 and 4.7, between its three points by STEPs."""
    s = abs(v)
    xi = 1.0 - 0.8 * fade(s / 0.1) if s < 0.1 else 0.2 + 0.8 * fade((s - 0.1) / 4.9)
    return xi * tanh(v / 0.01) * abs(F_p) * loss


def relief_constants(p_ref: float, points: list[tuple[float, float]]) -> tuple[float, float]:
    """C1 and C2 of the curve through two points (pressure above opening, flow)."""
    rows = [[1.0, p_ref + dp] for dp, _ in points]
    right = [dp * sqrt(p_ref + dp) / q for dp, q in points]
    c_1, c_2 = np.linalg.solve(rows, right)
    return float(c_1), float(c_2)


def content(s: float, q: float, C: float, C_void: float) -> float:
    """Rate of a node's state: of its pressure; below the vapour pressure p_v it counts the void, C_void·(p_v - s).

    Any constant gives the same pressures; one of the size of C spares the solver a jump of the rate.
    """
    return q / (C if s >= VAPOUR else C_void)


def oil(V: float, p: float, B: float, air: float = 0.0) -> float:
    p_abs = max(p + ATMOSPHERE, 0.01 * ATMOSPHERE)
    return V * float(1.0 / B + air * (ATMOSPHERE / p_abs) ** (1.0 / 1.4) / (1.4 * p_abs))


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """With three digits, so that a file says the same."""
    return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.3g}")


def corners(
    rng: np.random.Generator, duration: float, low: float = -1.0, high: float = 1.0
) -> list[tuple[float, float]]:
    """Random levels with ramps of 2 to 60 ms between them, on whole milliseconds."""
    line, t = [(0.0, 0.0)], 0.02
    while t < duration:
        level = float(np.round(rng.choice([low, high, 0.0, rng.uniform(low, high)]), 2))
        line += [(round(t, 3), line[-1][1]), (round(t + int(rng.integers(2, 60)) * 1e-3, 3), level)]
        t = line[-1][0] + int(rng.integers(30, 200)) * 1e-3
    return line


# --- machines ---------------------------------------------------------------------------------------------------------


def lift(rng: np.random.Generator) -> Case:
    """Supply, 4/3 valve with a lag, cylinder with loads from light to heavy, end stops; a hose at A of some."""
    bore, stroke = float(rng.integers(32, 80)) * 1e-3, float(rng.integers(80, 300)) * 1e-3
    rod, V_A, V_B = round(0.55 * bore, 4), log_uniform(rng, 5e-5, 5e-4), log_uniform(rng, 5e-5, 5e-4)
    m_own, m_load = log_uniform(rng, 2.0, 20.0), log_uniform(rng, 1.0, 2000.0)
    eta = float(rng.choice([0.85, 0.95, 1.0]))
    K, D = log_uniform(rng, 2e7, 5e8), log_uniform(rng, 2e4, 4e5)
    flow, f45, p_S, B = log_uniform(rng, 10.0, 60.0), log_uniform(rng, 8.0, 80.0), float(rng.integers(60, 210)), 1.4e9
    upright, hose = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    duration, x_0 = 0.6, round(float(rng.choice([0.0, 0.02, 0.5, 1.0]) * stroke), 4)
    A, A_B = 0.25 * pi * bore**2, 0.25 * pi * (bore**2 - rod**2)
    F_g, tau, C_v = m_load * G * upright, 1.0 / (2.0 * pi * f45), flow * L_MIN / sqrt(35 * BAR)
    V_hose, B_hc = 0.25 * pi * 0.0127**2 * 1.5, 2e5
    p_A0 = round(F_g / A / BAR + 5.0, 2)
    parts: dict[str, Any] = {
        "tank": TANK,
        "supply": {"type": "pressure_source", "ports": {"P": "P"}, "pressure": f"{p_S} bar"},
        "valve": {
            "type": "proportional_valve_4_3", "ports": {"P": "P", "T": "tank", "A": "A", "B": "B"}, "command": "u",
            "nominal_flow": {"flow": f"{flow} l/min", "drop": "35 bar", "per": "edge"}, "f45": f"{f45} Hz",
        },
        "cylinder": {
            "type": "cylinder", "ports": {"A": "A", "B": "B", "rod": "rod"}, "bore": f"{bore} m",
            "rod_diameter": f"{rod} m", "stroke": f"{stroke} m", "moving_mass": f"{m_own} kg",
            "dead_volume_A": f"{V_A} m^3", "dead_volume_B": f"{V_B} m^3", "friction": {"efficiency": eta},
            "end_stop": {"stiffness": f"{K} N/m", "damping": f"{D} N*s/m"},
        },
        "load": {
            "type": "load_mass", "ports": {"rod": "rod"}, "mass": f"{m_load} kg",
            "direction": "90 deg" if upright else "0 deg",
        },
    }  # fmt: skip
    if hose:
        parts["hose"] = {
            "type": "hose", "ports": {"P": "A"}, "inner_diameter": "12.7 mm", "length": "1.5 m",
            "wall_coefficient": "2e5 Pa^0.5", "least_pressure": "5 bar",
        }  # fmt: skip

    def rates(y: Floats, given: Mapping[str, float]) -> list[float]:
        U, s_A, s_B, x, v = y
        p_A, p_B, inside = max(s_A, VAPOUR), max(s_B, VAPOUR), min(max(x, 0.0), stroke)
        up, down = C_v * max(U, 0.0), C_v * max(-U, 0.0)
        q_A = up * root(p_S * BAR - p_A, BAR) - down * root(p_A, BAR)
        q_B = down * root(p_S * BAR - p_B, BAR) - up * root(p_B, BAR)
        C_A, C_B = oil(V_A + A * inside, p_A, B), oil(V_B + A_B * (stroke - inside), p_B, B)
        if hose:
            C_A += V_hose / B + V_hose / (B_hc * sqrt(max(p_A, 5 * BAR)))
        F_p = A * p_A - A_B * p_B
        F = F_p - seal(v, F_p, 1.0 - eta) - stop(x - stroke, v, K, D, 1e-4) + stop(-x, -v, K, D, 1e-4) - F_g
        u = min(max(given["u"], -1.0), 1.0)
        return [
            (u - U) / tau, content(s_A, q_A - A * v, C_A, V_A / B),
            content(s_B, q_B + A_B * v, C_B, V_B / B), v, F / (m_own + m_load),
        ]  # fmt: skip

    nodes = {"A": {"pressure": f"{p_A0} bar"}, "B": {"pressure": "5 bar"}, "rod": {"position": f"{x_0} m"}}
    circuit = {"components": parts, "nodes": nodes, "fluid": {"bulk_modulus": f"{B} Pa"}}
    start, typical = (0.0, p_A0 * BAR, 5 * BAR, x_0, 0.0), (1.0, 1e7, 1e7, 0.1, 1.0)
    states = ("U", "pressure A", "pressure B", "position rod", "velocity rod")
    return Case(circuit, {"u": corners(rng, duration)}, states, start, typical, rates, duration)


def supply(rng: np.random.Generator) -> Case:
    """Pump with a power limit, relief valve, check valve, accumulator, a consumer that draws and rests."""
    B, V_1, V_2 = 1.5e9, log_uniform(rng, 1e-4, 2e-3), log_uniform(rng, 2e-4, 3e-3)
    q_N, p_ref = log_uniform(rng, 15.0, 60.0), float(rng.integers(80, 200))
    P = round(q_N * L_MIN * p_ref * BAR * float(rng.uniform(0.6, 1.4)) / 0.85)
    V_0, p_pre, n = log_uniform(rng, 2e-4, 4e-3), float(rng.integers(20, 90)), float(rng.choice([1.0, 1.2, 1.4]))
    q_acc, q_check, crack = log_uniform(rng, 40.0, 150.0), log_uniform(rng, 30.0, 80.0), float(rng.choice([0.0, 0.5]))
    settling, duration = log_uniform(rng, 5e-3, 4e-2), 0.8
    points = [(5.0, 20.0), (15.0, 60.0)]
    c_1, c_2 = relief_constants(p_ref * BAR, [(dp * BAR, q * L_MIN) for dp, q in points])
    C_dyn = settling * (c_1 + c_2 * (p_ref + 15.0) * BAR)
    K_acc, K_check, absolute = q_acc * L_MIN / sqrt(3 * BAR), q_check * L_MIN / sqrt(3 * BAR), p_pre * BAR + ATMOSPHERE
    revolution = q_N / 1500.0
    parts = {
        "tank": TANK,
        "pump": {
            "type": "fixed_pump", "ports": {"P": "P", "T": "tank"}, "displacement": f"{revolution * 1e3!r} cm^3/rev",
            "speed": "1500 rpm", "max_power": f"{P} W", "efficiency": 0.85,
        },
        "manifold": {"type": "volume", "ports": {"P": "P"}, "volume": f"{V_1} m^3"},
        "relief": {
            "type": "relief_valve", "ports": {"P": "P", "T": "tank"}, "opening_pressure": f"{p_ref} bar",
            "override": [[f"{dp} bar", f"{q} l/min"] for dp, q in points], "settling_time": f"{settling} s",
        },
        "check": {
            "type": "check_valve", "ports": {"A": "P", "B": "line"}, "cracking_pressure": f"{crack} bar",
            "nominal_flow": {"flow": f"{q_check} l/min", "drop": "3 bar"},
        },
        "line": {"type": "volume", "ports": {"P": "line"}, "volume": f"{V_2} m^3"},
        "store": {
            "type": "accumulator", "ports": {"P": "line"}, "gas_volume": f"{V_0} m^3", "precharge": f"{p_pre} bar",
            "polytropic_exponent": n, "nominal_flow": {"flow": f"{q_acc} l/min", "drop": "3 bar"},
        },
        "consumer": {"type": "flow_source", "ports": {"P": "line", "T": "tank"}, "flow": "60 l/min", "command": "u"},
    }  # fmt: skip

    def rates(y: Floats, given: Mapping[str, float]) -> list[float]:
        s_1, s_2, V, K = y
        p_1, p_2 = max(s_1, VAPOUR), max(s_2, VAPOUR)
        q_pump = min(revolution * 1e-3 * 1500.0 / 60.0, P * 0.85 / max(p_1, 1.0))
        q_relief = max(K, 0.0) * sqrt(max(p_1, 0.0))
        drop = p_1 - p_2
        open_ = 1.0 if crack == 0.0 else min(max((drop - crack * BAR) / ((3.0 - crack) * BAR), 0.0), 1.0)
        q_check = K_check * open_ * root(max(drop, 0.0), BAR)
        inside = min(max(V, 0.0), 0.9 * V_0)
        p_gas = absolute * (V_0 / (V_0 - inside)) ** n - ATMOSPHERE
        room = 0.9 * V_0 - inside if p_2 > p_gas else inside
        dV = K_acc * min(room / (0.01 * V_0), 1.0) * root(p_2 - p_gas, 3 * BAR)
        C_1, C_2 = V_1 / B, (V_2 + 0.1 * V_0) / B
        dK = ((p_1 - p_ref * BAR) - (c_1 + c_2 * p_1) * max(K, 0.0)) / C_dyn
        q_2 = q_check - dV + given["u"] * 60.0 * L_MIN
        return [content(s_1, q_pump - q_relief - q_check, C_1, C_1), content(s_2, q_2, C_2, C_2), dV, dK]

    circuit = {"components": parts, "fluid": {"bulk_modulus": f"{B} Pa"}}
    states, typical = ("pressure P", "pressure line", "V", "K"), (1e7, 1e7, V_0, 1e-7)
    line = {"u": corners(rng, duration, -1.0, 0.0)}
    return Case(circuit, line, states, (0.0,) * 4, typical, rates, duration, ("K",))


def slide(rng: np.random.Generator) -> Case:
    """A mass, light to heavy, pushed against its stops; a spring and a damper hold it."""
    m, width = log_uniform(rng, 0.2, 1000.0), float(rng.integers(20, 100)) * 1e-3
    K, D, zone = log_uniform(rng, 5e6, 5e8), log_uniform(rng, 1e3, 4e5), float(rng.choice([1e-4, 5e-4]))
    F, k, c = log_uniform(rng, 50.0, 200.0) * m + 200.0, log_uniform(rng, 1e2, 1e4), log_uniform(rng, 5.0, 500.0)
    duration, x_0 = 0.5, round(float(rng.uniform(0.1, 0.9)) * width, 4)
    parts = {
        "mass": {"type": "load_mass", "ports": {"rod": "rod"}, "mass": f"{m} kg", "direction": "0 deg"},
        "stop": {
            "type": "end_stop", "ports": {"rod": "rod"}, "lower": "0 mm", "upper": f"{width} m",
            "stiffness": f"{K} N/m", "damping": f"{D} N*s/m", "zone": f"{zone} m",
        },
        "push": {"type": "force_source", "ports": {"rod": "rod"}, "force": f"{F} N", "command": "u"},
        "wall": {"type": "velocity_source", "ports": {"rod": "wall"}},
        "spring": {"type": "spring", "ports": {"rod": "rod", "base": "wall"}, "stiffness": f"{k} N/m"},
        "damper": {"type": "damper", "ports": {"rod": "rod", "base": "wall"}, "damping": f"{c} N*s/m"},
    }  # fmt: skip

    def rates(y: Floats, given: Mapping[str, float]) -> list[float]:
        x, v = y
        contact = stop(-x, -v, K, D, zone) - stop(x - width, v, K, D, zone)
        return [v, (given["u"] * F - k * x - c * v + contact) / m]

    circuit = {"components": parts, "nodes": {"rod": {"position": f"{x_0} m"}}}
    states = ("position rod", "velocity rod")
    return Case(circuit, {"u": corners(rng, duration)}, states, (x_0, 0.0), (0.1, 1.0), rates, duration)


def line(rng: np.random.Generator) -> Case:
    """A source with surges into a hose with air in its oil, an orifice, a volume, a capillary; it cavitates in some."""
    B, air = 1.5e9, float(rng.choice([0.0, 0.002, 0.01]))
    length, V_2 = round(log_uniform(rng, 0.5, 6.0), 2), log_uniform(rng, 5e-5, 1e-3)
    q_N, q_o, q_c = log_uniform(rng, 5.0, 50.0), log_uniform(rng, 5.0, 40.0), log_uniform(rng, 2.0, 30.0)
    V_1, duration = 0.25 * pi * 0.0127**2 * length, 0.6
    K_o, G_c = q_o * L_MIN / sqrt(10 * BAR), q_c * L_MIN / (20 * BAR)
    p_0 = float(rng.integers(0, 60))
    parts = {
        "tank": TANK,
        "source": {"type": "flow_source", "ports": {"P": "P", "T": "tank"}, "flow": f"{q_N} l/min", "command": "u"},
        "hose": {
            "type": "hose", "ports": {"P": "P"}, "inner_diameter": "12.7 mm", "length": f"{length} m",
            "wall_coefficient": "1.5e5 Pa^0.5", "least_pressure": "5 bar",
        },
        "orifice": {
            "type": "orifice", "ports": {"A": "P", "B": "out"},
            "nominal_flow": {"flow": f"{q_o} l/min", "drop": "10 bar"},
        },
        "volume": {"type": "volume", "ports": {"P": "out"}, "volume": f"{V_2} m^3"},
        "capillary": {
            "type": "laminar_restrictor", "ports": {"A": "out", "B": "tank"},
            "nominal_flow": {"flow": f"{q_c} l/min", "drop": "20 bar"},
        },
    }  # fmt: skip

    def rates(y: Floats, given: Mapping[str, float]) -> list[float]:
        s_1, s_2 = y
        p_1, p_2 = max(s_1, VAPOUR), max(s_2, VAPOUR)
        through = K_o * root(p_1 - p_2, BAR)
        C_1 = oil(V_1, p_1, B, air) + V_1 / (1.5e5 * sqrt(max(p_1, 5 * BAR)))
        q_1, q_2 = given["u"] * q_N * L_MIN - through, through - G_c * p_2
        voids = [oil(V_1, VAPOUR, B, air), oil(V_2, VAPOUR, B, air)]
        return [content(s_1, q_1, C_1, voids[0]), content(s_2, q_2, oil(V_2, p_2, B, air), voids[1])]

    nodes = {"P": {"pressure": f"{p_0} bar"}, "out": {"pressure": f"{p_0} bar"}}
    circuit = {"components": parts, "nodes": nodes, "fluid": {"bulk_modulus": f"{B} Pa", "air_fraction": air}}
    states = ("pressure P", "pressure out")
    points = {"u": corners(rng, duration, -0.4, 1.0)}
    return Case(circuit, points, states, (p_0 * BAR, p_0 * BAR), (1e7, 1e7), rates, duration)


def drawn(rng: np.random.Generator) -> Case:
    """A plunger pulled open faster than it fills through an orifice from the tank, and pushed back to its stop."""
    bore, stroke = float(rng.integers(25, 63)) * 1e-3, float(rng.integers(60, 250)) * 1e-3
    V_A = log_uniform(rng, 5e-5, 5e-4)
    m, F = log_uniform(rng, 3.0, 500.0), log_uniform(rng, 1e3, 2e4)
    q_o, c, B = log_uniform(rng, 3.0, 40.0), log_uniform(rng, 5e2, 5e3), 1.5e9
    A, K_o, duration = 0.25 * pi * bore**2, q_o * L_MIN / sqrt(5 * BAR), 0.8
    x_0 = round(0.3 * stroke, 4)
    parts = {
        "tank": TANK,
        "plunger": {
            "type": "single_acting_cylinder", "ports": {"A": "A", "rod": "rod"}, "bore": f"{bore} m",
            "stroke": f"{stroke} m", "moving_mass": f"{m} kg", "dead_volume_A": f"{V_A} m^3",
            "friction": {"efficiency": 1.0},
        },
        "way": {
            "type": "orifice", "ports": {"A": "A", "B": "tank"},
            "nominal_flow": {"flow": f"{q_o} l/min", "drop": "5 bar"},
        },
        "pull": {"type": "force_source", "ports": {"rod": "rod"}, "force": f"{F} N", "command": "u"},
        "wall": {"type": "velocity_source", "ports": {"rod": "wall"}},
        "damper": {"type": "damper", "ports": {"rod": "rod", "base": "wall"}, "damping": f"{c} N*s/m"},
    }  # fmt: skip

    def rates(y: Floats, given: Mapping[str, float]) -> list[float]:
        s, x, v = y
        p, inside = max(s, VAPOUR), min(max(x, 0.0), stroke)
        contact = stop(-x, -v, 1e8, 2e5, 1e-4) - stop(x - stroke, v, 1e8, 2e5, 1e-4)
        q = -K_o * root(p, BAR) - A * v
        return [content(s, q, oil(V_A + A * inside, p, B), V_A / B), v, (A * p + given["u"] * F - c * v + contact) / m]

    circuit = {
        "components": parts, "nodes": {"rod": {"position": f"{x_0} m"}}, "fluid": {"bulk_modulus": f"{B} Pa"}
    }  # fmt: skip
    states = ("pressure A", "position rod", "velocity rod")
    return Case(circuit, {"u": corners(rng, duration)}, states, (0.0, x_0, 0.0), (1e7, 0.1, 1.0), rates, duration)


MACHINES: tuple[Callable[[np.random.Generator], Case], ...] = (lift, supply, slide, line, drawn)


def random_case(seed: int) -> tuple[str, Case, str, int]:
    """Name and case, integrator, and substeps of 1 ms: from far too few to many."""
    rng = np.random.default_rng(seed)
    machine = MACHINES[seed % len(MACHINES)]
    integrator = str(rng.choice(["euler", "rk4", "rosenbrock"]))
    substeps = int(rng.choice([1, 2, 4, 10, 20, 50, 100]))
    return machine.__name__, machine(rng), integrator, substeps
