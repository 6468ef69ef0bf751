"""Layout of the tables of Kalman gains: how the lines of a cylinder in ``plan.kalman`` are ordered.

The lines are calculated in :mod:`hilserver.rig.kalman` and applied in :mod:`hilserver.tick.correction`.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import accumulate


class Restraint(IntEnum):
    """What restrains the motion of piston and oil: a table of gains for each."""

    NONE = 0
    """The piston is free, and both chambers are full."""
    HELD = 1
    """The piston is held at one of its end stops."""
    VOID_A = 2
    """There is a void in chamber A."""
    VOID_B = 3
    """There is a void in chamber B."""
    VOIDS = 4
    """There are voids in both."""


GRID = 9
"""Number of positions along the stroke with Kalman gains."""
RATES = (0.0, 0.1, 0.4, 2.0, 10.0)
"""Rates with Kalman gains, per tick: those at which the valves settle the pressures of the chambers."""
RATES_OF_A = (len(RATES), len(RATES), 1, len(RATES), 1)
"""Number of rates of A in each table: no valve settles the pressure of a void."""
RATES_OF_B = (len(RATES), len(RATES), len(RATES), 1, 1)
"""The same of B."""
PLACES_ALONG = (GRID, 2, GRID, GRID, GRID)
"""Number of positions in each table."""
FIRST_LINES = (0, *accumulate(a * b * x for a, b, x in zip(RATES_OF_A, RATES_OF_B, PLACES_ALONG, strict=True)))
"""First line of each table, and their end. In a table: the positions, for each rate of B, for each rate of A."""
LINES = FIRST_LINES[-1]
"""Number of lines per cylinder."""
DEVIATION_A, DEVIATION_B, GAINS = 0, 1, 2
"""Number of columns of such a line: standard deviations of the flows into A and B, then the gains.

The gains are those of each state per measurement, then those of p_A, p_B and x one tick ago, two ticks ago, …
"""
