"""``hilserver identify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.changing import change_file
from hilserver.cli.output import asking, never_waiting
from hilserver.cli.prose import say

if TYPE_CHECKING:
    from hilserver.identify.evaluation import Evaluation
    from hilserver.identify.excitation import Extent
    from hilserver.identify.recorded import Recording
    from hilserver.rig.rig import Rig

USUAL_SECONDS = 60.0
"""Duration of the sequence of valves, s."""
SECONDS = "duration of the sequence, s; default: 60, for actuators 20"
LONGEST = "duration up to which the sequence goes on with what is still uncertain, s; default: 3 times --seconds"

Log = Annotated[Path | None, typer.Option(help="log (.arrow) of this rig to evaluate; default: move the simulated rig")]
Drive = Annotated[
    bool, typer.Option("--drive", help="move the rig in real time, as hilserver run does, and evaluate its log")
]
Actuators = Annotated[
    list[str] | None,
    typer.Option(help="actuator to identify; may be repeated; default: all, if the rig has no valves"),
]
EndStops = Annotated[
    bool | None,
    typer.Option(
        "--end-stops/--no-end-stops",
        help="move the piston to the ends of its stroke, too, for the zeros of the pressure sensors; "
        "default: without --drive only",
        show_default=False,
    ),
]


@never_waiting()
def identify(
    file: Annotated[Path, typer.Argument(metavar="RIG", help="rig file (TOML)", show_default=False)],
    valve: Annotated[list[str] | None, typer.Option(help="valve to identify; may be repeated; default: all")] = None,
    actuator: Actuators = None,
    log: Log = None,
    drive: Drive = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="don't ask for confirmation before the machine moves or the file is changed")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="show the changes of the rig file, and make them; a dated copy is kept")
    ] = False,
    seconds: Annotated[float | None, typer.Option(min=5.0, max=600.0, help=SECONDS, show_default=False)] = None,
    longest: Annotated[float | None, typer.Option(min=5.0, max=1800.0, help=LONGEST, show_default=False)] = None,
    largest: Annotated[float, typer.Option(min=0.05, max=1.0, help="maximum command of the sequence")] = 0.6,
    end_stops: EndStops = None,
    order: Annotated[
        int | None, typer.Option(min=1, max=2, help="order of the spool model; default: chosen from the recording")
    ] = None,
    sensor_delays_known: Annotated[
        bool, typer.Option("--sensor-delays-known", help="sensor delays are exact: any excess is that of the valves")
    ] = False,
    out: Annotated[Path, typer.Option("--output", "-o", help="folder of the report")] = Path("reports"),
) -> None:
    """Identify the real valves or actuators from a recorded motion, for the rig file.

    Of valves: flow coefficients, spool, delay, leakage, overlap, null, hysteresis, and the tuning of flow_servo. The
    valves are moved by a bounded sequence of manual commands: those of a simulated rig in lockstep, those of a real one
    with --drive. Alternatively a log is evaluated in which they move over a wide range (--log). The result is a
    fragment of the rig file with standard deviations and, for a valve with a flow sensor, the settings of the flow
    servo with their margins, and a report with plots.

    Of actuators whose position is controlled: position loop, servo valve, oil, specimen, delays and noise of the
    sensors, from a sweep of the displacement that a simulated rig performs. For a real rig, the files with which the
    sweep is recorded are written, and its log is evaluated (--log).
    """
    from hilserver.cli.identify_actuators import identify_actuators
    from hilserver.identify.evaluation import Evaluation
    from hilserver.identify.excitation import Extent
    from hilserver.identify.identification import identify_valve
    from hilserver.identify.lateness import with_lateness
    from hilserver.rig.build import load_rig

    rig = load_rig(file)
    if actuator or (rig.settings.actuators and not (rig.settings.valves or valve)):
        _refuse_options_of_valves(rig, valve, drive, end_stops, order, sensor_delays_known)
        done = identify_actuators(rig, actuator or [], log, seconds, out, apply=apply, yes=yes)
        raise typer.Exit(0 if done else 1)
    seconds = USUAL_SECONDS if seconds is None else seconds
    wanted = _wanted(rig, valve)
    ends, longest = _to_the_ends(rig, wanted, log, drive, end_stops), 3.0 * seconds if longest is None else longest
    extent = Extent(seconds, largest, longest=longest, end_stops=ends)
    recording = _recording(rig, wanted, log, drive, extent, yes, sensor_delays_known)
    results = with_lateness([identify_valve(rig, recording, name, order) for name in wanted])
    evaluation = Evaluation(results, recording)
    text = _written(evaluation, out, rig.settings.name)
    if apply:
        _apply(file, text, evaluation, yes)


def _refuse_options_of_valves(
    rig: Rig, valve: list[str] | None, drive: bool, end_stops: bool | None, order: int | None, delays_known: bool
) -> None:
    """Raise HilserverError for options that actuators don't have."""
    from hilserver.errors import HilserverError

    given = {"--valve": bool(valve), "--drive": drive, "--end-stops": end_stops is not None}
    given |= {"--order": order is not None, "--sensor-delays-known": delays_known}
    for option, is_given in given.items():
        if is_given:
            more = " Without --log, the command tells how to record a real actuator." if option == "--drive" else ""
            raise HilserverError(f"{rig.file}: {option} is for valves, not for actuators.{more}")


def _written(evaluation: Evaluation, out: Path, name: str) -> str:
    """Write fragment and report, and print the fragment, which is returned."""
    from hilserver.identify.report import document, fragment

    text = fragment(evaluation)
    written = document(evaluation).write(out, f"{name}-valves")
    fragment_file = out / f"{name}-valves.toml"
    fragment_file.write_text(text)
    typer.echo(text)
    for path in (fragment_file, *written):
        say(f"Written: {path}")
    return text


def _wanted(rig: Rig, valves: list[str] | None) -> list[str]:
    """The valves to identify; all, if none are given. Raises HilserverError for what is not a valve."""
    from hilserver.errors import HilserverError, did_you_mean

    known = rig.settings.valves
    if not known:
        raise HilserverError(
            f"{rig.file}: there is no valve to identify. What is uncertain about actuators is tracked while they run: "
            "hilserver status shows it."
        )
    wanted = list(dict.fromkeys(valves or known))
    if unknown := [name for name in wanted if name not in known]:
        raise HilserverError(f'{rig.file}: "{unknown[0]}" is not a valve.{did_you_mean(unknown[0], known)}')
    return wanted


def _to_the_ends(rig: Rig, valves: list[str], log: Path | None, drive: bool, end_stops: bool | None) -> bool:
    """Whether the piston is moved to the ends of its stroke, too.

    Raises HilserverError for options that exclude each other, and where limits keep the piston from the ends.
    """
    from hilserver.errors import HilserverError

    if log is not None and (drive or end_stops):
        option = "--drive" if drive else "--end-stops"
        raise HilserverError(f"--log evaluates a recording, {option} makes a new one: give one of them.")
    if end_stops:
        _refuse_limits(rig, valves)
    return not drive if end_stops is None else end_stops


def _recording(
    rig: Rig, valves: list[str], log: Path | None, drive: bool, extent: Extent, yes: bool, delays_known: bool
) -> Recording:
    """What is evaluated, less the zero errors of the sensors that it shows."""
    from dataclasses import replace

    from hilserver.identify.recorded import recording_of_log
    from hilserver.identify.simulated_excitation import recorded_excitation
    from hilserver.identify.zeros import without_zero_errors

    if drive:
        log = _driven(rig, valves, extent, yes)
    if log is not None:
        recording = recording_of_log(rig, log)
    else:
        recording = recorded_excitation(rig, valves, extent, tell=say)
    return replace(without_zero_errors(rig, recording), delays_known=delays_known)


def _refuse_limits(rig: Rig, valves: list[str]) -> None:
    """Raise HilserverError if limits keep the piston from the ends of its stroke."""
    from hilserver.errors import HilserverError
    from hilserver.identify.excitation import groups_of, limits_before_the_ends

    for group in groups_of(rig, valves):
        if group.cylinder is None:
            raise HilserverError(f"{rig.file}: --end-stops: there is no cylinder at {', '.join(group.valves)}.")
        if names := limits_before_the_ends(rig, group.cylinder):
            raise HilserverError(
                f"{rig.file}: --end-stops: the piston at {', '.join(group.valves)} does not reach the ends of its "
                f"stroke because of limits.{' and limits.'.join(names)}. Widen the limits, or zero pressure sensors "
                "with the lines depressurised (hilserver calibrate --tare) instead."
            )


def _refuse_nothing(file: Path, fragment: str, evaluation: Evaluation) -> None:
    """Exit with code 1, and say why, if the fragment contains nothing that could be merged."""
    from hilserver.identify.report import reasons_for_nothing
    from hilserver.rig.merge import has_values

    if has_values(fragment):
        return
    say(f"Nothing was merged: {file} stays as it is.")
    for reason in reasons_for_nothing(evaluation):
        say(reason)
    raise typer.Exit(1)


def _apply(file: Path, fragment: str, evaluation: Evaluation, yes: bool) -> None:
    """Show the difference, ask, and merge the fragment into the rig file; then say what to do about the rest."""
    from datetime import datetime

    from hilserver.identify.report import advice_lines, obsolete
    from hilserver.rig.build import load_rig
    from hilserver.rig.merge import merged

    _refuse_nothing(file, fragment, evaluation)
    before, now = file.read_text(), datetime.now().astimezone()
    after = merged(before, fragment, obsolete(evaluation), now.date())
    change_file(file, before, after, now, load_rig, "identified", yes=yes)
    for line in advice_lines(evaluation):
        say(line)


def _driven(rig: Rig, valves: list[str], extent: Extent, yes: bool) -> Path:
    """Move the rig in real time; returns its log."""
    import asyncio

    from hilserver.commissioning.driving import record_by_hand

    if not yes:
        name, names = rig.settings.name, ", ".join(valves)
        time = f"{extent.seconds:g}" + (f" to {extent.longest:g}" if extent.longest > extent.seconds else "")
        ends = ", then to the ends of the stroke" if extent.end_stops else ""
        question = (
            f"{name} will be armed and {names} moved with commands up to {extent.largest:.0%} for {time} s{ends}: the "
            "machine will move. Is the area clear?"
        )
        with asking():
            typer.confirm(question, abort=True)
    return asyncio.run(record_by_hand(rig, valves, extent, tell=say))
