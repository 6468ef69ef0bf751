"""The flow into a port of the machine is a volume divided by its time: what the circuit has lost, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from component_bench import BAR, L_MIN, Bench

LINE, MODULUS = 0.2e-3, 1.5e9
CIRCUIT: dict[str, Any] = {
    "fluid": {"bulk_modulus": "1.5e9 Pa", "air_fraction": 0.0},
    "components": {
        "pump": {"type": "flow_source", "ports": {"P": "line", "T": "t"}, "flow": "15 l/min", "command": 1},
        "tank": {"type": "tank", "ports": {"T": "t"}},
        "pipe": {"type": "volume", "ports": {"P": "line"}, "volume": "0.2 l"},
        "check": {
            "type": "check_valve",
            "ports": {"A": "line", "B": "rig.A"},
            "nominal_flow": {"flow": "60 l/min", "drop": "5 bar"},
            "cracking_pressure": "0.5 bar",
        },
    },
    "nodes": {"line": {"pressure": "50 bar"}},
}


@pytest.mark.parametrize(("integrator", "steps"), [("euler", 50), ("rk4", 20), ("rosenbrock", 1), ("rosenbrock", 8)])
def test_content_and_passed_volume_add_up(integrator: str, steps: int) -> None:
    """A check valve that opens and closes within the ticks: what the pump delivers is in the line or has passed.

    A straight line between the flows at the ends of the ticks would lose a part of it.
    """
    bench = Bench({**CIRCUIT, "solver": {"integrator": integrator}})
    start, passed, at_ends = bench["line.p"], 0.0, 0.0
    for k in range(200):
        bench["rig.A.p"] = (60.0 + 25.0 * np.sin(0.9 * k)) * BAR
        bench.run(1e-3, 1e-3 / steps)
        passed += 1e-3 * bench["rig.A.q"]
        bench.run(0.0, 1e-3)
        at_ends += 1e-3 * bench["rig.A.q"]
        assert bench["rig.A.q"] >= 0.0

    delivered = 15 * L_MIN * 0.2
    stored = (bench["line.p"] - start) * LINE / MODULUS
    assert passed + stored == pytest.approx(delivered, rel=1e-7)
    assert abs(at_ends + stored - delivered) > 0.02 * delivered
