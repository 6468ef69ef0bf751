"""A rig with actuators in simulation: its work cycle under each strategy, compared with the reference simulation.

The reference simulation is the virtual circuit with the specimens connected directly to it, without actuators, sensors
and delays. The criteria are those of the benchmark problem (:mod:`hilserver.hybrid.criteria`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from hilserver.circuit.model import RIG
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.errors import HilserverError, did_you_mean
from hilserver.fidelity.measures import rms_above
from hilserver.fidelity.reference import ReferenceSimulation, reference_simulation
from hilserver.fidelity.results import NOISE_CORNER
from hilserver.fidelity.segments import CircuitRows, passes, trip_in
from hilserver.hybrid.criteria import delay
from hilserver.hybrid.stand_in import simulated
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.machine import machine_of_device
from hilserver.tick.codes import CommandKind, Saturation
from hilserver.tick.hybrid.displacement import FOLLOWING, DisplacementStrategy
from hilserver.tick.plan import plan_on

Progress = Callable[[str, float], None]
"""Is told which strategy is run, and the share of the work that is done."""
LIMITED = int(Saturation.RANGE | Saturation.SLEW)
SETTLING = 0.5
"""s between the approach to the virtual position and the work cycle."""


@dataclass(frozen=True)
class ActuatorResult:
    """An actuator in a work cycle, SI. Errors are shares of the standard deviation, or largest value, of what is right.

    ``delay``: of the displacement behind the virtual position, s. ``error``, ``peak``: of the displacement against the
    virtual position (J2 and J3 of the benchmark problem); ``off``, ``off_peak``: against the reference simulation (J4
    and J5). ``noise``: of the command at high frequency, m; ``limited``: share of the ticks in which the command was
    limited. ``time``, ``displacement``, ``right``: for plots.
    """

    delay: float
    error: float
    peak: float
    off: float
    off_peak: float
    force: float
    noise: float
    limited: float
    time: Floats
    displacement: Floats
    right: Floats


@dataclass(frozen=True)
class StrategyRun:
    """A work cycle under a strategy: its actuators, and the RMS errors of the circuit's other positions by node.

    ``trip``: how it ended early, with no results then.
    """

    strategy: str
    actuators: Mapping[str, ActuatorResult]
    positions: Mapping[str, float]
    trip: str = ""


@dataclass(frozen=True)
class RigRuns:
    """All runs of a rig. ``reference``: with what it is compared."""

    rig: str
    reference: str
    runs: tuple[StrategyRun, ...]


def chosen_strategies(rig: Rig, names: Sequence[str] | None) -> list[str]:
    """The strategies to run: these, or all that a rig can have. Raises HilserverError for one that it can't."""
    for name in names or ():
        if name not in FOLLOWING:
            hint = did_you_mean(name, FOLLOWING)
            raise HilserverError(f'{rig.file}: "{name}" is not a strategy of an actuator.{hint}')
    return [name for name in FOLLOWING if names is None or name in names]


def simulate(rig: Rig, names: Sequence[str] | None = None, tell: Progress = lambda what, done: None) -> RigRuns:
    """Run the work cycle under each strategy, of all actuators at the same time.

    Raises HilserverError if the rig has no work cycle, or no machine to be simulated.
    """
    if rig.cycle is None:
        raise HilserverError(f"{rig.file}: simulate needs a work cycle, which this rig file does not name (cycle = …).")
    strategies = chosen_strategies(rig, names)
    subject = HybridRig.of(simulated(rig))
    runs = []
    for number, name in enumerate(strategies):
        tell(name, number / len(strategies))
        runs.append(subject.run(dict.fromkeys(rig.settings.actuators, name)))
    return RigRuns(rig.settings.name, subject.reference.machine.origin, tuple(runs))


@dataclass(frozen=True)
class HybridRig:
    """A simulated rig with its reference simulation. ``device``: name of the simulated device."""

    rig: Rig
    device: str
    reference: ReferenceSimulation
    program: Program

    @classmethod
    def of(cls, rig: Rig) -> HybridRig:
        """Those of a rig. Raises HilserverError if circuit and specimens can't be connected directly."""
        devices = [device for device in rig.devices if device.is_simulated]
        if len(devices) != 1:
            raise HilserverError(f"{rig.file}: a simulation needs one device with driver simulated.")
        file = str(rig.file.parent / rig.settings.circuit)
        machine = machine_of_device(rig, devices[0])
        nodes = machine.circuit.mechanical_nodes()
        for name in rig.circuit.rig_actuators():
            if name not in nodes:
                text = f'the machine of device {devices[0].name} has no mechanical node "{name}"'
                raise HilserverError(f"{rig.file}: {text}, which the actuator of this name moves.")
        reference = reference_simulation(machine, rig.circuit, rig.library, file)
        return cls(rig, devices[0].name, reference, compiled_program(rig.library))

    def run(self, strategies: Mapping[str, str], longest: float = inf) -> StrategyRun:
        """The work cycle, or so many s of it, with these strategies of the actuators, by their names."""
        rig, label = self.rig, ", ".join(dict.fromkeys(strategies.values()))
        plan = plan_on(rig.plan.block.copy())
        for number, name in enumerate(rig.settings.actuators):
            plan.actuator["strategy_first"][number] = DisplacementStrategy[strategies[name]]
        with LockstepRun(replace(rig, plan=plan), program=self.program, trace=True) as run:
            first = run.arm_and_start()
            approach = max(a.bridge.approach for a in rig.settings.actuators.values()) + SETTLING
            before = run.run(round(approach / run.dt))
            run.command(CommandKind.CYCLE, 1.0)
            ticks = round(min(run.ticks_per_cycle, longest / run.dt))
            rows = np.concatenate([first, before, run.run(ticks)])
            true = run.true_values(self.device)
        columns = {name: rig.layout.values(rows, name) for name in rig.layout.names}
        start = len(rig.layout.names)
        record = CircuitRows(columns, rig.packed, rows[:, start : start + len(rig.packed.names)])
        if (trip := trip_in(record, rig)) is not None:
            return StrategyRun(label, {}, {}, str(trip))
        return self._evaluated(label, record, true)

    def _evaluated(self, strategy: str, record: CircuitRows, true: Floats) -> StrategyRun:
        rows = passes(record)[0]
        coupled = self._coupled(record, true, rows)
        names, plant = list(self.reference.packed.names), self.rig.plant_circuits[self.device].packed.names
        part = record.part(slice(rows.start, rows.stop - 1))
        actuators = {}
        for name in self.rig.settings.actuators:
            if name not in self.rig.circuit.rig_actuators():
                continue
            displacement = true[rows.start : rows.stop - 1, plant.index(f"{name}.x")]
            followed = record.columns[f"actuator.{name}.position"][rows.start + 1 : rows.stop]
            right = coupled[:-1, names.index(f"{name}.x")] + self.rig.settings.actuators[name].offset
            actuators[name] = _result(name, part, displacement, followed, right, self._dt)
        virtual = list(record.circuit.names)
        positions = {
            node: _share(record.values[rows.start : rows.stop - 1, virtual.index(f"{node}.x")], coupled[:-1, place])
            for node in self.rig.circuit.mechanical_nodes()
            if not node.startswith(RIG) and np.ptp(coupled[:, place := names.index(f"{node}.x")]) > 0.0
        }
        return StrategyRun(strategy, actuators, positions)

    @property
    def _dt(self) -> float:
        return float(self.rig.plan.loop[0].dt)

    def _coupled(self, record: CircuitRows, true: Floats, rows: slice) -> Floats:
        """The reference simulation from the state of the circuit at the beginning of the work cycle."""
        begin = rows.start - 1
        plant = self.rig.plant_circuits[self.device].packed
        known = {}
        for name in self.rig.circuit.rig_actuators():
            for what in "xv":
                place = record.circuit.names.index(f"{RIG}{name}.{what}")
                known[f"{name}.{what}"] = float(record.values[begin, place])
        start = self.reference.start(known, (plant, true[begin]), (record.circuit, record.values[begin]))
        signals = record.inputs(rows, list(self.rig.settings.inputs))
        drifted = float(true[begin, plant.names.index("t")])
        return self.reference.run(self.program, self._dt, signals, start, drifted)


def _result(
    name: str, part: CircuitRows, displacement: Floats, followed: Floats, right: Floats, dt: float
) -> ActuatorResult:
    """``part``: the rows of the work cycle; the others: at the ends of these ticks."""
    columns = part.columns
    forces = columns[f"actuator.{name}.force_estimate"]
    command, flags = columns[f"actuator.{name}.command"], columns[f"actuator.{name}.saturation"].astype(np.int64)
    return ActuatorResult(
        delay=dt * delay(displacement, followed),
        error=_share(displacement, followed),
        peak=_largest(displacement, followed),
        off=_share(displacement, right),
        off_peak=_largest(displacement, right),
        force=float(np.abs(forces).max()),
        noise=rms_above(command, NOISE_CORNER / dt, dt),
        limited=float(np.mean((flags & LIMITED) != 0)),
        time=columns["cycle_time"],
        displacement=displacement,
        right=right,
    )


def _share(found: Floats, right: Floats) -> float:
    """Standard deviation of the error relative to that of what is right."""
    size = float(np.std(right))
    return float(np.std(found - right)) / size if size > 0.0 else float("nan")


def _largest(found: Floats, right: Floats) -> float:
    """Largest error relative to the largest deviation of what is right from its mean."""
    size = float(np.abs(right - right.mean()).max())
    return float(np.abs(found - right).max()) / size if size > 0.0 else float("nan")
