"""``hilserver bench``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hilserver.cli.output import never_waiting
from hilserver.cli.prose import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hilserver.bench.bench import Benchmark, BenchReport, Change
    from hilserver.bench.components import ComponentCost
    from hilserver.bench.drivers import DriverCost
    from hilserver.bench.parts import PartCost
    from hilserver.cli.tables import TerminalTable
    from hilserver.commissioning.rates import RateTrial
    from hilserver.rig.rig import Rig

Substeps = Annotated[
    list[int] | None,
    typer.Option(
        min=1,
        max=1000,
        help="integration steps of the virtual circuit per tick; may be repeated; the first one also "
        "applies to parts and rates; default: 2 and 10, for parts and rates as in the circuit file",
    ),
]


@never_waiting()
def bench(
    rig: Annotated[Path, typer.Argument(help="rig file (TOML) with a simulated rig")],
    substeps: Substeps = None,
    ticks: Annotated[int | None, typer.Option(min=1, help="ticks per batch; default: one work cycle")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="number of batches, of which the median is reported")] = 7,
    rates: Annotated[
        bool,
        typer.Option("--rates/--no-rates", help="run the server at increasing rates until it can no longer keep up"),
    ] = True,
    rate: Annotated[
        list[float] | None,
        typer.Option(min=1, max=20_000, help="run the server at this rate instead; may be repeated"),
    ] = None,
    duration: Annotated[float, typer.Option("--duration", "-d", min=0.5, help="seconds at each rate")] = 2.0,
    devices: Annotated[
        bool,
        typer.Option("--devices", help="open the rig's devices and time them; only their safe values are written"),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="print the figures as JSON, for --compare")] = False,
    compare: Annotated[Path | None, typer.Option(help="earlier result (JSON) to compare with")] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0.0, help="with --compare: exit code 1 if a figure is slower by more than this percentage"),
    ] = None,
) -> None:
    """Measure how fast this computer runs a rig, and where the time goes.

    Times the tick alone (scaling, limits, virtual circuit, bridge), the tick with the simulated rig, with full-rate
    logging, and the replay of that log, all as fast as possible. Then it breaks the tick down by part, by component
    type of the circuit, and by device. Finally the server itself runs at increasing rates until the computer can't keep
    up.

    For a rig with hardware, only circuit and devices are timed, and the devices themselves only with --devices.
    """
    from hilserver.bench import bench as runs
    from hilserver.report.figures import json_text
    from hilserver.rig.build import load_rig

    loaded, old = load_rig(rig), runs.read_report(compare) if compare is not None else None
    chosen = runs.with_substeps(loaded, substeps[0]) if substeps else loaded
    report = _measured(loaded, chosen, substeps or (2, 10), ticks, repeats, devices)
    figures = report.figures()
    trials: list[RateTrial] = []
    if rates and all(device.is_simulated for device in loaded.devices):
        trials, of_rates = _tried(chosen, rate, duration)
        figures |= of_rates
    changes = runs.compare(old, figures) if old is not None else []
    if json:
        print(json_text(figures))
    else:
        _print_report(report, trials)
        if old is not None:
            _print_comparison(changes, str(compare), runs.differences(old, figures))
    raise typer.Exit(1 if _slower(changes, tolerance) else 0)


def _measured(
    rig: Rig, chosen: Rig, substeps: Sequence[int], ticks: int | None, repeats: int, devices: bool
) -> BenchReport:
    """All results except the rates; ``chosen``: the rig for the parts; ``devices``: whether to open hardware."""
    from hilserver.bench.bench import BenchReport, benchmarks, busy
    from hilserver.bench.components import component_costs
    from hilserver.bench.drivers import driver_costs
    from hilserver.bench.parts import RecordedInputs, parts_around, tick_parts

    notes = busy()
    hardware = [device.name for device in rig.devices if device.is_hardware]
    around, drivers = parts_around(chosen, repeats), driver_costs(rig, devices, repeats=repeats)
    if hardware:
        notes.append(
            f"The tick was not timed: that requires simulated devices, and these are real: {', '.join(hardware)}."
        )
        costs = component_costs(chosen, repeats)
        return BenchReport(rig.settings.name, parts=around, components=costs, drivers=drivers, notes=notes)
    recorded = RecordedInputs.of(chosen, ticks)
    return BenchReport(
        rig.settings.name,
        results=benchmarks(rig, ticks=ticks, repeats=repeats, substeps=substeps),
        parts=[*tick_parts(recorded, repeats), *around],
        components=component_costs(chosen, repeats, recorded.circuit),
        drivers=drivers,
        notes=notes,
    )


def _tried(rig: Rig, rate: list[float] | None, duration: float) -> tuple[list[RateTrial], dict[str, Any]]:
    """The server at these rates, or at increasing ones; and the figures of it."""
    import sys

    from hilserver.commissioning.rates import highest_rate, try_rates

    trials = try_rates(rig, rate, duration, tell=lambda text: print(text, file=sys.stderr))
    highest = {} if rate else {"highest_rate": highest_rate(trials)}
    return trials, {"rates": [vars(trial) for trial in trials], **highest}


def _slower(changes: Sequence[Change], tolerance: float | None) -> bool:
    """Whether a figure is slower by more than ``tolerance``, in percent; each one is printed."""
    import sys

    slower = [change for change in changes if tolerance is not None and change.slower > 1.0 + tolerance / 100.0]
    for change in slower:
        print(f"{change.what}: {change.slower:.2f} times slower than before.", file=sys.stderr)
    return bool(slower)


def _print_report(report: BenchReport, trials: Sequence[RateTrial]) -> None:
    from hilserver.cli.tables import new_console

    console = new_console()
    for table in _tables(report, trials):
        console.print(table)


def _print_comparison(changes: Sequence[Change], old: str, differences: Sequence[str]) -> None:
    """The changes since the earlier result, and the differences in its conditions."""
    from hilserver.cli.tables import new_console

    console = new_console()
    console.print(_changes_table(changes, old))
    for line in differences:
        say(f"Note: {line}", console)


def _tables(report: BenchReport, trials: Sequence[RateTrial]) -> list[TerminalTable | str]:
    """The results as tables and notes."""
    tables = [_bench_table(report.results, report.rig)] if report.results else []
    tables += [_parts_table(report.parts), _components_table(report.components), _drivers_table(report.drivers)]
    return [*tables, *([_rates_table(trials)] if trials else []), *(f"Note: {note}" for note in report.notes)]


def _bench_table(rows: Sequence[Benchmark], rig: str) -> TerminalTable:
    """The times per tick."""
    from hilserver.cli.tables import TerminalTable

    table = TerminalTable(title=f"{rig}: µs per tick, median of repeated batches")
    table.add_column("what")
    table.add_column("circuit")
    for head in ("median", "fastest", "slowest", "× real time"):
        table.add_column(head, justify="right")
    for row in rows:
        times = [f"{value:.2f}" for value in (row.median, row.fastest, row.slowest)]
        table.add_row(row.name, row.circuit, *times, f"{row.speed:.0f}")
    return table


def _parts_table(parts: Sequence[PartCost]) -> TerminalTable:
    """The cost of each part."""
    table = _costs("by part: µs per tick, median", "part", "where", "µs")
    for part in parts:
        table.add_row(part.name, part.where, f"{part.median:.2f}")
    return table


def _components_table(costs: Sequence[ComponentCost]) -> TerminalTable:
    """The cost of each component type."""
    from hilserver.bench.components import REST

    table = _costs("the circuit by component type", "type", "calls", "ns per call", "µs per tick")
    for cost in costs:
        calls = ["", ""] if cost.type == REST else [f"{cost.calls}", f"{cost.per_call:.1f}"]
        table.add_row(cost.type, *calls, f"{cost.per_tick:.2f}")
    return table


def _drivers_table(costs: Sequence[DriverCost]) -> TerminalTable:
    """The cost of each device."""
    table = _costs("devices: µs per access, median", "device", "driver", "where", "read", "write")
    for cost in costs:
        table.add_row(cost.device, cost.driver, cost.where, f"{cost.read:.2f}", f"{cost.write:.2f}")
    return table


def _changes_table(changes: Sequence[Change], old: str) -> TerminalTable:
    """All figures compared with those of an earlier result."""
    table = _costs(f"compared with {old}", "figure", "before", "now", "unit", "slowdown")
    for change in changes:
        table.add_row(change.what, f"{change.old:.2f}", f"{change.new:.2f}", change.unit, f"{change.slower:.2f}")
    return table


def _costs(title: str, first: str, *others: str) -> TerminalTable:
    from hilserver.cli.tables import TerminalTable

    table = TerminalTable(title=title)
    table.add_column(first)
    for head in others:
        table.add_column(head, justify="left" if head in ("where", "driver") else "right")
    return table


def _rates_table(trials: Sequence[RateTrial]) -> TerminalTable:
    """The results of the server at each rate."""
    from hilserver.cli.tables import TerminalTable
    from hilserver.commissioning.rates import highest_rate

    highest = highest_rate(trials)
    shown = f"{highest:g} Hz" if highest is not None else "none of these"
    table = TerminalTable(title=f"the server in real time, µs; highest sustained rate: {shown}")
    for head in ("Hz", "missed", "wake-up", "99 %", "work", "99 %", "99.9 %", "lost", "sustained"):
        table.add_column(head, justify="right")
    for t in trials:
        times = (t.wake_up_median, t.wake_up_p99, t.work_median, t.work_p99, t.work_p999)
        shown_times = [f"{value:.1f}" for value in times]
        if t.ticks == 0:
            table.add_row(f"{t.rate:g}", *["-"] * (len(times) + 2), "no: server ended")
            continue
        verdict = "yes" if t.sustained else "no"
        table.add_row(f"{t.rate:g}", f"{t.missed:.2%}", *shown_times, str(t.lost), verdict)
    return table
