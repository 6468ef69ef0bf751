"""The report on a rig and its unknowns: tables, sentences, and the results as data."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from hilserver.fidelity.results import NOISE_CORNER
from hilserver.fidelity.tables import NOTHING, percent
from hilserver.fidelity.unknowns import UNKNOWNS
from hilserver.fidelity.vary import NOISE, VariedRun, VaryResult
from hilserver.report.document import Block, Document, Grid, Heading, Listing
from hilserver.report.figures import write_json
from hilserver.simulation.step_error import TOLERANCE

HIGH = 95.0
"""Percentile beside the median."""


def unknowns_grid(result: VaryResult) -> Grid:
    """The increase of each figure by each unknown alone, over the rig as described."""
    rows = []
    for found in result.unknowns:
        cells = [_increase(name, *found.increase(name, result.exact)) for name in result.figures]
        rows.append((found.unknown.name, *cells, str(found.trips)))
    runs = len(result.unknowns[0].runs) if result.unknowns else 0
    of = f"{runs} runs" if runs != 1 else "1 run"
    caption = (
        f"Increase over the rig as described, in percentage points: median (largest) of {of}. The unknowns are sorted "
        f"by the number of trips, then by the largest increase of {' or '.join(result.followed)}."
    )
    return Grid(("unknown", *_heads(result), "trips"), tuple(rows), caption)


def family_grid(result: VaryResult) -> Grid:
    """The rig as described and the randomised rigs."""
    rows: list[tuple[str, ...]] = [("as described", *(percent(result.exact.figures[n]) for n in result.figures))]
    for name, share in (("randomised rigs, median", 50.0), (f"randomised rigs, {HIGH:g}th percentile", HIGH)):
        rows.append((name, *(percent(result.percentile(n, share)) for n in result.figures)))
    rows.append(("discretisation error, at most", *(percent(result.step_error(n)[0]) for n in result.figures)))
    caption = (
        "NRMSE over the work cycle, against the reference simulation on the same machine. Noise: RMS of the command "
        f"above {NOISE_CORNER:g} of the tick rate, % of full command. {len(result.completed)} of "
        f"{len(result.randomised)} randomised rigs completed the work cycle. "
        "Discretisation error: the largest change of a figure in any run with half of every integration step."
    )
    return Grid(("rig", *_heads(result)), tuple(rows), caption)


def trips_grid(result: VaryResult) -> Grid | None:
    """The runs that did not complete the work cycle; None if all did."""
    rows = tuple((name, str(run.seed), run.trip) for name, run in result.trips())
    return Grid(("unknown", "seed", "the run"), rows) if rows else None


def _heads(result: VaryResult) -> tuple[str, ...]:
    return tuple(name.replace(" ", "\n") for name in result.figures)


def _increase(figure: str, median: float, largest: float) -> str:
    if not isfinite(median):  # all runs tripped, or the quantity does not move
        return NOTHING
    digits = 3 if figure == NOISE else 2
    rounded = (round(100 * value, digits) + 0.0 for value in (median, largest))  # + 0.0: no -0.00
    return "{:+.{digits}f} ({:+.{digits}f})".format(*rounded, digits=digits)


def vary_sentences(result: VaryResult) -> list[str]:
    """The results in words."""
    randomised, tripped = len(result.randomised), len(result.randomised) - len(result.completed)
    found = [f"{tripped} of {randomised} randomised rigs tripped."]
    for name in result.followed if result.completed else ():
        found.append(
            f"{name} with {result.strategy}: {percent(result.exact.figures[name])} on the rig as described; on "
            f"randomised rigs {percent(result.percentile(name, 50.0))} (median), "
            f"{percent(result.percentile(name, HIGH))} ({HIGH:g}th percentile)."
        )
        largest = {u.unknown.name: u.increase(name, result.exact)[1] for u in result.unknowns}
        if known := {unknown: increase for unknown, increase in largest.items() if isfinite(increase)}:
            most = max(known, key=lambda unknown: known[unknown])
            found.append(f"{name} depends most on {most}: up to {100 * known[most]:+.2f} percentage points.")
    found.append(_step_sentence(result))
    if (worst := result.worst()) is not None:
        found.append(
            f"The worst randomised rig that completed the work cycle can be repeated with --rigs 1 --seed {worst.seed}."
        )
    return found


def _step_sentence(result: VaryResult) -> str:
    """By how much the step falsifies the figures, and a verdict."""
    figure = max(result.followed, key=result.step_error)
    error, unknown, seed = result.step_error(figure)
    of = f"{figure} by up to {100 * error:.2g} percentage points ({unknown}, seed {seed})"
    if error <= TOLERANCE:
        return f"Halving every integration step hardly changes the figures: {of}."
    remedy = "Without --vary, fidelity finds a step that is sufficient."
    return f"The integration step is too long for these figures: half of it changes {of}. {remedy}"


def write_vary_report(result: VaryResult, folder: Path) -> list[Path]:
    """The report as HTML and Markdown, and the data as JSON; returns the files. Raises HilserverError."""
    stem = f"{result.rig}-vary"
    title = f"{result.rig}: fidelity with {result.strategy} on rigs that differ from their description"
    written = Document(title, tuple(_blocks(result))).write(folder, stem)
    return [*written, write_json(vary_figures(result), folder / f"{stem}.json")]


def _blocks(result: VaryResult) -> Iterator[Block]:
    yield Listing(tuple(vary_sentences(result)))
    yield Heading("Randomised rigs: all unknowns at once")
    yield family_grid(result)
    yield Heading("Each unknown alone")
    yield unknowns_grid(result)
    if (trips := trips_grid(result)) is not None:
        yield Heading("Runs that did not complete the work cycle")
        yield trips
    yield Heading("The unknowns")
    drawn = [found.unknown for found in result.unknowns]
    yield Grid(
        ("unknown", "meaning", "range", "reason for the range"),
        tuple((u.name, u.meaning, u.range, u.reason) for u in UNKNOWNS if u in drawn),
        "Only the simulated device changes; the bridge works with the rig file as it is.",
    )


def vary_figures(result: VaryResult) -> dict[str, Any]:
    """The results as data."""
    return {
        "rig": result.rig,
        "strategy": result.strategy,
        "exact": dict(result.exact.figures),
        "step_errors_of_exact": dict(result.exact.step_errors),
        "unknowns": {u.unknown.name: [_run_figures(run) for run in u.runs] for u in result.unknowns},
        "randomised": [_run_figures(run) for run in result.randomised],
        "percentiles": {
            name: {f"{share:g}": result.percentile(name, share) for share in (50.0, HIGH)} for name in result.figures
        },
    }


def _run_figures(run: VariedRun) -> dict[str, Any]:
    return {"seed": run.seed, "trip": run.trip, "figures": dict(run.figures), "step_errors": dict(run.step_errors)}
