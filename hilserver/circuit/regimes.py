"""Regimes that a circuit can enter: sticking, contact, closed valves, cavitation. It is stiff in some, not in others.

The present state of a circuit says little about the step that it requires: a piston is soft until it meets its stop,
and a friction is steep only where it stands still. Oscillations that an open valve damps are undamped when it is
closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hilserver.circuit.analysis import Analysis, Stiffness, is_surely_stable, too_long
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
    analysis, integrator = Analysis(program, packed, values), circuit.solver.integrator
    names, points = zip(*regimes(circuit, packed, analysis.values.copy()), strict=True)
    needed = [(each.longest_step(integrator), each.time_constant) for each in analysis.stiffness_at(points, step)]
    k = needed.index(min(needed))
    return replace(Analysis(program, packed, points[k]).stiffness(step), regime=names[k])


def unsuitable(
    program: Program, circuit: Circuit, packed: PackedCircuit, tick: float, starts: Sequence[Floats]
) -> str | None:
    """Why the circuit's step is too long in a regime around one of these values, see `too_long`; otherwise None."""
    integrator, substeps = circuit.solver.integrator, circuit.solver.substeps
    if integrator == "rosenbrock":
        return None
    step = tick / substeps
    points = [there for values in starts for _, there in regimes(circuit, packed, values)]
    if is_surely_stable(Analysis(program, packed).eigenvalues_at(points, step), step, integrator):
        return None
    found = (stiffest(program, circuit, packed, step, values) for values in starts)
    texts = (too_long(each, integrator, tick, substeps) for each in found)
    return next((text for text in texts if text), None)


def regimes(circuit: Circuit, packed: PackedCircuit, values: Floats) -> Iterator[tuple[str, Floats]]:
    """The values as they are, at standstill, at each end stop, with closed valves, and with all nodes in cavitation."""
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
            for x in positions:
                if (touching := _moved_to(circuit, node, x, still, place)) is not None:
                    yield f"with {node} at an end stop", touching
    shut = values.copy()
    for placed in circuit.placed:
        for state, at in placed.component.closed.items():
            shut[place[f"{placed.name}.{state}"]] = at
    if (shut != values).any():
        yield "with closed valves", shut
    empty = values.copy()
    for node in circuit.hydraulic_nodes():
        if f"{node}.content" in place:
            empty[place[f"{node}.content"]] = EMPTY
    yield "in cavitation", empty


def _moved_to(circuit: Circuit, node: str, x: float, values: Floats, place: Mapping[str, int]) -> Floats | None:
    """The values with a node at the position x, m, its mechanism included; None if it can't be there."""
    moved = values.copy()
    placed = next((placed for placed in circuit.mechanisms if node in placed.nodes.values()), None)
    found = {f"{node}.x": x} if placed is None else placed.values_with(node, x)
    for name, value in found.items():
        if name in place:
            moved[place[name]] = value
    return moved if f"{node}.x" in found and f"{node}.x" in place else None
