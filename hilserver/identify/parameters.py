"""The parameters of a fit: their start, bounds, typical errors and prior knowledge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

Values = Mapping[str, float]
"""Values of parameters by name."""


@dataclass(frozen=True)
class Parameter:
    """A parameter to be identified.

    ``size``: its typical error; ``useful``: the largest standard deviation with which the result is still useful, 0 if
    none is wanted; ``prior``: standard deviation of the prior knowledge, with the mean ``start``; ``slope``: the value
    that is changed within a fit, if it is another one, and added to this one afterwards; ``inseparable``: standard
    deviation of an influence quantity that no recording distinguishes from it; ``definition``: smallest standard
    deviation, as a fraction of the value: no valve follows the law, of which this is a parameter, more closely.
    """

    start: float
    lower: float
    upper: float
    size: float
    useful: float
    prior: float = inf
    slope: str = ""
    inseparable: float = 0.0
    definition: float = 0.0

    def value_in(self, values: Values, name: str) -> float:
        """Its value, with what a fit is adding to it."""
        return values[name] + values.get(self.slope, 0.0)
