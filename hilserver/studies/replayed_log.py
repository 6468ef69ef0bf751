"""A log of a rig as it is run again with other circuits: what each tick receives.

Everything that came from outside is as recorded: readings of all channels (pressures, flows, positions) with their
ages, missed ticks, commands and new values of inputs. So is what the bridge knows of the real valves before each tick:
spool, passed volumes, tracked parameters. Otherwise its feedback would act on a machine that does not react, and wind
up; and the pressures that the circuit sees would change, where a strategy estimates them. A circuit keeps its own
values, and a valve the memory of the way from flow to command.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit
from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import PackedCircuit
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats, Integers
from hilserver.record.format import CIRCUIT_COLUMN, EVENTS
from hilserver.record.reader import LogReader
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig, at_speed
from hilserver.simulation.replay import ComputedRows, Replayed, replay_log
from hilserver.tick.row import header, input_columns
from hilserver.units import CIRCUIT

ROUNDING = 1e-9
"""s, by which a time may differ from that of a tick."""
LARGEST = 1e9
"""Bytes of what a log gives to the runs, in each process."""
RESULTS = ("flow_virtual", "flow_measured", "drop", "opening", "demand", "command", "output", "saturation")
"""Fields of a valve that each tick computes from this tick's flow."""
OWN_MEMORY = (
    *("demand", "command", "opening_filtered", "lead", "fade", "oscillation", "oscillation_mean", "oscillation_from"),
    *("oscillation_to", "oscillation_time", "oscillation_travel", "oscillation_count"),
)
"""Fields of a valve that a run remembers itself; what it would remember of all others is as recorded."""


@dataclass(frozen=True)
class ReplayedLog:
    """A part of a log in which one circuit ran without a gap.

    ``rig_file`` to ``speed``: the rig of the log; ``table``: the circuit that ran. ``first``: number of the first row
    in the log; ``before``: the row before it; ``began``: the circuit in that row, None where the run begins here.
    ``time``: of each row, in the log, s; ``given``: what each tick is given, see `given_columns`; ``commands``: the
    mailbox records, by place; ``faults``: of each row. ``names``: what is recorded of each row; ``agreement``: how
    closely the log was replayed, in words.
    """

    file: Path
    rig_file: Path
    sources: Mapping[str, Any]
    own: tuple[OwnFile, ...]
    speed: float
    table: Mapping[str, Any]
    first: int
    before: Floats
    began: PackedCircuit | None
    time: Floats
    given: Floats
    commands: Mapping[int, Floats]
    faults: Integers
    names: tuple[str, ...]
    agreement: str

    @property
    def name(self) -> str:
        """The name of the file without its suffix."""
        return self.file.stem

    @property
    def duration(self) -> float:
        """s."""
        return len(self.time) * (float(self.time[-1] - self.time[0]) / max(len(self.time) - 1, 1))

    def rig(self, library: Library) -> Rig:
        """The rig of the log; ``library``: with at least its components."""
        return at_speed(assemble(self.sources, self.rig_file, library), self.speed)

    def circuit(self, rig: Rig) -> Circuit:
        """The circuit that ran; with its parameters and sub-circuits, unless it was switched in."""
        return rig.circuit if rig.circuit.source == self.table else rig.read_circuit(self.table, str(self.file))

    def parts(self, block: int) -> Iterator[slice]:
        """The rows in parts of at most ``block``."""
        n = len(self.time)
        return (slice(start, min(start + block, n)) for start in range(0, n, block))

    def commands_in(self, part: slice) -> Iterator[tuple[int, Floats]]:
        """Place and record of the commands in a part, in their order."""
        return ((k, record) for k, record in self.commands.items() if part.start <= k < part.stop)

    def recorded(self, names: Iterable[str]) -> dict[str, Floats]:
        """Columns of the log, and values of the circuit (``circuit.supply.p``), as recorded."""
        found = {name: np.empty(len(self.time)) for name in names}
        for batch in LogReader(self.file).batches():
            start, stop = max(batch.start, self.first), min(batch.start + len(batch), self.first + len(self.time))
            if start >= stop:
                continue
            here, there = slice(start - batch.start, stop - batch.start), slice(start - self.first, stop - self.first)
            for name, values in found.items():
                if name.startswith(CIRCUIT):
                    place = batch.circuit.names.index(name.removeprefix(CIRCUIT))
                    values[there] = batch.circuit_values()[here, place]
                else:
                    values[there] = batch.column(name)[here]
        return found


def given_columns(rig: Rig) -> tuple[Integers, Integers]:
    """Columns of a row that a tick is given: of this tick, from outside; and those of the row before it."""
    valves = rig.layout.section("valve")
    held = [column for name, column in valves.items() if name.rpartition(".")[2] not in OWN_MEMORY]
    return input_columns(rig.plan), np.array(held, dtype=np.int64)


def is_result(name: str) -> bool:
    """Whether a column has a meaning in a run with another circuit."""
    return not name.startswith("valve.") or name.rpartition(".")[2] in (*RESULTS, *OWN_MEMORY)


@dataclass(frozen=True)
class _Piece:
    """Rows of one circuit as they were replayed, without a gap; see `ReplayedLog`. ``ticks``: before them, the last."""

    rig: Rig
    packed: PackedCircuit
    table: Mapping[str, Any]
    first: int
    before: Floats
    ticks: tuple[int, int]
    time: Floats
    given: Floats
    faults: Integers
    command: Floats | None

    @classmethod
    def of(cls, rows: ComputedRows, start: float, end: float) -> _Piece | None:
        """The rows from ``start`` to ``end``, s; None if there are none."""
        layout = rows.rig.layout
        time = layout.values(rows.rows, "time")
        k, stop = np.searchsorted(time, [start - ROUNDING, end + ROUNDING]).tolist()
        if k >= stop:
            return None
        before, part = (rows.rows[k - 1].copy() if k else rows.before), rows.rows[k:stop]
        inputs, held = given_columns(rows.rig)
        previous = np.vstack([before[held], part[:-1, held]])
        return cls(
            rig=rows.rig, packed=rows.packed, table=rows.source, first=rows.first + k, before=before,
            ticks=(int(header(before).tick), int(header(part[-1]).tick)), time=time[k:stop].copy(),
            given=np.hstack([part[:, inputs], previous]), faults=layout.values(part, "fault").copy(),
            command=rows.command if k == 0 and rows.command.any() else None,
        )  # fmt: skip

    def require_next(self, other: _Piece, file: Path) -> None:
        """Raises HilserverError if the next piece is not of the same circuit, or rows are missing between them."""
        until, since = (f"{t:.10g} s" for t in (self.time[-1], other.time[0]))
        if other.ticks[0] != self.ticks[1]:
            reason = f"rows are missing between {until} and {since}"
        elif other.packed is not self.packed:
            reason = f"its circuit was switched at {since}"
        else:
            return
        raise HilserverError(f'{file}: {reason}: choose a part, with end = "{until}" or start = "{since}".')


def read_replayed(file: Path, start: float = 0.0, end: float = np.inf, *, trust: bool = False) -> ReplayedLog:
    """The part of a log from ``start`` to ``end``, s in the log. ``trust`` as for `replay_log`.

    Raises HilserverError if it is not a log of a rig, if its Python is not trusted, if it has no such part, or if the
    circuit was switched or rows are missing in this part.
    """
    pieces, size = list[_Piece](), 0

    def watch(rows: ComputedRows) -> None:
        nonlocal size
        if (piece := _Piece.of(rows, start, end)) is not None:
            if pieces:
                pieces[-1].require_next(piece, file)
            pieces.append(piece)
            size += piece.given.nbytes
            if size > LARGEST:  # before it has filled the memory
                most = int(LARGEST / size * sum(len(each.time) for each in pieces))
                text = f"more than {most} ticks are too many: choose a part, with start and end."
                raise HilserverError(f"{file}: {text}")

    replayed = replay_log(file, watch=watch, trust=trust)
    if not pieces:
        raise HilserverError(f"{file}: has no rows from {start:g} s to {end:g} s that can be replayed.")
    opening = pieces[0]
    places = np.cumsum([0, *(len(piece.time) for piece in pieces[:-1])]).tolist()
    return ReplayedLog(
        file=file, rig_file=opening.rig.file, sources=opening.rig.sources, own=opening.rig.library.own,
        speed=opening.rig.speed, table=opening.table, first=opening.first, before=opening.before,
        began=replace(opening.packed, packing=None) if opening.ticks[0] >= 0 else None,
        time=np.concatenate([piece.time for piece in pieces]),
        given=np.ascontiguousarray(np.concatenate([piece.given for piece in pieces])),
        commands={k: piece.command for k, piece in zip(places, pieces, strict=True) if piece.command is not None},
        faults=np.concatenate([piece.faults for piece in pieces]),
        names=_names(file, opening.first), agreement=_agreement(replayed),
    )  # fmt: skip


def _names(file: Path, row: int) -> tuple[str, ...]:
    """The names of what is recorded in a row."""
    batch = next(each for each in LogReader(file).batches() if row < each.start + len(each))
    columns = [name for name in batch.arrow.schema.names if name not in (CIRCUIT_COLUMN, EVENTS)]
    return (*columns, *(f"{CIRCUIT}{name}" for name in batch.circuit.names))


def _agreement(replayed: Replayed) -> str:
    """How closely the log is reproduced with its own circuit, in words."""
    text = "with its own circuit, its replay is identical, bit for bit"
    if replayed.differences:
        worst = max(replayed.differences, key=lambda each: each.relative)
        text = f"with its own circuit, its replay differs by up to {worst.relative:.2g} of the range ({worst.column})"
    if not replayed.ok:
        text += f", more than the tolerance of hilserver replay, {replayed.tolerance:.2g}"
    if not replayed.same_program:
        text += f"; it was written by another program or version ({replayed.software})"
    if replayed.torn:
        text += "; it is damaged, or has no end mark"
    return text
