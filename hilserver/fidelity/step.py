"""The discretisation error in the results of a rig, from a repetition of the runs with half of every step.

In the loop, inputs and pressures are held for a tick: this is a property of the rig and is kept. Only the steps
of the integrator are halved: those of the virtual circuit, of the simulated machine with its drive, and of the
reference simulation. The error is judged over the work cycle, and over a sweep only if a rig has no cycle. Sines near a
resonance saturate valves and let chambers cavitate, so that the smallest difference grows there whatever the step: no
step would be sufficient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.model import Solver
from hilserver.circuit.pack import INTEGRATORS, PackedCircuit
from hilserver.errors import HilserverError
from hilserver.fidelity.results import NO_BRIDGE, Fidelity, SegmentResult, Variant
from hilserver.numerics.arrays import Floats, Indices
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.simulation.step_error import HALVINGS, TOLERANCE, Quantity, StepError, deviations, step_error

REFERENCE = "reference"


@dataclass(frozen=True)
class IntegrationStep:
    """How a rig's circuits are integrated: ``factor`` times the substeps in the files, their integrator or another.

    ``halvings`` of the parts into which circuit, machine and reference simulation divide them (see `solved_by`).
    The number of steps that share a solution of a mechanism remains the same.
    """

    factor: int = 1
    integrator: str | None = None
    halvings: int = 0

    def of(self, packed: PackedCircuit) -> PackedCircuit:
        """A packed circuit with this step."""
        return replace(packed, index=self.index(packed.index))

    def index(self, given: Indices) -> Indices:
        """The index of a packed circuit with this step."""
        index = given.copy()
        index[e.SUBSTEPS] *= self.factor
        index[e.HALVINGS] = self.halvings
        if self.integrator is not None:
            index[e.INTEGRATOR] = INTEGRATORS[self.integrator]
        return index

    def rig(self, rig: Rig) -> Rig:
        """A rig whose virtual circuit and machine have this step. Raises ConfigurationError if it is too short."""
        plants = {
            device: {**tables, **{key: self._table(tables[key]) for key in ("machine", "drive") if key in tables}}
            for device, tables in rig.sources.get("devices", {}).items()
        }
        sources = {**rig.sources, "circuit": self._table(rig.sources["circuit"]), "devices": plants}
        made = assemble(sources, rig.file, rig.library, accounts=rig.accounts)
        halved = IntegrationStep(halvings=self.halvings)
        plants_halved = {name: plant._replace(ix=halved.index(plant.ix)) for name, plant in made.first_plants.items()}
        return replace(made, packed=halved.of(made.packed), first_plants=plants_halved, halvings=self.halvings)

    def _table(self, circuit: Mapping[str, Any]) -> dict[str, Any]:
        given = Solver.model_validate(circuit.get("solver", {}))
        shared = (
            {} if given.mechanics_substeps is None else {"mechanics_substeps": self.factor * given.mechanics_substeps}
        )
        solver = {"integrator": self.integrator or given.integrator, "substeps": self.factor * given.substeps, **shared}
        return {**circuit, "solver": solver}


AS_GIVEN = IntegrationStep()
RunAt = Callable[[IntegrationStep, list[str]], Fidelity]
"""The results of a rig, or of its log, with this step, of these strategies."""


def with_step_error(rig: Rig, result: Fidelity, run_at: RunAt, tolerance: float = TOLERANCE) -> Fidelity:
    """The result and its error by the step, from runs of half of every step; if it is too large, also what to change.

    Circuit and machine are the same with each strategy: one is repeated. A sufficient step is determined with it, too.
    """
    names = _repeated(rig, result)
    solver, tick = rig.circuit.solver, 1.0 / rig.settings.loop.rate
    finer_run = _tried(run_at, IntegrationStep(2, halvings=HALVINGS), names)
    given, finer = _common(result, finer_run, [NO_BRIDGE, *names])
    time = tick * np.arange(1.0, _length(given) + 1.0)
    error = StepError(tick / solver.substeps, solver.integrator, deviations(time, given, finer), tolerance)
    if error.too_long:

        def run_with(substeps: int, integrator: str, halvings: int) -> list[Quantity]:
            other = integrator if integrator != solver.integrator else None
            step = IntegrationStep(substeps // solver.substeps, other, halvings)
            return _common(result, _tried(run_at, step, names), [NO_BRIDGE, *names])[1]

        found = step_error(solver, tick, len(time), time, run_with, tolerance, lambda n: _words(rig, n))
        error = replace(error, remedy=found.remedy)
    return replace(result, error=error)


def _repeated(rig: Rig, result: Fidelity) -> list[str]:
    """The strategy that is repeated with half the step: that of the rig file, or else the highest; none without any."""
    tried = [v.name for v in result.variants if v.name != NO_BRIDGE]
    own = [valve.bridge.strategy for valve in rig.settings.valves.values() if valve.bridge.strategy in tried]
    return own[:1] or tried[-1:]


def _tried(run_at: RunAt, step: IntegrationStep, names: list[str]) -> Fidelity | None:
    """The results with a step; None if none of the strategies completes its run, or the step is impossible."""
    try:
        return run_at(step, names)
    except HilserverError:
        return None


def _common(
    result: Fidelity, other: Fidelity | None, only: list[str] | None = None
) -> tuple[list[Quantity], list[Quantity]]:
    """The quantities of a result, and those of another one of the same runs; NaN where that does not have them."""
    variants = [v for v in result.variants if only is None or v.name in only]
    found: dict[str, tuple[Quantity, Quantity]] = {}
    for quantity in result.quantities:
        what, _, where = quantity.name.partition(" ")
        given, theirs = found.setdefault(what, ((what, quantity.unit, {}), (what, quantity.unit, {})))
        for name, line, same in _lines(variants, other, quantity.name):
            given[2][f"{where}{name}"], theirs[2][f"{where}{name}"] = line, same  # type: ignore[index]
    pairs = found.values()
    return [given for given, _ in pairs], [theirs for _, theirs in pairs]


def _lines(variants: list[Variant], other: Fidelity | None, quantity: str) -> Iterator[tuple[str, Floats, Floats]]:
    """Name, values, and values in the other result: of each variant, and of one reference simulation."""
    known = {v.name: v for v in other.variants} if other is not None else {}
    seen = set()
    kinds = ("cycle",) if any(variant.cycle is not None for variant in variants) else ("sweep",)
    for variant in variants:
        for kind in kinds:
            segment: SegmentResult | None = getattr(variant, kind)
            if segment is None:
                continue
            twin: SegmentResult | None = getattr(known.get(variant.name), kind, None)
            swept = " in the sweep" if kind == "sweep" else ""
            for name, of in ((variant.name, "actual"), (REFERENCE, "reference")):
                if quantity not in getattr(segment, of) or (of == "reference" and kind in seen):
                    continue
                line = getattr(segment, of)[quantity]
                theirs = getattr(twin, of)[quantity] if twin is not None else np.full(len(line), np.nan)
                n = min(len(line), len(theirs))
                yield f"{swept}, {name}", line[:n], theirs[:n]
            seen.add(kind)


def _length(quantities: list[Quantity]) -> int:
    return max((len(line) for line in chain.from_iterable(lines.values() for _, _, lines in quantities)), default=0)


def _words(rig: Rig, substeps: int) -> str:
    """This number of substeps of the virtual circuit, and the same factor for all other circuits."""
    factor = substeps // rig.circuit.solver.substeps
    files = {rig.settings.circuit: substeps}
    for device in rig.devices:
        for key, table in rig.sources.get("devices", {}).get(device.name, {}).items():
            if "solver" in table:
                files[Path(getattr(device.config, key)).name] = factor * Solver.model_validate(table["solver"]).substeps
    return "solver.substeps of at least " + ", ".join(f"{n} in {Path(name).name}" for name, n in files.items())
