"""A stiff restriction comes to rest where its flow is that which enters, wherever it starts.

From some pressures a linearly implicit step leads past the equilibrium and back to where it began. The judge is the
balance of the line: what leaves it in equilibrium is what a source of flow delivers into it.
"""

from __future__ import annotations

import numpy as np
import pytest
from component_bench import Bench

from hilserver.numerics.arrays import Floats

INFLOW = 18.6
"""l/min."""


def flow_at_rest(start: float, volume: float, step: float) -> Floats:
    """Flow in l/min out of a line of ``volume`` litres that starts ``start`` bar above its sink, ten steps of rest."""
    components = {
        "source": {"type": "flow_source", "ports": {"P": "line", "T": "tank"}, "flow": f"{INFLOW} l/min"},
        "line": {"type": "volume", "ports": {"P": "line"}, "volume": f"{volume} l"},
        "orifice": {
            "type": "orifice",
            "ports": {"A": "line", "B": "tank"},
            "nominal_flow": {"flow": "56.1 l/min", "drop": "2 bar"},
        },
        "tank": {"type": "tank", "ports": {"T": "tank"}, "pressure": "66 bar"},
    }
    nodes = {"line": {"pressure": f"{66.0 + start} bar"}}
    solver = {"integrator": "rosenbrock", "substeps": 1}
    bench = Bench({"solver": solver, "components": components, "nodes": nodes})
    bench.run(0.05, step)
    flows = []
    for _ in range(10):
        bench.run(step, step)
        flows.append(6e4 * bench["orifice.q_B"])
    return np.array(flows)


@pytest.mark.parametrize("step", [1e-3, 1e-4, 2e-5, 1e-6])
@pytest.mark.parametrize("volume", [0.001, 0.014, 0.3])
def test_a_line_comes_to_rest_at_the_flow_that_enters_it(volume: float, step: float) -> None:
    for start in np.concatenate([np.linspace(0.0, 6.0, 61), [20.0, 100.0, -5.0, -60.0]]):
        assert flow_at_rest(float(start), volume, step) == pytest.approx(INFLOW, rel=1e-3), start
