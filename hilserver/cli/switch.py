"""``hilserver switch`` and ``hilserver status``, ``hilserver send``: talk to a running server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from hilserver.service.address import BrokerAddress
    from hilserver.service.messages import Answer, Command, DeviceStatus, LoopStatus, RecordingStatus

Rig = Annotated[
    str | None, typer.Option("--rig", "-r", help="name of the rig; default: the one that runs on this machine")
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        "-b",
        envvar="HILSERVER_BROKER",
        help="its MQTT broker: host:port, or a TOML file with address and log-in; default: of the server on this PC",
    ),
]


def switch(
    component: Annotated[
        str, typer.Argument(help="name of the component in the circuit; or a circuit file with --circuit")
    ],
    values: Annotated[list[str] | None, typer.Argument(help='new values, like nominal_flow.flow="60 l/min"')] = None,
    kind: Annotated[str | None, typer.Option("--type", "-t", help="put a component of this type in its place")] = None,
    circuit: Annotated[bool, typer.Option("--circuit", help="switch to the whole circuit of this file")] = False,
    steady: Annotated[
        bool, typer.Option("--steady", help="new states start where they come to rest, not at their initial values")
    ] = False,
    rig: Rig = None,
    broker: Broker = None,
) -> None:
    """Change the virtual hydraulics while it runs: a component's values, its type, or the whole circuit.

    The change is prepared and tried outside of the loop and takes effect at one tick; what is refused changes nothing.

    Examples: hilserver switch main_valve nominal_flow.flow="60 l/min"  |  hilserver switch --circuit lift_small.toml
    """
    from hilserver.service import messages as m

    start: Literal["initial", "steady"] = "steady" if steady else "initial"
    given = _assignments(values or [])
    if circuit:
        command: m.Command = _whole_circuit(component, start)
    else:
        change = {"type": kind, "values": given} if kind is not None else {"set": given}
        payload = {"component": component, "start": start, **change}
        command = m.read_command("switch", json.dumps(payload).encode())
    answer = ask(command, rig, broker)
    result = answer.result
    moved = ", ".join(
        f"{valve} {percent:.1f} %" for valve, percent in _table(result.get("command_moved_percent")).items()
    )
    typer.echo(
        f"switched {component} in tick {result['tick']} (prepared in {result['prepared_ms']:.0f} ms, "
        f"active after {result['active_ms']:.0f} ms, command moved by {moved} of range)"
    )


def send(
    command: Annotated[
        str, typer.Argument(help="arm, disarm, start, stop, reset, set_input, strategy, jog, cycle, ...")
    ],
    values: Annotated[list[str] | None, typer.Argument(help="its values, like input=joystick value=0.5")] = None,
    rig: Rig = None,
    broker: Broker = None,
) -> None:
    """Send any command to a running server and show its answer.

    Examples: hilserver send arm  |  hilserver send start  |  hilserver send cycle action=start  |
    hilserver send set_input input=joystick value=0.3  |  hilserver send strategy valve=main strategy=flow_servo
    """
    from hilserver.service.messages import read_command

    answer = ask(read_command(command, json.dumps(_assignments(values or [])).encode()), rig, broker)
    typer.echo(f"{command}: done. " + ", ".join(f"{key} {value}" for key, value in answer.result.items()))


def status(
    rig: Rig = None,
    broker: Broker = None,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """Show how a running server is: mode, faults, warnings, targets and measured values, timing."""
    from rich.console import Console
    from rich.table import Table

    from hilserver.client import status as read

    name, address = where(rig, broker)
    found = read(address, name)
    if as_json:
        parts = {
            "online": found.online,
            "state": found.state and found.state.model_dump(),
            "circuit": found.circuit and found.circuit.model_dump(),
        }
        typer.echo(json.dumps(parts, indent=1))
        return
    console = Console()
    state = found.state
    if state is None or not found.online:
        console.print(f"{name}: offline" + (f", last seen in mode {state.mode}" if state else ""))
        raise typer.Exit(1)
    console.print(f"[bold]{name}[/bold]  {state.mode}  tick {state.tick}  missed {state.missed_ticks}")
    if state.fault:
        console.print(f"[red]fault: {state.fault}[/red]")
    for text in (*state.warnings, *state.degradations):
        console.print(f"[yellow]- {text}[/yellow]")
    for device, report in state.devices.items():
        if report.errors or report.restarts:
            console.print(f"[yellow]- device {device}: {failures(report)}[/yellow]")
    if state.recording is not None and state.recording.file is not None:
        console.print(recorded(state.recording), soft_wrap=True)
    table = Table("", "target", "actual", "unit", box=None)
    channels = found.description.channels if found.description else {}
    for key in dict.fromkeys((*state.target, *state.actual)):
        unit = channels[key].unit if key in channels else ("m^3/s" if key.endswith(".flow") else "")
        shown = [
            display(value, unit)[0] if value is not None else "-"
            for value in (state.target.get(key), state.actual.get(key))
        ]
        table.add_row(key, *shown, display(0.0, unit)[1])
    console.print(table)
    if state.loop is not None:
        console.print(punctuality(state.loop))
        console.print(worst(state.loop, state.missed_ticks), soft_wrap=True)
    console.print("now: " + "  ".join(f"{key} {value * 1e6:.0f} µs" for key, value in state.timing.items()))


def recorded(recording: RecordingStatus) -> str:
    """Where a run is recorded, and how much."""
    free = "" if recording.free_megabytes is None else f", {recording.free_megabytes / 1e3:.1f} GB free"
    lost = f", [red]{recording.lost} lost[/red]" if recording.lost else ""
    return f"recorded: {recording.rows} rows{lost}, {recording.file} ({recording.megabytes:.1f} MB{free})"


def punctuality(loop: LoopStatus) -> Table:
    """How punctual the loop has been since the start of the server, in µs."""
    from rich.table import Table

    table = Table("since the start, µs", *("min", "mean", "median", "99 %", "99.9 %", "max"), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    named = {"wake-up after the deadline": loop.wake_up, "work per tick": loop.work}
    named |= {f"  {name}": figures for name, figures in loop.parts.items()}
    for name, f in named.items():
        if f is not None:
            figures = (f.min, f.mean, f.median, f.p99, f.p999, f.max)
            table.add_row(name, *(f"{1e6 * value:.1f}" for value in figures))
    return table


def worst(loop: LoopStatus, missed: int) -> str:
    """The worst of it in a sentence."""
    return (
        f"{loop.wake_up.count} ticks of {loop.period * 1e6:.0f} µs, {missed} missed; time synchronisation error "
        f"{loop.time_sync_error * 1e6:.0f} µs, minimum step {loop.minimum_step * 1e6:.0f} µs"
    )


def failures(report: DeviceStatus) -> str:
    """What a device's driver has counted, and the latest of it.

    >>> from hilserver.service.messages import DeviceStatus
    >>> failures(DeviceStatus(errors={"timeout": 3}, last_error="device io: no answer within 0.2 s.", restarts=1))
    '3 × timeout, 1 × I/O process started again; the latest: device io: no answer within 0.2 s.'
    """
    counts = [f"{count} × {name}" for name, count in sorted(report.errors.items())]
    if report.restarts:
        counts.append(f"{report.restarts} × I/O process started again")
    return ", ".join(counts) + (f"; the latest: {report.last_error}" if report.last_error else "")


def display(value: float, unit: str) -> tuple[str, str]:
    """A value in the units people use: bar, l/min, mm; (text, unit)."""
    factor, shown, digits = {"Pa": (1e-5, "bar", 2), "m^3/s": (6e4, "l/min", 2), "m": (1e3, "mm", 1)}.get(
        unit, (1.0, unit, 4)
    )
    return f"{value * factor:.{digits}f}", shown


def ask(command: Command, rig: str | None, broker: str | None) -> Answer:
    """Send a command and return its answer. Raises HilserverError with the reason where it is refused."""
    from hilserver.client import send as request
    from hilserver.errors import HilserverError

    name, address = where(rig, broker)
    answer = request(address, name, command)
    if not answer.ok:
        raise HilserverError(f"refused: {answer.reason}")
    return answer


def where(rig: str | None, broker: str | None) -> tuple[str, BrokerAddress]:
    """Which server is meant: its rig name and its broker."""
    from pathlib import Path

    from hilserver.errors import HilserverError
    from hilserver.service.address import BrokerAddress, read_address
    from hilserver.service.running import find

    if broker is None:
        return find(rig)
    if broker.endswith(".toml"):
        named, address = read_address(Path(broker))
        if rig is None and named is None:
            raise HilserverError(f'{broker}: which rig? Name it with --rig, or in the file: rig = "..."')
        return rig or str(named), address
    host, _, port = broker.rpartition(":")
    if rig is None or not host or not port.isdigit():
        raise HilserverError(f'--broker "{broker}": write host:port and name the rig with --rig, or name a TOML file.')
    return rig, BrokerAddress(host=host, port=int(port))


def _whole_circuit(file: str, start: Literal["initial", "steady"]) -> Command:
    """A circuit file of this machine is sent as it is; another name is looked up by the server."""
    from pathlib import Path

    from hilserver.rig.load import read_toml
    from hilserver.service.messages import SwitchCircuit

    if Path(file).is_file():
        return SwitchCircuit(circuit=read_toml(Path(file)), start=start)
    return SwitchCircuit(file=file, start=start)


def _assignments(values: list[str]) -> dict[str, Any]:
    """``["a.b=1", "c=60 l/min"]`` -> {"a.b": 1, "c": "60 l/min"}; what is JSON is taken as such."""
    from hilserver.errors import HilserverError

    found: dict[str, Any] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise HilserverError(f'"{text}" is not of the form key=value, like opening_pressure="120 bar".')
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def _table(value: object) -> dict[str, float]:
    return value if isinstance(value, dict) else {}
