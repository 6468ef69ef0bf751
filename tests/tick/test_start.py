"""The start of a bridge: the circuit is connected to the machine, with whatever pressures there are.

The judge is what a start must not do: a circuit that only vents its ports fills none of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.compiler import standard_program
from hilserver.fidelity.cycle_run import run_cycle_on
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.toml import copied

LIFT = Path(__file__).parents[2] / "config/rigs/lift.toml"
TRAPPED = {"A": 38.4e5, "B": 60e5}
"""Pa: in balance at the piston (19.6 and 12.6 cm²)."""
BEGINNING = 300
"""Ticks."""


def venting() -> Rig:
    """The lift rig with a horizontal load, and a virtual valve whose centre connects both ports to the tank."""
    rig = load_rig(LIFT)
    sources: dict[str, Any] = copied(rig.sources)
    circuit, machine = sources["circuit"], sources["devices"]["rig"]["machine"]
    circuit["components"] = {
        "supply": {"type": "pressure_source", "ports": {"P": "supply"}, "pressure": "120 bar"},
        "tank": {"type": "tank", "ports": {"T": "tank"}, "pressure": "3 bar"},
        "valve": {
            "type": "directional_valve_4_3",
            "ports": {"P": "supply", "T": "tank", "A": "rig.A", "B": "rig.B"},
            "command": "joystick",
            "centre": "float",
            "time_constant": "15 ms",
            "nominal_flow": {"flow": "40 l/min", "drop": "35 bar", "per": "edge"},
        },
    }
    circuit["nodes"] = {}
    machine["components"]["load"]["direction"] = "0 deg"
    machine["nodes"] |= {port: {"pressure": f"{p} Pa"} for port, p in TRAPPED.items()}
    sources["cycle"] = {"inputs": {"joystick": {"shape": "hold", "points": [["0 s", 0.0]]}}, "length": "1 s"}
    return assemble(sources, rig.file, rig.library)


@pytest.mark.parametrize("strategy", ["inverse_static", "second_order", "prediction", "feedback"])
def test_ports_that_are_vented_are_not_filled(strategy: str) -> None:
    """The first demand is large and short: a fade from the closed valve had been left over, and opened it to P.

    Port B had risen to 237 bar then.
    """
    result = run_cycle_on(venting(), "rig", strategy, standard_program()).result
    for port, trapped in TRAPPED.items():
        assert result.actual[f"pressure {port}"][:BEGINNING].max() < 1.02 * trapped
        assert np.max(result.command[port][:BEGINNING]) < 0.25


@pytest.mark.parametrize("strategy", ["prediction", "feedback"])
def test_a_bridge_that_looks_ahead_connects_the_circuit_at_once(strategy: str) -> None:
    """Pressures within 12 % of their range; 35 to 160 % with a fade from the closed valve."""
    result = run_cycle_on(venting(), "rig", strategy, standard_program()).result
    for port in TRAPPED:
        assert result.deviations[f"pressure {port}"].nrmse < 0.12
