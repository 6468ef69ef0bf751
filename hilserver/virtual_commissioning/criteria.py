"""The criteria of a verdict: the decisive figures, their limits, and the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import inf


class Suitability(IntEnum):
    """The suitability of a strategy for a rig; the larger, the worse."""

    FIT = 0
    DOUBTFUL = 1
    UNFIT = 2

    @property
    def word(self) -> str:
        """The verdict for the reader."""
        return self.name.lower()


@dataclass(frozen=True)
class Criterion:
    """A figure with its limits, all as shares: doubtful above the first, unfit above the second.

    The limits are absolute: how good a strategy is does not depend on the others. ``hazardous``: whether an unfit value
    can damage machine or valve, or drop a load, so that the rig must not be armed.
    """

    name: str
    meaning: str
    doubtful: float
    unfit: float
    reason: str
    hazardous: bool = False

    def verdict(self, value: float) -> Suitability:
        """The verdict on a value of the figure."""
        if value > self.unfit:
            return Suitability.UNFIT
        return Suitability.DOUBTFUL if value > self.doubtful else Suitability.FIT


CRITERIA = (
    Criterion(
        "position",
        "RMS of the position error, relative to the range of the position (at least 2 % of the stroke)",
        0.02,
        0.10,
        "the nominal flow of a servo valve is specified to within about 10 %; with a larger error the rig represents a "
        "valve of another size. Up to 2 % is within the uncertainty of a measured flow gain",
    ),
    Criterion(
        "speed",
        "RMS of the speed error of a motor's shaft, relative to its highest speed (at least 10 % of the speed at the "
        "nominal flow)",
        0.035,
        0.10,
        "above 3.5 %, as of the flow, the dynamics are no longer the same; above 10 %, as of the position, the rig "
        "represents a valve of another size",
    ),
    Criterion(
        "flow",
        "RMS of the flow error at the port of a valve, relative to the range of the flow (at least 10 % of the "
        "nominal flow)",
        0.035,
        0.15,
        "for a sine, 3.5 % is an amplitude error of 10 % or a phase error of 6°, and 15 % is 42 % or 25°: no longer "
        "the same dynamics",
    ),
    Criterion(
        "pressure",
        "RMS of the pressure error at a port, relative to the real supply pressure",
        0.10,
        0.25,
        "10 % changes the flow over an edge by 5 %, 25 % by 13 %: more than the uncertainty of the nominal flow",
    ),
    Criterion(
        "noise",
        "RMS of the command above 100 Hz, relative to full command, except during the steps",
        0.01,
        0.03,
        "1 % is the usual dither of a servo valve, which it withstands permanently; three times as much wears it out",
        hazardous=True,
    ),
    Criterion(
        "oscillation",
        "RMS of the command about its trend at rest and after a step, relative to full command, minus the part that "
        "the virtual circuit requires",
        0.005,
        0.02,
        "0.5 % is the usual resolution and hysteresis of a servo valve; at 2 % the machine oscillates visibly",
        hazardous=True,
    ),
    Criterion(
        "drift",
        "flow error at rest, largest mean over 0.5 s, relative to the nominal flow of the valve",
        0.005,
        0.02,
        "servo valves leak 0.5 % to 2 % of their nominal flow at null: beyond that the load is not held",
        hazardous=True,
    ),
    Criterion(
        "saturated",
        "fraction of the ticks in which a valve cannot pass the virtual flow, or its command is limited by range or "
        "slew",
        0.05,
        inf,
        "the valve is too small or too slow for these inputs; the resulting errors are judged as errors",
    ),
)
"""In the order of the table. A trip is unfit, without a limit."""
