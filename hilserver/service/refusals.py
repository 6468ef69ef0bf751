"""Why a command is refused, in sentences: by the server because of a value, by the loop because of its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hilserver.errors import ConfigurationError, Problem, did_you_mean
from hilserver.protocol import commands
from hilserver.tick.codes import ResultCode

NEEDS: Mapping[type[commands.Command], str] = {
    commands.Arm: "SAFE",
    commands.Disarm: "ARMED or RUNNING",
    commands.Start: "ARMED",
    commands.Stop: "RUNNING",
    commands.Reset: "FAULT",
    commands.Trip: "any mode",
    commands.SetInput: "RUNNING",
    commands.Jog: "RUNNING, strategy manual",
    commands.Cycle: "RUNNING",
    commands.React: "ARMED or RUNNING",
    commands.BeginPlayout: "RUNNING",
    commands.EndPlayout: "a running playout",
}
"""What the loop requires for a command, in words; the commands that are not listed here are accepted in any mode."""


def refusal_text(command: commands.Command, result: int, mode: str, violated: Sequence[str] = ()) -> str:
    """Why the loop refuses a command, in a sentence; ``result``: the loop's result, ``mode``: the present mode.

    ``violated``: the limits that would end RUNNING now.
    """
    hint, needs = "", NEEDS.get(type(command), "")
    if result == ResultCode.WRONG_MODE and needs:
        is_now = "became" if mode in needs else "is"  # in the same tick, after the command
        hint = f" ({command.name} needs {needs}, the mode {is_now} {mode})"
    elif result == ResultCode.LIMIT_ACTIVE and violated:
        hint = f" (violated: {', '.join(violated)})"
    return f"{ResultCode(result).text}{hint}."


def invalid(key: str, text: str) -> ConfigurationError:
    """The error of a command that can't be carried out because of its value at ``key``."""
    return ConfigurationError([Problem(text, key)])


def number_of(name: str, known: Mapping[str, Any], what: str) -> float:
    """The number of an input or valve (``what``) of the rig. Raises ConfigurationError if it has none of this name."""
    if name not in known:
        raise invalid(what, f'the rig has no {what} "{name}".' + did_you_mean(name, known))
    return float(list(known).index(name))
