"""Segments of a run: the rows in which the work cycle or the sweep ran, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hilserver.circuit.model import RIG
from hilserver.circuit.pack import PackedCircuit
from hilserver.fidelity.results import SegmentResult
from hilserver.numerics.arrays import Floats, Integers
from hilserver.rig.cycle import CycleSettings, Sine
from hilserver.rig.end_of_running import cause_of_end
from hilserver.rig.rig import Rig
from hilserver.rig.settings import RigSettings
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.codes import Mode

SETTLED = 0.6
"""Fraction of a sweep's rest after which the machine counts as being at rest."""


@dataclass(frozen=True)
class CircuitRows:
    """Rows of a run under one circuit: the fixed columns by name, and the circuit's values, one column per name."""

    columns: Mapping[str, Floats]
    circuit: PackedCircuit
    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    def part(self, rows: slice) -> CircuitRows:
        """Some of the rows."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return CircuitRows(columns, self.circuit, self.values[rows])

    def virtual_flow(self, port: str) -> Floats | None:
        """Flow from the circuit into a port; None if the circuit is not connected to it."""
        name = f"{RIG}{port}.q"
        return self.values[:, self.circuit.names.index(name)] if name in self.circuit.names else None

    @property
    def ticks(self) -> Integers:
        """Number of ticks that each row covers: its own and the missed ones before it."""
        missed: Integers = np.rint(self.columns["missed"]).astype(np.int64)
        return missed + 1

    def elapsed(self, dt: float) -> Floats:
        """The same in s, for ticks of ``dt`` s."""
        seconds: Floats = self.ticks * np.float64(dt)
        return seconds

    def per_tick(self, rows: slice, column: str) -> Floats:
        """A column in every tick of some rows; missed ticks take the value of the row that makes up for them."""
        values: Floats = np.repeat(self.columns[column][rows], self.part(rows).ticks)
        return values

    def inputs(self, rows: slice, names: list[str]) -> dict[str, Floats]:
        """The operator's inputs in every tick of some rows."""
        return {name: self.per_tick(rows, f"input.{name}") for name in names}

    def at_row_ends(self, rows: slice, every_tick: Floats) -> Floats:
        """Values in every tick of some rows, reduced to those at the ends of the rows."""
        chosen: Floats = every_tick[np.cumsum(self.part(rows).ticks) - 1]
        return chosen

    def strategy(self, settings: RigSettings) -> str:
        """The strategy in all rows, or those of several valves; empty if a strategy was changed on the way."""
        used = {}
        for valve in settings.valves:
            numbers = np.unique(self.columns[f"valve.{valve}.strategy"])
            if len(numbers) > 1:
                return ""
            used[valve] = Strategy(int(numbers[0])).name
        if len(set(used.values())) == 1:
            return next(iter(used.values()))
        return ", ".join(f"{valve}: {name}" for valve, name in used.items())


def passes(record: CircuitRows) -> list[slice]:
    """The rows of each pass of the work cycle, from its first tick to its last."""
    t = record.columns["cycle_time"]
    running = (record.columns["mode"] == Mode.RUNNING) & (t > 0.0)
    begins = running & ~np.concatenate([[False], running[:-1] & (t[1:] > t[:-1])])
    ends = np.concatenate([~running[1:] | begins[1:], [True]]) & running
    return [slice(int(a), int(b) + 1) for a, b in zip(np.flatnonzero(begins), np.flatnonzero(ends), strict=True)]


@dataclass(frozen=True)
class TripInRun:
    """How a run left the mode RUNNING: the mode that followed, the cause, and the cycle time, s.

    ``row``: the last row in which it was RUNNING.
    """

    mode: str
    cause: str
    time: float
    row: int

    def __str__(self) -> str:
        return f"ended in mode {self.mode}{f' ({self.cause})' if self.cause else ''} at {self.time:.2f} s"


def trip_in(record: CircuitRows, rig: Rig) -> TripInRun | None:
    """How a run left the mode RUNNING; None if it did not."""
    modes = record.columns["mode"]
    running = np.flatnonzero(modes == Mode.RUNNING)
    if modes[-1] == Mode.RUNNING or not len(running):
        return None
    last = int(running[-1])
    nothing = np.zeros(len(record))  # a log of an earlier version may lack a limit
    cause = cause_of_end(rig, lambda name: record.columns.get(name, nothing), last + 1)
    return TripInRun(Mode(int(modes[last + 1])).name, cause, float(record.columns["cycle_time"][last]), last)


@dataclass(frozen=True)
class CycleSegment:
    """Rows of a pass: the work cycle, or the sweep with its sines. Times in s from the beginning of the segment.

    ``begins``: cycle time, s, at which the segment begins.
    """

    rows: slice
    begins: float
    sines: tuple[Sine, ...] = ()
    rest: tuple[float, float] | None = None


def segments_of(
    record: CircuitRows, rows: slice, cycle: CycleSettings
) -> tuple[CycleSegment | None, CycleSegment | None]:
    """Work cycle and sweep within a pass; None for the one that the cycle does not have."""
    swept = [entry for entry in cycle.inputs.values() if entry.sweep is not None]
    if not swept:
        return CycleSegment(rows, 0.0), None
    entry = swept[0]
    assert entry.sweep is not None
    turn = entry.sweep_begins
    first = rows.start + int(np.searchsorted(record.columns["cycle_time"][rows], turn + 1e-9, side="right"))
    shifted = tuple(Sine(s.frequency, s.begins - turn, s.counts - turn, s.ends - turn) for s in entry.sines)
    sweep = CycleSegment(slice(first, rows.stop), turn, shifted, (SETTLED * entry.sweep.rest, entry.sweep.rest))
    return (CycleSegment(slice(rows.start, first), 0.0) if first > rows.start else None), sweep


def segment_result(
    settings: RigSettings,
    record: CircuitRows,
    segment: CycleSegment,
    actual: Mapping[str, Floats],
    reference: Mapping[str, Floats],
    uncertainty: Mapping[str, float] | None = None,
    sensor_noise: Mapping[str, float] | None = None,
) -> SegmentResult:
    """The result of a segment. ``actual`` and ``reference`` cover its rows, ``record`` the whole run."""
    part = record.part(segment.rows)
    time = part.columns["cycle_time"] - segment.begins
    virtual = {f"flow {port}": flow for port in settings.ports if (flow := part.virtual_flow(port)) is not None}
    estimate, stated = {}, {}
    next_rows = np.minimum(np.arange(segment.rows.start, segment.rows.stop) + 1, len(record) - 1)
    for name, valve in settings.valves.items():
        estimate[f"flow {valve.port}"] = record.columns[f"valve.{name}.flow_estimated"][next_rows]
        stated[f"flow {valve.port}"] = float(np.mean(part.columns[f"valve.{name}.flow_deviation"]))
    rest = None
    if segment.rest is not None:
        a, b = np.searchsorted(time, segment.rest)
        rest = slice(int(a), int(b))
    return SegmentResult(
        time=time,
        actual=actual,
        reference=reference,
        virtual=virtual,
        command={
            name: part.columns[f"valve.{name}.command"] + part.columns.get(f"valve.{name}.play", 0.0)
            for name in settings.valves
        },  # what the valve gets (logs of earlier versions have no play)
        saturation={name: part.columns[f"valve.{name}.saturation"] for name in settings.valves},
        uncertainty=uncertainty or {},
        sensor_noise=sensor_noise or {},
        estimate=estimate,
        stated_deviation=stated,
        sines=segment.sines,
        rest=rest,
    )
