"""Summary of a log: how accurately valves and actuators followed the virtual circuit, and the timing of the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.record.actuator_sums import ActuatorSums, actuators_in
from hilserver.record.reader import LogReader, LogTable
from hilserver.tick.codes import Mode, Saturation
from hilserver.tick.row import TIMES

WORK = TIMES
"""Columns with the durations of the parts of a tick; logs of early versions lack the last one."""

COMPARED = ("flow_virtual", "flow_measured", "saturation")
"""Columns of a valve with which its accuracy is determined; one that was recorded without them is not summarised."""


@dataclass(frozen=True)
class ValveSummary:
    """Accuracy of a real valve in mode RUNNING. Flows in m^3/s; fractions 0 … 1; NaN: not measured."""

    valve: str
    flow_range: float
    rms: float
    largest: float
    saturated: float

    @property
    def nrmse(self) -> float:
        """RMS deviation of the measured from the virtual flow, divided by the range of the virtual flow."""
        return self.rms / self.flow_range if self.flow_range > 0 else float("nan")


@dataclass(frozen=True)
class RunSummary:
    """Figures of a run; times in seconds."""

    log: Path
    duration: float
    ticks: int
    missed: int
    switches: int
    torn: bool
    work_median: float
    work_p99: float
    wake_median: float
    wake_p99: float
    valves: tuple[ValveSummary, ...]
    actuators: Mapping[str, ActuatorSums] = field(default_factory=dict)


def summarise(path: Path) -> RunSummary:
    """Read a log and summarise it. Raises RecordError if it can't be read."""
    return _summary(path, LogReader(path).read_all())


def _summary(path: Path, table: LogTable) -> RunSummary:
    columns = table.columns
    work = np.sum([columns[name] for name in WORK if name in columns], axis=0)
    late = columns["missed"] * table.header.clock_period_s + columns["wake_error"]
    running = columns["mode"] == Mode.RUNNING
    first = f".{COMPARED[0]}"
    valves = [name.removeprefix("valve.").removesuffix(first) for name in columns if name.endswith(first)]
    names = [name for name in valves if all(f"valve.{name}.{word}" in columns for word in COMPARED)]
    actuators = {name: ActuatorSums() for name in actuators_in(columns)}
    for name, sums in actuators.items():
        sums.add(name, columns, running)
    return RunSummary(
        log=path,
        duration=float(columns["time"][-1] - columns["time"][0]) if len(work) else 0.0,
        ticks=len(work),
        missed=int(columns["missed"].sum()),
        switches=len(table.circuits) - 1,
        torn=bool(table.torn),
        work_median=_at(work, 50),
        work_p99=_at(work, 99),
        wake_median=_at(late, 50),
        wake_p99=_at(late, 99),
        valves=tuple(_valve(name, columns, running) for name in names),
        actuators=actuators,
    )


def _valve(name: str, columns: dict[str, Floats], running: Floats) -> ValveSummary:
    virtual = columns[f"valve.{name}.flow_virtual"][running]
    measured = columns[f"valve.{name}.flow_measured"][running]
    flags = columns[f"valve.{name}.saturation"][running].astype(np.int64)
    deviation = measured - virtual
    known = len(deviation) > 0 and bool(np.isfinite(deviation).all())
    return ValveSummary(
        valve=name,
        flow_range=float(np.ptp(virtual)) if len(virtual) else 0.0,
        rms=float(np.sqrt(np.mean(deviation**2))) if known else float("nan"),
        largest=float(np.abs(deviation).max()) if known else float("nan"),
        saturated=float(np.mean((flags & (Saturation.CAPACITY | Saturation.NO_DROP | Saturation.RANGE)) > 0))
        if len(flags)
        else 0.0,
    )


def _at(values: Floats, percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else float("nan")
