"""The time per tick on this computer: the whole tick, with devices, with the log; comparison with earlier results."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hilserver.bench.components import ComponentCost
from hilserver.bench.drivers import DriverCost
from hilserver.bench.parts import PartCost, RecordedInputs
from hilserver.errors import HilserverError
from hilserver.record.machine import machine
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log
from hilserver.tick.codes import CommandKind
from hilserver.tick.row import header
from hilserver.toml import copied

IDLE = 0.5
"""Load per CPU below which a machine counts as idle."""


@dataclass(frozen=True)
class Benchmark:
    """Time per tick in µs: median, fastest and slowest of the batches; ``speed``: how many times faster than real time.

    ``circuit``: integrator and steps per tick of the virtual circuit.
    """

    name: str
    circuit: str
    median: float
    fastest: float
    slowest: float
    speed: float


def benchmarks(
    rig: Rig, *, ticks: int | None = None, repeats: int = 7, substeps: Sequence[int] = (2, 10)
) -> list[Benchmark]:
    """Time the tick alone, the tick with the rig's devices, with logging, and the replay of that log.

    Each with every number of ``substeps`` per tick of the virtual circuit (simulated devices keep their own).
    ``ticks`` per batch: default one work cycle, which is restarted in each. Raises ConfigurationError if the rig has
    devices that work in real time only.
    """
    with tempfile.TemporaryDirectory(prefix="hilserver-bench-") as folder:
        return [
            result
            for number in substeps
            for result in _with(with_substeps(rig, number), number, Path(folder), ticks, repeats)
        ]


def with_substeps(rig: Rig, number: int) -> Rig:
    """The rig with this number of integration steps per tick of its virtual circuit."""
    source: dict[str, Any] = copied(rig.circuit.source)
    source["solver"] = {**source.get("solver", {}), "substeps": number}
    circuit = rig.read_circuit(source)
    return replace(rig, circuit=circuit, packed=rig.pack(circuit), sources={**rig.sources, "circuit": source})


def _with(rig: Rig, number: int, folder: Path, ticks: int | None, repeats: int) -> list[Benchmark]:
    """The benchmarks of one circuit."""
    log, circuit = folder / f"{number}.arrow", f"{rig.circuit.solver.integrator} × {number}"
    with LockstepRun(rig) as run, LockstepRun(rig, log) as logged:
        count = ticks or run.ticks_per_cycle or 2000
        for each in (run, logged):
            each.start()
        cases: dict[str, Callable[[], object]] = {
            "tick alone": _tick_alone(RecordedInputs.of(rig, count, run.program)),
            "tick and devices": partial(_cycle, run, count),
            "tick, devices and full-rate log": partial(_cycle, logged, count),
        }
        found = [_measured(name, circuit, run.dt, count, repeats, batch) for name, batch in cases.items()]
    ticks_logged = int(header(logged.row).tick) + 1
    return [*found, _measured("replay of that log", circuit, run.dt, ticks_logged, 3, partial(replay_log, log))]


def _cycle(run: LockstepRun, ticks: int) -> None:
    """A batch that restarts the work cycle."""
    if run.rig.cycle is not None:
        run.command(CommandKind.CYCLE, 1.0)
    run.run(ticks)


def _tick_alone(recorded: RecordedInputs) -> Callable[[], object]:
    """The tick on the recorded inputs of a run."""
    row = recorded.row.copy()
    arguments = recorded.arguments(row)

    def batch() -> None:
        row[:] = recorded.row
        recorded.program.run_recorded(*arguments)

    return batch


def _measured(name: str, circuit: str, dt: float, ticks: int, repeats: int, batch: Callable[[], object]) -> Benchmark:
    """Run a batch of ticks once to warm up, then time it ``repeats`` times."""
    batch()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        batch()
        times.append((time.perf_counter() - begin) / ticks * 1e6)
    median = statistics.median(times)
    return Benchmark(name, circuit, median, min(times), max(times), dt * 1e6 / median)


def busy(load: float | None = None, cpus: int | None = None) -> list[str]:
    """A note if the computer is busy with other work; to be called before anything is measured.

    >>> busy(0.4, 2)
    []
    >>> busy(5.0, 2)
    ['The computer is busy (load 5.0 on 2 CPUs): measured times are longer than on an idle computer.']
    """
    load, cpus = os.getloadavg()[0] if load is None else load, cpus or len(os.sched_getaffinity(0))
    if load < IDLE * cpus:
        return []
    text = f"The computer is busy (load {load:.1f} on {cpus} CPUs): measured times are longer than on an idle computer."
    return [text]


# --- comparison over time ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BenchReport:
    """The results of a benchmark of a rig."""

    rig: str
    results: Sequence[Benchmark] = ()
    parts: Sequence[PartCost] = ()
    components: Sequence[ComponentCost] = ()
    drivers: Sequence[DriverCost] = ()
    notes: Sequence[str] = ()
    """Parts that were not measured, with the reasons, and other remarks."""

    def figures(self) -> dict[str, Any]:
        """The results as data; times in µs, calls of kernels in ns."""
        lists = ("results", "parts", "components", "drivers")
        tables = {name: [asdict(entry) for entry in getattr(self, name)] for name in lists}
        return {"machine": machine(), "rig": self.rig, "unit": "us per tick", **tables, "notes": [*self.notes]}


RESOLUTION = 0.1
"""µs: shorter parts are differences of longer times, and their ratios say nothing."""


@dataclass(frozen=True)
class Change:
    """A figure before and now; ``unit``: µs (less is better) or Hz (more is better)."""

    what: str
    unit: str
    old: float
    new: float

    @property
    def slower(self) -> float:
        """How many times slower it is now than before; what is shorter than `RESOLUTION` counts as that."""
        if self.unit == "Hz":
            return self.old / self.new
        return max(self.new, RESOLUTION) / max(self.old, RESOLUTION)


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """The figures that both results (as data) contain; those that are 0 are left out."""
    before, now = dict(_comparable(old)), dict(_comparable(new))
    return [
        Change(*key, before[key], value) for key, value in now.items() if before.get(key, 0.0) > 0.0 and value > 0.0
    ]


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Differences in the conditions of the two measurements, in sentences."""
    then, now = ({"rig": report.get("rig"), **report.get("machine", {})} for report in (old, new))
    return [f"{key}: {then.get(key)} before, {now[key]} now." for key in now if then.get(key) != now[key]]


def _comparable(report: dict[str, Any]) -> Iterator[tuple[tuple[str, str], float]]:
    """(name, unit) and value of every figure that can be compared."""
    for entry in report.get("results", ()):
        yield (f"{entry['name']}, {entry['circuit']}", "µs"), entry["median"]
    for entry in report.get("parts", ()):
        yield (f"part: {entry['name']}", "µs"), entry["median"]
    for entry in report.get("components", ()):
        yield (f"component: {entry['type']}", "µs"), entry["per_tick"]
    for entry in report.get("drivers", ()):
        for action in ("read", "write"):
            yield (f"device {entry['device']} ({entry['where']}): {action}", "µs"), entry[action]
    for entry in report.get("rates", ()):
        for what in ("wake-up", "work"):
            yield (f"server at {entry['rate']:g} Hz: {what}", "µs"), entry[f"{what.replace('-', '_')}_median"]
    if (highest := report.get("highest_rate")) is not None:
        yield ("highest rate", "Hz"), highest


def read_report(path: Path) -> dict[str, Any]:
    """Read an earlier result. Raises HilserverError if the file is not one."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        list(_comparable(report)), report["machine"]["processor"]
    except OSError as error:
        raise HilserverError(f"{path}: can't be read: {error.strerror}.") from error
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise HilserverError(f"{path} is not a result of hilserver bench --json.") from error
    return dict(report)
