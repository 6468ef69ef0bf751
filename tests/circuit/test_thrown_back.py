"""A mass that flies into an end stop gives energy to it: with ``rosenbrock`` too, it never leaves faster than it came.

A step that begins before the stop has a stage within it, and can end before it again: at its end the linearisation
holds, but the mass has been thrown back with up to a thousand times its speed. The judge is the stop itself, which
only pushes: K·depth + D·speed, at least 0, so that it can return at most what the spring took.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import Bench

K = 1e8
ENTRY = 0.02
MASSES = (0.2, 1.0, 5.0, 20.0, 100.0, 3000.0)
SPEEDS = (0.1, 0.3, 1.0, 3.0, 10.0)


def flight(mass: float, speed: float, step: float, share: float, damping: float = 2e5) -> Bench:
    """A free mass that reaches its stop after two steps and this share of one."""
    parts: dict[str, Any] = {
        "mass": {"type": "load_mass", "ports": {"rod": "rod"}, "mass": f"{mass} kg", "direction": "0 deg"},
        "stop": {
            "type": "end_stop", "ports": {"rod": "rod"}, "upper": f"{ENTRY} m",
            "stiffness": f"{K} N/m", "damping": f"{damping} N*s/m",
        },
    }  # fmt: skip
    start = {"position": f"{ENTRY - (2.0 + share) * step * speed} m", "velocity": f"{speed} m/s"}
    return Bench({"solver": {"integrator": "rosenbrock"}, "nodes": {"rod": start}, "components": parts})


@pytest.mark.parametrize("step", [1e-3, 2.5e-4, 1e-4])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.65, 0.9])
def test_no_mass_leaves_a_stop_faster_than_it_came(step: float, share: float) -> None:
    for mass in MASSES:
        for speed in SPEEDS:
            bench = flight(mass, speed, step, share)
            course = bench.record(("rod.x", "rod.v"), 20 * step, step, step)
            assert np.abs(course["rod.v"]).max() <= speed * (1 + 1e-9), (mass, speed)
            assert course["rod.x"].max() <= ENTRY + speed * sqrt(mass / K) * 1.05 + 1e-4, (mass, speed)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_a_stop_that_only_springs_returns_the_speed(share: float) -> None:
    """Without damping a conservative force returns the mass at the speed at which it came, within 10 % at 1 ms."""
    bench = flight(3000.0, 1.0, 1e-3, share, damping=0.0)
    bench.run(0.05, 1e-3)
    assert bench["rod.v"] == pytest.approx(-1.0, rel=0.1)
