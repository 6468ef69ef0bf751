"""Figures over frequency of a simulated rig: errors of amplitude and phase, and the delay, over a sweep of an input.

They are those of `hilserver fidelity`: the machine against the reference simulation, for each sine of the sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import nan, pi, radians
from typing import Any

import numpy as np
from pydantic import Field

from hilserver.components.base import Datasheet
from hilserver.fidelity.measures import Response
from hilserver.fidelity.results import SATURATED_SHARE, SegmentResult
from hilserver.fidelity.sweeps import AMPLITUDE, alone, default_input, sweep_of
from hilserver.rig.cycle import CycleSettings
from hilserver.rig.rig import Rig
from hilserver.studies.figures import AMPLITUDE_ERROR, DELAY, PHASE_ERROR
from hilserver.units import Frequency, Number

OVER_FREQUENCY = {AMPLITUDE_ERROR: "", PHASE_ERROR: "rad", DELAY: "s"}
"""Reductions that need a sweep, with their SI units."""
AT = " at "
"""Between a quantity and one of the frequencies."""


class SweepSettings(Datasheet):
    """The sweep of a study file: sines of an input, one after the other."""

    input: str | None = Field(
        default=None, description="input that is swept; default: the one that commands the virtual valve"
    )
    frequencies: tuple[Frequency, ...] = Field(
        default=(), description="of the sines; default: 2, 3, 5, 7, 10, 14, 20 Hz", examples=[["2 Hz", "10 Hz"]]
    )
    amplitude: Number = Field(
        default=AMPLITUDE, gt=0, le=1, description="of the sines, as a fraction of half the input's range"
    )
    mean: Number | None = Field(default=None, description="of the sines; default: the input's initial value")

    def cycle(self, rig: Rig) -> dict[str, Any]:
        """The table of a work cycle that is this sweep. Raises HilserverError if the rig can't have it."""
        name = self.input or default_input(rig)
        return alone(rig, name, sweep_of(rig, name, self.frequencies, self.amplitude, self.mean))


def swept_quantities(names: Iterable[str], cycle: Mapping[str, Any] | None) -> dict[str, dict[str, str]]:
    """By reduction, what it can be a figure of, with its unit: these names, over all sines or at one of them."""
    sines = [s.frequency for e in CycleSettings.model_validate(cycle).inputs.values() for s in e.sines] if cycle else []
    known = [each for name in names for each in (name, *(f"{name}{AT}{f:g} Hz" for f in sines))] if cycle else []
    return {reduction: dict.fromkeys(known, unit) for reduction, unit in OVER_FREQUENCY.items()}


def figure_over_frequency(reduction: str, quantity: str, sweep: SegmentResult) -> float:
    """The figure of a sweep, SI; NaN where the reference hardly oscillates, or no sine could be followed.

    Over all sines, those with a saturated valve are left out: no bridge can follow them.
    """
    name, _, frequency = quantity.partition(AT)
    found = [each for each in sweep.responses[name] if np.isfinite(each.ratio)]
    if frequency:
        found = [each for each in found if f"{each.frequency:g} Hz" == frequency]
    else:
        found = [each for each in found if sweep.saturated_at(each.frequency) <= SATURATED_SHARE]
    return max((_figure(reduction, each) for each in found), key=abs, default=nan)


def _figure(reduction: str, at: Response) -> float:
    if reduction == AMPLITUDE_ERROR:
        return abs(at.ratio - 1.0)
    return abs(radians(at.phase)) if reduction == PHASE_ERROR else -radians(at.phase) / (2.0 * pi * at.frequency)
