"""A simulated machine with another oil than the virtual circuit: in the reference simulation each keeps its own."""

from __future__ import annotations

from math import pi

import pytest
from lift_bench import lift

from hilserver.circuit.pack import PackedCircuit
from hilserver.compiler import compiled_program
from hilserver.fidelity.reference import reference_simulation
from hilserver.fidelity.strategies import simulate
from hilserver.rig.rig import Rig
from hilserver.simulation.balance import node_sums
from hilserver.simulation.machine import circuit_on, machine_of_device
from hilserver.simulation.packed_run import initial_values

OIL = {"devices": {"rig": {name: {"fluid": {"bulk_modulus": "9000 bar"}} for name in ("machine", "drive")}}}


def test_the_chambers_are_filled_with_the_oil_of_the_machine() -> None:
    """Chamber A: 0.4 l and 50 mm of bore, 0.25 m extended."""
    rig = lift(OIL)
    machine = machine_of_device(rig, rig.devices[0])
    reference = reference_simulation(machine, rig.circuit, rig.library, "")
    x = initial_values(reference.packed)[reference.packed.values.index("rod.x")]
    together = sums_in(rig, reference.packed)
    assert together["A.content"] == pytest.approx((0.4e-3 + 0.25 * pi * 0.05**2 * x) / 9e8, rel=1e-9)
    assert together["supply.content"] == pytest.approx(sums_in(rig, rig.packed)["supply.content"], rel=1e-12)
    coupled = sums_in(rig, circuit_on(rig, machine))
    assert coupled["A.content"] == pytest.approx(together["A.content"], rel=1e-12)


def sums_in(rig: Rig, packed: PackedCircuit) -> dict[str, float]:
    """Capacitances and masses of the nodes at the start."""
    return node_sums(compiled_program(rig.library), packed, initial_values(packed))


@pytest.mark.slow
def test_such_a_rig_is_simulated() -> None:
    """It used to be refused."""
    result = simulate(lift(OIL), ["inverse_static"])
    assert result.variants
