"""Regimes that a circuit can enter: sticking, contact with an end stop, cavitation. It is stiff in some, not in others.

Where a circuit is now says little about the step that it requires: a piston is soft until it meets its stop, and a
friction is steep only where it stands still.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hilserver.circuit.analysis import Analysis, Stiffness
from hilserver.circuit.model import Circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.numerics.arrays import Floats

EMPTY = -2e5
"""Pa; content of a node in cavitation: below any vapour pressure."""


def stiffest(
    program: Program, circuit: Circuit, packed: PackedCircuit, step: float, values: Floats | None = None
) -> Stiffness:
    """The fastest motion in any regime around ``values`` (default: the initial ones); ``step``: of the integrator, s.

    The one that requires the shortest step.
    """
    start = Analysis(program, packed, values).values
    found = [
        replace(Analysis(program, packed, there).stiffness(step), regime=regime)
        for regime, there in regimes(circuit, packed, start)
    ]
    integrator = circuit.solver.integrator
    return min(found, key=lambda each: (each.longest_step(integrator), each.time_constant))


def regimes(circuit: Circuit, packed: PackedCircuit, values: Floats) -> Iterator[tuple[str, Floats]]:
    """The values as they are, at standstill, at each end stop, and with all nodes in cavitation."""
    yield "", values
    place = {name: k for k, name in enumerate(packed.values[: packed.n_states])}
    still = values.copy()
    for name, k in place.items():
        if name.endswith((".v", ".w")):
            still[k] = 0.0
    yield "at standstill", still
    for placed in circuit.placed:
        for port, positions in placed.component.contacts().items():
            node = placed.ports[port]
            for x in positions if f"{node}.x" in place else ():  # a mechanism's nodes follow from its state
                touching = still.copy()
                touching[place[f"{node}.x"]] = x
                yield f"with {node} at an end stop", touching
    empty = values.copy()
    for node in circuit.hydraulic_nodes():
        if f"{node}.content" in place:
            empty[place[f"{node}.content"]] = EMPTY
    yield "in cavitation", empty
