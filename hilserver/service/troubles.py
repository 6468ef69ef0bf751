"""How the parts of a run report that something is wrong, and that it is over: types of the functions they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Tell(Protocol):
    """Reports what happened; ``trouble`` is shown for as long as it lasts, None ends it."""

    def __call__(self, source: str, trouble: str | None, text: str, *, warn: bool = False) -> None:
        """``warn``: report a warning although no trouble persists."""


TellOfSource = Callable[[str | None, str], None]
"""The same for one source: takes its present trouble, if there is one, and what happened, as sentences."""
