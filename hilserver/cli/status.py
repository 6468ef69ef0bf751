"""``hilserver status``: the state of a running server, once or continuously."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.switch import Broker, Rig

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from hilserver.cli.tables import TerminalTable
    from hilserver.client import Session, Status
    from hilserver.protocol.address import BrokerAddress
    from hilserver.protocol.driven import ActuatorStatus, LearnedValue
    from hilserver.protocol.published import (
        Description,
        DeviceStatus,
        LoopStatus,
        MarginStatus,
        PlayoutStatus,
        RecordingStatus,
        ServerState,
    )

EVENTS_SHOWN = 8
"""Number of latest events below the watched status."""
DIGITS = {"bar": 2, "l/min": 2, "mm": 1}
"""Decimal places, by unit; 4 for all others."""
FAULTY = 3
"""Exit code in FAULT and in SAFE NOT CONFIRMED."""
REDRAWN = 0.25
"""Minimum time between two updates of the screen, s."""


def status(
    rig: Rig = None,
    broker: Broker = None,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
    watched: Annotated[
        bool, typer.Option("--watch", "-w", help="continuously, with the latest events, until Ctrl-C")
    ] = False,
) -> None:
    """Show the state of a running server: mode, faults, warnings, targets and measured values, timing.

    Exit code: 0; 1 if the server or the broker is offline; 3 in FAULT and in SAFE NOT CONFIRMED.

    --watch keeps running while server or broker are offline, and reports this. With --json, or if the output is not a
    terminal, it prints one state after the other, for other programs.
    """
    import asyncio
    from contextlib import suppress

    from rich.console import Console

    from hilserver.client import status as read
    from hilserver.client import where

    name, address = where(rig, broker)
    if watched:
        with suppress(KeyboardInterrupt):
            asyncio.run(watch(name, address, as_json))
        return
    found = read(address, name)
    if as_json:
        parts = {
            "online": found.online,
            "state": found.state and found.state.model_dump(),
            "circuit": found.circuit and found.circuit.model_dump(),
            "margins": found.margins and found.margins.model_dump(),
        }
        typer.echo(json.dumps(parts, indent=1))
    elif found.state is None or not found.online:
        last = f", last known mode {found.state.mode}" if found.state else ""
        Console().print(f"{name}: offline{last}", highlight=False)
    else:
        Console().print(picture(name, found.state, found.description, found.margins), soft_wrap=True)
    raise typer.Exit(exit_code(found))


def exit_code(found: Status) -> int:
    """For scripts and monitoring: 0 if the rig can be worked with, 1 if it is offline, otherwise FAULTY."""
    if found.state is None or not found.online:
        return 1
    return FAULTY if found.state.mode in ("FAULT", "SAFE_NOT_CONFIRMED") else 0


async def watch(name: str, address: BrokerAddress, as_json: bool) -> None:
    """Show the status whenever it changes, until cancelled."""
    import asyncio

    from rich.console import Console
    from rich.live import Live

    from hilserver.client import open_session

    console = Console()
    async with open_session(address, name) as session:
        if as_json or not console.is_terminal:
            await _print_each(session, console, as_json)
        with Live(console=console, auto_refresh=False, screen=True) as live:
            while True:
                live.update(watched_picture(session), refresh=True)
                await session.next_news()
                await asyncio.sleep(REDRAWN)


async def _print_each(session: Session, console: Console, as_json: bool) -> None:
    shown: object = None
    while True:
        now = (session.online, session.state)
        if now != shown:
            shown = now
            if as_json:
                state = session.state and session.state.model_dump()
                typer.echo(json.dumps({"online": session.online, "state": state}))
            else:
                console.print(watched_picture(session), soft_wrap=True)
        await session.next_news()


def watched_picture(session: Session) -> RenderableType:
    """The present status, or the reason why there is none, and the latest events."""
    from datetime import datetime

    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if not session.online:
        away = session.trouble or f"the server of rig {session.rig} is {session.availability}"
        parts.append(Text(f"{session.rig}: {away}", style="bold red"))
    if session.state is not None:
        parts.append(picture(session.rig, session.state, session.description, session.margins))
    for event in list(session.events)[-EVENTS_SHOWN:]:
        style = {"fault": "red", "warning": "yellow"}.get(event.kind, "")
        parts.append(Text(f"{datetime.fromtimestamp(event.time).astimezone():%H:%M:%S}  {event.text}", style=style))
    return Group(*parts)


def picture(
    name: str, state: ServerState, description: Description | None, margins: MarginStatus | None
) -> RenderableType:
    """A state for the terminal: mode, problems, targets and measured values, margins, timing."""
    from rich.console import Group
    from rich.text import Text

    from hilserver.cli.tables import TerminalTable

    parts: list[RenderableType] = [
        Text.assemble(
            (name, "bold"), f"  {state.mode.replace('_', ' ')}  tick {state.tick}  missed {state.missed_ticks}"
        )
    ]
    if state.fault:
        parts.append(Text(f"fault: {state.fault}", style="red"))
    if state.operator:
        parts.append(f"operator: {state.operator}")
    for text in (*state.warnings, *state.degradations):
        parts.append(Text(f"- {text}", style="red" if text in state.unconfirmed else "yellow"))
    for device, report in state.devices.items():
        if report.errors or report.restarts:
            parts.append(Text(f"- device {device}: {failures(report)}", style="yellow"))
    parts += [played(name, playout) for name, playout in state.playouts.items()]
    if state.recording is not None and state.recording.file is not None:
        parts.append(recorded(state.recording))
    table = TerminalTable("", "target", "actual", "unit", box=None)
    channels = description.channels if description else {}
    for key in dict.fromkeys((*state.target, *state.actual)):
        unit = channels[key].unit if key in channels else ("m^3/s" if key.endswith(".flow") else "")
        shown = [
            display(value, unit)[0] if value is not None else "-"
            for value in (state.target.get(key), state.actual.get(key))
        ]
        table.add_row(key, *shown, display(0.0, unit)[1])
    parts.append(table)
    if margins is not None and state.utilisation:
        parts.append(utilisation_table(state, margins))
        parts += [Text(f"- {text}", style="yellow") for text in margins.warnings]
    if state.learned:
        parts.append(learned_table(state.learned))
    parts += actuator_tables(state.actuators)
    if state.loop is not None:
        parts += [timing_table(state.loop), timing_summary(state.loop, state.missed_ticks)]
    parts.append("now: " + "  ".join(f"{key} {value * 1e6:.0f} µs" for key, value in state.timing.items()))
    return Group(*parts)


def utilisation_table(state: ServerState, margins: MarginStatus) -> TerminalTable:
    """The present utilisation of each real valve, and its margins."""
    from hilserver.cli.tables import TerminalTable

    now = ("flow to port", "flow to tank", "opening speed")
    found = ("capacity margin", "speed margin", "delay margin")
    table = TerminalTable("utilisation of a real valve", "strategy", *now, *found, box=None)
    for valve, used in state.utilisation.items():
        strategy = state.strategies.get(valve, "?")
        fastest = max(used.speed_to_port, used.speed_to_tank)
        present = [percent(share) for share in (used.flow_to_port, used.flow_to_tank, fastest)]
        smallest_of = (
            [each.margin for each in margins.capacity if each.valve == valve],
            [each.margin for each in margins.speed if each.valve == valve],
            [each.margin for each in margins.delay if each.strategy == strategy],
        )
        table.add_row(valve, strategy, *present, *(smallest(each, margins.calculated) for each in smallest_of))
    return table


def actuator_tables(actuators: Mapping[str, ActuatorStatus]) -> list[TerminalTable]:
    """How the actuators follow the virtual circuit, with the forces; and what their bridges have learned."""
    from hilserver.cli.tables import TerminalTable

    if not actuators:
        return []
    head = ("strategy", "error", "measured", "force", "force on the circuit", "later than stated", "at a limit")
    table = TerminalTable("actuator", *head, box=None)
    for name, a in actuators.items():
        values = ((a.error, "m"), (a.measured, "m"), (a.force, "N"), (a.reaction, "N"))
        shown = [
            "-" if value is None else f"{value * 1e3:.3f} mm" if unit == "m" else f"{value:.0f} N"
            for value, unit in values
        ]
        late = ", ".join(
            f"{what} {round(1e3 * delay, 1) + 0.0:.1f} ms"  # not -0.0
            for what, delay in (("command", a.late_command), ("force", a.late_force))
        )
        table.add_row(name, a.strategy, *shown, late, "; ".join(a.saturation) or "no")
    learned = {name: a.learned for name, a in actuators.items() if a.learned}
    return [table, *([learned_table(learned, "an actuator")] if learned else [])]


def learned_table(learned: Mapping[str, Mapping[str, LearnedValue]], what: str = "a valve") -> TerminalTable:
    """What bridges have learned about the ``what`` that they drive, and whether it is tracked at present."""
    from hilserver.cli.tables import TerminalTable
    from hilserver.web.display import in_practice

    head = ("key", "rig file", "learned", "range", "")
    table = TerminalTable(f"learned about {what}", *head, box=None)
    for valve, values in learned.items():
        for key, v in values.items():
            ends = f"{in_practice(v.minimum, v.unit)} to {in_practice(v.maximum, v.unit)}"
            found = in_practice(v.value, v.unit)
            found += f" ± {in_practice(v.deviation, v.unit)}" if v.deviation is not None else ""
            table.add_row(valve, key, in_practice(v.configured, v.unit), found, ends, v.state)
    return table


def percent(share: float | None) -> str:
    """A utilisation of a valve in per cent.

    >>> percent(0.428), percent(None)
    ('43 %', 'not possible')
    """
    return "not possible" if share is None else f"{100 * share:.0f} %"


def smallest(margins: list[float | None], calculated: bool = True) -> str:
    """The smallest margin, as displayed; None: any.

    >>> smallest([1.52, None]), smallest([None]), smallest([]), smallest([], calculated=False)
    ('1.5', 'any', '?', '...')
    """
    if not calculated:
        return "..."
    if not margins:
        return "?"
    known = [margin for margin in margins if margin is not None]
    return f"{min(known):.2g}" if known else "any"


def played(name: str, playout: PlayoutStatus) -> str:
    """Cycles, amplitude and phase of a playout."""
    amplitude, phase = (math.nan if known is None else known for known in (playout.amplitude, playout.phase_error))
    ratio = f"{100.0 * amplitude / playout.target:.1f} % of the amplitude, {phase:+.1f}°"
    cycles = f"{playout.cycles} of {playout.wanted} cycles at {playout.frequency:.4g} Hz"
    return f"playout {name}: {playout.state}, {cycles}, {ratio}, drive {playout.drive:.3g}"


def recorded(recording: RecordingStatus) -> str:
    """File and size of the recording."""
    free = "" if recording.free_megabytes is None else f", {recording.free_megabytes / 1e3:.1f} GB free"
    lost = f", [red]{recording.lost} lost[/red]" if recording.lost else ""
    memory = f", memory for {recording.buffer_left:.0f} s"
    return f"recorded: {recording.rows} rows{lost}, {recording.file} ({recording.megabytes:.1f} MB{free}{memory})"


def timing_table(loop: LoopStatus) -> TerminalTable:
    """Timing of the loop since the start of the server, in µs."""
    from hilserver.cli.tables import TerminalTable

    table = TerminalTable("since the start, µs", *("min", "mean", "median", "99 %", "99.9 %", "max"), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    named = {"wake-up after the deadline": loop.wake_up, "work per tick": loop.work}
    named |= {f"  {name}": figures for name, figures in loop.parts.items()}
    for name, f in named.items():
        if f is not None:
            figures = (f.min, f.mean, f.median, f.p99, f.p999, f.max)
            table.add_row(name, *(f"{1e6 * value:.1f}" for value in figures))
    return table


def timing_summary(loop: LoopStatus, missed: int) -> str:
    """Number of ticks and extremes of the timing, on one line."""
    return (
        f"{loop.wake_up.count} ticks of {loop.period * 1e6:.0f} µs, {missed} missed; time synchronisation error "
        f"{loop.time_sync_error * 1e6:.0f} µs, minimum step {loop.minimum_step * 1e6:.0f} µs"
    )


def failures(report: DeviceStatus) -> str:
    """The failures that a device's driver has counted, and the latest one.

    >>> from hilserver.protocol.published import DeviceStatus
    >>> failures(DeviceStatus(errors={"timeout": 3}, last_error="device io: no answer within 0.2 s.", restarts=1))
    '3 × timeout, 1 × I/O process restarted; latest: device io: no answer within 0.2 s.'
    """
    counts = [f"{count} × {name}" for name, count in sorted(report.errors.items())]
    if report.restarts:
        counts.append(f"{report.restarts} × I/O process restarted")
    return ", ".join(counts) + (f"; latest: {report.last_error}" if report.last_error else "")


def display(value: float, unit: str) -> tuple[str, str]:
    """A value in practical units (bar, l/min, mm): text and unit."""
    from hilserver.units import ZERO_CELSIUS, shown_unit

    if unit == "K":
        return f"{value - ZERO_CELSIUS:.1f}", "°C"
    shown, factor = shown_unit(unit)
    return f"{value * factor:.{DIGITS.get(shown, 4)}f}", shown
