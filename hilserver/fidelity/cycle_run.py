"""One run of a simulated rig's work cycle, compared with the reference simulation on the same machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite

from hilserver.circuit.program import Program
from hilserver.components.base import Fluid
from hilserver.errors import HilserverError
from hilserver.fidelity.comparison import Comparison, RunOf, traced_run
from hilserver.fidelity.results import SegmentResult
from hilserver.fidelity.segments import CircuitRows, CycleSegment, passes, segments_of, trip_in
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig


class NotCompletedError(Exception):
    """The rig did not complete its work cycle; the text is the reason."""


@dataclass(frozen=True)
class CycleRun:
    """The rows and the true values of the work cycle, without what was before and after it, and what came of them."""

    comparison: Comparison
    record: CircuitRows
    true_values: Floats
    result: SegmentResult


def run_cycle_on(
    rig: Rig, device: str, strategy: str, program: Program, run_of: RunOf = traced_run, swept: bool = False
) -> CycleRun:
    """Run the work cycle of a rig with this strategy for all valves; ``swept``: one that is only a sweep.

    Raises NotCompletedError if the rig does not start, trips, or diverges.
    """
    comparison = Comparison.of(_installed(rig, device), program)
    try:
        record, true_values = comparison.bridged(rig, strategy, run_of)
    except HilserverError as error:  # it does not start
        raise NotCompletedError(str(error).removeprefix(f"{rig.file}: the rig ").removesuffix(".")) from None
    if (trip := trip_in(record, rig)) is not None:
        raise NotCompletedError(str(trip))
    segment = CycleSegment(rows := passes(record)[0], 0.0)
    if swept and rig.cycle is not None:
        segment = segments_of(record, rows, rig.cycle)[1] or segment
    result, _ = comparison.evaluated(record, true_values, segment, balanced=False)
    if not all(isfinite(deviation.rms) for deviation in result.deviations.values()):
        raise NotCompletedError("diverged in the simulation")
    return CycleRun(comparison, record.part(rows), true_values[rows], result)


def _installed(rig: Rig, device: str) -> Rig:
    """The rig with its virtual circuit as installed on the machine: with the machine's oil.

    The reference simulation has one oil. The bridge runs the circuit with that of its own file.
    """
    oil = rig.sources["devices"][device]["machine"].get("fluid", {})
    circuit = {**rig.circuit.source, "fluid": oil}
    return replace(rig, circuit=replace(rig.circuit, source=circuit, fluid=Fluid.model_validate(oil)))
