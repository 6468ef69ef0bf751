"""Voids: where oil is wanting, what is wanting must flow back before the pressure rises, whatever has moved meanwhile.

Judged by volumes calculated by hand: areas, strokes and pumped volumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p, pi
from typing import Any

import numpy as np
import pytest
from component_bench import BAR, L_MIN, Bench, program
from hypothesis import given, settings
from hypothesis import strategies as st

from hilserver.circuit.engine import VOID_CAPACITANCE
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack

AREA = 0.25 * pi * 0.05**2
SOLVERS = ["euler", "rk4", "rosenbrock"]
STEP = {"euler": 1e-5, "rk4": 1e-4, "rosenbrock": 1e-3}


def drawn(solver: str = "rk4", air: float = 0.0, **chamber: Any) -> dict[str, Any]:
    """A cylinder 50/36 x 600 whose rod is moved at a speed v; its rod side is open, u pumps at most 60 l/min into A."""
    cylinder = {
        "type": "cylinder",
        "ports": {"A": "A", "B": "tank", "rod": "rod"},
        "bore": "50 mm",
        "rod_diameter": "36 mm",
        "stroke": "600 mm",
        "moving_mass": "10 kg",
        "dead_volume_A": "0.2 l",
        "dead_volume_B": "0.2 l",
    }
    return {
        "fluid": {"air_fraction": air},
        "solver": {"integrator": solver},
        "components": {
            "cylinder": cylinder | chamber,
            "mover": {"type": "velocity_source", "ports": {"rod": "rod"}, "velocity": "1 m/s", "command": "v"},
            "pump": {"type": "flow_source", "ports": {"P": "A", "T": "tank"}, "flow": "60 l/min", "command": "u"},
            "tank": {"type": "tank", "ports": {"T": "tank"}},
        },
    }


def moved(bench: Bench, velocity: float, flow: float, seconds: float, step: float) -> None:
    """Move the rod at m/s, pump at m³/s."""
    bench["v"], bench["u"] = velocity, flow / (60 * L_MIN)
    bench.run(seconds, step)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_chamber_that_was_pulled_open_fills_its_void_first(solver: str) -> None:
    """0.5 m with the port closed leave a void of 0.982 l, less the 0.1 ml by which the oil expands to vapour."""
    bench, step = Bench(drawn(solver)), STEP[solver]
    moved(bench, 0.5, 0.0, 1.0, step)
    assert bench["A.p"] == -BAR
    void = 0.5 * AREA - (0.2e-3 * BAR / 1.5e9)
    moved(bench, 0.0, 60 * L_MIN, 0.98, step)
    assert bench["A.p"] == -BAR
    missing = void - 0.98 * 60 * L_MIN
    moved(bench, 0.0, missing / 1e-3, 1e-3, step / 10)
    assert bench["A.p"] == pytest.approx(-BAR, abs=0.01 * BAR)
    moved(bench, 0.0, 1e-4, 1e-3, step / 10)
    assert bench["A.p"] == pytest.approx(-BAR + 1e-7 * 1.5e9 / (0.2e-3 + 0.5 * AREA), rel=0.01)


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_emptied_chamber_closes_where_its_oil_fills_it(solver: str) -> None:
    """At 0.5 m 0.7 l are sucked out of it. Driven back, its pressure rises where 0.7 l of room have gone: 143 mm."""
    bench, step = Bench(drawn(solver)), STEP[solver]
    moved(bench, 0.5, 0.5 * AREA, 1.0, step)
    settled = bench["A.p"]
    moved(bench, 0.0, -0.7e-3, 1.0, step)
    assert bench["A.p"] == -BAR
    full = (0.2e-3 + 0.5 * AREA) / 1.5e9
    back = (0.7e-3 - full * (settled + BAR)) / AREA
    moved(bench, -1.0, 0.0, 0.35, step)
    moved(bench, -(back - 0.3501) / 0.01, 0.0, 0.01, step)
    assert bench["A.p"] == -BAR
    moved(bench, -0.02, 0.0, 0.01, step / 10)
    assert bench["rod.x"] == pytest.approx(0.5 - back - 1e-4, abs=1e-9)
    left = 0.2e-3 + AREA * bench["rod.x"]
    assert bench["A.p"] == pytest.approx(-BAR + 1e-4 * AREA * 1.5e9 / left, rel=0.01)


def void(bench: Bench, node: str = "A") -> float:
    """Room without oil at a node, m³."""
    return VOID_CAPACITANCE * max(-BAR - bench[f"{node}.content"], 0.0)


@dataclass
class Chamber:
    """The chamber of `drawn` by hand: its oil obeys dp/dt = B(q - A·v)/V, solved for constant v and q."""

    x: float = 0.0
    p: float = 0.0
    void: float = 0.0
    B: float = 1.5e9

    def moved(self, v: float, q: float, seconds: float) -> None:
        opening = AREA * v - q
        if self.void > 0.0 or (self.p <= -BAR and opening > 0.0):
            duration = seconds if opening >= 0.0 else min(seconds, self.void / -opening)
            self.void = max(self.void + opening * duration, 0.0) if duration == seconds else 0.0
        else:
            duration = min(seconds, self._until_vapour(v, q))
            self.p = max(self.p + self.B * self._strain(v, q, duration), -BAR) if duration == seconds else -BAR
        self.x += v * duration
        if duration < seconds:
            self.moved(v, q, seconds - duration)

    def _strain(self, v: float, q: float, duration: float) -> float:
        volume = 0.2e-3 + AREA * self.x
        if v == 0.0:
            return q * duration / volume
        return (q / (AREA * v) - 1.0) * log1p(AREA * v * duration / volume)

    def _until_vapour(self, v: float, q: float) -> float:
        if AREA * v <= q:
            return float("inf")
        volume, strain = 0.2e-3 + AREA * self.x, (-BAR - self.p) / self.B
        if v == 0.0:
            return strain * volume / q
        grown = strain / (q / (AREA * v) - 1.0)
        return volume / (AREA * v) * float(np.expm1(grown)) if grown < 50.0 else float("inf")


MOVES = st.lists(
    st.tuples(st.sampled_from([-0.4, -0.1, 0.0, 0.2, 0.5]), st.floats(-0.8, 0.8), st.integers(1, 40)),
    min_size=2,
    max_size=8,
)


@pytest.mark.parametrize(("solver", "step"), [("rk4", 1e-4), ("rosenbrock", 1e-4)])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(moves=MOVES)
def test_oil_and_void_agree_with_a_hand_calculation(
    solver: str, step: float, moves: list[tuple[float, float, int]]
) -> None:
    """Random motion and pumping, both constant for some 10 ms each: void and pressure after each."""
    bench, truth = Bench(drawn(solver)), Chamber()
    for v, share, hundredths in moves:
        q = 60 * L_MIN * share
        seconds = 0.01 * hundredths
        if not 0.0 <= truth.x + v * seconds <= 0.6 or truth.p > 500 * BAR:
            continue
        moved(bench, v, q, seconds, step)
        truth.moved(v, q, seconds)
        assert bench["rod.x"] == pytest.approx(truth.x, abs=1e-12)
        assert void(bench) == pytest.approx(truth.void, abs=1e-12)
        assert bench["A.p"] == pytest.approx(truth.p, rel=1e-5, abs=2e3)


@pytest.mark.parametrize("air", [0.001, 0.02])
@pytest.mark.parametrize("solver", ["rk4", "rosenbrock"])
def test_oil_and_air_recover_at_the_volume_where_they_cavitated(solver: str, air: float) -> None:
    """Pulled out with the port closed and pushed back, a chamber of oil with air has its pressure again.

    Its oil and air fill more room the lower the pressure; at the vapour pressure they fill all that they can.
    """
    bench, step = Bench(drawn(solver, air, dead_volume_A="0.4 l")), 1e-5
    moved(bench, 0.5, 0.5 * AREA, 0.2, step)
    bench["v"] = bench["u"] = 0.0
    start = bench["A.p"]
    moved(bench, 0.5, 0.0, 0.9, step)
    assert bench["A.p"] == -BAR
    torn = 0.9 * 0.5 * AREA
    grown = [air * ((p + 101325.0) / 101325.0) ** (-1 / 1.4) - p / 1.5e9 for p in (-BAR, start)]
    volume = (0.4e-3 + 0.1 * AREA) * np.exp(grown[0] - grown[1])
    assert void(bench) == pytest.approx(0.4e-3 + 0.1 * AREA + torn - volume, rel=1e-4)
    moved(bench, -0.5, 0.0, 0.9, step)
    assert bench["A.p"] == pytest.approx(start, abs=0.01 * BAR)


def test_a_void_survives_a_live_switch() -> None:
    """The void is a volume: another hose at the node doesn't change it, and it takes as long to fill."""
    bench = Bench(drawn())
    moved(bench, 0.5, 0.0, 0.4, 1e-4)
    before = void(bench)
    table = drawn()
    table["components"]["line"] = {
        "type": "hose",
        "ports": {"P": "A"},
        "inner_diameter": "20 mm",
        "length": "3 m",
        "wall_coefficient": "1.5e5 Pa^0.5",
    }
    new = pack(read_circuit(table, standard_library()), standard_library())
    z = np.zeros(len(new.values))
    program().load(new.index, new.value, z)
    source = new.carried_from(bench.packed)
    z[source >= 0] = bench.z[source[source >= 0]]
    bench.put(new, z)
    assert void(bench) == before
    moved(bench, 0.0, 0.5e-3, 0.5, 1e-4)
    assert void(bench) == pytest.approx(before - 0.25e-3, abs=1e-15)
    moved(bench, 0.0, 1e-3, (before - 0.25e-3) / 1e-3 - 1e-4 - ((before - 0.25e-3) / 1e-3) % 1e-4, 1e-4)
    assert bench["A.p"] == -BAR
    moved(bench, 0.0, 1e-3, 5e-4, 1e-4)
    assert bench["A.p"] > -BAR
