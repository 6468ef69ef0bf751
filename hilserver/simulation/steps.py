"""Runs in steps: each call of compiled code is a step, and so is all that Python does until the next one.

Whoever makes the steps can make those of other runs in between.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

R = TypeVar("R")
Steps = Generator[int, None, R]
"""A run in steps: yields the number of its last tick after each of them, and returns what comes of it at the end."""


def completed(steps: Steps[R]) -> R:
    """What comes of a run in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: R = end.value
            return found
