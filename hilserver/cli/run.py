"""``hilserver run``: run a rig in real time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.output import never_waiting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hilserver.service.children import Prepared
    from hilserver.service.forking import Forked
    from hilserver.service.notify import Notifier
    from hilserver.service.restarts import Restarts
    from hilserver.service.supervisor import ServerRun

RigFile = Annotated[Path, typer.Argument(help="rig file (TOML)", show_default=False)]


Speed = Annotated[
    float,
    typer.Option(
        min=0.0, help="simulated rig: seconds of the rig per second of the clock, such as 0.1 (slow motion) or 10"
    ),
]


def run(
    rig: RigFile,
    speed: Speed = 1.0,
    report: Annotated[
        Path | None, typer.Option(help="write a report on the run to this folder when it ends", metavar="FOLDER")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="log every command and change of mode")] = False,
) -> None:
    """Run a rig in real time until Ctrl-C (or SIGTERM).

    Starts in SAFE with the valves at null. Arm, start and switch over MQTT (hilserver switch, mosquitto_pub). Every
    tick is recorded. However the run ends, the valves are set to their safe values first.

    A rig whose devices are all simulated can run slower or faster than real time (--speed): all times in
    its rig file then count in simulated time; operator and network (heartbeats, telemetry) stay in real time.
    """
    from hilserver.service.forking import fork_usual_children

    forked = fork_usual_children()  # first: while this process has one thread, and has loaded what they need
    with never_waiting():
        raise typer.Exit(_run(rig, speed, report, verbose, forked))


def _run(rig: Path, speed: float, report: Path | None, verbose: bool, forked: Mapping[str, Forked]) -> int:
    """The same, with child processes that have been forked; returns the exit code."""
    import asyncio

    from hilserver.service.children import Prepared
    from hilserver.service.notify import Notifier
    from hilserver.service.restarts import Restarts

    _set_up_logging(verbose)
    prepared = Prepared(forked)
    try:
        notifier, restarts = Notifier.from_environment(), Restarts.of_service()
        restarts.wait(notifier)
        return asyncio.run(_serve(rig, speed, report, notifier, restarts, prepared))
    finally:
        prepared.end()


def _set_up_logging(verbose: bool) -> None:
    """Log to stderr; systemd's journal adds its own time to each line."""
    import logging
    import os

    line = "%(levelname)s %(message)s" if "JOURNAL_STREAM" in os.environ else "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format=line)


async def _serve(
    rig: Path, speed: float, report: Path | None, notifier: Notifier, restarts: Restarts, prepared: Prepared
) -> int:
    """Run the rig until it ends; returns the exit code."""
    import asyncio

    from hilserver.rig.build import load_rig
    from hilserver.rig.rig import at_speed
    from hilserver.service.supervisor import Supervisor

    supervisor = Supervisor(at_speed(load_rig(rig), speed), notifier, restarts, prepared)
    task = asyncio.create_task(supervisor.run())
    started = asyncio.create_task(supervisor.started())
    await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        _say_what_runs(started.result())
    started.cancel()
    code = await task
    if report is not None:
        await asyncio.to_thread(_report, supervisor.log_file, report)
    return code


def _say_what_runs(run: ServerRun) -> None:
    """The rig, the address at which it is operated, and its log."""
    settings, speed, log = run.rig.settings, run.rig.speed, run.recording.log_file
    at_speed = f", {speed:g} times real time" if speed != 1.0 else ""
    typer.echo(
        f"{settings.name} runs at {settings.loop.rate:g} Hz{at_speed}. MQTT: {run.address}, "
        f"topics hil/{settings.name}/#"
    )
    why_not = "the disk is nearly full" if settings.recording.enabled else "recording.enabled = false"
    typer.echo(f"Log: {log}" if log else f"Not recorded ({why_not}).")
    what = {"valves at null": settings.valves, "actuators at their safe displacements": settings.actuators}
    ends = " and the ".join(text for text, driven in what.items() if driven) or "outputs at their safe values"
    typer.echo(f"Ctrl-C ends it with the {ends}.")


def _report(log: Path | None, folder: Path) -> None:
    """Write the report on a run, if it was recorded."""
    from hilserver.errors import HilserverError
    from hilserver.report.run_report import write_run_report

    try:
        typer.echo(f"Report: {write_run_report(log, folder)}" if log else "No report: the run was not recorded.")
    except HilserverError as error:  # the exit code reports how the run itself ended
        typer.echo(f"No report: {error}")
