"""Commands of the protocol as records for the real-time loop; every value is checked before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hilserver.errors import ConfigurationError, Problem, did_you_mean
from hilserver.protocol import commands
from hilserver.rig.build import Rig
from hilserver.service.strategies import offered_strategies
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.codes import CommandKind, ResultCode

_PLAIN = {
    "arm": CommandKind.ARM,
    "disarm": CommandKind.DISARM,
    "start": CommandKind.START,
    "stop": CommandKind.STOP,
    "reset": CommandKind.RESET,
    "trip": CommandKind.TRIP,
}
_NEEDS = {
    "arm": "SAFE",
    "disarm": "ARMED or RUNNING",
    "start": "ARMED",
    "stop": "RUNNING",
    "reset": "FAULT",
    "trip": "any mode",
}


class LoopCommand(NamedTuple):
    """A command as the loop takes it: kind and arguments (`hilserver.tick.codes`); ``needs``: the mode for it.

    ``about``: what the log notes of it.
    """

    needs: str
    kind: int
    first: float = 0.0
    second: float = 0.0
    further: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    about: Mapping[str, Any] | None = None


def loop_command(rig: Rig, command: commands.Command) -> LoopCommand:
    """The record of a command that leaves the circuit as it is. Raises ConfigurationError if a value is wrong."""
    settings = rig.settings
    match command:
        case commands.SetInput():
            number = _index(command.input, settings.inputs, "input")
            low, high = settings.inputs[command.input].range
            if not low <= command.value <= high:
                raise invalid("value", f"{command.value:g} is out of range: must be {low:g} … {high:g}.")
            return LoopCommand("RUNNING", CommandKind.SET_INPUT, number, command.value)
        case commands.SelectStrategy():
            number = _index(command.valve, settings.valves, "valve")
            offered = offered_strategies(rig, command.valve)
            if command.strategy not in offered:
                hint = did_you_mean(command.strategy, offered)
                raise invalid("strategy", f'"{command.strategy}" is not offered by this valve.{hint}')
            return LoopCommand("", CommandKind.STRATEGY, number, float(Strategy[command.strategy]))
        case commands.Jog():
            number = _index(command.valve, settings.valves, "valve")
            limit = settings.valves[command.valve].bridge.jog_limit
            if abs(command.command) > limit:
                raise invalid("command", f"{command.command:g} is beyond the valve's jog limit: at most ±{limit:g}.")
            return LoopCommand("RUNNING, strategy manual", CommandKind.JOG, number, command.command)
        case commands.Cycle():
            if rig.cycle is None:
                raise invalid("action", "the rig has no work cycle: name one in the rig file (cycle = ...).")
            return LoopCommand("RUNNING", CommandKind.CYCLE, float(command.action == "start"))
        case commands.ArmTrigger() | commands.EndTrigger():
            raise invalid("trigger", "needs the recorder of a running server: a run without one has no triggers.")
    return LoopCommand(_NEEDS[command.name], _PLAIN[command.name])


def refusal_text(command: commands.Command, needs: str, result: int, mode: str, violated: Sequence[str] = ()) -> str:
    """Why the loop refuses a command, in a sentence; ``result``: the loop's result, ``mode``: the present mode.

    ``violated``: the limits that would end RUNNING now.
    """
    hint = ""
    if result == ResultCode.WRONG_MODE and needs:
        is_now = "became" if mode in needs else "is"  # in the same tick, after the command
        hint = f" ({command.name} needs {needs}, the mode {is_now} {mode})"
    elif result == ResultCode.LIMIT_ACTIVE and violated:
        hint = f" (violated: {', '.join(violated)})"
    return f"{ResultCode(result).text}{hint}."


def invalid(key: str, text: str) -> ConfigurationError:
    """The error of a command that can't be carried out because of its value at ``key``."""
    return ConfigurationError([Problem(text, key)])


def _index(name: str, known: Mapping[str, Any], what: str) -> float:
    if name not in known:
        raise invalid(what, f'the rig has no {what} "{name}".' + did_you_mean(name, known))
    return float(list(known).index(name))
