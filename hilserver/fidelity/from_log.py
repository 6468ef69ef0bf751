"""Fidelity of a rig by its log: the measured values of each pass of the work cycle, and the reference simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit.model import Circuit
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.errors import HilserverError
from hilserver.fidelity.reference import (
    ReferenceSimulation,
    flows_into,
    position_nodes,
    reference_simulation,
    shaft_nodes,
    total,
)
from hilserver.fidelity.results import ComparedQuantity, Fidelity, SegmentResult, Variant
from hilserver.fidelity.segments import CircuitRows, CycleSegment, passes, segment_result, segments_of
from hilserver.fidelity.step import AS_GIVEN, IntegrationStep
from hilserver.fidelity.sweeps import about_foreseen
from hilserver.numerics.arrays import Floats
from hilserver.numerics.flow_of_arrays import drop_of_law
from hilserver.record.format import Event, is_circuit
from hilserver.record.reader import LogReader, LogTable
from hilserver.record.run import unpacked_record
from hilserver.rig.build import assemble
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.motor_settings import MotorSettings
from hilserver.rig.rig import Rig
from hilserver.rig.settings import RigSettings
from hilserver.rig.trust import library_of_log
from hilserver.simulation.machine import Machine, machine_of_actuators, machine_of_device
from hilserver.toml import read_toml

ANGLE = 2.0 * np.pi
"""Radians per revolution: the tick has motors by revolutions."""
NEEDED = ("flow_estimated", "flow_deviation", "flow_other")
"""Columns of a valve that logs of older versions do not have."""


def fidelity_of_log(
    rig: Rig, path: Path, machine_file: Path | None = None, *, trust: bool = False, step: IntegrationStep = AS_GIVEN
) -> Fidelity:
    """Fidelity of a recorded run, strategy by strategy.

    ``rig``: as known today; only the machine is taken from it (that of its simulated device, or its cylinders and
    motors), all else from the log. ``machine_file``: a circuit file of the machine instead. ``trust``: run the Python
    that the log contains, also if it was not run here before. ``step``: of the reference simulation. Of several
    complete passes of the work cycle under one strategy, the last one is evaluated. Raises RecordError if the log can't
    be used, ConfigurationError where the machine does not fit, HilserverError where nothing in the log can be
    evaluated.
    """
    log = LogReader(path)
    if log.header.row:
        text = (
            "signals were left out of this log (recording.signals); its fidelity can't be determined from the others."
        )
        raise HilserverError(f"{path}: {text}")
    table, then = log.read_all(), _rig_of(log, trust)
    if then.settings.name != rig.settings.name:
        raise HilserverError(
            f'{path}: this is a log of the rig "{then.settings.name}", but {rig.file} is "{rig.settings.name}".'
        )
    if then.cycle is None:
        raise HilserverError(f"{path}: this rig had no work cycle. {REMEDY}")
    missing = [
        f"valve.{v}.{word}" for v in then.settings.valves for word in NEEDED if f"valve.{v}.{word}" not in table.columns
    ]
    if missing or not then.settings.valves:
        raise HilserverError(
            f"{path}: this log was written by {table.header.software} and has no {', '.join(missing) or 'valve'}."
        )
    evaluation = _Evaluation(
        replace(then, settings=_with_actuators(then.settings, rig.settings)), rig, machine_file, path, step
    )
    for record, source in _records(table):
        evaluation.add(record, then.read_circuit(source, str(path)))
    return evaluation.result()


REMEDY = "Record the rig's work cycle (hilserver send cycle action=start), or measure with --drive."


def _rig_of(log: LogReader, trust: bool) -> Rig:
    """The rig when the log was written. Raises ConfigurationError if it can no longer be built."""
    sources = log.header.configuration
    library = library_of_log(sources, log.path, trust=trust)
    return assemble(sources, Path(str(sources.get("file", log.path))), library)


def _with_actuators(then: RigSettings, today: RigSettings) -> RigSettings:
    """The recorded settings with the present cylinders and motors, if their ports and channels existed at that time."""

    def existed(actuator: CylinderSettings | MotorSettings) -> bool:
        ports = {actuator.port_A, actuator.port_B} - {None}
        return ports <= set(then.ports) and (actuator.motion is None or actuator.motion in then.channels)

    cylinders = {name: cylinder for name, cylinder in today.cylinders.items() if existed(cylinder)}
    motors = {name: motor for name, motor in today.motors.items() if existed(motor)}
    return then.model_copy(update={"cylinders": cylinders, "motors": motors})


def _records(table: LogTable) -> list[tuple[CircuitRows, Mapping[str, Any]]]:
    """The rows under each circuit, and the circuit's source."""
    switched: dict[int, Event] = {row: event for row, event in table.events if is_circuit(event)}
    found = []
    for segment in table.circuits:
        first = segment.version.start
        packed = switched[first]["packed"] if first in switched else table.header.packed
        rows = slice(first, first + len(segment.values))
        columns = {name: column[rows] for name, column in table.columns.items()}
        found.append((CircuitRows(columns, unpacked_record(packed), segment.values), packed["source"]))
    return found


def external_force(cylinder: CylinderSettings, force: Floats, v: Floats) -> Floats:
    """Load and friction, ``force``, with the drop of the cylinder's restrictions, which the reference does not have."""
    found = force.copy()
    for area, restriction in zip(cylinder.areas(), cylinder.restrictions(), strict=True):
        if restriction is not None:
            found += area * drop_of_law(restriction.root_by_flow() * area * v, restriction.transition_pressure)
    return found


class _Evaluation:
    """Passes of a log, by strategy. ``then``: the rig of the recording, with the cylinders as known today."""

    def __init__(self, then: Rig, today: Rig, machine_file: Path | None, log: Path, step: IntegrationStep) -> None:
        self.step = step
        self.then, self.today, self.machine_file, self.log = then, today, machine_file, log
        self.settings, self.dt = then.settings, float(then.plan.loop[0].dt)
        self.program: Program = compiled_program(then.library)
        self.reference = ""
        self.quantities: dict[str, ComparedQuantity] = {}
        self.results: dict[str, dict[str, SegmentResult]] = {}
        self.counted: dict[str, int] = {}
        self.skipped: list[str] = []

    def add(self, record: CircuitRows, circuit: Circuit) -> None:
        """Evaluate the passes under one circuit."""
        assert self.then.cycle is not None
        for rows in passes(record):
            strategy, begin = record.part(rows).strategy(self.settings), float(record.columns["time"][rows.start])
            duration = float(record.columns["cycle_time"][rows.stop - 1])
            if not strategy:
                self.skipped.append(f"the pass that began at {begin:.3g} s: a strategy was changed during it")
            elif duration < self.then.cycle.duration - 2.0 * self.dt:
                text = (
                    f"it ended, or the circuit was switched, after {duration:.3g} of {self.then.cycle.duration:.3g} s"
                )
                self.skipped.append(f"the pass that began at {begin:.3g} s: {text}")
            elif rows.start == 0:
                self.skipped.append(f"the pass that began at {begin:.3g} s: its beginning is not in the log")
            else:
                self.counted[strategy] = self.counted.get(strategy, 0) + 1
                found = self.results.setdefault(strategy, {})
                for kind, segment in zip(("cycle", "sweep"), segments_of(record, rows, self.then.cycle), strict=True):
                    if segment is not None:
                        found[kind] = self._result_of(record, segment, circuit)

    def result(self) -> Fidelity:
        """The fidelity. Raises HilserverError if there was nothing to evaluate."""
        if not self.results:
            reasons = "".join(f"\n  left out: {text}" for text in self.skipped)
            raise HilserverError(f"{self.log}: no complete pass of the work cycle is in it. {REMEDY}{reasons}")
        valves = {name: valve.port for name, valve in self.settings.valves.items()}
        others = {valve.other_port for valve in self.settings.valves.values()}
        notes = [f"Evaluated: {self.log.name}. Left out: {text}." for text in self.skipped]
        notes += [
            f"The log has {count} complete passes with {name}: the last one is evaluated."
            for name, count in self.counted.items()
            if count > 1
        ]
        notes += about_foreseen([self.then.cycle], self.results)
        return Fidelity(
            rig=self.settings.name,
            dt=self.dt,
            quantities=tuple(self.quantities.values()),
            valves=valves,
            variants=tuple(Variant(name, **kinds) for name, kinds in self.results.items()),
            reference=self.reference,
            ports_without_valve=tuple(p for p in self.then.circuit.rig_ports() if p not in {*valves.values(), *others}),
            notes=tuple(notes),
        )

    # --- one segment -------------------------------------------------------------------------------------------------

    def _result_of(self, record: CircuitRows, segment: CycleSegment, circuit: Circuit) -> SegmentResult:
        actual, uncertainty, sensor_noise = self._actual(record, segment.rows)
        reference: dict[str, Floats] = {}
        if (machine := self._machine(record, segment.rows, circuit)) is not None:
            coupled = reference_simulation(machine, circuit, self.then.library, str(self.log)).at(self.step)
            reference = self._reference_values(record, segment.rows, circuit, coupled)
            self.reference = f"the virtual circuit connected directly to {machine.origin}"
        return segment_result(self.settings, record, segment, actual, reference, uncertainty, sensor_noise)

    def _actual(self, record: CircuitRows, rows: slice) -> tuple[dict[str, Floats], dict[str, float], dict[str, float]]:
        """Values of the machine at the ends of the rows' ticks; standard deviations of estimates, and of sensors."""
        s = self.settings
        actual: dict[str, Floats] = {}
        uncertainty: dict[str, float] = {}
        sensor_noise: dict[str, float] = {}

        def note(quantity: ComparedQuantity, values: Floats, deviation: float) -> None:
            self.quantities[quantity.name] = quantity
            actual[quantity.name] = values
            (sensor_noise if quantity.known == "measured" else uncertainty)[quantity.name] = deviation

        for name, position in self._positions().items():
            values = self._measured(record, rows, position)
            note(ComparedQuantity(f"position {name}", "m", "measured"), values, s.channels[position].deviation())
        for name, motor in s.motors.items():
            if motor.speed is not None:
                values = ANGLE * self._measured(record, rows, motor.speed)
                deviation = ANGLE * s.channels[motor.speed].deviation()
                note(ComparedQuantity(f"speed {name}", "rad/s", "measured"), values, deviation)
        for name, valve in s.valves.items():
            if valve.flow is not None:
                values, deviation = self._measured(record, rows, valve.flow), s.channels[valve.flow].deviation()
                note(ComparedQuantity(f"flow {valve.port}", "m^3/s", "measured"), values, deviation)
            else:
                values = self._at_ends(record, rows, record.columns[self._estimate_of(name)])
                deviation = float(np.mean(record.columns[f"valve.{name}.flow_deviation"][rows]))
                note(ComparedQuantity(f"flow {valve.port}", "m^3/s", "estimated"), values, deviation)
        served = {valve.port: "" for valve in s.valves.values()}
        for name, valve in s.valves.items():
            if valve.other_port is not None and valve.other_port not in served:
                served[valve.other_port] = name
                values = self._at_ends(record, rows, record.columns[f"valve.{name}.flow_other"])
                note(ComparedQuantity(f"flow {valve.other_port}", "m^3/s", "estimated", name), values, 0.0)
        for port, other in served.items():
            channel = s.channels[s.ports[port]]
            values = self._measured(record, rows, s.ports[port])
            note(ComparedQuantity(f"pressure {port}", "Pa", "measured", other), values, channel.deviation())
        return actual, uncertainty, sensor_noise

    def _estimate_of(self, valve: str) -> str:
        """Column of a valve's estimated flow: of a cylinder or motor at its port, if it has one, without prediction."""
        port = self.settings.valves[valve].port
        for name, actuator in self.settings.hydraulic_actuators().items():
            for side in "AB":
                column = f"{self._section(name)}.{name}.flow_{side}"
                if port == getattr(actuator, f"port_{side}") and column in self.then.layout.names:
                    return column
        return f"valve.{valve}.flow_estimated"

    def _section(self, actuator: str) -> str:
        """Beginning of the columns of a cylinder or motor."""
        return "motor" if actuator in self.settings.motors else "cylinder"

    def _positions(self) -> dict[str, str]:
        """Channels that measure a position, by cylinder; those of a simulated device also by the node they measure."""
        s = self.settings
        found = {name: cylinder.position for name, cylinder in s.cylinders.items() if cylinder.position is not None}
        return found | {
            node: channel for channel, node in self._simulated_positions().items() if channel not in found.values()
        }

    def _simulated_positions(self) -> dict[str, str]:
        """Channel -> node of the simulated machine whose position it measures."""
        sensors = {
            (device.name, name): sensor.of
            for device in self.then.devices
            if device.is_simulated
            for name, sensor in device.config.sensors.items()
        }
        of = {name: sensors.get((str(s.device), str(s.source)), "") for name, s in self.settings.channels.items()}
        return {name: value.removesuffix(".x") for name, value in of.items() if value.endswith(".x")}

    def _nodes(self, coupled: ReferenceSimulation) -> dict[str, str]:
        """The machine's nodes whose positions are measured, by the name of the position."""
        known = {node: node for node in self._simulated_positions().values()}
        found = known | position_nodes(self.settings, coupled.machine.circuit)
        return {name: node for name, node in found.items() if f"{node}.x" in coupled.packed.names}

    def _at_ends(self, record: CircuitRows, rows: slice, values: Floats, ages: Floats | float = 0.0) -> Floats:
        """Values at the beginnings of the ticks, less their ages, interpolated to the ends of the rows' ticks.

        An infinite age marks a channel before its first sample: nothing was measured then.
        """
        begins = record.columns["tick"] * self.dt
        known = np.isfinite(values) & np.isfinite(ages)
        times, values = (begins - ages)[known], values[known]
        fresh = np.diff(times, prepend=-np.inf) > 1e-9
        found: Floats = np.interp(begins[rows] + self.dt, times[fresh], values[fresh])
        return found

    def _measured(self, record: CircuitRows, rows: slice, name: str) -> Floats:
        """A channel with its filter and its delay removed."""
        settings, ages = self.settings.channels[name], record.columns[f"stale.{name}"]
        if not np.isfinite(ages).any():
            raise HilserverError(f'{self.log}: the channel "{name}" has no sample in this run.')
        values = unfiltered(record.columns[f"channel.{name}"], settings, record.elapsed(self.dt))
        return self._at_ends(record, rows, values, ages + settings.delay)

    # --- the reference simulation ------------------------------------------------------------------------------------

    def _machine(self, record: CircuitRows, rows: slice, circuit: Circuit) -> Machine | None:
        if self.machine_file is not None:
            name, file = self.machine_file.name, str(self.machine_file)
            return Machine.read(read_toml(self.machine_file), self.then.library, f"the machine in {name}", file)
        devices = [device for device in self.today.devices if device.is_simulated]
        if len(devices) == 1:
            return machine_of_device(self.today, devices[0])
        if not set(circuit.rig_ports()) <= {
            port for s in self.settings.hydraulic_actuators().values() for port in (s.port_A, s.port_B)
        }:
            return None
        at = {name: float(record.columns[f"cylinder.{name}.x"][rows.start - 1]) for name in self.settings.cylinders}
        return machine_of_actuators(self.settings, self.then.library, circuit.source.get("fluid", {}), at)

    def _reference_values(
        self, record: CircuitRows, rows: slice, circuit: Circuit, coupled: ReferenceSimulation
    ) -> dict[str, Floats]:
        """The quantities in the reference simulation, at the ends of the rows' ticks."""
        signals = record.inputs(rows, list(self.settings.inputs))
        for signal, name in coupled.machine.loads.items():
            if name in self.settings.motors:
                signals[signal] = record.per_tick(rows, f"motor.{name}.work") / ANGLE
            else:
                force, v = (record.per_tick(rows, f"cylinder.{name}.{word}") for word in "Fv")
                signals[signal] = external_force(self.settings.cylinders[name], force, v)
        measured = self._measured_start(record, rows.start, coupled)
        start = coupled.start(measured, (record.circuit, record.values[rows.start - 1]))
        every_tick = coupled.run(self.program, self.dt, signals, start)
        nodes, names = self._nodes(coupled), list(coupled.packed.names)
        shafts = shaft_nodes(self.settings, coupled.machine.circuit)
        found = {}
        for quantity in self.quantities.values():
            what, _, where = quantity.name.partition(" ")
            if what == "flow":
                values = total(every_tick, coupled.packed, flows_into(circuit, where))
            elif what == "pressure":
                values = every_tick[:, names.index(f"{where}.p")]
            elif what == "speed" and where in shafts:
                values = every_tick[:, names.index(f"{shafts[where]}.w")]
            elif where in nodes:
                values = every_tick[:, names.index(f"{nodes[where]}.x")]
            else:
                continue
            found[quantity.name] = record.at_row_ends(rows, values)
        return found

    def _measured_start(self, record: CircuitRows, row: int, coupled: ReferenceSimulation) -> dict[str, float]:
        """Pressures of the ports, measured positions and their speeds, at the beginning of a row.

        What hangs on a rod moves with it.
        """
        s, positions = self.settings, self._positions()
        known: dict[str, float] = {}
        for port in s.ports:
            p = float(record.columns[f"port.{port}"][row])
            known |= {f"{port}.content": p, f"{port}.p": p}
        for name, node in self._nodes(coupled).items():
            if name in positions:
                known[f"{node}.x"] = float(self._measured(record, slice(row - 1, row), positions[name])[0])
            if name in s.cylinders:
                known[f"{node}.v"] = float(record.columns[f"cylinder.{name}.v"][row])
        for name, shaft in shaft_nodes(s, coupled.machine.circuit).items():
            known[f"{shaft}.w"] = ANGLE * float(record.columns[f"motor.{name}.speed"][row])
        for node, (rod, distance) in coupled.machine.hanging().items():
            if f"{rod}.x" in known and f"{node}.x" not in known:
                known[f"{node}.x"] = known[f"{rod}.x"] + distance
                known[f"{node}.v"] = known.get(f"{rod}.v", 0.0)
        return {name: value for name, value in known.items() if np.isfinite(value)}


def unfiltered(values: Floats, settings: ChannelSettings, elapsed: Floats) -> Floats:
    """A channel before its low-pass filter, which is inverted exactly (``tick.scale_channels``); NaN samples stay."""
    if settings.filter == 0.0:
        return values
    steps = np.diff(values, prepend=values[:1])
    before: Floats = values - steps + steps * (elapsed + settings.filter) / elapsed
    return before
