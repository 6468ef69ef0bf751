"""What runs have to say: tables for the terminal, JSON and plots for the record."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from hilserver.bench.bench import Benchmark, Change
from hilserver.bench.drivers import DriverCost
from hilserver.bench.latency import LatencyReport, Measured, load_words
from hilserver.bench.parts import REST, ComponentCost, Part
from hilserver.errors import HilserverError
from hilserver.report.document import Grid
from hilserver.simulation.foreign_log import ForeignRun
from hilserver.simulation.replay import Replayed

# --- replay -----------------------------------------------------------------------------------------------------------


def differences(result: Replayed) -> Grid:
    """The columns that differ."""
    rows = []
    for d in result.differences:
        relative = f"{d.relative:.2g}" if math.isfinite(d.relative) else "not finite"
        rows.append((d.column, f"{d.first_tick}", f"{d.largest:.3g}", relative, f"{result.tolerance:.2g}"))
    head = ("column", "first tick", "largest deviation", "of range", "tolerance")
    return Grid(head, tuple(rows), "What the replay computes otherwise; deviations in SI units.")


def differences_table(result: Replayed) -> Table:
    """The same for the terminal."""
    grid = differences(result)
    table = Table(title=f"{result.log.name}: what the replay computes otherwise", caption="deviations in SI units")
    for number, head in enumerate(grid.head):
        table.add_column(head, justify="right" if number else "left")
    for row in grid.rows:
        table.add_row(*row)
    return table


def replay_sentences(result: Replayed) -> list[str]:
    """What was compared, how, and what came of it."""
    program = (
        "by the same program"
        if result.same_program
        else "by another program or version: circuits packed anew from their source"
    )
    sentences = [f"{result.log}: {result.rows} rows, written {program} ({result.software})."]
    if result.torn and not result.damages:
        sentences.append("The log has no end mark: its writer was killed, or still writes.")
    sentences += [f"The log is damaged: {damage}." for damage in result.damages]
    for start in result.starts[:5]:
        sentences.append(f"Row {start.row} (tick {start.tick}) was taken as it stands: {start.reason}.")
    if len(result.starts) > 5:
        sentences.append(f"So were {len(result.starts) - 5} more rows.")
    if result.only_in_log:
        sentences.append(f"Only in the log, not compared: {', '.join(result.only_in_log)}.")
    compared = f"{result.compared} ticks with {result.switches} switches, {result.columns} columns compared"
    if result.compared == 0:
        sentences.append("Nothing could be compared.")
    elif not result.differences:
        sentences.append(f"{compared}: identical, bit for bit.")
    elif result.ok:
        worst = max(d.relative for d in result.differences)
        sentences.append(
            f"{compared}: within the tolerance; {len(result.differences)} differ by up to {worst:.2g} of their range."
        )
    else:
        sentences.append(
            f"{compared}: {len(result.beyond)} beyond the tolerance of {result.tolerance:.2g} of the range."
        )
    return sentences


def replay_figures(result: Replayed) -> dict[str, Any]:
    """The same as data."""
    return {
        "log": str(result.log),
        "ok": result.ok,
        "rows": result.rows,
        "compared": result.compared,
        "switches": result.switches,
        "same_program": result.same_program,
        "tolerance": result.tolerance,
        "torn": result.torn,
        "damages": [str(damage) for damage in result.damages],
        "starts": [vars(start) for start in result.starts],
        "differences": [vars(difference) for difference in result.differences],
    }


def foreign_sentences(run: ForeignRun) -> list[str]:
    """What was replayed into what."""
    sentences = [f"Device {text}" for text in run.samples]
    sentences.append(f"{run.ticks} ticks; the rig ended in mode {run.mode}{f' ({run.fault})' if run.fault else ''}.")
    for valve in run.rig.layout.valves:
        flow, command = run.series[f"valve.{valve}.flow_virtual"], run.series[f"valve.{valve}.command"]
        share = (run.series[f"valve.{valve}.saturation"] > 0.0).mean()
        sentences.append(
            f"Valve {valve}: virtual flow {flow.min() * 6e4:.3g} … {flow.max() * 6e4:.3g} l/min, "
            f"command {command.min():.3g} … {command.max():.3g}, saturated in {share:.1%} of the ticks."
        )
    return sentences


# --- bench ------------------------------------------------------------------------------------------------------------


def bench_table(rows: list[Benchmark], rig: str) -> Table:
    """Times per tick."""
    table = Table(title=f"{rig}: µs per tick, median of repeated batches")
    table.add_column("what")
    table.add_column("circuit")
    for head in ("median", "fastest", "slowest", "× real time"):
        table.add_column(head, justify="right")
    for row in rows:
        times = [f"{value:.2f}" for value in (row.median, row.fastest, row.slowest)]
        table.add_row(row.name, row.circuit, *times, f"{row.speed:.0f}")
    return table


def parts_table(parts: Sequence[Part]) -> Table:
    """What a tick consists of."""
    table = _costs("by part: µs per tick, median", "part", "where", "µs")
    for part in parts:
        table.add_row(part.name, part.where, f"{part.median:.2f}")
    return table


def components_table(costs: Sequence[ComponentCost]) -> Table:
    """What the circuit consists of."""
    table = _costs("the circuit by component type", "type", "calls", "ns per call", "µs per tick")
    for cost in costs:
        calls = ["", ""] if cost.type == REST else [f"{cost.calls}", f"{cost.per_call:.1f}"]
        table.add_row(cost.type, *calls, f"{cost.per_tick:.2f}")
    return table


def drivers_table(costs: Sequence[DriverCost]) -> Table:
    """What the devices cost."""
    table = _costs("devices: µs per turn, median", "device", "driver", "where", "read", "write")
    for cost in costs:
        table.add_row(cost.device, cost.driver, cost.where, f"{cost.read:.2f}", f"{cost.write:.2f}")
    return table


def changes_table(changes: Sequence[Change], old: str) -> Table:
    """What is slower or faster than in an earlier report."""
    table = _costs(f"compared with {old}", "what", "then", "now", "", "times slower")
    for change in changes:
        table.add_row(change.what, f"{change.old:.2f}", f"{change.new:.2f}", change.unit, f"{change.slower:.2f}")
    return table


def _costs(title: str, first: str, *others: str) -> Table:
    table = Table(title=title)
    table.add_column(first)
    for head in others:
        table.add_column(head, justify="left" if head in ("where", "driver") else "right")
    return table


# --- latency ----------------------------------------------------------------------------------------------------------

COARSE = np.array([0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 1e6]) * 1e-6
"""Edges of the bins in the terminal, s."""
BAR = 12
"""Characters of the longest bar."""


def latency_table(report: LatencyReport) -> Table:
    """Figures of every measurement."""
    c = report.conditions
    priority = f"SCHED_FIFO {c.scheduling.priority}" if c.scheduling.priority is not None else "ordinary scheduler"
    cpus = f", CPUs {', '.join(map(str, sorted(c.scheduling.cpus)))}" if c.scheduling.cpus else ""
    table = Table(title=f"wake-up at {c.rate:g} Hz, {priority}{cpus}: µs late, {c.duration:g} s each")
    table.add_column("what")
    for head in ("min", "avg", "median", "99 %", "99.9 %", "max"):
        table.add_column(head, justify="right", no_wrap=True, min_width=6)
    for m in report.measured:
        f = m.samples.figures()
        cells = [f"{1e6 * v:.1f}" if math.isfinite(v) else "> 1000" for v in (f.min, f.mean, f.median, f.p99, f.p999)]
        table.add_row(m.name, *cells, f"{1e6 * f.max:.1f}")
    return table


def latency_histograms(report: LatencyReport) -> list[Table]:
    """How often each measurement was how late, without load and with it."""
    groups = [[m for m in report.measured if m.loaded is loaded] for loaded in (False, True)]
    return [_histogram(measured) for measured in groups if measured]


def _histogram(measured: list[Measured]) -> Table:
    """A column of bars, which grow with the logarithm, for each measurement."""
    table = Table(box=None)
    table.add_column("µs", justify="right", no_wrap=True)
    for m in measured:
        table.add_column(m.name, min_width=BAR + 7)
    counts = np.array([m.samples.histogram(COARSE) for m in measured]).T
    used = np.flatnonzero(counts.sum(axis=1))
    for k in range(used[0], used[-1] + 1):
        upper = f"… {1e6 * COARSE[k + 1]:g}" if k + 2 < len(COARSE) else "and more"
        table.add_row(f"{1e6 * COARSE[k]:g} {upper}", *map(_bar, counts[k], counts.max(axis=0)))
    return table


def _bar(count: int, largest: int) -> str:
    if count == 0:
        return ""
    return f"{'█' * max(round(BAR * math.log(count + 1) / math.log(largest + 1)), 1)} {count}"


def latency_sentences(report: LatencyReport) -> list[str]:
    """How the loop compares with cyclictest, what the system refused, what is missing."""
    found = []
    for loaded in (False, True):
        if (ratio := report.ratio(loaded)) is not None:
            found.append(f"{load_words(loaded)}: the loop's median is {ratio:.2f} times that of cyclictest beside it.")
    return [*found, *report.notes, *report.degradations]


def write_json(figures: Any, path: Path) -> Path:
    """Figures as a JSON file; numbers that are not finite become null."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_text(figures) + "\n", encoding="utf-8")
    except OSError as error:
        raise HilserverError(f"{path}: can't be written: {error.strerror or error}.") from error
    return path


def json_text(figures: Any) -> str:
    """Figures as JSON text that every reader takes: null instead of NaN and infinity."""
    return json.dumps(_finite(figures), indent=1, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
