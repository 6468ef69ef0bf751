"""A look-ahead runs only the kernels that the flows into the ports depend on: these flows are the same, bit for bit."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.bench.parts import RecordedInputs
from hilserver.circuit import engine as e
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.compiler import standard_program
from hilserver.numerics.arrays import Floats, Indices
from hilserver.rig.build import load_rig

CONFIG = Path(__file__).parents[2] / "config"
LIBRARY = standard_library()


def at_the_ports(name: str, **more: Any) -> PackedCircuit:
    """A ready circuit with its node A at a port of a machine, and with more components."""
    file = CONFIG / "circuits" / f"{name}.toml"
    table = tomllib.loads(file.read_text())
    table["components"] |= more
    for component in table["components"].values():
        component["ports"] = {port: "rig.A" if node == "A" else node for port, node in component["ports"].items()}
    table["nodes"].pop("A", None)
    return pack(read_circuit(table, LIBRARY, str(file)), LIBRARY)


def kernels_at_ports(packed: PackedCircuit) -> list[str]:
    names = {contract.kind: contract.kernel.function.__name__ for contract in LIBRARY.built_in}
    first, number = (int(packed.index[k]) for k in (e.PORT_CALLS, e.N_PORT_CALLS))
    return [names[int(kind)] for kind in packed.index[first : first + 4 * number : 4]]


def flow_into_A(packed: PackedCircuit, index: Indices) -> Floats:
    """The sum at the port, without any signal from before."""
    z, y, d = (np.zeros(size) for size in (len(packed.names), len(packed.recorded), packed.work_size))
    standard_program().load(packed.index, packed.value, z)
    z[[place for place, kind in enumerate(packed.kinds) if kind == "signal"]] = np.nan
    for name, value in {"rig.A.p": 92e5, "rod.v": 0.1, "joystick": 0.3}.items():
        if name in packed.values:
            z[packed.values.index(name)] = value
    standard_program().evaluate(index, packed.value, z, y, d)
    flows = int(packed.index[e.FLOWS])
    return d[packed.index[flows + 1] :][:1]


def only_at_ports(index: Indices) -> Indices:
    new = index.copy()
    new[e.CALLS], new[e.N_CALLS] = index[e.PORT_CALLS], index[e.N_PORT_CALLS]
    return new


def test_kernels_that_do_not_reach_a_port_are_left_out() -> None:
    """What a valve reads is a part of it: a sensor and a gain that command it, and a rod that a mechanism moves."""
    sensor = {"type": "pressure_sensor", "ports": {"P": "B"}, "signal": "p_B"}
    gain = {"type": "gain", "ports": {}, "input": "p_B", "signal": "joystick", "gain": 2e-8}
    packed = at_the_ports("boom", gain=gain, sensor=sensor)
    assert sorted(kernels_at_ports(packed)) == sorted(
        ["pressure_reading", "gain", "pressure_source", "tank", "chamber_A", "proportional_valve_4_3"]
    )
    assert packed.index[e.PORTS_MOVED] == 1
    full = flow_into_A(packed, packed.index)
    assert np.isfinite(full).all()
    assert full != 0.0
    assert flow_into_A(packed, only_at_ports(packed.index)).tobytes() == full.tobytes()


def test_a_circuit_without_a_port_needs_none() -> None:
    file = CONFIG / "circuits/boom.toml"
    packed = pack(read_circuit(tomllib.loads(file.read_text()), LIBRARY, str(file)), LIBRARY)
    assert kernels_at_ports(packed) == []
    assert packed.index[e.PORTS_MOVED] == 0


def test_a_look_ahead_by_all_kernels_is_the_same() -> None:
    rig = load_rig(CONFIG / "rigs/demo.toml")
    assert kernels_at_ports(rig.packed) == ["tank", "proportional_valve_4_3"]
    index = rig.packed.index.copy()
    index[e.PORT_CALLS], index[e.N_PORT_CALLS] = index[e.CALLS], index[e.N_CALLS]
    recorded = RecordedInputs.of(rig, 400)
    with_all = replace(recorded, rig=replace(rig, packed=replace(rig.packed, index=index)))
    rows = []
    for each in (recorded, with_all):
        row = each.row.copy()
        each.program.run_recorded(*each.arguments(row))
        rows.append(row.tobytes())
    assert rows[0] == rows[1]
