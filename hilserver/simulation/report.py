"""The result of a replay: sentences, table of differences, figures, report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hilserver.report.document import Block, Document, Grid, Heading, Listing
from hilserver.simulation.replay import Replayed

if TYPE_CHECKING:
    from hilserver.simulation.audit import Audit


def differences(result: Replayed) -> Grid:
    """The columns that differ, as a table."""
    rows = []
    for d in result.differences:
        relative = f"{d.relative:.2g}" if math.isfinite(d.relative) else "not finite"
        rows.append((d.column, f"{d.first_tick}", f"{d.largest:.3g}", relative, f"{result.tolerance:.2g}"))
    head = ("column", "first tick", "maximum deviation", "of range", "tolerance")
    return Grid(head, tuple(rows), "Values that the replay computes differently; deviations in SI units.")


def replay_sentences(result: Replayed) -> list[str]:
    """What was compared and the result, in sentences."""
    program = (
        "by the same program"
        if result.same_program
        else "by another program or version: its circuits were rebuilt from their source"
    )
    sentences = [f"{result.log}: {result.rows} rows, written {program} ({result.software})."]
    if result.torn and not result.damages:
        sentences.append("The log has no end mark: the recorder was killed, or is still writing.")
    sentences += [f"The log is damaged: {damage}." for damage in result.damages]
    for start in result.starts[:5]:
        sentences.append(f"Row {start.row} (tick {start.tick}) was taken from the log unchanged: {start.reason}.")
    if len(result.starts) > 5:
        sentences.append(f"So were {len(result.starts) - 5} more rows.")
    if result.unverified:
        sentences.append(
            f"{result.unverified} rows could not be compared: signals were left out of the log (recording.signals), "
            "and there is no whole row from which to compute these."
        )
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
            f"{compared}: {len(result.beyond)} exceed the tolerance of {result.tolerance:.2g} of their range."
        )
    return sentences


def replay_figures(result: Replayed) -> dict[str, Any]:
    """The result as data for JSON."""
    return {
        "log": str(result.log),
        "ok": result.ok,
        "rows": result.rows,
        "compared": result.compared,
        "unverified": result.unverified,
        "switches": result.switches,
        "same_program": result.same_program,
        "tolerance": result.tolerance,
        "torn": result.torn,
        "damages": [str(damage) for damage in result.damages],
        "starts": [vars(start) for start in result.starts],
        "differences": [vars(difference) for difference in result.differences],
    }


def write_replay_report(result: Replayed, folder: Path, audits: Sequence[Audit] = ()) -> Path:
    """Write the report on a replay, which includes the report on the run; ``audits``: the balances, if stated.

    Raises HilserverError.
    """
    from hilserver.report.run_report import run_report  # with Matplotlib, which a replay without a report does not need

    run = run_report(result.log)
    found: list[Block] = [Heading("Replay"), Listing(tuple(replay_sentences(result)))]
    found += [differences(result)] if result.differences else []
    if audits:
        found += [Heading("Balances"), Listing(tuple(line for audit in audits for line in audit.sentences()))]
    outcome = "replayed" if result.ok else "replayed with DIFFERENCES"
    page, *_ = Document(f"{run.title}, {outcome}", (*found, *run.blocks)).write(folder, f"{result.log.stem}-replay")
    return page
