"""Sensors of a displacement bridge, and delays in ticks."""

from __future__ import annotations

from dataclasses import dataclass

FORCE_DELAY = 1.5
"""Ticks from the measurement of a force to the middle of the tick in which it acts on the structure."""


@dataclass(frozen=True)
class Sensors:
    """Standard deviations of the measured displacement, m, and force, N.

    ``displacement_delay``, ``force_delay``: their age in the tick that gets them, s, rounded to whole ticks.
    """

    displacement: float
    force: float
    displacement_delay: float = 0.0
    force_delay: float = 0.0


def in_ticks(delay: float, dt: float) -> int:
    """A delay in ticks of ``dt`` s, rounded.

    >>> in_ticks(0.0011, 0.0005)
    2
    """
    return round(delay / dt)
