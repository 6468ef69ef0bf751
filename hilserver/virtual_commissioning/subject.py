"""The rig that is examined: its variant for a case, the state from which the case starts, and its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hilserver.circuit.model import RIG
from hilserver.circuit.program import Program
from hilserver.fidelity.comparison import Comparison, simulated_device
from hilserver.fidelity.segments import CircuitRows
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.machine import Machine, machine_of_device
from hilserver.tick.codes import CommandKind
from hilserver.virtual_commissioning.balance_of_load import LoadBalance
from hilserver.virtual_commissioning.cases import LOADS, PULLING, Case
from hilserver.virtual_commissioning.figures import Scales
from hilserver.virtual_commissioning.real_rig import NAME, StandInRun
from hilserver.virtual_commissioning.stand_in import (
    TRUE_FLOW,
    StandIn,
    assumptions,
    stand_in,
    unrestricted,
    unstated_loads,
)
from hilserver.virtual_commissioning.variations import can_vary, scaled, with_valve_flow

SETTLING = 1.5
"""s for which the directly connected circuit runs at rest, so that all runs of a case start from its pressures."""


@dataclass(frozen=True)
class Subject:
    """A rig with a simulated machine, or with real devices, whose machine a stand-in replaces."""

    rig: Rig
    program: Program

    @property
    def is_real(self) -> bool:
        """Whether the rig itself has no simulated machine."""
        return not any(device.is_simulated for device in self.rig.devices)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader on the machine."""
        return tuple(assumptions(self.rig)) if self.is_real else ()

    @property
    def home(self) -> float | None:
        """Where the work cycle starts, as a fraction of the stroke; None for the position in the circuit file."""
        return 0.5 if self.is_real else None

    @property
    def loads(self) -> tuple[float, ...]:
        """Multiples of its load with which the machine can be run, the stated one first."""
        if self.is_real:
            return (*LOADS, PULLING) if unstated_loads(self.rig) else LOADS
        can = can_vary(self.rig.sources["devices"][simulated_device(self.rig).name]["machine"])
        return LOADS if can else LOADS[:1]

    @property
    def varies_stroke(self) -> bool:
        """Whether the machine has a cylinder."""
        return bool(self._machine().strokes())

    def of(self, case: Case) -> CaseRun:
        """The runs of a case. Raises ConfigurationError if rig and case do not fit."""
        stated = self._stated(case.flow)
        sources = {**self.rig.sources, "rig": stated, "cycle": dict(case.cycle)}
        substitute = None
        if self.is_real:
            substitute = stand_in(self.rig, case.load)
            sources["rig"] = unrestricted(stated)
            rig = assemble(sources, self.rig.file, self.rig.library)
            comparison = Comparison.on(rig, NAME, substitute.machine, substitute.drive, self.program)
        else:
            device = simulated_device(self.rig).name
            tables = self.rig.sources["devices"][device]
            varied = {**tables, "machine": scaled(tables["machine"], case.load)} if case.load != 1.0 else tables
            sources["devices"] = {**self.rig.sources["devices"], device: varied}
            comparison = Comparison.of(assemble(sources, self.rig.file, self.rig.library), self.program)
        start = _start(comparison, case, is_held=self.is_real or case.load > 1.0)
        return CaseRun(case, comparison, {**_switched_on(comparison), **start}, substitute)

    def _stated(self, flow: float) -> dict[str, Any]:
        """The rig file for the bridge, whose real valves pass this multiple of the flow stated there."""
        if flow == 1.0:
            return dict(self.rig.sources["rig"])
        true = TRUE_FLOW if self.is_real else 1.0
        return with_valve_flow(self.rig, true / flow)

    def scales(self) -> Scales:
        """What the errors of this rig are divided by."""
        valves = self.rig.settings.valves.values()
        flows = {port: v.nominal_flow.flow for v in valves for port in (v.port, v.other_port) if port is not None}
        machine = self._machine()
        speeds = {shaft: max(flows.values()) / volume for shaft, volume in machine.displacements().items()}
        return Scales(machine.strokes(), flows, speeds)

    def _machine(self) -> Machine:
        if self.is_real:
            return stand_in(self.rig).machine
        return machine_of_device(self.rig, simulated_device(self.rig))


@dataclass(frozen=True)
class CaseRun:
    """A case of a rig. ``start``: values from which machine and circuit start, by their names in the reference.

    ``substitute``: the machine of a rig with real devices.
    """

    case: Case
    comparison: Comparison
    start: Mapping[str, float]
    substitute: StandIn | None

    def run(self, strategy: str) -> tuple[CircuitRows, Floats]:
        """Rows and true values of the bridged rig. Raises HilserverError if it does not start."""
        return self.comparison.bridged(self.comparison.rig, strategy, self._prepared)

    def _prepared(self, rig: Rig, program: Program) -> LockstepRun:
        """A run from the case's initial state."""
        if self.substitute is not None:
            run: LockstepRun = StandInRun(rig, program, self.substitute)
        else:
            run = LockstepRun(rig, program=program, trace=True)
        plant = run.plants[self.comparison.device]
        for place, name in enumerate(self.comparison.plant.values):
            plant.values[place] = self.start.get(name, plant.values[place])
        first = int(rig.plan.layout[0].circuit)
        for place, name in enumerate(rig.packed.values):
            run.row[first + place] = self.start.get(name.removeprefix(RIG), run.row[first + place])
        return run


def _start(comparison: Comparison, case: Case, *, is_held: bool) -> dict[str, float]:
    """The state of the directly connected circuit after a while at rest, with the machine at the case's position.

    ``is_held``: it begins with pressures that carry the load. Empty for the work cycle of a simulated rig, which starts
    from the state in the circuit files.
    """
    if case.stroke is None:
        return {}
    moved = comparison.reference.machine.at_share(case.stroke)
    carried: Mapping[str, float] = {}
    if is_held:
        initial = {name: settings.initial for name, settings in comparison.rig.settings.inputs.items()}
        carried = LoadBalance(comparison.reference, comparison.program, initial).pressures(moved)
    settled = _at_rest(comparison, {**moved, **carried}, SETTLING)
    still = {name: 0.0 for name in settled if _is_speed(name)}
    return _at_rest(comparison, {**settled, **still, **moved}, comparison.dt)


def _switched_on(comparison: Comparison) -> dict[str, float]:
    """The state of a simulated drive whose pump is switched on by an output, as it is a while after arming."""
    rig = comparison.rig
    if not rig.settings.outputs or comparison.device not in rig.first_plants:
        return {}
    with LockstepRun(rig, program=comparison.program) as run:
        run.run(1)
        for kind in (CommandKind.ARM, CommandKind.START):
            run.command(kind)
            run.run(round(SETTLING / comparison.dt))
        plant = run.plants[comparison.device]
    known = set(comparison.reference.packed.values)
    places = ((place, name) for place, name in enumerate(comparison.plant.values) if name not in known)
    return {name: float(plant.values[place]) for place, name in places}


def _at_rest(comparison: Comparison, known: Mapping[str, float], seconds: float) -> dict[str, float]:
    """The values of the directly connected circuit after some seconds with all inputs at rest."""
    reference = comparison.reference
    inputs = comparison.rig.settings.inputs.items()
    signals = {name: np.full(round(seconds / comparison.dt), s.initial) for name, s in inputs}
    rows = reference.run(comparison.program, comparison.dt, signals, reference.start(known))
    return dict(zip(reference.packed.values, map(float, rows[-1]), strict=False))


def _is_speed(name: str) -> bool:
    """Whether a state is the speed of a moving part of a machine."""
    return name.endswith((".v", ".w", ".omega"))
