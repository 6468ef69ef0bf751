"""A command as the real-time loop takes it from its mailbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hilserver.numerics.arrays import Floats
from hilserver.tick.program import command_record


class LoopCommand(NamedTuple):
    """A command as the loop takes it: kind and arguments (`hilserver.tick.codes`); ``about``: what the log notes."""

    kind: int
    first: float = 0.0
    second: float = 0.0
    further: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    about: Mapping[str, Any] | None = None

    def record(self) -> Floats:
        """Kind and arguments as a record for the mailbox."""
        return command_record(self.kind, self.first, self.second, *self.further)
