"""``hilserver deploy``: bring a rig to another computer over ssh, and operate it there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Collection

    from hilserver.commissioning.deployment import Target


def deploy(
    rig: Annotated[Path, typer.Argument(help="rig file (TOML)", show_default=False)],
    target: Annotated[str, typer.Argument(help="the computer, as user@host", show_default=False)],
    extra: Annotated[
        list[str] | None, typer.Option(help="libraries needed: modbus, ni, own-components, …; may be repeated")
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="only show which release runs there, and its mode")] = False,
    logs: Annotated[
        Path | None, typer.Option(help="only fetch the logs that this folder does not have", metavar="FOLDER")
    ] = None,
    downgrade: Annotated[
        bool, typer.Option("--downgrade", help="deploy even if a newer version of hilserver runs there")
    ] = False,
    service: Annotated[
        bool, typer.Option("--service", help="run it as a systemd user service, restarted after failures and reboots")
    ] = False,
    runner: Annotated[
        bool,
        typer.Option("--runner", help="a computer without Python: the rig runs in hilserver-runner, a small program"),
    ] = False,
    send: Annotated[
        str | None,
        typer.Option(
            help="with --runner: only send a command, such as arm, start or input joystick 0.5", metavar="COMMAND"
        ),
    ] = None,
    rollback: Annotated[bool, typer.Option("--rollback", help="only start the previous release again")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="only end the server, with its valves at null")] = False,
    ssh_config: Annotated[
        Path | None, typer.Option(help="ssh configuration for this target, instead of ~/.ssh/config", metavar="FILE")
    ] = None,
) -> None:
    """Run a rig on another computer: send hilserver with its libraries and the rig's files over ssh, and start it.

    The other computer needs ssh and the same version of Python as this one, but no Internet access. The running release
    keeps running until the new one is complete and hilserver doctor finds no error there. If the new release does not
    start, the previous one is started again. An armed rig is left alone.

    With --runner, the other computer needs no Python. Give the option in every further command for this computer.
    """
    from hilserver.commissioning.deployment import Target, roll_back
    from hilserver.commissioning.runner_target import RunnerTarget

    _require_one(status, logs is not None, rollback, stop, send is not None)
    _require_kind(runner, sends=send is not None, extras=bool(extra), service=service)
    there = (RunnerTarget if runner else Target)(target, _name_of(rig), ssh_config)
    if status:
        _show(there)
    elif logs is not None:
        _fetch(there, logs)
    elif send is not None and isinstance(there, RunnerTarget):
        typer.echo(f"{target}: {there.rig} is {there.send(send)['mode']}.")
    elif rollback:
        typer.echo(f"{target}: release {roll_back(there)} of {there.rig} runs again.")
    elif stop:
        there.ask("stop")
        typer.echo(f"{target}: {there.rig} is not running.")
    else:
        _bring(rig, there, extra or (), downgrade, service)


def _require_one(*chosen: bool) -> None:
    """Raises HilserverError if several actions are chosen."""
    from hilserver.errors import HilserverError

    if sum(chosen) > 1:
        raise HilserverError("--status, --logs, --rollback, --stop and --send: one at a time.")


def _require_kind(runner: bool, *, sends: bool, extras: bool, service: bool) -> None:
    """Raises HilserverError for options of the other kind of target."""
    from hilserver.errors import HilserverError

    if sends and not runner:
        raise HilserverError("--send is for --runner. A server takes commands from: hilserver send.")
    if service and runner:
        raise HilserverError("--service can't be combined with --runner: the runner is not restarted.")
    if extras and runner:
        raise HilserverError("--extra can't be combined with --runner, which needs no libraries.")


def _name_of(rig: Path) -> str:
    """The name of a rig. Raises HilserverError if the file has none."""
    from hilserver.errors import HilserverError
    from hilserver.toml import read_toml

    name = read_toml(rig).get("name")
    if not isinstance(name, str):
        raise HilserverError(f"{rig}: name: missing.")
    return name


def _bring(rig: Path, there: Target, extras: Collection[str], downgrade: bool, service: bool) -> None:
    """Let the new release run, and say so."""
    from hilserver.commissioning.deployment import deploy, mode_of
    from hilserver.commissioning.runner_target import RunnerTarget, deploy_runner

    if isinstance(there, RunnerTarget):
        name = deploy_runner(rig, there, typer.echo, downgrade=downgrade)
    else:
        name = deploy(rig, there, extras, typer.echo, downgrade=downgrade, service=service)
    typer.echo(f"{there.address}: release {name} of {there.rig} runs, in {mode_of(there)}.")


def _fetch(there: Target, folder: Path) -> None:
    """The logs that were fetched, one per line."""
    from hilserver.commissioning.deployment import fetch_logs
    from hilserver.commissioning.runner_target import RunnerTarget, fetch_rows

    if isinstance(there, RunnerTarget):
        files = fetch_rows(there, folder, typer.echo)
    else:
        files = fetch_logs(there, folder)
    for file in files:
        typer.echo(file)


def _show(there: Target) -> None:
    """Release, mode and timing, one per line."""
    from hilserver.commissioning.deployment import state_of

    found = state_of(there)
    release: dict[str, Any] = found["release"]
    typer.echo(f"release {release['name']}: hilserver {release['version']}, {release['file']}")
    if (state := found["state"]) is None:
        typer.echo(f"{there.rig}: is not running")
        raise typer.Exit(1)
    typer.echo(f"{there.rig}  {state['mode']}  tick {state['tick']}  missed {state['missed_ticks']}")
    if state["fault"]:
        typer.echo(f"fault: {state['fault']}")
    if "time_sync_error" in state:
        typer.echo(f"time synchronisation error {1e6 * state['time_sync_error']:.0f} µs")
    if (loop := state.get("loop")) is not None:
        error, wake_up = 1e6 * loop["time_sync_error"], 1e6 * loop["wake_up"]["median"]
        typer.echo(f"time synchronisation error {error:.0f} µs, wake-up {wake_up:.1f} µs (median)")
