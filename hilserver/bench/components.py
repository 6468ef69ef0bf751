"""The cost of a virtual circuit by component type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from hilserver.bench.parts import median_time
from hilserver.circuit import engine as e
from hilserver.compiler import compiled_program
from hilserver.numerics.arrays import Floats, Indices
from hilserver.rig.rig import Rig

REST = "nodes, integrator, calls"
"""Name of the remainder of the circuit's time when the time of its kernels is subtracted."""
CALLS = 2000
"""Kernel calls that are timed together."""


@dataclass(frozen=True)
class ComponentCost:
    """A component type of the circuit: its kernel calls per evaluation of the circuit, ns per call, µs per tick."""

    type: str
    calls: int
    per_call: float
    per_tick: float


def component_costs(rig: Rig, repeats: int = 7, at: Floats | None = None) -> list[ComponentCost]:
    """The cost of each component type of the circuit, the highest first, and last the rest (`REST`).

    ``at``: values of the running circuit (default: the initial ones). The kernel calls of each type are timed alone, in
    many repetitions, and multiplied by the number of evaluations per tick. The rest of the circuit's time is that of
    its nodes, the integrator and the dispatch to the kernels. The look-ahead of some strategies, which runs a copy of
    the circuit, is not included.
    """
    program, packed = compiled_program(rig.library), rig.packed
    z, y, work = np.zeros(len(packed.values)), np.zeros(len(packed.recorded)), np.zeros(packed.work_size)
    program.load(packed.index, packed.value, z)
    start = z.copy() if at is None else at
    arguments = (packed.value, z, y, work)

    def advance(index: Indices, steps: int, h: float) -> float:
        z[:] = start
        return median_time(repeats, 20, lambda: program.advance(index, *arguments, steps, h))

    substeps = int(packed.index[e.SUBSTEPS])
    circuit = advance(packed.index, 20 * substeps, rig.plan.loop[0].dt / substeps) / 20
    stages = {e.Integrator.EULER: 1.0, e.Integrator.RK4: 4.0}.get(e.Integrator(int(packed.index[e.INTEGRATOR])))
    if stages is None:  # its steps vary: the equivalent number of Euler steps, by time
        euler = packed.index.copy()
        euler[e.INTEGRATOR] = e.Integrator.EULER
        stages = circuit / (advance(euler, 1000, 0.0) / 1000) / substeps
    costs = []
    for name, calls, sampled in _types(rig):
        function = program.evaluate_sampled if sampled else program.evaluate
        index = repeated(packed.index, calls, sampled)
        count = int(index[e.N_SAMPLED if sampled else e.N_CALLS])
        z[:] = start
        per_call = median_time(repeats, 50, partial(function, index, *arguments)) / count
        times = substeps * (1.0 if sampled else stages)
        costs.append(ComponentCost(name, len(calls), 1e3 * per_call, per_call * len(calls) * times))
    costs.sort(key=lambda cost: -cost.per_tick)
    return [*costs, ComponentCost(REST, 0, 0.0, max(circuit - sum(cost.per_tick for cost in costs), 0.0))]


def _types(rig: Rig) -> Iterator[tuple[str, list[Indices], bool]]:
    """Component types of the circuit with their kernel calls; sampled kernels are listed separately."""
    kinds = {contract.kind: contract.component.type_name for contract in rig.library.contracts}
    index = rig.packed.index
    for sampled, number, table in ((False, e.N_CALLS, e.CALLS), (True, e.N_SAMPLED, e.SAMPLED)):
        lines = index[int(index[table]) : int(index[table]) + 4 * int(index[number])].reshape(-1, 4)
        names = [kinds[int(line[0])] for line in lines]
        for name in dict.fromkeys(names):
            calls = [line for line, other in zip(lines, names, strict=True) if other == name]
            yield (f"{name} (sampled)" if sampled else name), calls, sampled


def repeated(index: Indices, calls: list[Indices], sampled: bool) -> Indices:
    """The index with a table of these calls only, repeated to at least `CALLS`."""
    table = np.tile(np.concatenate(calls), -(-CALLS // len(calls)))
    new = np.concatenate([index, table])
    new[e.SAMPLED if sampled else e.CALLS] = len(index)
    new[e.N_SAMPLED if sampled else e.N_CALLS] = len(table) // 4
    return new
