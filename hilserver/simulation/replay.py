"""Replay of hilserver's own logs: the recorded inputs and commands again, every computed value compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilserver.circuit.pack import PackedCircuit
from hilserver.compiler import compiled_program
from hilserver.compiler.circuit_code import running
from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats, Integers
from hilserver.record.format import Event, LogHeader, RecordError, is_circuit
from hilserver.record.reader import Batch, CircuitVersion, Damage, LogReader
from hilserver.record.run import recorded_command, unpacked_record
from hilserver.rig.build import assemble
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Rig, at_speed
from hilserver.rig.trust import library_of_log
from hilserver.tick.columns import is_whole
from hilserver.tick.program import no_command, work_array
from hilserver.tick.row import as_whole, header, input_columns

OTHER_VERSION_TOLERANCE = 1e-6
"""Default tolerance if log and replay were computed by different programs, as a fraction of a column's range."""


@dataclass(frozen=True)
class Difference:
    """A column that is not bit-identical: first difference, maximum deviation in SI and relative to its range."""

    column: str
    first_row: int
    first_tick: int
    largest: float
    relative: float


@dataclass(frozen=True)
class StartingRow:
    """A row that was taken from the log unchanged, because the row before it is not known."""

    row: int
    tick: int
    reason: str


@dataclass(frozen=True)
class Replayed:
    """The result of a replay. ``tolerance`` is a fraction of a column's range; 0 requires bit-identical values.

    ``unverified``: rows that could not be compared, because columns were left out and no snapshot is before them.
    """

    log: Path
    software: str
    rows: int
    compared: int
    unverified: int
    columns: int
    switches: int
    same_program: bool
    tolerance: float
    torn: bool
    damages: tuple[Damage, ...]
    starts: tuple[StartingRow, ...]
    only_in_log: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def beyond(self) -> tuple[Difference, ...]:
        """The differences that exceed the tolerance."""
        return tuple(d for d in self.differences if not d.relative <= self.tolerance)

    @property
    def ok(self) -> bool:
        """Whether rows were compared and no difference exceeds the tolerance."""
        return self.compared > 0 and not self.beyond


@dataclass(frozen=True)
class ComputedRows:
    """Rows that a replay has computed: of one circuit (``source``: its table), one after the other.

    ``first``: the number of the first one, which takes the ``command``; ``before``: the row before it; ``begins``:
    whether the row before belongs to another circuit, or was taken from the log.
    """

    rig: Rig
    packed: PackedCircuit
    source: Mapping[str, Any]
    first: int
    before: Floats
    rows: Floats
    command: Floats
    begins: bool


Watch = Callable[[ComputedRows], object]
"""Called with all rows that are computed, in their order."""


def replay_log(
    path: Path,
    *,
    from_row: int = 0,
    tolerance: float | None = None,
    watch: Watch | None = None,
    trust: bool = False,
    accounts: bool = False,
) -> Replayed:
    """Replay a log (and the following files of the run) from a row on.

    Row 0 of a run is computed from the initial state. Any other first row is taken from the log unchanged, and so
    is the first row after rows that are lost. In a log from which columns are left out, these can only be rows of
    which it has a snapshot; the rows before are not compared, and what was left out is compared at the snapshots.
    With the program that wrote the log, the recorded arrays of its circuits are used and all values must be
    bit-identical; with another one, circuits are rebuilt from their source and values compared within
    ``tolerance``. ``watch`` is called with all rows. ``accounts``: circuits are rebuilt, with their accounts (see
    `pack`). ``trust``: run the Python that the log contains, also if it was not run here before. Raises RecordError
    if the log can't be used, ConfigurationError if its rig can't be built any more, HilserverError if it contains
    Python that is not trusted.
    """
    reader = LogReader(path)
    replay = _Replay(rig_of_log(reader.header, path, trust, accounts), reader.header, path, from_row, watch)
    rows = 0
    for batch in reader.batches():
        replay.take(batch)
        rows = batch.start + len(batch)
    if from_row >= rows:
        raise RecordError(path, f"has {rows} rows: row {from_row} is not one of them.")
    allowed = tolerance if tolerance is not None else (0.0 if replay.same_program else OTHER_VERSION_TOLERANCE)
    scales = _scales(reader, set(replay.found)) if replay.found else {}
    differences = [
        Difference(name, d.row, d.tick, d.largest, _relative(d.largest, scales[name]))
        for name, d in replay.found.items()
    ]
    return Replayed(
        log=path,
        software=reader.header.software,
        rows=rows,
        compared=replay.compared,
        unverified=replay.unverified,
        columns=len(replay.names),
        switches=replay.switches,
        same_program=replay.same_program,
        tolerance=allowed,
        torn=bool(reader.torn),
        damages=reader.damages,
        starts=tuple(replay.starts),
        only_in_log=replay.only_in_log,
        differences=tuple(sorted(differences, key=lambda d: d.first_row)),
    )


@dataclass
class _Found:
    """The first difference of a column, and the maximum one."""

    row: int
    tick: int
    largest: float


@dataclass
class _Names:
    """The columns that logged and replayed rows have in common."""

    logged: Integers
    replayed: Integers
    names: tuple[str, ...]

    @classmethod
    def common(cls, logged: Sequence[str], replayed: Sequence[str]) -> _Names:
        places = {name: place for place, name in enumerate(replayed)}
        pairs = [(i, places[name]) for i, name in enumerate(logged) if name in places]
        ours = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return cls(ours[:, 0].copy(), ours[:, 1].copy(), tuple(logged[i] for i, _ in pairs))


class _Replay:
    """A rig built from a log's header and run with the log's inputs and commands, batch by batch."""

    def __init__(self, rig: Rig, header: LogHeader, path: Path, from_row: int, watch: Watch | None) -> None:
        self.rig = rig
        self.program = compiled_program(self.rig.library)
        self.same_program = header.extra.get("program") == self.program.fingerprint
        self.compared = self.unverified = self.switches = 0
        self.starts: list[StartingRow] = []
        self.found: dict[str, _Found] = {}
        self.names: dict[str, None] = {}
        self.only_in_log = tuple(name for name in header.columns if name not in self.rig.layout.names)
        self._header, self._path, self._from_row, self._watch = header, path, from_row, watch
        self._fixed = len(self.rig.layout.names)
        self._row = first_row(self.rig.layout, self.rig.plan, self.rig.packed)
        self._known = header.part == 0 and from_row == 0
        self._lost = ""
        self._version: CircuitVersion | None = None
        self._packed = self.rig.packed
        self._work = work_array(self.rig.packed, self.rig.plan)
        self._inputs = input_columns(self.rig.plan)
        whole = [is_whole(name) and name not in header.whole for name in header.columns]
        self._once_floats = np.flatnonzero(whole)  # in logs of older versions

    def take(self, batch: Batch) -> None:
        """Replay and compare a batch of the log, except for rows before the first one to replay."""
        first = max(self._from_row - batch.start, 0)
        if first >= len(batch):
            return
        events: dict[int, list[Event]] = {}
        for number, event in batch.events:
            if number - batch.start >= first:
                events.setdefault(number - batch.start, []).append(event)
        rows = batch.rows()
        as_whole(rows)[:, self._once_floats] = rows[:, self._once_floats]
        gaps = self._gaps(batch, first)
        whole = [number - batch.start for number in batch.snapshots if number - batch.start >= first]
        cuts = sorted({first, *events, *gaps, *whole})
        for begin, end in pairwise([*cuts, len(batch)]):
            self._segment(batch, rows[begin:end], begin, events.get(begin, []), gaps.get(begin, ""))

    def _gaps(self, batch: Batch, first: int) -> dict[int, str]:
        """Rows of the batch that can't be computed from the row before, each with the reason."""
        ticks, missed = batch.column("tick"), batch.column("missed")
        before = np.concatenate([[header(self._row).tick], ticks[:-1]])
        broken = np.flatnonzero(ticks - before != missed + 1)
        gaps = {int(row): "the rows before it are lost" for row in broken if row >= first}
        for number, event in batch.events:
            if event.get("kind") == "lost" and number - batch.start >= first:
                gaps[number - batch.start] = (
                    "its command is lost" if "command" in event else "the rows before it are lost"
                )
        if not self._known:
            gaps[first] = "the replay starts here"
        return gaps

    def _segment(self, batch: Batch, rows: Floats, begin: int, events: list[Event], gap: str) -> None:
        """Replay rows of one circuit without a gap, in which only the first has a command."""
        number = batch.start + begin
        gap = gap or self._lost
        if gap and self._header.row and number not in batch.snapshots:  # to wait for the next whole row
            self._lost = gap
            self.unverified += len(rows)
            return
        self._lost = ""
        begins = bool(gap) or self._version is not batch.circuit
        if gap:
            self._use(batch.circuit)
            self._begin_at(rows[0], batch.snapshots.get(number), number, gap)
            rows, number, events = rows[1:], number + 1, []
        elif any(map(is_circuit, events)):
            self._switch(batch.circuit)
        elif self._version is None:
            self._use(batch.circuit)
        command = no_command()
        for event in events:
            if event.get("kind") == "command":
                command[:] = recorded_command(event, self._header)
        if len(rows):
            before, source = self._row.copy(), batch.circuit.packed["source"]
            computed = self._run(rows, command.copy())
            self.compared += len(rows)
            self._compare(rows, computed, number, self._columns)
            if (whole := batch.snapshots.get(number)) is not None:
                self._compare(whole[np.newaxis], computed[:1], number, self._every)
            if self._watch is not None:
                found = ComputedRows(self.rig, self._packed, source, number, before, computed, command, begins)
                self._watch(found)

    def _begin_at(self, logged: Floats, whole: Floats | None, number: int, reason: str) -> None:
        """Take a row of the log unchanged; ``whole``: its snapshot, where columns are left out."""
        self._row = first_row(self.rig.layout, self.rig.plan, self._packed)
        columns = self._columns
        if whole is not None:
            columns, logged = self._every, whole
        self._row[columns.replayed] = logged[columns.logged]
        self._known = True
        self.starts.append(StartingRow(number, int(header(self._row).tick), reason))

    def _use(self, version: CircuitVersion) -> PackedCircuit:
        """Make a recorded circuit the current one; returns the previous one."""
        before, self._packed = self._packed, self._packed_of(version.packed)
        self._version = version
        self._work = work_array(self._packed, self.rig.plan)
        ours = [*self.rig.layout.names, *(f"circuit.{name}" for name in self._packed.names)]
        logged = [*self._header.columns, *(f"circuit.{name}" for name in version.names)]
        self._columns = _Names.common(logged, ours)
        self._every = _Names.common(_names_of_snapshots(self._header, version), ours)
        self.names |= dict.fromkeys(self._columns.names)
        return before

    def _switch(self, version: CircuitVersion) -> None:
        """Switch to a recorded circuit, as the loop did."""
        before = self._use(version)
        recorded = self.same_program and not self.rig.accounts
        carried = version.packed["carried"] if recorded else self._packed.carried_from(before)
        self.switches += 1
        self.program.swap(self.rig.plan.block, self._row, self._packed.index, self._packed.value, carried, self._work)

    def _packed_of(self, record: Mapping[str, Any]) -> PackedCircuit:
        if self.same_program and not self.rig.accounts:
            return unpacked_record(record)
        return self.rig.pack(self.rig.read_circuit(record["source"], str(self._path)), str(self._path))

    def _run(self, rows: Floats, command: Floats) -> Floats:
        """The rows that the tick computes from the recorded inputs of these rows."""
        order = np.full(self._fixed + len(self._packed.names), -1, dtype=np.int64)
        order[self._columns.replayed] = self._columns.logged
        places = order[self._inputs]
        given = np.ascontiguousarray(np.where(places >= 0, rows[:, places], 0.0))
        result = np.empty((len(rows), len(order)))
        block, value = self.rig.plan.block, self._packed.value
        with running(self._packed, self.program) as index:
            self.program.run_recorded(block, index, value, self._row, self._work, command, self._inputs, given, result)
        return result

    def _compare(self, logged: Floats, replayed: Floats, number: int, columns: _Names) -> None:
        a = np.ascontiguousarray(logged[:, columns.logged])
        b = np.ascontiguousarray(replayed[:, columns.replayed])
        differs = a.view(np.int64) != b.view(np.int64)
        if not differs.any():
            return
        differs &= ~(np.isnan(a) & np.isnan(b))
        for place in np.flatnonzero(differs.any(axis=0)):
            where = np.flatnonzero(differs[:, place])
            row, name = int(where[0]), columns.names[place]
            theirs, ours = (as_whole(cells) if is_whole(name) else cells for cells in (a, b))
            with np.errstate(invalid="ignore", over="ignore"):
                deviation = np.abs(ours[where, place] - theirs[where, place])
            largest = float(np.where(np.isnan(deviation), np.inf, deviation).max())
            found = self.found.setdefault(name, _Found(number + row, int(header(logged[row]).tick), 0.0))
            found.largest = max(found.largest, largest)


def rig_of_log(header: LogHeader, path: Path, trust: bool, accounts: bool = False) -> Rig:
    """The rig of a log, from the sources in its header. Raises RecordError if it can't be built any more."""
    sources = {key: value for key, value in header.configuration.items() if key != "file"}
    if "rig" not in sources or "circuit" not in sources:
        raise RecordError(path, "does not contain the configuration of its rig and can't be replayed.")
    try:
        library = library_of_log(sources, path, trust=trust)
        rig = assemble(sources, Path(str(header.configuration.get("file", path))), library, accounts=accounts)
        return at_speed(rig, header.speed)
    except ConfigurationError as error:
        problems = "\n".join(f"  {problem}" for problem in error.problems)
        text = f"was written by {header.software}; this version does not accept its configuration:\n{problems}"
        raise RecordError(path, text) from None


@dataclass
class _Scale:
    """Range of a column over a log."""

    low: float = field(default=np.inf)
    high: float = field(default=-np.inf)


def _scales(reader: LogReader, names: set[str]) -> dict[str, _Scale]:
    """The ranges of these columns over the whole log."""
    scales = {name: _Scale() for name in names}
    for batch in reader.batches():
        values = _of_snapshots(reader.header, batch)
        values |= zip((f"circuit.{name}" for name in batch.circuit.names), batch.circuit_values().T, strict=True)
        for name, scale in scales.items():
            column = batch.column(name) if name in reader.header.columns else values.get(name)
            finite = column[np.isfinite(column)] if column is not None else ()
            if len(finite):
                scale.low, scale.high = min(scale.low, float(np.min(finite))), max(scale.high, float(np.max(finite)))
    return scales


def _names_of_snapshots(header: LogHeader, version: CircuitVersion) -> list[str]:
    """The names of the values in the snapshots of a log with this circuit; of a log that has none, none."""
    return [*header.row, *(f"circuit.{name}" for name in unpacked_record(version.packed).names)] if header.row else []


def _of_snapshots(header: LogHeader, batch: Batch) -> dict[str, NDArray[Any]]:
    """The values in the snapshots of a batch by name."""
    if not batch.snapshots:
        return {}
    names, values = _names_of_snapshots(header, batch.circuit), np.array(list(batch.snapshots.values())).T
    return {name: as_whole(cells) if is_whole(name) else cells for name, cells in zip(names, values, strict=True)}


def _relative(deviation: float, scale: _Scale) -> float:
    """A deviation relative to the column's range; to its value if it is constant; unchanged if that is 0."""
    span = scale.high - scale.low if scale.high >= scale.low else 0.0
    unit = span or max(abs(scale.high), abs(scale.low)) if np.isfinite(scale.high) else 1.0
    return deviation / (unit or 1.0)
