"""A model's predictions of signals, and their derivatives with respect to the scaled parameters.

The derivatives take one prediction per parameter, most of the time of a fit. They are kept, and used again for values
nearby: the next fit of a sequence starts where the last one ended, and only its filters differ. A search with
derivatives that are 1 % off ends where the residuals are orthogonal to these, about 1 % of a standard deviation from
the optimum. Along a valley of parameters that act alike it is further: there, they are forgotten before each fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hilserver.identify.parameters import Parameter, Values
from hilserver.numerics.arrays import Floats

STEP = 1e-3
"""Step for derivatives, as a fraction of a parameter's size."""
NEARBY = 0.01
"""Largest change of a parameter, as a fraction of its size, with which derivatives are used again."""

Predict = Callable[[Values], Sequence[Floats]]
"""The model's prediction of all signals."""
Slopes = Sequence[Floats | None]
"""The derivatives of all signals with respect to a parameter; None: it has no influence."""


class LinearisedModel:
    """A model's predictions, and their derivatives with respect to parameters divided by their size."""

    def __init__(self, parameters: Mapping[str, Parameter], predict: Predict) -> None:
        self.parameters, self.predict = parameters, predict
        self._sizes = np.array([p.size for p in parameters.values()])
        self._place = np.full(len(parameters), np.nan)
        self._kept: Sequence[Slopes] = []

    def forget(self) -> None:
        """Find the derivatives anew when they are needed next."""
        self._place = np.full_like(self._place, np.nan)

    def slopes(self, values: Values) -> Sequence[Slopes]:
        """By parameter, the derivatives of the signals here or nearby."""
        place = np.array([p.value_in(values, name) for name, p in self.parameters.items()]) / self._sizes
        if not np.all(np.abs(place - self._place) <= NEARBY):
            here = self.predict(values)
            self._kept = [self._slopes(values, here, name) for name in self.parameters]
            self._place = place
        return self._kept

    def _slopes(self, values: Values, here: Sequence[Floats], name: str) -> Slopes:
        there, h = self.moved(values, name)
        pairs = zip(here, self.predict(there), strict=True)
        return [None if then is now else (then - now) / h for now, then in pairs]

    def moved(self, values: Values, name: str) -> tuple[Values, float]:
        """The values with a step of a parameter, within its bounds, and this step as a fraction of its size."""
        p = self.parameters[name]
        h = STEP if p.value_in(values, name) + STEP * p.size <= p.upper else -STEP
        moving = p.slope or name
        return {**values, moving: values.get(moving, 0.0) + h * p.size}, h
