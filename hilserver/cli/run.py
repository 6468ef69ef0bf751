"""``hilserver run``: run a rig in real time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hilserver.cli.output import never_waiting

RigFile = Annotated[Path, typer.Argument(help="rig file (TOML)", show_default=False)]


@never_waiting()
def run(
    rig: RigFile,
    report: Annotated[
        Path | None, typer.Option(help="write a report on the run to this folder when it ends", metavar="FOLDER")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="log every command and change of mode")] = False,
) -> None:
    """Run a rig in real time until Ctrl-C (or SIGTERM).

    Starts in SAFE with the valves at null. Arm, start and switch over MQTT (hilserver switch, mosquitto_pub). Every
    tick is recorded. However the run ends, the valves are set to their safe values first.
    """
    import asyncio
    import logging
    import os

    from hilserver.service.notify import Notifier
    from hilserver.service.restarts import Restarts

    line = "%(levelname)s %(message)s" if "JOURNAL_STREAM" in os.environ else "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format=line)
    notifier, restarts = Notifier.from_environment(), Restarts.of_service()
    restarts.wait(notifier)

    from hilserver.service.children import USUAL, Prepared

    async def serve() -> int:
        prepared = Prepared()
        try:
            await prepared.start(*USUAL)  # before the imports below, which take as long as those of these processes
            return await serve_with(prepared)
        finally:
            await prepared.end()

    async def serve_with(prepared: Prepared) -> int:
        from hilserver.rig.build import load_rig
        from hilserver.service.supervisor import Supervisor

        loaded = load_rig(rig)
        supervisor = Supervisor(loaded, notifier, restarts, prepared)
        task = asyncio.create_task(supervisor.run())
        ready = asyncio.create_task(supervisor.ready.wait())
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            typer.echo(
                f"{loaded.settings.name} runs at {loaded.settings.loop.rate:g} Hz. "
                f"MQTT: {supervisor.address}, topics hil/{loaded.settings.name}/#"
            )
            why_not = "the disk is nearly full" if loaded.settings.recording.enabled else "recording.enabled = false"
            typer.echo(f"Log: {supervisor.log_file}" if supervisor.log_file else f"Not recorded ({why_not}).")
            typer.echo("Ctrl-C ends it with the valves at null.")
        ready.cancel()
        code = await task
        if report is not None:
            await asyncio.to_thread(_report, supervisor.log_file, report)
        return code

    raise typer.Exit(asyncio.run(serve()))


def _report(log: Path | None, folder: Path) -> None:
    """Write the report on a run, if it was recorded."""
    from hilserver.errors import HilserverError
    from hilserver.report.run_report import write_run_report

    try:
        typer.echo(f"Report: {write_run_report(log, folder)}" if log else "No report: the run was not recorded.")
    except HilserverError as error:  # the exit code reports how the run itself ended
        typer.echo(f"No report: {error}")
