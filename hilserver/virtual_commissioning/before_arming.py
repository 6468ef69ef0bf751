"""A short virtual commissioning of the running circuit: why a rig must not be armed."""

from __future__ import annotations

from collections.abc import Collection

from hilserver.rig.build import Rig, assemble
from hilserver.tick.bridge.ladder import BRIDGING
from hilserver.tick.program import compiled_program
from hilserver.virtual_commissioning.cases import short_cases
from hilserver.virtual_commissioning.criteria import Suitability
from hilserver.virtual_commissioning.report import sentence
from hilserver.virtual_commissioning.subject import Subject
from hilserver.virtual_commissioning.trial import run_cases

SHORT = 2.0
"""s of rest and of the work cycle."""


def refusals(rig: Rig, strategies: Collection[str], supply: float | None = None) -> list[str]:
    """Why a rig must not be armed with these strategies, one sentence for each that is unfit.

    The circuit is that of ``rig.circuit``, which may have been switched since the rig was loaded. ``supply``: measured
    real supply pressure, Pa, for a rig with real devices. Takes one or two seconds of computing time per strategy. On a
    simulated rig one compiled call of about 0.1 s runs a whole case, and no other thread of the process meanwhile.
    """
    bridging = [name for name in dict.fromkeys(strategies) if name in BRIDGING]
    if not bridging:
        return []
    sources = {**rig.sources, "circuit": rig.circuit.source}
    if supply is not None:
        assumed = {**sources["rig"].get("simulation", {}), "supply_pressure": f"{supply!r} Pa"}
        sources["rig"] = {**sources["rig"], "simulation": assumed}
    subject = Subject(assemble(sources, rig.file, rig.library), compiled_program(rig.library))
    results = run_cases(subject, bridging, tuple(short_cases(subject.rig, SHORT, home=subject.home)))
    return [f"virtual commissioning: {sentence(found)}" for found in results if found.verdict is Suitability.UNFIT]
