"""``hilserver switch`` and ``hilserver send``: commands to a running server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from hilserver.protocol.commands import Command
    from hilserver.protocol.published import Answer

Rig = Annotated[
    str | None, typer.Option("--rig", "-r", help="name of the rig; default: the one running on this computer")
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        "-b",
        envvar="HILSERVER_BROKER",
        help="its MQTT broker: host:port, or a TOML file with address and login; default: that of the local server",
    ),
]


def switch(
    component: Annotated[
        str, typer.Argument(help="name of the component in the circuit; or a circuit file with --circuit")
    ],
    values: Annotated[list[str] | None, typer.Argument(help='new values, such as nominal_flow.flow="60 l/min"')] = None,
    kind: Annotated[str | None, typer.Option("--type", "-t", help="replace the component by one of this type")] = None,
    circuit: Annotated[bool, typer.Option("--circuit", help="switch to the complete circuit in this file")] = False,
    steady: Annotated[
        bool, typer.Option("--steady", help="new states start at equilibrium instead of at their initial values")
    ] = False,
    rig: Rig = None,
    broker: Broker = None,
) -> None:
    """Change the virtual hydraulics while it runs: a component's values, its type, or the complete circuit.

    The change is prepared and tested outside the loop and takes effect at one tick; a refused change has no effect.

    Examples: hilserver switch main_valve nominal_flow.flow="60 l/min"  |  hilserver switch --circuit lift_small.toml
    """
    from hilserver.protocol import commands, parsing

    start: Literal["initial", "steady"] = "steady" if steady else "initial"
    given = _assignments(values or [])
    if circuit:
        command: commands.Command = _whole_circuit(component, start)
    else:
        change = {"type": kind, "values": given} if kind is not None else {"set": given}
        payload = {"component": component, "start": start, **change}
        command = parsing.read_command("switch", json.dumps(payload).encode())
    answer = ask(command, rig, broker)
    result = answer.result
    moved = ", ".join(
        f"{valve} {percent:.1f} %" for valve, percent in _table(result.get("command_moved_percent")).items()
    )
    typer.echo(
        f"switched {component} in tick {result['tick']} (prepared in {result['prepared_ms']:.0f} ms, "
        f"active after {result['active_ms']:.0f} ms, command moved by {moved} of range)"
    )
    for text in _texts(result.get("warnings")):
        typer.echo(f"- {text}")


def send(
    command: Annotated[
        str, typer.Argument(help="arm, disarm, start, stop, reset, set_input, strategy, jog, cycle, ...")
    ],
    values: Annotated[list[str] | None, typer.Argument(help="its values, such as input=joystick value=0.5")] = None,
    rig: Rig = None,
    broker: Broker = None,
) -> None:
    """Send any command to a running server and show its answer.

    Examples: hilserver send arm  |  hilserver send start  |  hilserver send cycle action=start  |
    hilserver send set_input input=joystick value=0.3  |  hilserver send strategy valve=main strategy=flow_servo
    """
    from hilserver.protocol.stopping import STOPPING

    given = _assignments(values or [])
    result = _stop(command, rig, broker) if command in STOPPING and not given else _sent(command, given, rig, broker)
    shown = {key: value for key, value in result.items() if key != "warnings"}
    typer.echo(f"{command}: done. " + ", ".join(f"{key} {value}" for key, value in shown.items()))
    for text in _texts(result.get("warnings")):
        typer.echo(f"- {text}")


def _sent(command: str, values: dict[str, Any], rig: str | None, broker: str | None) -> dict[str, Any]:
    """The result of any command."""
    from hilserver.protocol.parsing import read_command

    return ask(read_command(command, json.dumps(values).encode()), rig, broker).result


def _stop(command: str, rig: str | None, broker: str | None) -> dict[str, Any]:
    """The result of a command that stops the rig: sent without waiting for anything."""
    from hilserver.errors import HilserverError
    from hilserver.protocol.place import where
    from hilserver.protocol.stopping import send_stopping

    name, address = where(rig, broker)
    answer = send_stopping(address, name, command)
    if not answer["ok"]:
        raise HilserverError(f"refused: {answer['reason']}")
    result: dict[str, Any] = answer["result"]
    return result


def ask(command: Command, rig: str | None, broker: str | None) -> Answer:
    """Send a command and return its answer. Raises HilserverError with the reason if it is refused."""
    from hilserver.client import send as request
    from hilserver.client import where
    from hilserver.errors import HilserverError

    name, address = where(rig, broker)
    answer = request(address, name, command)
    if not answer.ok:
        raise HilserverError(f"refused: {answer.reason}")
    return answer


def _whole_circuit(file: str, start: Literal["initial", "steady"]) -> Command:
    """A circuit file on this computer is sent with its contents; any other name is a file on the server."""
    from pathlib import Path

    from hilserver.protocol.commands import SwitchCircuit
    from hilserver.toml import read_toml

    if Path(file).is_file():
        return SwitchCircuit(circuit=read_toml(Path(file)), start=start)
    return SwitchCircuit(file=file, start=start)


def _assignments(values: list[str]) -> dict[str, Any]:
    """``["a.b=1", "c=60 l/min"]`` -> {"a.b": 1, "c": "60 l/min"}; JSON is parsed."""
    from hilserver.errors import HilserverError

    found: dict[str, Any] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise HilserverError(f'"{text}" is not of the form key=value, such as opening_pressure="120 bar".')
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def _texts(value: object) -> list[str]:
    return list(map(str, value)) if isinstance(value, list) else []


def _table(value: object) -> dict[str, float]:
    return value if isinstance(value, dict) else {}
