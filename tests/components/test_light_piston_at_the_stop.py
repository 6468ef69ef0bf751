"""A piston that is light for the step at its end stop: it comes to rest where force and stop balance, with any mass.

The stop's damping of 2e5 N·s/m changes the speed of 5 kg within 25 µs: with RK4 at 0.1 ms the contact was unstable, and
the piston bounced forever, in step with the tick.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import BAR, L_MIN, Bench
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

Floats = NDArray[np.float64]
AREA, ANNULUS = pi / 4 * 0.050**2, pi / 4 * (0.050**2 - 0.028**2)
STROKE, DEAD, MODULUS, SUPPLY = 0.2, 1e-4, 1.5e9, 160 * BAR
K, D, ZONE = 1e8, 2e5, 1e-4
TICK = 1e-3


def against_the_stop(mass: float, friction: bool = True, start: float = 0.19) -> dict[str, Any]:
    """Two orifices let a piston run against its extended end; all else as by default."""
    orifice = {
        "type": "orifice",
        "nominal_flow": {"flow": "20 l/min", "drop": "50 bar"},
        "transition_pressure": "1 bar",
    }
    return {
        "nodes": {"rod": {"position": f"{start} m"}},
        "components": {
            "source": {"type": "pressure_source", "ports": {"P": "supply"}, "pressure": "160 bar", "command": 1},
            "inlet": {**orifice, "ports": {"A": "supply", "B": "A"}},
            "outlet": {**orifice, "ports": {"A": "B", "B": "tank"}},
            "tank": {"type": "tank", "ports": {"T": "tank"}},
            "cylinder": {
                "type": "cylinder",
                "ports": {"A": "A", "B": "B", "rod": "rod"},
                "bore": "50 mm",
                "rod_diameter": "28 mm",
                "stroke": "200 mm",
                "moving_mass": f"{mass} kg",
                "dead_volume_A": "0.1 l",
                "dead_volume_B": "0.1 l",
                "friction": {} if friction else {"efficiency": 1},
            },
        },
    }


def orifice(drop: float) -> float:
    """Flow, turbulent above 1 bar: Ellman & Piché's cubic below. theory §3."""
    coefficient = 20 * L_MIN / sqrt(50 * BAR)
    if abs(drop) > BAR:
        return coefficient * float(np.sign(drop)) * sqrt(abs(drop))
    return coefficient * sqrt(BAR) * drop / BAR * (3 - abs(drop) / BAR) / 2


def stop(depth: float, speed: float) -> float:
    s = min(max(depth / ZONE, 0.0), 1.0)
    return s * s * (3 - 2 * s) * max(K * depth + D * speed, 0.0)


def rates(t: float, y: Floats, mass: float) -> list[float]:
    p_A, p_B, x, v = y
    within = min(max(x, 0.0), STROKE)
    force = AREA * p_A - ANNULUS * p_B - stop(x - STROKE, v)
    return [
        (orifice(SUPPLY - p_A) - AREA * v) * MODULUS / (DEAD + AREA * within),
        (ANNULUS * v - orifice(p_B)) * MODULUS / (DEAD + ANNULUS * (STROKE - within)),
        v,
        force / mass,
    ]


@pytest.mark.parametrize(
    ("substeps", "masses"), [(5, (0.5, 3, 8, 14)), (10, (0.1, 1, 4, 5, 6, 7, 8)), (20, (0.1, 1, 3, 4, 5))]
)
def test_any_mass_comes_to_rest_at_the_analytic_position(substeps: int, masses: tuple[float, ...]) -> None:
    """At rest A·p_S = K·delta: 31.4 kN, 0.314 mm into the stop."""
    for mass in masses:
        bench = Bench(against_the_stop(mass, start=0.1995))
        course = bench.record(("rod.x", "rod.v", "cylinder.F_end", "A.p"), 0.3, TICK / substeps, TICK)
        late = {name: values[-100:] for name, values in course.items()}
        assert late["rod.x"] == pytest.approx(STROKE + AREA * SUPPLY / K, abs=1e-7), mass
        assert np.abs(late["rod.v"]).max() < 1e-5, mass
        assert late["cylinder.F_end"] == pytest.approx(AREA * SUPPLY, rel=1e-4), mass
        assert late["A.p"] == pytest.approx(SUPPLY, rel=1e-4), mass


TOLERANCES: dict[str, Any] = {"rtol": 1e-8, "atol": [1.0, 1.0, 1e-10, 1e-8]}


@pytest.mark.parametrize("mass", [5.0, 40.0])
def test_before_and_after_the_contact_as_an_independent_solution(mass: float) -> None:
    """DOP853 (Hairer, Nørsett & Wanner) on the equations of this module: 1 µm, 0.5 bar before; the same end after."""
    bench = Bench(against_the_stop(mass, friction=False, start=0.198))
    ticks = 120
    course = bench.record(("A.p", "rod.x"), ticks * TICK, 1e-4, TICK)
    times = TICK * np.arange(1, ticks + 1)
    start = [0, 0, 0.198, 0]
    exact = solve_ivp(rates, (0, times[-1]), start, "DOP853", times, args=(mass,), **TOLERANCES).y
    before = exact[2] < STROKE
    assert 5 < before.sum() < 100
    assert course["rod.x"][before] == pytest.approx(exact[2][before], abs=1e-6)
    assert course["A.p"][before] == pytest.approx(exact[0][before], abs=0.5 * BAR)
    assert course["rod.x"][-20:] == pytest.approx(exact[2][-20:], abs=1e-6)
    assert course["A.p"][-20:] == pytest.approx(exact[0][-20:], abs=0.05 * BAR)


def test_a_sufficient_mass_is_not_changed() -> None:
    """40 kg at 0.1 ms need no more mass: less than 1 µm and 0.1 bar from the independent solution within the stop."""
    bench = Bench(against_the_stop(40.0, friction=False, start=0.1995))
    course = bench.record(("A.p", "rod.x"), 0.04, 1e-4, TICK)
    times = TICK * np.arange(1, 41)
    exact = solve_ivp(rates, (0, 0.04), [0, 0, 0.1995, 0], "DOP853", times, args=(40.0,), **TOLERANCES).y
    assert (exact[2] > STROKE).sum() > 5
    assert course["rod.x"] == pytest.approx(exact[2], abs=1e-6)
    assert course["A.p"] == pytest.approx(exact[0], abs=0.1 * BAR)


@pytest.mark.parametrize("integrator", ["rk4", "euler"])
@pytest.mark.parametrize("mass", [0.5, 5.0, 500.0])
def test_an_end_stop_of_its_own_catches_any_mass(mass: float, integrator: str) -> None:
    """A force of 20 kN against the component ``end_stop``: 0.2 mm deep, whatever the mass."""
    circuit = {
        "solver": {"integrator": integrator},
        "components": {
            "push": {"type": "force_source", "ports": {"rod": "rod"}, "force": "20 kN"},
            "load": {"type": "load_mass", "ports": {"rod": "rod"}, "mass": f"{mass} kg", "gravity": "0 m/s^2"},
            "stop": {"type": "end_stop", "ports": {"rod": "rod"}, "upper": "10 mm"},
        },
    }
    bench = Bench(circuit)
    bench.run(1.5, 1e-4)
    assert bench["rod.x"] == pytest.approx(0.010 + 20e3 / 1e8, abs=1e-7)
    assert bench["rod.v"] == pytest.approx(0.0, abs=1e-5)
    assert bench["stop.F_rod"] == pytest.approx(-20e3, rel=1e-4)


def test_an_end_stop_adds_no_mass() -> None:
    """A node needs a mass of its own, which it has outside the stop too."""
    with pytest.raises(Exception, match="has no mass"):
        Bench({"components": {"stop": {"type": "end_stop", "ports": {"rod": "rod"}, "upper": "10 mm"}}})
