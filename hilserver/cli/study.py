"""``hilserver study``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.output import never_waiting
from hilserver.cli.prose import say
from hilserver.cli.replay import Trust

if TYPE_CHECKING:
    from hilserver.studies.cluster import Cluster
    from hilserver.studies.settings import Study
    from hilserver.studies.study import Progress

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "-j",
        min=0,
        max=1024,
        help="processes; default: one per processor core; 0: none beside this one, which waits for a run that hangs",
    ),
]
Worst = Annotated[
    str | None, typer.Option(help="search for the worst case of this figure within the tolerances instead of the plan")
]
Repeat = Annotated[int | None, typer.Option(min=0, help="repeat the run with this number, with a report of its own")]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", help='run once with KEY=VALUE, such as "load.mass=900 kg"; may be repeated'),
]


MOST_IMPORTANT = 5
"""Number of quantities in the terminal on which a figure depends most; the page has all."""


@never_waiting()
def study(
    file: Annotated[Path, typer.Argument(metavar="STUDY", help="study file (TOML)", show_default=False)],
    workers: Workers = None,
    cluster: Annotated[
        str | None,
        typer.Option(help='Dask cluster: address or file of its scheduler, or "local"'),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue a study that was interrupted")] = False,
    worst: Worst = None,
    repeat: Repeat = None,
    set_: Setting = None,
    out: Annotated[Path, typer.Option("--output", "-o", help="folder of page and table")] = Path("reports"),
    trust: Trust = False,
) -> None:
    """Run a circuit, a simulated rig, a test sequence or a log many times with other values, and evaluate figures.

    The study file names what is run, the values that are varied with their tolerances, the component types or
    strategies to choose from, a plan, and the figures. The page (HTML and Markdown) has the distribution of each
    figure, what it depends on, the worst runs with the command that repeats each, and the runs that failed, with the
    reason. All runs are in a table (Parquet).

    The results do not depend on the number of processes, or on the cluster. --resume continues an interrupted study.
    """
    from hilserver.errors import HilserverError
    from hilserver.studies.settings import load_study

    given = {"--worst": worst is not None, "--repeat": repeat is not None, "--set": bool(set_), "--resume": resume}
    if len(chosen := [name for name, is_given in given.items() if is_given]) > 1:
        raise HilserverError(f"{' and '.join(chosen)} exclude each other: give one of them.")
    if cluster is not None and [name for name in chosen if name not in ("--resume", "--worst")]:
        raise HilserverError(f"--cluster is for a whole study, not for {chosen[0]}: leave one of them out.")
    loaded = load_study(file, trust=trust)
    if worst is not None:
        _worst(loaded, worst, workers, cluster, out)
    elif repeat is not None or set_:
        _once(loaded, repeat, set_ or [], out)
    else:
        _all(loaded, workers, cluster, resume, out)


def _all(loaded: Study, workers: int | None, where: str | None, resume: bool, out: Path) -> None:
    from hilserver.cli.fidelity import grid_table
    from hilserver.cli.tables import new_console
    from hilserver.studies import report
    from hilserver.studies.study import run_study

    processes = _processes(workers)
    with _cluster(where, processes) as cluster, _progress() as tell:
        result = run_study(loaded, out, processes, resume, tell, cluster)
    console = new_console()
    grids = [(loaded.name, report.figures_grid(result))]
    grids += [
        (f"What {figure.name} depends on", grid)
        for figure in loaded.figures
        if (grid := report.sensitivity_grid(result, figure, MOST_IMPORTANT)) is not None
    ]
    grids.append(("Worst runs", report.worst_grid(result)))
    if (failed := report.failures_grid(result)) is not None:
        grids.append(("Failed runs", failed))
    if (ended := report.ends_grid(result)) is not None:
        grids.append((report.ENDED_EARLY, ended))
    for title, grid in grids:
        console.print(grid_table(grid, title, compact=True))
    lines = [*(f"{name}: {text}" for name, text in report.facts(result)), *report.study_notes(result)]
    for line in [*lines, *(f"Written: {path}" for path in report.write_study(result, out))]:
        say(line, console)


@contextlib.contextmanager
def _cluster(where: str | None, workers: int) -> Iterator[Cluster | None]:
    """The cluster that is to compute, with the address of its page."""
    if where is None:
        yield None
        return
    from hilserver.studies.cluster import cluster

    with cluster(where, max(workers, 1)) as found:
        typer.echo(f"Cluster: {found.workers} workers; dashboard: {found.dashboard}", err=True)
        yield found


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A progress bar with the remaining time."""
    from hilserver.cli.progress import progress_bar

    with progress_bar() as tell:
        yield lambda done, total, remaining: tell(f"{done} of {total} runs, {_time(remaining)} left", done / total)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120.0 else f"{seconds / 60.0:.0f} min"


def _processes(workers: int | None) -> int:
    """As many as there are processor cores, unless the user has said how many."""
    return len(os.sched_getaffinity(0)) if workers is None else workers


def _worst(loaded: Study, name: str, workers: int | None, where: str | None, out: Path) -> None:
    from hilserver.cli.progress import progress_bar
    from hilserver.studies.worst import GENERATIONS, POPULATION, worst_case

    most, processes = POPULATION * len(loaded.varied) * (GENERATIONS + 1), _processes(workers)
    with _cluster(where, processes) as cluster, progress_bar() as tell:
        found = worst_case(
            loaded,
            name,
            out,
            processes,
            lambda runs: tell(f"{runs} of at most about {most} runs", min(runs / most, 1.0)),
            cluster,
        )
    shown = found.figure.shown
    say(f"{name}: {shown(found.worst)} in the worst case found, {shown(found.nominal)} with nominal values.")
    for each in loaded.varied:
        end = " (end of its tolerance)" if each.key in found.at_limits else ""
        say(f"  {each.key}: {each.shown(found.values[each.key])}{end}")
    ended = "the search has converged" if found.converged else "the search ended at its limit, before it converged"
    if found.worst_ended:
        say(f"This run {found.worst_ended}.")
    say(f"{found.runs} runs; {ended}.")
    if found.ended:
        say(f"{found.ended} of all runs ended early.")
    for reason, number in found.failures.items():
        say(f"{number} failed: {reason}.")
    typer.echo(f"Repeat it with: {found.command}")
    say(f"All candidates: {found.table}")


def _once(loaded: Study, number: int | None, settings: list[str], out: Path) -> None:
    from hilserver.studies.study import plain_value, repeat, values_of_variant

    values = values_of_variant(loaded, number) if number is not None else _values(loaded, settings)
    name = f"{loaded.name}-{number if number is not None else 'set'}"
    found = repeat(loaded, values, name, out)
    varied = {each.key: each for each in loaded.varied}
    for key, x in values.items():
        say(f"{key}: {(varied.get(key) or plain_value(loaded, key)).shown(x, 6)}")
    for figure, x in zip(loaded.figures, found.figures, strict=True):
        say(f"{figure.name}: {figure.shown(x)}")
    if found.ended:
        say(f"The run {found.ended}.")
    for path in found.files:
        say(f"Written: {path}")


def _values(loaded: Study, settings: list[str]) -> dict[str, float]:
    """The values of --set, SI, by key. Raises HilserverError."""
    from hilserver.errors import HilserverError, as_sentence
    from hilserver.studies.study import plain_value

    found, varied = dict[str, float](), {each.key: each for each in loaded.varied}
    for text in settings:
        key, mark, value = (part.strip() for part in text.partition("="))
        try:
            if not mark:
                raise ValueError('write it like "load.mass=900 kg"')
            quantity = varied.get(key.removeprefix("components.")) or plain_value(loaded, key)
            found[quantity.key] = quantity.read(value)
        except ValueError as error:
            raise HilserverError(f"--set {text}: {as_sentence(error)}") from None
    return found
