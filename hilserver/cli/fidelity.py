"""``hilserver fidelity``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.output import asking, never_waiting
from hilserver.cli.prose import say
from hilserver.cli.replay import Trust

if TYPE_CHECKING:
    from hilserver.cli.tables import TerminalTable
    from hilserver.fidelity.results import Fidelity
    from hilserver.report.document import Grid
    from hilserver.rig.rig import Rig

Strategies = Annotated[
    list[str] | None,
    typer.Option(
        help='bridge strategy to run; may be repeated; "all": every one that the rig can use; default: the usual '
        "ones; with --drive the one in the rig file"
    ),
]
SweptInput = Annotated[
    str | None,
    typer.Option("--input", help="input that is swept; default: the one that commands the virtual valve"),
]
Frequencies = Annotated[
    list[float] | None,
    typer.Option(help="frequency of a sine, Hz; may be repeated; default: 2, 3, 5, 7, 10, 14, 20 Hz"),
]
MachineFile = Annotated[
    Path | None,
    typer.Option(
        help="with --log or --drive: circuit file of the machine; default: the cylinders and motors of the rig file"
    ),
]
Vary = Annotated[
    bool,
    typer.Option("--vary", help="simulated rig: run the work cycle on rigs that differ from their description instead"),
]
NumberOfRigs = Annotated[
    int | None, typer.Option(min=1, help="with --vary: rigs in which all unknowns differ at once; default: 20")
]
Seed = Annotated[int | None, typer.Option(min=0, help="with --vary: seed of the first of these rigs; default: 1")]


@never_waiting()
def fidelity(
    file: Annotated[Path, typer.Argument(metavar="RIG", help="rig file (TOML)", show_default=False)],
    strategy: Strategies = None,
    input_: SweptInput = None,
    amplitude: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="amplitude of the sines, as a fraction of half the input's range")
    ] = 0.3,
    mean: Annotated[
        float | None, typer.Option(help="mean value of the sines; default: the input's initial value")
    ] = None,
    frequency: Frequencies = None,
    sweep: Annotated[bool, typer.Option(help="run the sines, or the work cycle only")] = True,
    log: Annotated[Path | None, typer.Option(help="evaluate this log (.arrow) of the rig; nothing is run")] = None,
    drive: Annotated[
        bool, typer.Option("--drive", help="run the rig in real time, as hilserver run does, and evaluate its log")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="with --drive: don't ask for confirmation before the machine moves")
    ] = False,
    trust: Trust = False,
    machine: MachineFile = None,
    vary: Vary = False,
    rigs: NumberOfRigs = None,
    seed: Seed = None,
    out: Annotated[Path, typer.Option("--output", "-o", help="folder of the report")] = Path("reports"),
) -> None:
    """Measure how closely the rig follows its virtual circuit, over the work cycle and over frequency.

    Each bridge strategy runs the work cycle and a stepped-sine sweep. The motion of the machine is compared
    with the reference simulation: the virtual circuit connected directly to a model of the machine, as if it were
    installed there. The report (HTML and Markdown) has amplitude and phase errors over frequency, deviations over the
    work cycle, noise and saturation of the command, and all strategies side by side.

    A simulated rig runs in lockstep, without a clock. A real one is run with --drive, or evaluated from a log
    that contains its work cycle.

    With --vary, the simulated machine, its drive and its sensors differ from the rig file that the bridge works with:
    first by each unknown alone (load, friction, air, sensor offset, …), then by all of them at once. The tables show
    how much of the fidelity depends on which unknown.
    """
    from hilserver.rig.build import load_rig

    _refuse_source(log, drive, machine)
    rig = load_rig(file)
    if vary:
        others = {"--log": log, "--drive": drive, "--input": input_, "--mean": mean, "--frequency": frequency}
        _vary(rig, strategy or [], rigs, seed, [name for name, given in others.items() if given], out)
        return
    _refuse_options_of_vary(rigs, seed)
    if log is not None:
        _evaluate(rig, log, machine, out, trust)
        return
    swept, table = _sweep(rig, input_, frequency, amplitude, mean) if sweep else ("", None)
    if drive:
        recorded = _driven(rig, strategy, swept, table, yes)
        _evaluate(rig, recorded, machine, out, trust=True)
        typer.echo(f"Log: {recorded}")
    else:
        _simulate(rig, strategy, swept, table, out)


def _refuse_source(log: Path | None, drive: bool, machine: Path | None) -> None:
    """Raises HilserverError if it is not clear what is evaluated, or with which machine."""
    from hilserver.errors import HilserverError

    if log is not None and drive:
        raise HilserverError("--log evaluates a recording, --drive makes a new one: give one of them.")
    if machine is not None and log is None and not drive:
        raise HilserverError("--machine is for --log and --drive only: a simulated rig has its machine in its device.")


def _refuse_options_of_vary(rigs: int | None, seed: int | None) -> None:
    """Raises HilserverError if options of --vary are given without it."""
    from hilserver.errors import HilserverError

    if rigs is not None or seed is not None:
        raise HilserverError("--rigs and --seed are for --vary only: add --vary.")


def _simulate(rig: Rig, strategy: list[str] | None, swept: str, sweep: dict[str, object] | None, out: Path) -> None:
    """Run a simulated rig in lockstep and report."""
    from hilserver.fidelity.step import with_step_error
    from hilserver.fidelity.strategies import at_step, measure

    _report(with_step_error(rig, measure(rig, strategy, swept, sweep), at_step(rig, swept, sweep)), out)


def _evaluate(rig: Rig, log: Path, machine: Path | None, out: Path, trust: bool) -> None:
    """Evaluate a recorded run and report."""
    from hilserver.fidelity.from_log import fidelity_of_log
    from hilserver.fidelity.step import with_step_error

    result = fidelity_of_log(rig, log, machine, trust=trust)
    if result.reference:
        result = with_step_error(
            rig, result, lambda step, names: fidelity_of_log(rig, log, machine, trust=trust, step=step)
        )
    _report(result, out)


def _vary(rig: Rig, strategies: list[str], rigs: int | None, seed: int | None, refused: list[str], out: Path) -> None:
    """The rig with its unknowns; ``refused``: options that were given and have no meaning here."""
    from hilserver.cli.progress import progress_bar
    from hilserver.cli.tables import new_console
    from hilserver.errors import HilserverError
    from hilserver.fidelity.vary import RIGS, vary
    from hilserver.fidelity.vary_report import (
        family_grid,
        trips_grid,
        unknowns_grid,
        vary_sentences,
        write_vary_report,
    )

    if refused:
        raise HilserverError(f"--vary runs the work cycle of a simulated rig: leave out {', '.join(refused)}.")
    if len(strategies) > 1 or "all" in strategies:
        raise HilserverError("--vary runs one strategy: give --strategy once, or not at all for the rig file's.")
    with progress_bar() as tell:
        result = vary(rig, next(iter(strategies), None), rigs or RIGS, 1 if seed is None else seed, tell)
    console = new_console()
    title = f"{result.rig} with {result.strategy}: "
    console.print(grid_table(unknowns_grid(result), f"{title}each unknown alone", compact=True))
    console.print(grid_table(family_grid(result), f"{title}all unknowns at once", compact=True))
    if (trips := trips_grid(result)) is not None:
        console.print(grid_table(trips, "Runs that did not complete the work cycle", compact=True))
    for line in [*vary_sentences(result), *(f"Written: {path}" for path in write_vary_report(result, out))]:
        say(line, console)


def _sweep(
    rig: Rig, name: str | None, frequency: list[float] | None, amplitude: float, mean: float | None
) -> tuple[str, dict[str, object]]:
    """The swept input and the table of its sweep."""
    from hilserver.fidelity.sweeps import default_input, sweep_of

    chosen = name or default_input(rig)
    return chosen, sweep_of(rig, chosen, frequency or (), amplitude, mean)


def _driven(rig: Rig, strategy: list[str] | None, swept: str, sweep: dict[str, object] | None, yes: bool) -> Path:
    """Run the rig in real time; returns its log."""
    import asyncio

    from hilserver.commissioning.driving import record_passes
    from hilserver.fidelity.strategies import selected, with_cycle
    from hilserver.fidelity.sweeps import after_cycle

    ready = with_cycle(rig, after_cycle(rig, swept, sweep)) if sweep is not None else rig
    chosen = selected(ready, strategy) if strategy else [None]
    length = ready.cycle.duration if ready.cycle is not None else 0.0
    passes = f"{len(chosen)} pass{'es' if len(chosen) > 1 else ''} of {length:.1f} s"
    if not yes:
        with asking():
            typer.confirm(
                f"{rig.settings.name} will be armed and its machine will move: {passes}. Is the area clear?", abort=True
            )
    return asyncio.run(record_passes(ready, chosen, typer.echo))


def tables(result: Fidelity) -> list[TerminalTable]:
    """All strategies side by side: over the work cycle, and over frequency."""
    from hilserver.fidelity.tables import cycle_grid, frequency_grid

    title = f"{result.rig}: deviation from its virtual circuit"
    return [grid_table(cycle_grid(result), title), grid_table(frequency_grid(result, "m^3/s"), "")]


def grid_table(grid: Grid, title: str, compact: bool = False) -> TerminalTable:
    """A grid for the terminal; ``compact``: without lines between its columns."""
    from hilserver.cli.tables import TerminalTable

    table = TerminalTable(title=title, caption=grid.caption, pad_edge=not compact)
    if compact:
        table.box = None
    for number, head in enumerate(grid.head):
        table.add_column(head, justify="right" if number else "left")
    for row in grid.rows:
        table.add_row(*row)
    return table


def step_lines(result: Fidelity) -> list[str]:
    """The discretisation error for the terminal."""
    if result.error is None or not result.error.deviations:
        return []
    return [*(f"Error of {each}" for each in result.error.deviations), result.error.verdict()]


def _report(result: Fidelity, out: Path) -> None:
    from hilserver.cli.tables import new_console
    from hilserver.fidelity.report import write_report
    from hilserver.fidelity.summary import sentences

    console = new_console()
    for table in tables(result):
        console.print(table)
    said = [*sentences(result), *result.notes, *step_lines(result)]
    for line in [*said, *(f"Written: {path}" for path in write_report(result, out))]:
        say(line, console)
