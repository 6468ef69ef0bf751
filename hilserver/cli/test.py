"""``hilserver test``: test sequences, in simulation, on the rig, or on a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.prose import say
from hilserver.cli.replay import Trust
from hilserver.cli.switch import Broker

if TYPE_CHECKING:
    from hilserver.sequences.check import SequenceResult, Verdict
    from hilserver.sequences.model import Sequence


def run_sequences(
    files: Annotated[list[Path], typer.Argument(help="test sequences (TOML or CSV)", show_default=False)],
    rig: Annotated[
        Path | None, typer.Option(help="rig file to simulate, instead of the one given in the sequence")
    ] = None,
    live: Annotated[
        str | None,
        typer.Option(
            help='run the sequence on the server of this rig; "-": the one running on this computer', metavar="NAME"
        ),
    ] = None,
    broker: Broker = None,
    log: Annotated[
        Path | None, typer.Option(help="log of a run of the sequence: replay it and check the expectations")
    ] = None,
    trust: Trust = False,
    junit: Annotated[Path | None, typer.Option(help="write the results to this file as JUnit XML, for CI")] = None,
    out: Annotated[Path, typer.Option("--output", "-o", help="folder for reports and logs")] = Path("reports"),
) -> None:
    """Run test sequences: commands and faults over time, and the expected behaviour of the rig.

    By default in simulation, without a clock: the rig's devices must be simulated or replayed. With --live on a
    running server, in real time; it is disarmed at the end. With --log on the log of such a run, replayed with this
    version: no rig is needed. Writes a report with plots for each sequence; the exit code is 1 where one failed.
    """
    from datetime import UTC, datetime

    from hilserver.errors import HilserverError
    from hilserver.sequences.model import load_sequence
    from hilserver.sequences.report import document, ending_lines, summary_line, write_junit

    if sum(given is not None for given in (rig, live, log)) > 1:
        raise HilserverError("choose one of --rig, --live and --log.")
    sequences = [load_sequence(file) for file in files]
    results: list[SequenceResult] = []
    for sequence in sequences:
        stem = f"{sequence.file.stem}-{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
        done = _run(sequence, rig, live, broker, log, out / f"{stem}-run.arrow", trust)
        results.append(done)
        for verdict in done.verdicts:
            say(verdict_line(verdict))
        for line in ending_lines(done):
            say(line)
        say(summary_line(done))
        page, *_ = document(done).write(out, stem)
        say(f"Report: {page}")
    if junit is not None:
        say(f"JUnit: {write_junit(results, junit)}")
    if not all(done.ok for done in results):
        raise typer.Exit(1)


def _run(
    sequence: Sequence,
    rig: Path | None,
    live: str | None,
    broker: str | None,
    log: Path | None,
    record: Path,
    trust: bool,
) -> SequenceResult:
    if log is not None:
        from hilserver.sequences.logged import check_log

        return check_log(sequence, log, trust=trust)
    if live is not None or (broker is not None and rig is None):
        return _live(sequence, live, broker)
    from hilserver.errors import HilserverError
    from hilserver.rig.build import load_rig
    from hilserver.sequences.simulated import simulate_sequence

    file = rig or sequence.rig_file
    if file is None:
        raise HilserverError(
            f'{sequence.file}: no rig given: name it in the file (rig = "…"), with --rig, or use --live.'
        )
    record.parent.mkdir(parents=True, exist_ok=True)
    return simulate_sequence(sequence, load_rig(file), record)


def _live(sequence: Sequence, name: str | None, broker: str | None) -> SequenceResult:
    import asyncio

    from hilserver.client import open_session, where
    from hilserver.sequences.live import run_live

    rig, address = where(None if name in (None, "-") else name, broker)

    async def run() -> SequenceResult:
        async with open_session(address, rig, telemetry=True, operator="test sequence") as session:
            return await run_live(sequence, session)

    return asyncio.run(run())


def verdict_line(verdict: Verdict) -> str:
    """A verdict in the terminal."""
    from hilserver.sequences.report import MARKS

    return f"{MARKS[verdict.outcome]:8}{verdict.name}: {verdict.found}"
