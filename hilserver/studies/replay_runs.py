"""Runs of a recorded log with other circuits, each reduced to figures: no file per run."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from hilserver.circuit.library import Library, library_of
from hilserver.circuit.model import read_circuit
from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import PackedCircuit
from hilserver.compiler import compiled_program
from hilserver.compiler.circuit_code import running
from hilserver.fidelity.step import IntegrationStep
from hilserver.numerics.arrays import Floats
from hilserver.rig.plan import first_row
from hilserver.simulation.lockstep import ANY_MODE
from hilserver.simulation.packed_run import initial_values
from hilserver.simulation.step_error import HALVINGS
from hilserver.studies.figures import Figure
from hilserver.studies.replayed_log import ReplayedLog, given_columns
from hilserver.studies.subject import VariantFailedError
from hilserver.studies.variant_circuits import Choices, VariantCircuits
from hilserver.tick.codes import fault_text
from hilserver.tick.columns import is_whole
from hilserver.tick.lockstep import GOES_ON
from hilserver.tick.program import commands_at, work_array
from hilserver.tick.row import as_whole
from hilserver.units import CIRCUIT

BLOCK = 2000
"""Ticks from one look at the clock and at faults to the next."""


@dataclass(frozen=True)
class FigureOfLog:
    """A figure of the run of one of the logs. ``recorded``: the quantity as recorded, where the figure needs it."""

    log: int
    figure: Figure
    recorded: Floats | None = None


@dataclass(frozen=True)
class ReplaySubject:
    """Logs, the circuit as written that is run with what they have recorded, and the figures of these runs.

    ``varied``, ``ranges``, ``choices``: see `VariantCircuits`.
    """

    file: str
    table: Mapping[str, Any]
    own: tuple[OwnFile, ...]
    logs: tuple[ReplayedLog, ...]
    wanted: tuple[FigureOfLog, ...]
    varied: tuple[str, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()
    choices: Choices = field(default_factory=dict)
    limit: float = np.inf

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Of a variant: of all logs."""
        return tuple(each.figure for each in self.wanted)

    def prepare(self) -> ReplayRuns:
        """Packed, and run once with the circuit's own values."""
        return ReplayRuns(self)


class RunsOfLog:
    """Runs of one log in this process."""

    def __init__(self, log: ReplayedLog, library: Library) -> None:
        self.log, self.rig, self.program = log, log.rig(library), compiled_program(library)
        self._circuit = len(self.rig.layout.names)
        self._first = first_row(self.rig.layout, self.rig.plan, self.rig.packed)

    def blocks(self, packed: PackedCircuit, limit: float = np.inf) -> Iterator[tuple[slice, Floats]]:
        """The rows with this circuit, block by block, in an array that is used again.

        Raises VariantFailedError if it trips where the log does not, or after ``limit`` s of computing time.
        """
        plan, log, begun = self.rig.plan, self.log, clock.thread_time()
        row, work = self._before(packed), work_array(packed, plan)
        given, rows = np.concatenate(given_columns(self.rig)), np.empty((BLOCK, self._circuit + len(packed.names)))
        for part in log.parts(BLOCK):
            command = commands_at([(k - part.start, ANY_MODE, GOES_ON, record) for k, record in log.commands_in(part)])
            block = rows[: part.stop - part.start]
            with running(packed, self.program) as index:
                self.program.run_recorded(
                    plan.block, index, packed.value, row, work, command, given, log.given[part], block
                )
            self._require_no_trip(block, part)
            if clock.thread_time() - begun > limit:
                at = float(log.time[part.stop - 1])
                raise VariantFailedError(f"aborted after {limit:g} s of computing time, at {at:.6g} s")
            yield part, block

    def series(self, packed: PackedCircuit, names: Sequence[str], limit: float = np.inf) -> dict[str, Floats]:
        """These quantities in every tick. Raises VariantFailedError."""
        places = {name: self.place(packed, name) for name in names}
        found = {name: np.empty(len(self.log.time)) for name in names}
        for part, block in self.blocks(packed, limit):
            for name, values in found.items():
                values[part] = (as_whole(block) if is_whole(name) else block)[:, places[name]]
        return found

    def place(self, packed: PackedCircuit, name: str) -> int:
        """Column of a quantity in the rows with this circuit. Raises VariantFailedError if it has none."""
        if not name.startswith(CIRCUIT):
            return self.rig.layout.column(name)
        if (value := name.removeprefix(CIRCUIT)) not in packed.names:
            raise VariantFailedError(f"has no quantity {name}: the components chosen don't have it")
        return self._circuit + packed.names.index(value)

    def _before(self, packed: PackedCircuit) -> Floats:
        """The row before the first one: values of the same name continue, as in a switch; others are initial ones."""
        log = self.log
        row, old = (self._first if log.began is None else log.before).copy(), log.before[self._circuit :]
        new, n = row[self._circuit :], len(packed.values)
        new[:] = 0.0
        new[:n] = initial_values(packed)
        if log.began is None:
            return row
        carried = packed.carried_from(log.began)
        new[:n][carried >= 0] = old[carried[carried >= 0]]
        places = {name: k for k, name in enumerate(log.began.names)}
        for k, name in enumerate(packed.recorded, n):
            if name in places:
                new[k] = old[places[name]]
        return row

    def _require_no_trip(self, block: Floats, part: slice) -> None:
        faults = self.rig.layout.values(block, "fault")
        new = np.flatnonzero((faults != 0) & (self.log.faults[part] == 0))
        if len(new):
            cause = fault_text(int(faults[new[0]]), self.rig.layout.limits)
            at = float(self.log.time[part][new[0]])
            raise VariantFailedError(f"trips, unlike the log: {cause}, at {at:.6g} s")


class ReplayRuns:
    """The runs of a `ReplaySubject` in this process, see `StudyRuns`.

    ``nominal_series``: by log, the quantities that the figures need, with the circuit's own values.
    """

    def __init__(self, subject: ReplaySubject) -> None:
        self.subject, library = subject, library_of(subject.own)
        circuit = read_circuit(subject.table, library, subject.file)
        self.logs = [RunsOfLog(log, library) for log in subject.logs]
        self._circuits = [
            VariantCircuits(
                circuit, subject.varied, subject.ranges, subject.choices,
                partial(each.rig.pack, file=subject.file), library, subject.file,
            )
            for each in self.logs
        ]  # fmt: skip
        self._names = [
            list(dict.fromkeys(each.figure.quantity for each in subject.wanted if each.log == k))
            for k in range(len(self.logs))
        ]
        self.nominal_series = self.series(self.own)
        self.nominal = self.figures_of(self.nominal_series)

    @property
    def own(self) -> list[PackedCircuit]:
        """The circuit with its own values, packed for the rig of each log."""
        return [each.own.packed for each in self._circuits]

    @property
    def in_place(self) -> tuple[bool, ...]:
        """For each varied quantity, whether its values are written in place."""
        return self._circuits[0].in_place

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Keys of quantities that change no number of the circuit as written."""
        return tuple(f"{CIRCUIT}{key}" for key in self._circuits[0].own.without_effect)

    @property
    def nominal_end(self) -> None:
        """A run that ends early has no figures."""
        return None

    def __call__(self, values: Floats) -> Floats:
        """The figures of a variant. Raises VariantFailedError."""
        return self.figures_of(self.series([each.packed(values) for each in self._circuits], self.subject.limit))

    def of_half_the_step(self, values: Floats | None = None) -> Floats:
        """The figures with half of every integration step of the circuit; without values: nominal.

        Raises VariantFailedError.
        """
        packed = self.own if values is None else [each.packed(values) for each in self._circuits]
        step = IntegrationStep(2, halvings=HALVINGS)
        return self.figures_of(self.series([step.of(each) for each in packed]))

    def series(self, packed: Sequence[PackedCircuit], limit: float = np.inf) -> list[dict[str, Floats]]:
        """The quantities that the figures need, by log. Raises VariantFailedError."""
        return [
            runs.series(circuit, names, limit)
            for runs, circuit, names in zip(self.logs, packed, self._names, strict=True)
        ]

    def figures_of(self, series: Sequence[Mapping[str, Floats]]) -> Floats:
        """The figures of a variant from these quantities."""
        return np.array([self._figure(each, series) for each in self.subject.wanted])

    def _figure(self, each: FigureOfLog, series: Sequence[Mapping[str, Floats]]) -> float:
        name, time = each.figure.quantity, self.subject.logs[each.log].time
        other = self.nominal_series[each.log][name] if each.recorded is None else each.recorded
        return each.figure.of(time, series[each.log][name], other)
