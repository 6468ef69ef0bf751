"""Whether the integrator's step is short enough for the fastest motion in the rig's circuit."""

from __future__ import annotations

import contextlib

from hilserver.circuit.analysis import Analysis, NoEquilibrium, Stiffness, too_long
from hilserver.circuit.program import Program
from hilserver.rig.build import Rig


def solver_warning(rig: Rig, program: Program) -> str | None:
    """What to change where the integrator can't follow the rig's circuit; else None."""
    solver = rig.circuit.solver
    return too_long(stiffest(rig, program), solver.integrator, 1.0 / rig.settings.loop.rate, solver.substeps)


def stiffest(rig: Rig, program: Program) -> Stiffness:
    """The fastest motion of the circuit: at its start, and at rest with all inputs at either end of their ranges."""
    found = [Analysis(program, rig.packed).stiffness()]
    ends = {name: s.range for name, s in rig.settings.inputs.items()}
    for end in (0, 1):
        analysis = Analysis(program, rig.packed)
        for name, limits in ends.items():
            if name in rig.packed.values:
                analysis.values[rig.packed.values.index(name)] = limits[end]
        with contextlib.suppress(NoEquilibrium):
            analysis.steady_state()
        found.append(analysis.stiffness())
    return min(found, key=lambda each: each.time_constant)
