"""The number of reactions that a sequence needs at the same time: none is counted that may have ended."""

from __future__ import annotations

import pytest

from hilserver.protocol.commands import Arm, Command, React, Release, Start, Stop
from hilserver.sequences.capacity import reactions_at_once

A, B, C = (React(reaction=name, when="x > 1 m", then="hold") for name in "abc")
END = React(reaction="end", when="x > 1 m", then="stop")


@pytest.mark.parametrize(
    ("commands", "number"),
    [
        ([Arm(), Start()], 0),
        ([A, B, Start(), C], 3),
        ([A, A], 1),
        ([A, B, Release(reaction="a"), C], 2),
        ([A, B, Release(), C], 2),
        ([A, Stop(), B], 1),
        ([A, B, END], 3),
        ([A, END, Start(), B, C], 2),
    ],
)
def test_reactions_that_are_armed_at_the_same_time(commands: list[Command], number: int) -> None:
    assert reactions_at_once(commands) == number
