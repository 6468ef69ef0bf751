"""A run of a rig as courses: the stretches in which its work cycle or its sweep ran, beside the direct simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hilserver.circuit.model import RIG
from hilserver.circuit.pack import PackedCircuit
from hilserver.fidelity.results import Course
from hilserver.numerics.arrays import Floats, Integers
from hilserver.rig.cycle import CycleSettings, Sine
from hilserver.rig.settings import RigSettings
from hilserver.tick.bridge.ladder import Strategy
from hilserver.tick.codes import Mode

SETTLED = 0.6
"""Share of a sweep's rest after which the machine counts as being at rest."""


@dataclass(frozen=True)
class Record:
    """Rows of a run under one circuit: fixed columns by name, and the circuit's values, line by line as its names."""

    columns: Mapping[str, Floats]
    circuit: PackedCircuit
    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    def part(self, rows: slice) -> Record:
        """Some of its rows."""
        return Record({name: column[rows] for name, column in self.columns.items()}, self.circuit, self.values[rows])

    def virtual_flow(self, port: str) -> Floats | None:
        """What the circuit passes into a port; None where it does not reach it."""
        name = f"{RIG}{port}.q"
        return self.values[:, self.circuit.names.index(name)] if name in self.circuit.names else None

    @property
    def ticks(self) -> Integers:
        """How many ticks each row stands for: its own and the missed ones before it."""
        missed: Integers = np.rint(self.columns["missed"]).astype(np.int64)
        return missed + 1

    def elapsed(self, dt: float) -> Floats:
        """The same in s, for ticks of ``dt`` s."""
        seconds: Floats = self.ticks * np.float64(dt)
        return seconds

    def strategy(self, settings: RigSettings) -> str:
        """The strategy in all its rows, or those of several valves; empty where one changed on the way."""
        used = {}
        for valve in settings.valves:
            numbers = np.unique(self.columns[f"valve.{valve}.strategy"])
            if len(numbers) > 1:
                return ""
            used[valve] = Strategy(int(numbers[0])).name
        if len(set(used.values())) == 1:
            return next(iter(used.values()))
        return ", ".join(f"{valve}: {name}" for valve, name in used.items())


def passes(record: Record) -> list[slice]:
    """The rows of each pass of the work cycle, from its first tick to its last."""
    t = record.columns["cycle_time"]
    running = (record.columns["mode"] == Mode.RUNNING) & (t > 0.0)
    begins = running & ~np.concatenate([[False], running[:-1] & (t[1:] > t[:-1])])
    ends = np.concatenate([~running[1:] | begins[1:], [True]]) & running
    return [slice(int(a), int(b) + 1) for a, b in zip(np.flatnonzero(begins), np.flatnonzero(ends), strict=True)]


@dataclass(frozen=True)
class Section:
    """Rows of a pass: its work cycle, or its sweep with the sines, s from the section's begin."""

    rows: slice
    begins: float
    sines: tuple[Sine, ...] = ()
    rest: tuple[float, float] | None = None


def sections(record: Record, rows: slice, cycle: CycleSettings) -> tuple[Section | None, Section | None]:
    """Work cycle and sweep within a pass; None for what the cycle has not."""
    swept = [entry for entry in cycle.inputs.values() if entry.sweep is not None]
    if not swept:
        return Section(rows, 0.0), None
    entry = swept[0]
    assert entry.sweep is not None
    turn = entry.sweep_begins
    first = rows.start + int(np.searchsorted(record.columns["cycle_time"][rows], turn + 1e-9, side="right"))
    shifted = tuple(Sine(s.frequency, s.begins - turn, s.counts - turn, s.ends - turn) for s in entry.sines)
    sweep = Section(slice(first, rows.stop), turn, shifted, (SETTLED * entry.sweep.rest, entry.sweep.rest))
    return (Section(slice(rows.start, first), 0.0) if first > rows.start else None), sweep


def course(
    settings: RigSettings,
    record: Record,
    section: Section,
    real: Mapping[str, Floats],
    truth: Mapping[str, Floats],
    doubt: Mapping[str, float] | None = None,
    scatter: Mapping[str, float] | None = None,
) -> Course:
    """The course of a section; ``real`` and ``truth`` belong to its rows, ``record`` has the whole run."""
    part = record.part(section.rows)
    time = part.columns["cycle_time"] - section.begins
    asked = {f"flow {port}": flow for port in settings.ports if (flow := part.virtual_flow(port)) is not None}
    estimate, claim = {}, {}
    later = np.minimum(np.arange(section.rows.start, section.rows.stop) + 1, len(record) - 1)
    for name, valve in settings.valves.items():
        estimate[f"flow {valve.port}"] = record.columns[f"valve.{name}.flow_estimated"][later]
        claim[f"flow {valve.port}"] = float(np.mean(part.columns[f"valve.{name}.flow_deviation"]))
    rest = None
    if section.rest is not None:
        a, b = np.searchsorted(time, section.rest)
        rest = slice(int(a), int(b))
    return Course(
        time=time,
        real=real,
        truth=truth,
        asked=asked,
        command={name: part.columns[f"valve.{name}.command"] for name in settings.valves},
        saturation={name: part.columns[f"valve.{name}.saturation"] for name in settings.valves},
        doubt=doubt or {},
        scatter=scatter or {},
        estimate=estimate,
        claim=claim,
        sines=section.sines,
        rest=rest,
    )


def inputs_of(record: Record, rows: slice, names: list[str]) -> dict[str, Floats]:
    """The operator inputs in every tick of some rows, the missed ones too: the tick makes them good with its own."""
    part = record.part(rows)
    return {name: np.repeat(part.columns[f"input.{name}"], part.ticks) for name in names}


def at_rows(record: Record, rows: slice, ticks: Floats) -> Floats:
    """Of values in every tick those at the ends of the rows."""
    chosen: Floats = ticks[np.cumsum(record.part(rows).ticks) - 1]
    return chosen
