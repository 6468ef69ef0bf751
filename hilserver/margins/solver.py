"""Whether the integrator's step is short enough for the fastest motion in the rig's circuit."""

from __future__ import annotations

import contextlib

from hilserver.circuit.analysis import Analysis, NoEquilibrium, Stiffness, too_long
from hilserver.circuit.program import Program
from hilserver.circuit.regimes import stiffest as stiffest_regime
from hilserver.rig.rig import Rig


def solver_warning(rig: Rig, program: Program) -> str | None:
    """What to change where the integrator can't follow the rig's circuit; otherwise None."""
    solver = rig.circuit.solver
    return too_long(stiffest(rig, program), solver.integrator, 1.0 / rig.settings.loop.rate, solver.substeps)


def stiffest(rig: Rig, program: Program) -> Stiffness:
    """The fastest motion of the circuit: at its start, and at rest with all inputs at either end of their ranges."""
    step = 1.0 / rig.settings.loop.rate / rig.circuit.solver.substeps
    found = [stiffest_regime(program, rig.circuit, rig.packed, step)]
    settings = {name: s for name, s in rig.settings.inputs.items() if name in rig.packed.values}
    for inputs in (
        {name: s.initial for name, s in settings.items()},
        *({name: s.range[end] for name, s in settings.items()} for end in (0, 1)),
    ):
        analysis = Analysis(program, rig.packed)
        for name, value in inputs.items():
            analysis.values[rig.packed.values.index(name)] = value
        with contextlib.suppress(NoEquilibrium):
            analysis.steady_state()
        found.append(stiffest_regime(program, rig.circuit, rig.packed, step, analysis.values))
    integrator = rig.circuit.solver.integrator
    return min(found, key=lambda each: (each.longest_step(integrator), each.time_constant))
