"""How many reactions and playouts a test sequence certainly needs at the same time, compared with those of a rig.

Anything that may have ended by itself, which only the run shows, is not counted: no possible sequence is refused.
"""

from __future__ import annotations

from collections import Counter

from hilserver.errors import Problem
from hilserver.protocol.commands import ENDING, BeginPlayout, Command, React, Release, SetInput, Start
from hilserver.sequences.model import Sequence

NEUTRAL = (BeginPlayout, SetInput, Start)
"""Commands that end no reaction."""


def missing_capacity(sequence: Sequence, reactions: int, playouts: int) -> list[Problem]:
    """The problems of a sequence on a rig with this number of reactions and playouts."""
    carried_out = [step for step in sequence.steps if not step.refused]
    begun = Counter(step.at for step in carried_out if isinstance(step.command, BeginPlayout))
    needed = {
        "reactions": (reactions_at_once([step.command for step in carried_out]), reactions),
        "playouts": (max(begun.values(), default=0), playouts),
    }
    return [
        Problem(
            f"the steps need {what}: {most} at the same time; the rig has {has or 'none'}. Set [loop] {what} = {most} "
            "or more in the rig file.",
            "step",
            str(sequence.file),
        )
        for what, (most, has) in needed.items()
        if most > has
    ]


def reactions_at_once(commands: list[Command]) -> int:
    """The number of reactions that are certainly armed at the same time."""
    armed: dict[str, str] = {}
    most = 0
    for command in commands:
        if isinstance(command, React):
            if any(action in ENDING for action in armed.values()):  # may have fired, and have ended the others
                armed.clear()
            armed[command.reaction] = command.then
            most = max(most, len(armed))
        elif isinstance(command, Release) and command.reaction is not None:
            armed.pop(command.reaction, None)
        elif not isinstance(command, NEUTRAL):
            armed.clear()
    return most
