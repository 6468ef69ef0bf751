"""Where new parts of a circuit start at a switch: measured pressures, or the equilibrium around what is kept."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import NoEquilibrium
from hilserver.circuit.change import with_values
from hilserver.circuit.model import RIG
from hilserver.circuit.pack import PackedCircuit
from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.service.switching import instability, present_values, with_start_values
from hilserver.simulation.lockstep import LockstepRun

DEMO = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"


@pytest.fixture(scope="module")
def machine() -> LockstepRun:
    found = LockstepRun(load_rig(DEMO))
    found.run(500)
    return found


def extended(rig: Rig, nodes: dict[str, Any], leak: bool = True) -> dict[str, Any]:
    """The rig's circuit with a chamber between two equal orifices, from the supply and to the tank."""
    source: dict[str, Any] = deepcopy(dict(rig.circuit.source))
    flow = {"flow": "2 l/min", "drop": "50 bar"}
    source["components"]["in"] = {"type": "orifice", "ports": {"A": "supply", "B": "extra"}, "nominal_flow": flow}
    if leak:
        source["components"]["out"] = {"type": "orifice", "ports": {"A": "extra", "B": "tank"}, "nominal_flow": flow}
    source["components"]["chamber"] = {"type": "volume", "ports": {"P": "extra"}, "volume": "0.1 l"}
    source["nodes"] = {**source.get("nodes", {}), **nodes}
    return source


def start_of(machine: LockstepRun, source: dict[str, Any], steady: bool) -> tuple[PackedCircuit, Floats]:
    rig = machine.rig
    circuit = rig.read_circuit(source)
    packed = rig.pack(circuit)
    carried = packed.carried_from(rig.packed)
    new = with_start_values(rig, compiled_program(rig.library), circuit, packed, carried, machine.row, steady)
    first = int(new.index[e.INITIAL])
    return new, new.value[first : first + len(new.values)]


def value(new: PackedCircuit, initial: Floats, name: str) -> float:
    return float(initial[new.values.index(name)])


def test_a_new_node_rests_between_supply_and_tank(machine: LockstepRun) -> None:
    """Two equal orifices: half of the supply pressure that the running circuit has, which is held."""
    new, initial = start_of(machine, extended(machine.rig, {}), steady=True)
    supply = machine.row[len(machine.rig.layout.names) + machine.rig.packed.values.index("supply.p")]
    assert value(new, initial, "extra.content") == pytest.approx(0.5 * supply, rel=1e-5)


def test_a_new_node_starts_at_a_measured_pressure(machine: LockstepRun) -> None:
    rig = machine.rig
    port = next(iter(rig.settings.ports))
    new, initial = start_of(machine, extended(rig, {"extra": {"pressure_from": port}}), steady=False)
    seen = machine.row[rig.layout.bindings[RIG + port]]  # the sensor's noise taken out with the cylinder's model
    assert seen == pytest.approx(machine.row[rig.layout.column(f"channel.{rig.settings.ports[port]}")], abs=0.25e5)
    assert seen > 10e5
    assert value(new, initial, "extra.content") == seen


def test_without_either_it_starts_at_its_initial_pressure(machine: LockstepRun) -> None:
    new, initial = start_of(machine, extended(machine.rig, {"extra": {"pressure": "30 bar"}}), steady=False)
    assert value(new, initial, "extra.content") == pytest.approx(30e5)


def test_a_circuit_without_equilibrium_is_refused(machine: LockstepRun) -> None:
    source = extended(machine.rig, {}, leak=False)
    source["components"]["sink"] = {
        "type": "flow_source",
        "ports": {"P": "extra", "T": "tank"},
        "flow": "50 l/min",
        "command": -1,
    }
    with pytest.raises(NoEquilibrium, match=r"extra\.content"):
        start_of(machine, source, steady=True)


def test_an_unknown_port_is_refused(machine: LockstepRun) -> None:
    with pytest.raises(ConfigurationError, match=r'pressure_from: "Z" is not a port'):
        start_of(machine, extended(machine.rig, {"extra": {"pressure_from": "Z"}}), steady=False)


def test_carried_over_states_are_not_changed(machine: LockstepRun) -> None:
    _, plain = start_of(machine, extended(machine.rig, {}), steady=False)
    new, initial = start_of(machine, extended(machine.rig, {}), steady=True)
    kept = [i for i, name in enumerate(new.values) if not name.startswith("extra")]
    assert np.array_equal(initial[kept], plain[kept])


def test_a_circuit_unstable_with_its_integrator_is_reported(machine: LockstepRun) -> None:
    """1 ml at the supply moves within 11 µs once the valve opens: too fast for RK4 at 100 µs, not for Rosenbrock."""
    rig = machine.rig
    small = with_values(rig.circuit.source, "line", {"volume": "0.001 l"})
    for source, wrong in ((small, True), ({**small, "solver": {"integrator": "rosenbrock"}}, False)):
        circuit = rig.read_circuit(source)
        packed = rig.pack(circuit)
        carried = packed.carried_from(rig.packed)
        present = present_values(rig, packed, carried, machine.row)
        text = instability(rig, compiled_program(rig.library), circuit, packed, present)
        assert (text is not None and "supply.content" in text and "substeps" in text) == wrong
