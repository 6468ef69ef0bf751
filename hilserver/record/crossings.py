"""Where a signal crosses a level: one rule for the triggers of recordings, of the viewer and of the panel."""

from __future__ import annotations

from typing import Literal

import numpy as np

from hilserver.numerics.arrays import Floats, Integers

Edge = Literal["rising", "falling", "either"]
EDGES: tuple[Edge, ...] = ("rising", "falling", "either")
_SIGNS = {"rising": (1.0,), "falling": (-1.0,), "either": (1.0, -1.0)}


class Crossings:
    """Finds where the samples of a signal, given in order and part by part, cross a level.

    A rising crossing is a sample above the level, if one since the crossing before was not above the level minus the
    ``hysteresis``; falling is the mirror image, either both. Hence what holds in the first sample is no crossing.
    Samples without a number are skipped: if the signal has crossed the level meanwhile, that counts at the next sample.
    Level and hysteresis are in the unit of the samples.
    """

    def __init__(self, level: float, edge: Edge = "rising", hysteresis: float = 0.0) -> None:
        self._ways = [_Rising(sign, sign * level, hysteresis) for sign in _SIGNS[edge]]

    def take(self, values: Floats) -> Integers:
        """The places in ``values``, ascending, at which the next samples cross the level."""
        found: Integers = np.sort(np.concatenate([way.take(values) for way in self._ways]))
        return found


class _Rising:
    """Rising crossings of the signal times ``sign``."""

    def __init__(self, sign: float, level: float, hysteresis: float) -> None:
        self._sign, self._level, self._armed_from = sign, level, level - hysteresis
        self._armed = False

    def take(self, values: Floats) -> Integers:
        values = self._sign * values
        sides = np.where(values > self._level, 1, np.where(values <= self._armed_from, -1, 0))
        places: Integers = np.flatnonzero(sides)
        if len(places) == 0:
            return places
        now = sides[places]
        before = np.concatenate([[-1 if self._armed else 1], now[:-1]])
        self._armed = bool(now[-1] == -1)
        crossed: Integers = places[(now == 1) & (before == -1)]
        return crossed
