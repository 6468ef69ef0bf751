"""Small mechanisms in a plane, those of config, and the equation of Lagrange to hold them against."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.numerics.arrays import Floats

CONFIG = Path(__file__).parents[2] / "config"
G = 9.81


def table(name: str) -> dict[str, Any]:
    return tomllib.loads((CONFIG / f"mechanisms/{name}.toml").read_text())


def alone(definition: dict[str, Any], solver: dict[str, Any] | None = None, **components: Any) -> dict[str, Any]:
    """A circuit with one mechanism m."""
    return {"solver": solver or {}, "components": components, "mechanisms": {"m": {"definition": definition}}}


def body(mass: float, inertia: float, x: float, y: float) -> dict[str, Any]:
    return {"mass": f"{mass} kg", "inertia": f"{inertia} kg*m^2", "centre": [f"{x} m", f"{y} m"]}


def pin(one: str, other: str, x: float, y: float, **more: Any) -> dict[str, Any]:
    return {"type": "revolute", "between": [one, other], "point": [f"{x!r} m", f"{y!r} m"], **more}


def lagrange(
    inertia: Callable[[float], float], potential: Callable[[float], float], y0: list[float], times: Floats
) -> Floats:
    """Place and speed of one degree of freedom: I(q) q'' + I'(q) q'^2 / 2 + V'(q) = 0; slopes by differences."""

    def slope(f: Callable[[float], float], q: float) -> float:
        h = 1e-3
        return (8 * (f(q + h) - f(q - h)) - f(q + 2 * h) + f(q - 2 * h)) / (12 * h)

    def rates(t: float, y: Floats) -> list[float]:
        return [y[1], -(slope(potential, y[0]) + 0.5 * slope(inertia, y[0]) * y[1] ** 2) / inertia(y[0])]

    found = solve_ivp(rates, (0.0, times[-1]), y0, "DOP853", times, rtol=1e-11, atol=1e-12)
    return np.asarray(found.y)


def packed_of(definition: dict[str, Any]) -> PackedCircuit:
    return pack(read_circuit(alone(definition), standard_library(), "c.toml"), standard_library(), file="c.toml")
