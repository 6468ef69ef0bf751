"""Mobilities of the nodes that actuators follow: in the packed circuit, for the step that contains the specimen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import Analysis
from hilserver.circuit.library import Library
from hilserver.circuit.model import FORCE, RIG, Circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.numerics.arrays import Floats
from hilserver.rig.settings import RigSettings

PUSH, MOMENT = 1e7, 1e-7
"""Force, N, and time, s, in which the mobility of a node is found: so short that no friction, damper or oil counts."""
OVERESTIMATE = 2.0
"""By which the mobility is taken to be larger. An overestimate makes the step of node and specimen slower to take up a
change, an underestimate by more than a third can make it unstable. So the effective inertia of a mechanism may fall to
38 % of the initial one.
"""


def with_mobilities(packed: PackedCircuit, circuit: Circuit, settings: RigSettings, library: Library) -> PackedCircuit:
    """The packed circuit with the mobilities of the nodes of all actuators, in the order of the rig file."""
    if not settings.actuators:
        return packed
    index = packed.index.copy()
    index[e.MOBILITIES] = len(packed.value)
    found = OVERESTIMATE * mobilities(packed, circuit, compiled_program(library), list(settings.actuators))
    return replace(packed, index=index, value=np.concatenate([packed.value, found]))


def mobilities(packed: PackedCircuit, circuit: Circuit, program: Program, names: Sequence[str]) -> Floats:
    """Acceleration of the node of each actuator by forces of 1 N on all of them, in the worst directions, 1/kg.

    0 if no force moves it, or there is none. From the velocities that forces give to the circuit in its initial state,
    in a moment: of nodes that are coupled rigidly, each moves the others.
    """
    velocities = {name: f"{RIG}{name}.v" for name in names}
    there = [name for name in names if name in circuit.rig_actuators() and velocities[name] in packed.values]
    places = [packed.values.index(velocities[name]) for name in there]

    def reached(pushed: str | None) -> Floats:
        moved = Analysis(program, packed)
        if pushed is not None:
            moved.values[packed.values.index(f"{RIG}{pushed}{FORCE}")] = PUSH
        found: Floats = moved.advance(1, MOMENT).values[places]
        return found

    total, free = np.zeros(len(there)), reached(None)
    for name in there:
        change = np.abs(reached(name) - free) / (PUSH * MOMENT)
        total += np.where(np.isfinite(change), change, 0.0)
    by_name = dict(zip(there, total, strict=True))
    return np.array([by_name.get(name, 0.0) for name in names])
