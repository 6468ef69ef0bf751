"""Mobilities of the nodes that actuators follow: in the packed circuit, for the step that contains the specimen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import Analysis
from hilserver.circuit.library import Library
from hilserver.circuit.model import FORCE, RIG, Circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.rig.settings import RigSettings

PUSH, MOMENT = 1e3, 1e-5
"""Force, N, and time, s, in which the mobility of a node is found."""


def with_mobilities(packed: PackedCircuit, circuit: Circuit, settings: RigSettings, library: Library) -> PackedCircuit:
    """The packed circuit with the mobilities of the nodes of all actuators, in the order of the rig file."""
    if not settings.actuators:
        return packed
    program, index = compiled_program(library), packed.index.copy()
    index[e.MOBILITIES] = len(packed.value)
    found = [mobility(packed, circuit, program, name) for name in settings.actuators]
    return replace(packed, index=index, value=np.concatenate([packed.value, found]))


def mobility(packed: PackedCircuit, circuit: Circuit, program: Program, name: str) -> float:
    """Acceleration of the node of an actuator by a force on it, 1/kg; 0 if no force moves it, or there is none.

    From the velocity that a force gives to the circuit in its initial state, in a moment.
    """
    velocity = f"{RIG}{name}.v"
    if name not in circuit.rig_actuators() or velocity not in packed.values:
        return 0.0
    reached = []
    for force in (0.0, PUSH):
        moved = Analysis(program, packed)
        moved.values[packed.values.index(f"{RIG}{name}{FORCE}")] = force
        reached.append(moved.advance(1, MOMENT).values[packed.values.index(velocity)])
    found = (reached[1] - reached[0]) / (PUSH * MOMENT)
    return float(found) if np.isfinite(found) and found > 0.0 else 0.0
