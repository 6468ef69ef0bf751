"""Mobilities of the nodes that actuators follow, in the packed circuit."""

from __future__ import annotations

import pytest
from hybrid_rig import MASS, hybrid_rig, sources

from hilserver.rig.mobilities import OVERESTIMATE
from hilserver.rig.simulated import joined
from hilserver.tick.hybrid.memory import mobility_at


def test_a_force_accelerates_a_mass() -> None:
    rig = hybrid_rig()
    assert mobility_at(rig.packed.index, rig.packed.value, 0) == pytest.approx(OVERESTIMATE / MASS, rel=1e-4)


def test_a_circuit_without_the_node_has_none() -> None:
    given = sources()
    given["circuit"]["components"] = joined(given["circuit"], {"components": {}})["components"]
    for part in given["circuit"]["components"].values():
        part["ports"] = {port: node.replace("rig.table", "table") for port, node in part["ports"].items()}
    rig = hybrid_rig({"circuit": given["circuit"]})
    assert mobility_at(rig.packed.index, rig.packed.value, 0) == 0.0


def test_a_switched_circuit_has_mobilities_of_its_own() -> None:
    rig = hybrid_rig()
    heavier = {**rig.circuit.source, "components": {**rig.circuit.source["components"]}}
    heavier["components"]["mass"] = {**heavier["components"]["mass"], "mass": "900 kg"}
    packed = rig.pack(rig.read_circuit(heavier), like=rig.packed)
    assert packed.index.tobytes() == rig.packed.index.tobytes()
    assert mobility_at(packed.index, packed.value, 0) == pytest.approx(OVERESTIMATE / 900.0, rel=1e-4)
