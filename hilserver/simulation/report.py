"""The result of a replay: its sentences, its differences as a table, its figures, its page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hilserver.report.document import Block, Document, Grid, Heading, Listing
from hilserver.report.run_report import run_report
from hilserver.simulation.replay import Replayed


def differences(result: Replayed) -> Grid:
    """The columns that differ."""
    rows = []
    for d in result.differences:
        relative = f"{d.relative:.2g}" if math.isfinite(d.relative) else "not finite"
        rows.append((d.column, f"{d.first_tick}", f"{d.largest:.3g}", relative, f"{result.tolerance:.2g}"))
    head = ("column", "first tick", "largest deviation", "of range", "tolerance")
    return Grid(head, tuple(rows), "What the replay computes otherwise; deviations in SI units.")


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


def write_replay_report(result: Replayed, folder: Path) -> Path:
    """Write the page about a replay, on it what there is to say of the run itself. Raises HilserverError."""
    run = run_report(result.log)
    found: list[Block] = [Heading("Replay"), Listing(tuple(replay_sentences(result)))]
    found += [differences(result)] if result.differences else []
    outcome = "computed once more" if result.ok else "NOT the same when computed once more"
    page, *_ = Document(f"{run.title}, {outcome}", (*found, *run.blocks)).write(folder, f"{result.log.stem}-replay")
    return page
