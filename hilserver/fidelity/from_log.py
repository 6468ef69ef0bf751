"""How true a rig was, by its log: what the sensors said in each pass of the work cycle, beside the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.program import Program
from hilserver.errors import HilserverError
from hilserver.fidelity.reference import (
    Direct,
    Machine,
    directly,
    flows_into,
    machine_of_cylinders,
    position_nodes,
    total,
)
from hilserver.fidelity.results import Course, Fidelity, Quantity, Variant
from hilserver.fidelity.segments import (
    Record,
    Section,
    at_rows,
    course,
    inputs_of,
    passes,
    sections,
)
from hilserver.fidelity.strategies import machine_of_device
from hilserver.numerics.arrays import Floats
from hilserver.record.format import Event, is_circuit
from hilserver.record.reader import LogReader, LogTable
from hilserver.record.run import unpacked_record
from hilserver.rig.build import Rig, assemble, library_in
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.settings import RigSettings
from hilserver.tick.program import compiled_program
from hilserver.toml import read_toml

NEEDED = ("flow_estimated", "flow_deviation", "flow_other")
"""Columns of a valve that logs of older versions lack."""


def fidelity_of_log(rig: Rig, path: Path, machine_file: Path | None = None) -> Fidelity:
    """How true the rig was in a recorded run, strategy by strategy.

    ``rig``: as it is known today; what is taken from it is the machine (its simulated device's, or its cylinders). The
    rest is the log's own. ``machine_file``: a circuit file of the machine instead. Of several whole passes of the work
    cycle under one strategy, the last one counts. Raises RecordError where the log can't be used, ConfigurationError
    where the machine does not fit, HilserverError where nothing in the log can be evaluated.
    """
    log = LogReader(path)
    table, then = log.read_all(), _rig_of(log)
    if then.settings.name != rig.settings.name:
        raise HilserverError(
            f'{path}: is a log of the rig "{then.settings.name}", {rig.file} is "{rig.settings.name}".'
        )
    if then.cycle is None:
        raise HilserverError(f"{path}: this rig had no work cycle. {NOTHING}")
    missing = [
        f"valve.{v}.{word}" for v in then.settings.valves for word in NEEDED if f"valve.{v}.{word}" not in table.columns
    ]
    if missing or not then.settings.valves:
        raise HilserverError(
            f"{path}: was written by {table.header.software} and lacks {', '.join(missing) or 'a valve'}."
        )
    evaluation = _Evaluation(
        replace(then, settings=_with_cylinders(then.settings, rig.settings)), rig, machine_file, path
    )
    for record, source in _records(table):
        evaluation.add(record, then.read_circuit(source, str(path)))
    return evaluation.result()


NOTHING = "Let it run under the rig's work cycle (hilserver send cycle action=start), or measure with --drive."


def _rig_of(log: LogReader) -> Rig:
    """The rig as it was when the log was written. Raises ConfigurationError where it can't be built any more."""
    sources = log.header.configuration
    return assemble(sources, Path(str(sources.get("file", log.path))), library_in(sources))


def _with_cylinders(then: RigSettings, today: RigSettings) -> RigSettings:
    """The cylinders of today, at ports and channels that were there then."""
    known = {
        name: cylinder
        for name, cylinder in today.cylinders.items()
        if {cylinder.port_A, cylinder.port_B} - {None} <= set(then.ports)
        and (cylinder.position is None or cylinder.position in then.channels)
    }
    return then.model_copy(update={"cylinders": known})


def _records(table: LogTable) -> list[tuple[Record, Mapping[str, Any]]]:
    """The rows under each circuit, and the circuit's source."""
    switched: dict[int, Event] = {row: event for row, event in table.events if is_circuit(event)}
    found = []
    for segment in table.circuits:
        first = segment.version.start
        packed = switched[first]["packed"] if first in switched else table.header.packed
        rows = slice(first, first + len(segment.values))
        columns = {name: column[rows] for name, column in table.columns.items()}
        found.append((Record(columns, unpacked_record(packed), segment.values), packed["source"]))
    return found


class _Evaluation:
    """Passes of a log, collected by strategy. ``then``: the rig as it was, with the cylinders as known today."""

    def __init__(self, then: Rig, today: Rig, machine_file: Path | None, log: Path) -> None:
        self.then, self.today, self.machine_file, self.log = then, today, machine_file, log
        self.settings, self.dt = then.settings, float(then.plan.loop[0].dt)
        self.program: Program = compiled_program(then.library)
        self.truth = ""
        self.quantities: dict[str, Quantity] = {}
        self.courses: dict[str, dict[str, Course]] = {}
        self.counted: dict[str, int] = {}
        self.skipped: list[str] = []

    def add(self, record: Record, circuit: Circuit) -> None:
        """Evaluate the passes under one circuit."""
        assert self.then.cycle is not None
        for rows in passes(record):
            strategy, begin = record.part(rows).strategy(self.settings), float(record.columns["time"][rows.start])
            lasted = float(record.columns["cycle_time"][rows.stop - 1])
            if not strategy:
                self.skipped.append(f"the pass that began at {begin:.3g} s: a strategy was changed on the way")
            elif lasted < self.then.cycle.duration - 2.0 * self.dt:
                text = f"it ended, or the circuit was switched, after {lasted:.3g} of {self.then.cycle.duration:.3g} s"
                self.skipped.append(f"the pass that began at {begin:.3g} s: {text}")
            elif rows.start == 0:
                self.skipped.append(f"the pass that began at {begin:.3g} s: the log does not hold its begin")
            else:
                self.counted[strategy] = self.counted.get(strategy, 0) + 1
                found = self.courses.setdefault(strategy, {})
                for kind, section in zip(("cycle", "sweep"), sections(record, rows, self.then.cycle), strict=True):
                    if section is not None:
                        found[kind] = self._course(record, section, circuit)

    def result(self) -> Fidelity:
        """What was found. Raises HilserverError where there was nothing to evaluate."""
        if not self.courses:
            reasons = "".join(f"\n  left out: {text}" for text in self.skipped)
            raise HilserverError(f"{self.log}: no whole pass of the work cycle is in it. {NOTHING}{reasons}")
        valves = {name: valve.port for name, valve in self.settings.valves.items()}
        others = {valve.other_port for valve in self.settings.valves.values()}
        notes = [f"Evaluated: {self.log.name}. Left out: {text}." for text in self.skipped]
        notes += [
            f"{count} whole passes with {name} are in the log: the last one is evaluated."
            for name, count in self.counted.items()
            if count > 1
        ]
        return Fidelity(
            rig=self.settings.name,
            dt=self.dt,
            quantities=tuple(self.quantities.values()),
            valves=valves,
            variants=tuple(Variant(name, **kinds) for name, kinds in self.courses.items()),
            truth=self.truth,
            ports_without_valve=tuple(p for p in self.then.circuit.rig_ports() if p not in {*valves.values(), *others}),
            notes=tuple(notes),
        )

    # --- one section -------------------------------------------------------------------------------------------------

    def _course(self, record: Record, section: Section, circuit: Circuit) -> Course:
        real, doubt, scatter = self._real(record, section.rows)
        direct, machine = self._direct(record, section.rows, circuit)
        truth = {}
        if direct is not None and machine is not None:
            truth = self._truth(record, section.rows, circuit, direct, machine)
            self.truth = f"the virtual circuit joined directly to {machine.about}"
        return course(self.settings, record, section, real, truth, doubt, scatter)

    def _real(self, record: Record, rows: slice) -> tuple[dict[str, Floats], dict[str, float], dict[str, float]]:
        """What is known of the machine at the ends of the rows' ticks; standard deviations: estimated, measured."""
        s = self.settings
        real: dict[str, Floats] = {}
        doubt: dict[str, float] = {}
        scatter: dict[str, float] = {}

        def note(quantity: Quantity, values: Floats, deviation: float) -> None:
            self.quantities[quantity.name] = quantity
            real[quantity.name] = values
            (scatter if quantity.known == "measured" else doubt)[quantity.name] = deviation

        for name, position in self._positions().items():
            values = self._measured(record, rows, position)
            note(Quantity(f"position {name}", "m", "measured"), values, s.channels[position].deviation())
        for name, valve in s.valves.items():
            if valve.flow is not None:
                values, deviation = self._measured(record, rows, valve.flow), s.channels[valve.flow].deviation()
                note(Quantity(f"flow {valve.port}", "m^3/s", "measured"), values, deviation)
            else:
                values = self._at_ends(record, rows, record.columns[self._estimate_of(name)])
                deviation = float(np.mean(record.columns[f"valve.{name}.flow_deviation"][rows]))
                note(Quantity(f"flow {valve.port}", "m^3/s", "estimated"), values, deviation)
        served = {valve.port: "" for valve in s.valves.values()}
        for name, valve in s.valves.items():
            if valve.other_port is not None and valve.other_port not in served:
                served[valve.other_port] = name
                values = self._at_ends(record, rows, record.columns[f"valve.{name}.flow_other"])
                note(Quantity(f"flow {valve.other_port}", "m^3/s", "estimated", name), values, 0.0)
        for port, other in served.items():
            channel = s.channels[s.ports[port]]
            values = self._measured(record, rows, s.ports[port])
            note(Quantity(f"pressure {port}", "Pa", "measured", other), values, channel.deviation())
        return real, doubt, scatter

    def _estimate_of(self, valve: str) -> str:
        """Column of a valve's estimated flow; of a cylinder at its port where there is one: at the pressure of then."""
        port = self.settings.valves[valve].port
        for name, cylinder in self.settings.cylinders.items():
            for side in "AB":
                column = f"cylinder.{name}.flow_{side}"
                if port == getattr(cylinder, f"port_{side}") and column in self.then.layout.names:
                    return column
        return f"valve.{valve}.flow_estimated"

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

    def _nodes(self, direct: Direct) -> dict[str, str]:
        """The machine's nodes whose positions are measured, by the names of the channels' positions."""
        known = {node: node for node in self._simulated_positions().values()}
        found = known | position_nodes(self.settings, direct.machine)
        return {name: node for name, node in found.items() if f"{node}.x" in direct.packed.names}

    def _at_ends(self, record: Record, rows: slice, values: Floats, ages: Floats | float = 0.0) -> Floats:
        """Values that belong to the begins of the ticks, less their ages, at the ends of the rows' ticks.

        An infinite age is that of a channel before its first sample: nothing was measured then.
        """
        begins = record.columns["tick"] * self.dt
        known = np.isfinite(values) & np.isfinite(ages)
        times, values = (begins - ages)[known], values[known]
        fresh = np.diff(times, prepend=-np.inf) > 1e-9
        found: Floats = np.interp(begins[rows] + self.dt, times[fresh], values[fresh])
        return found

    def _measured(self, record: Record, rows: slice, name: str) -> Floats:
        """A channel without its filter and its delay."""
        settings, ages = self.settings.channels[name], record.columns[f"stale.{name}"]
        if not np.isfinite(ages).any():
            raise HilserverError(f'{self.log}: the channel "{name}" never gave a sample in this run.')
        values = unfiltered(record.columns[f"channel.{name}"], settings, record.elapsed(self.dt))
        return self._at_ends(record, rows, values, ages + settings.delay)

    # --- the direct simulation ---------------------------------------------------------------------------------------

    def _direct(self, record: Record, rows: slice, circuit: Circuit) -> tuple[Direct | None, Machine | None]:
        machine = self._machine(record, rows, circuit)
        if machine is None:
            return None, None
        return directly(machine, circuit, self.then.library, str(self.log)), machine

    def _machine(self, record: Record, rows: slice, circuit: Circuit) -> Machine | None:
        if self.machine_file is not None:
            source = read_circuit(read_toml(self.machine_file), self.then.library, str(self.machine_file)).source
            return Machine(source, f"the machine in {self.machine_file.name}", str(self.machine_file))
        devices = [device for device in self.today.devices if device.is_simulated]
        if len(devices) == 1:
            return machine_of_device(self.today, devices[0])
        if not set(circuit.rig_ports()) <= {p for s in self.settings.cylinders.values() for p in (s.port_A, s.port_B)}:
            return None
        at = {name: float(record.columns[f"cylinder.{name}.x"][rows.start - 1]) for name in self.settings.cylinders}
        return machine_of_cylinders(self.settings, circuit.source.get("fluid", {}), at)

    def _truth(
        self, record: Record, rows: slice, circuit: Circuit, direct: Direct, machine: Machine
    ) -> dict[str, Floats]:
        signals = inputs_of(record, rows, list(self.settings.inputs))
        ticks = record.part(rows).ticks
        for signal, cylinder in (machine.loads or {}).items():
            signals[signal] = np.repeat(record.columns[f"cylinder.{cylinder}.F"][rows], ticks)
        start = direct.start(
            self._measured_start(record, rows.start, direct), (record.circuit, record.values[rows.start - 1])
        )
        every_tick = direct.run(self.program, self.dt, signals, start)
        nodes, names = self._nodes(direct), list(direct.packed.names)
        found = {}
        for quantity in self.quantities.values():
            what, _, where = quantity.name.partition(" ")
            if what == "flow":
                values = total(every_tick, direct.packed, flows_into(circuit, where))
            elif what == "pressure":
                values = every_tick[:, names.index(f"{where}.p")]
            elif where in nodes:
                values = every_tick[:, names.index(f"{nodes[where]}.x")]
            else:
                continue
            found[quantity.name] = at_rows(record, rows, values)
        return found

    def _measured_start(self, record: Record, row: int, direct: Direct) -> dict[str, float]:
        """Pressures of the ports, positions and speeds of what moves, at the begin of a row."""
        s, positions = self.settings, self._positions()
        known: dict[str, float] = {}
        for port in s.ports:
            p = float(record.columns[f"port.{port}"][row])
            known |= {f"{port}.content": p, f"{port}.p": p}
        for name, node in self._nodes(direct).items():
            if name in positions:
                known[f"{node}.x"] = float(self._measured(record, slice(row - 1, row), positions[name])[0])
            if name in s.cylinders:
                known[f"{node}.v"] = float(record.columns[f"cylinder.{name}.v"][row])
        return {name: value for name, value in known.items() if np.isfinite(value)}


def unfiltered(values: Floats, settings: ChannelSettings, elapsed: Floats) -> Floats:
    """A channel before its low-pass, which is turned around exactly (``tick.scale_channels``); NaN samples stay."""
    if settings.filter == 0.0:
        return values
    steps = np.diff(values, prepend=values[:1])
    before: Floats = values - steps + steps * (elapsed + settings.filter) / elapsed
    return before
