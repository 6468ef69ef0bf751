"""Values that drain away become zero, not subnormal numbers, in compiled code, and nowhere else."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from component_bench import Bench

DRAINING = {
    "solver": {"integrator": "rk4"},
    "components": {
        "capillary": {
            "type": "laminar_restrictor",
            "ports": {"A": "line", "B": "tank"},
            "nominal_flow": {"flow": "2 l/min", "drop": "10 bar"},
        },
        "line": {"type": "volume", "ports": {"P": "line"}, "volume": "0.5 l"},
        "tank": {"type": "tank", "ports": {"T": "tank"}},
    },
    "nodes": {"line": {"pressure": "60 bar"}},
}


@pytest.mark.parametrize("integrator", ["euler", "rk4", "rosenbrock"])
def test_decaying_values_do_not_become_subnormal(integrator: str) -> None:
    """The time constant is 10 ms: from 7 s on p = 6e6·exp(-100·t) and the flow of 3e-11·p pass 2.2e-308."""
    bench = Bench({**DRAINING, "solver": {"integrator": integrator}})
    for _ in range(40):
        bench.run(0.25, 1e-3)
        values = np.abs([*bench.z, *bench.y])
        assert not ((values > 0.0) & (values < sys.float_info.min)).any()
    assert bench["capillary.q_A"] == 0.0
    assert bench["line.p"] < 1e-290


def test_python_keeps_its_subnormal_numbers() -> None:
    """The program restores the mode of the processor."""
    bench = Bench(DRAINING)
    bench.run(0.1, 1e-3)
    least = np.float64(sys.float_info.min)
    assert least * np.float64(0.25) > 0.0
    assert np.array([5e-324]) @ np.array([1.0]) > 0.0
