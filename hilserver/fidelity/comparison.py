"""A simulated rig and its reference simulation: what all runs of a rig under different strategies share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hilserver.circuit.model import Circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.components.speed_source import SpeedSource
from hilserver.components.velocity_source import VelocitySource
from hilserver.errors import HilserverError
from hilserver.fidelity.reference import (
    ReferenceSimulation,
    commanded_by,
    flows_into,
    reference_simulation,
    run_signals,
    total,
)
from hilserver.fidelity.results import (
    NO_BRIDGE,
    SIMULATED_MACHINE,
    SIMULATED_REFERENCE,
    VIRTUAL_CIRCUIT,
    ComparedQuantity,
    SegmentResult,
)
from hilserver.fidelity.segments import CircuitRows, CycleSegment, passes, segment_result, segments_of, trip_in
from hilserver.fidelity.step import IntegrationStep
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Device, Rig
from hilserver.rig.simulated import PlantCircuit, read_plant
from hilserver.simulation.balance import balance
from hilserver.simulation.change_points import change_point_note
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.machine import Machine, machine_of_device
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.outputs import raw_output
from hilserver.tick.plan import plan_on
from hilserver.tick.plant_records import actuators_on
from hilserver.tick.records import plain

RunOf = Callable[[Rig, Program], LockstepRun]
"""Makes the lockstep run of a rig, with a trace of its true values."""


def traced_run(rig: Rig, program: Program) -> LockstepRun:
    """A run from the initial state of rig and machine."""
    return LockstepRun(rig, program=program, trace=True)


def simulated_device(rig: Rig) -> Device:
    """The simulated device. Raises HilserverError without one, or without a valve."""
    devices = [device for device in rig.devices if device.is_simulated]
    missing = {"one device with driver simulated": len(devices) == 1, "a valve": bool(rig.settings.valves)}
    if not all(missing.values()):
        needed = ", ".join(name for name, there in missing.items() if not there)
        raise HilserverError(f"{rig.file}: a simulation needs {needed}, which this rig file does not have.")
    return devices[0]


LETTERS = {"position": "x", "speed": "w", "pressure": "p"}
"""Last part of the name of a value, by the kind of quantity."""


@dataclass(frozen=True)
class Comparison:
    """What all runs of a rig share.

    ``device``: name of the simulated device; ``drive``: the circuit table of its valves and their supply; ``joined``:
    machine and drive, ``plant``: the same packed; ``no_command``: why there is no run without a bridge, empty if there
    is one.
    """

    rig: Rig
    device: str
    drive: Mapping[str, Any]
    reference: ReferenceSimulation
    joined: Circuit
    plant: PackedCircuit
    program: Program
    no_command: str

    @classmethod
    def of(cls, rig: Rig, program: Program | None = None) -> Comparison:
        """The comparison of a simulated rig. ``program``: the compiled program, if it is already loaded."""
        device = simulated_device(rig)
        drive = rig.sources["devices"][device.name]["drive"]
        return cls.on(rig, device.name, machine_of_device(rig, device), drive, program, rig.plant_circuits[device.name])

    @classmethod
    def on(
        cls,
        rig: Rig,
        device: str,
        machine: Machine,
        drive: Mapping[str, Any],
        program: Program | None = None,
        plant: PlantCircuit | None = None,
    ) -> Comparison:
        """The comparison of a rig on this machine with this drive. ``plant``: both together, if they are read."""
        file = str(rig.file.parent / rig.settings.circuit)
        companion = IntegrationStep(halvings=rig.halvings)
        reference = reference_simulation(machine, rig.circuit, rig.library, file).at(companion)
        plant = plant or read_plant(machine.source, drive, rig.library, accounts=rig.accounts)
        uncommanded = [v.port for v in rig.settings.valves.values() if commanded_by(rig.circuit, v.port) is None]
        where = ", ".join(uncommanded)
        reason = f"{NO_BRIDGE}: no signal commands a virtual valve at port {where}" if uncommanded else ""
        packed, program = companion.of(plant.packed), program or compiled_program(rig.library)
        return cls(rig, device, drive, reference, plant.circuit, packed, program, reason)

    @property
    def dt(self) -> float:
        """Tick, s."""
        return float(self.rig.plan.loop[0].dt)

    def quantities(self) -> tuple[ComparedQuantity, ...]:
        """Positions and speeds of the machine that oil moves, flows into its ports, and the pressures there."""
        machine = self.reference.machine.circuit
        held = {p.ports["rod"] for p in machine.placed if isinstance(p.component, VelocitySource)}
        driven_shafts = {p.ports["shaft"] for p in machine.placed if isinstance(p.component, SpeedSource)}
        settings = self.rig.settings
        others = {valve.other_port: name for name, valve in settings.valves.items() if valve.other_port is not None}
        driven = dict.fromkeys(valve.port for valve in settings.valves.values())
        ports = [port for port in settings.ports if port in driven or port in others]
        return (
            *(ComparedQuantity(f"position {node}", "m") for node in machine.mechanical_nodes() if node not in held),
            *(ComparedQuantity(f"speed {n}", "rad/s") for n in machine.rotational_nodes() if n not in driven_shafts),
            *(ComparedQuantity(f"flow {p}", "m^3/s", other_edge="" if p in driven else others[p]) for p in ports),
            *(ComparedQuantity(f"pressure {p}", "Pa", other_edge="" if p in driven else others[p]) for p in ports),
        )

    def run(
        self, rig: Rig, strategies: list[str], tripped: dict[str, str], run_of: RunOf = traced_run
    ) -> dict[str, dict[str, SegmentResult]]:
        """Results of work cycle and sweep, as far as the rig's cycle has them, by strategy and without compensation.

        A strategy with which the rig does not stay RUNNING is entered into ``tripped`` instead, with cause and time.
        """
        assert rig.cycle is not None
        found: dict[str, dict[str, SegmentResult]] = {} if self.no_command else {NO_BRIDGE: {}}
        for name in strategies:
            record, true_values = self.bridged(rig, name, run_of)
            if trip := trip_in(record, rig):
                tripped[name] = str(trip)
                continue
            found[name] = {}
            segments = segments_of(record, passes(record)[0], rig.cycle)
            for kind, segment in zip(("cycle", "sweep"), segments, strict=True):
                if segment is None:
                    continue
                found[name][kind], coupled = self.evaluated(record, true_values, segment)
                begin = segment.rows.start - 1
                if NO_BRIDGE in found and kind not in found[NO_BRIDGE]:
                    commands = {v: self._command(coupled, valve.port) for v, valve in rig.settings.valves.items()}
                    alone = self._uncompensated(commands, true_values[begin])
                    found[NO_BRIDGE][kind] = replace(
                        found[name][kind],
                        actual=self.series(alone, self.plant, self.plant_flows()),
                        command=commands,
                        virtual={},
                        saturation={},
                        estimate={},
                        stated_deviation={},
                        balances={SIMULATED_REFERENCE: found[name][kind].balances[SIMULATED_REFERENCE]},
                    )
        return found

    def evaluated(
        self, record: CircuitRows, true_values: Floats, segment: CycleSegment, balanced: bool = True
    ) -> tuple[SegmentResult, Floats]:
        """A segment of a run against the reference simulation from its initial state; also all values of the latter.

        ``balanced``: with its balances.
        """
        begin, settings = segment.rows.start - 1, self.rig.settings
        states = ((self.plant, true_values[begin]), (record.circuit, record.values[begin]))
        signals = record.inputs(segment.rows, list(settings.inputs))
        start = self.reference.start({}, *states)
        coupled = self.reference.run(self.program, self.dt, signals, start, self._drifted(true_values[begin]))
        flows = {port: flows_into(self.rig.circuit, port) for port in settings.ports}
        reference = self.series(coupled, self.reference.packed, flows)
        actual = self.series(true_values[segment.rows], self.plant, self.plant_flows())
        runs = {
            SIMULATED_REFERENCE: (self.reference.circuit, self.reference.packed, start, coupled),
            VIRTUAL_CIRCUIT: (self.rig.circuit, record.circuit, record.values[begin], record.values[segment.rows]),
            SIMULATED_MACHINE: (self.joined, self.plant, true_values[begin], true_values[segment.rows]),
        }
        balances = {
            what: balance(self.program, self.rig.library, *run, self.dt)
            for what, run in runs.items()
            if balanced and (what == SIMULATED_REFERENCE or self.rig.accounts)
        }
        result = segment_result(settings, record, segment, actual, reference)
        notes = tuple(
            f"The {what}: {note}"
            for what, (circuit, packed, _, rows) in runs.items()
            for note in _change_points(circuit, packed, rows, result.time)
        )
        return replace(result, balances=balances, notes=notes), coupled

    def plant_flows(self) -> dict[str, tuple[str, ...]]:
        """Names of the flows from the drive into each port of the machine."""
        names = self.drive.get("components", {})
        drive = replace(self.joined, placed=tuple(each for each in self.joined.placed if each.name in names))
        return {port: flows_into(drive, port) for port in self.rig.settings.ports}

    def series(self, rows: Floats, circuit: PackedCircuit, flows: dict[str, tuple[str, ...]]) -> dict[str, Floats]:
        """The quantities, from the values of a circuit."""
        names = list(circuit.names)
        found = {}
        for quantity in self.quantities():
            what, _, where = quantity.name.partition(" ")
            if what == "flow":
                found[quantity.name] = total(rows, circuit, flows[where])
            else:
                found[quantity.name] = rows[:, names.index(f"{where}.{LETTERS[what]}")]
        return found

    def bridged(self, rig: Rig, strategy: str, run_of: RunOf = traced_run) -> tuple[CircuitRows, Floats]:
        """A work cycle with this strategy for every valve: its rows, and the true values of the plant."""
        plan = plan_on(rig.plan.block.copy())
        plan.valve["strategy_first"][:] = Strategy[strategy]
        with run_of(replace(rig, plan=plan), self.program) as run:
            rows = run.run_cycle()
            columns = {name: rig.layout.values(rows, name) for name in rig.layout.names}
            start = len(rig.layout.names)
            record = CircuitRows(columns, rig.packed, rows[:, start : start + len(rig.packed.names)])
            return record, run.true_values(self.device)

    def _uncompensated(self, commands: Mapping[str, Floats], start: Floats) -> Floats:
        """Values of the plant, from ``start`` on, when the real valves get these commands."""
        actuators = actuators_on(self.rig.plants()[self.device].actuator)
        driven: dict[str, Floats] = {}
        for number, output in enumerate(simulated_device(self.rig).outputs):
            for name, valve in self.rig.settings.valves.items():
                if (valve.device, valve.output) != (self.device, output):
                    continue
                line = plain(self.rig.plan.valve[self.rig.layout.valves.index(name)])
                actuator = actuators[number]
                raw = np.array([raw_output(u, line) for u in commands[name]])
                null, late = raw_output(0.0, line), actuator.delay
                now, before = (np.concatenate([np.full(k, null), raw])[: len(raw)] for k in (late, late + 1))
                delayed = now + actuator.fraction * (before - now)  # the mean of each tick
                target = self.plant.names[actuator.target]
                driven[target] = np.clip(actuator.value_zero + actuator.gain * delayed, -1.0, 1.0)
        values, drifted = start[: len(self.plant.values)], self._drifted(start)
        return run_signals(self.program, self.plant, self.dt, driven, values, drifted)

    def _drifted(self, values: Floats) -> float:
        """Time for which the plant has drifted with these values, s."""
        return float(values[self.plant.names.index("t")])

    def _command(self, rows: Floats, port: str) -> Floats:
        """Command of the virtual valve at a port, signed for the real valve there: positive fills the port."""
        found = commanded_by(self.rig.circuit, port)
        assert found is not None
        signal, sign = found
        return sign * rows[:, self.reference.packed.names.index(signal)]


def _change_points(circuit: Circuit, packed: PackedCircuit, rows: Floats, time: Floats) -> Iterator[str]:
    """A note on each mechanism of a circuit that came to a change point."""
    for placed in circuit.mechanisms:
        if note := change_point_note(placed, time, dict(zip(packed.names, rows.T, strict=True))):
            yield note
