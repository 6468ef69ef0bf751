"""Nodes of 10 ml, stepped once per millisecond by the L-stable integrator, against Runge-Kutta at 2 µs.

Their time constants are some 20 µs to 0.2 ms. The commands make valves open, pumps meet their limits and oil cavitate.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuit_text import component, flow_source, orifice, tank, volume
from component_bench import BAR, Bench
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FILE = Path(__file__).parents[2] / "config" / "circuits" / "verification.toml"
COMMANDS = ((0.6, 0.2), (0.0, 0.1), (-0.5, 0.2), (0.9, 0.2), (-1.0, 0.1), (0.1, 0.1))
"""Command and seconds."""
OVERRIDE = [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]]

PUMP_LINE = (
    tank("tank")
    + component(
        "pump", "fixed_pump", "P=supply T=tank", displacement="28 cm^3/rev", speed="1450 rpm", max_power="11 kW"
    )
    + volume("supply", "10 cm^3", "line")
    + component("relief", "relief_valve", "P=supply T=tank", opening_pressure="150 bar", override=OVERRIDE)
    + component(
        "valve",
        "proportional_valve_4_3",
        "P=supply T=tank A=A B=tank",
        command="joystick",
        nominal_flow={"flow": "40 l/min", "drop": "35 bar", "per": "edge"},
        f45="30 Hz",
    )
    + volume("A", "10 cm^3")
    + orifice("outlet", "A=A B=tank", "20 l/min", "50 bar")
)
"""Fixed pump and relief valve; a valve edge feeds a small node with an outlet."""

SUCTION = (
    tank("tank")
    + flow_source("P=A T=tank", "30 l/min", "joystick")
    + volume("A", "10 cm^3")
    + orifice("throttle", "A=A B=B", "20 l/min", "50 bar")
    + volume("B", "10 cm^3")
    + orifice("outlet", "A=B B=tank", "20 l/min", "20 bar")
    + component("relief", "static_relief_valve", "P=A T=tank", opening_pressure="50 bar", override=OVERRIDE)
)
"""A flow that is pushed into small nodes, past a relief valve, and sucked out of them until they cavitate."""


def verification(supply: str, dead_volume: str) -> dict[str, Any]:
    """The verification circuit with small volumes: pump line, valve edges, dead ends of the cylinder."""
    circuit = tomllib.loads(FILE.read_text())
    circuit["components"]["supply"]["volume"] = supply
    circuit["components"]["cylinder"] |= {"dead_volume_A": dead_volume, "dead_volume_B": dead_volume}
    return circuit


CIRCUITS = {
    "pump line": tomllib.loads(PUMP_LINE),
    "suction": tomllib.loads(SUCTION),
    "supply": verification("10 cm^3", "0.7 l"),
    "dead ends": verification("10 cm^3", "10 cm^3"),
}


def pressures(circuit: dict[str, Any], integrator: str, step: float) -> dict[str, Floats]:
    """Pressure of every node with a volume, each millisecond."""
    bench = Bench(circuit | {"solver": {"integrator": integrator}})
    names = tuple(n for n, kind in zip(bench.packed.values, bench.packed.kinds, strict=True) if kind == "pressure")
    parts = []
    for command, seconds in COMMANDS:
        bench["joystick"] = command
        parts.append(bench.record(names, seconds, step, every=1e-3))
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


@pytest.mark.parametrize("name", CIRCUITS)
def test_a_volume_of_10_ml_is_accurate_at_1_ms(name: str) -> None:
    """Nine tenths of the time within 1 bar; for a moment, where valves and limits switch, at most 30 bar off.

    The step does not resolve that moment. Whatever the tolerance of the integrator's halving (BEND from 0.01 to 2), the
    supply's pressure was 8 to 28 bar off there, not steadily less: this shows stability, not accuracy.
    """
    exact = pressures(CIRCUITS[name], "rk4", 2e-6)
    coarse = pressures(CIRCUITS[name], "rosenbrock", 1e-3)
    for node, p in exact.items():
        apart = np.abs(coarse[node] - p) / BAR
        print(f"{name} {node}: mostly {np.quantile(apart, 0.9):.1e} bar, at most {apart.max():.2g} bar")
        assert np.quantile(apart, 0.9) < 1.0
        assert apart.max() < 30.0


def test_these_circuits_switch_and_cavitate() -> None:
    """What the comparison is worth."""
    sucked, pumped = (pressures(CIRCUITS[name], "rosenbrock", 1e-3) for name in ("suction", "pump line"))
    assert (sucked["A.p"] == -BAR).sum() > 50
    assert sucked["A.p"].max() > 50 * BAR
    assert pumped["supply.p"].max() > 200 * BAR
    assert pumped["supply.p"].min() < 50 * BAR
