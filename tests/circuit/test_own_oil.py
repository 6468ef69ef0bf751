"""Components with an oil of their own, and circuits of different oils and solvers that are joined."""

from __future__ import annotations

from typing import Any

import pytest
from component_bench import BAR, L_MIN, Bench

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.errors import ConfigurationError
from hilserver.rig.simulated import joined


def part(node: str, volume: str, **more: Any) -> dict[str, Any]:
    return {
        "components": {
            f"source_{node}": {
                "type": "flow_source",
                "ports": {"P": node, "T": f"tank_{node}"},
                "flow": "6 l/min",
                "command": f"u_{node}",
            },
            f"line_{node}": {"type": "volume", "ports": {"P": node}, "volume": volume},
            f"tank_{node}": {"type": "tank", "ports": {"T": f"tank_{node}"}},
        },
        **more,
    }


def test_joined_circuits_keep_their_oils() -> None:
    """10 ml into a litre each: 100 bar in the oil of 1e9 Pa, 200 bar in that of 2e9 Pa; and vapour pressures."""
    soft = part("a", "1 l", fluid={"bulk_modulus": "1e9 Pa", "vapour_pressure": "-0.5 bar"})
    bench = Bench(joined(soft, part("b", "1 l", fluid={"bulk_modulus": "2e9 Pa"})))
    bench["u_a"] = bench["u_b"] = 1.0
    bench.run(0.1, 1e-3)
    assert bench["a.p"] == pytest.approx(100 * BAR, rel=1e-9)
    assert bench["b.p"] == pytest.approx(200 * BAR, rel=1e-9)
    bench["u_a"] = bench["u_b"] = -1.0
    bench.run(0.2, 1e-3)
    assert (bench["a.p"], bench["b.p"]) == (-0.5 * BAR, -1.0 * BAR)


def test_volumes_of_two_oils_at_a_node_add_their_capacitances() -> None:
    table = joined(
        part("a", "1 l", fluid={"bulk_modulus": "1e9 Pa"}),
        {
            "components": {"more": {"type": "volume", "ports": {"P": "rig.a"}, "volume": "2 l"}},
            "fluid": {"bulk_modulus": "2e9 Pa"},
        },
    )
    bench = Bench(table)
    bench["u_a"] = 1.0
    bench.run(0.1, 1e-3)
    assert bench["a.p"] == pytest.approx(6 * L_MIN * 0.1 / (1e-3 / 1e9 + 2e-3 / 2e9), rel=1e-9)


def test_a_wrong_oil_of_a_component_is_named() -> None:
    table = part("a", "1 l")
    table["components"]["line_a"]["fluid"] = {"bulk_modulus": "-1 Pa", "colour": "red"}
    with pytest.raises(ConfigurationError) as error:
        read_circuit(table, standard_library())
    assert "components.line_a.fluid.bulk_modulus" in str(error.value)
    assert "components.line_a.fluid.colour" in str(error.value)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"integrator": "rosenbrock", "substeps": 4}, {"integrator": "rk4", "substeps": 10}, ("rosenbrock", 10)),
        ({"integrator": "rk4"}, {"integrator": "rosenbrock", "substeps": 20}, ("rosenbrock", 20)),
        ({"integrator": "rosenbrock"}, {}, ("rosenbrock", 10)),
        ({"integrator": "rk4"}, {"integrator": "euler", "substeps": 5}, ("euler", 10)),
        ({}, {}, ("rk4", 10)),
    ],
)
def test_a_circuit_that_needs_an_implicit_step_has_it_with_any_other(
    one: dict[str, Any], other: dict[str, Any], both: tuple[str, int]
) -> None:
    """Outside judge: the machine needs one, the virtual circuit does not; the reference simulation was unstable."""
    table = joined(part("a", "1 l", solver=one), part("b", "1 l", solver=other))
    found = read_circuit(table, standard_library(), "both.toml").solver
    assert (found.integrator, found.substeps) == both
