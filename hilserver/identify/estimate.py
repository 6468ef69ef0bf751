"""What is known of a quantity: an estimate and its standard deviation (JCGM 100:2008 (GUM), 2.3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, hypot, isfinite, log10

SIGNIFICANT = 3.0
"""Standard deviations."""
MAX_DIGITS = 5
"""After the decimal point."""


@dataclass(frozen=True)
class Estimate:
    """A value and its standard deviation, both in the same unit, mostly SI; infinite deviation: it is not known."""

    value: float
    deviation: float

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the value."""
        return isfinite(self.deviation)

    @property
    def is_positive(self) -> bool:
        """Whether the value is significantly greater than 0."""
        return self.value > SIGNIFICANT * self.deviation

    def is_significant(self, least: float = 0.0) -> bool:
        """Whether the value differs significantly from 0, and by more than ``least``."""
        return abs(self.value) > max(SIGNIFICANT * self.deviation, least)

    def scaled(self, factor: float) -> Estimate:
        """Multiplied by an exactly known, positive factor."""
        return Estimate(self.value * factor, self.deviation * factor)

    def shifted(self, by: float) -> Estimate:
        """Plus an exactly known number."""
        return Estimate(self.value + by, self.deviation)

    def with_further(self, *deviations: float) -> Estimate:
        """The same value with further, independent contributions to its standard deviation."""
        return Estimate(self.value, hypot(self.deviation, *deviations))

    def variance_without(self, deviation: float) -> float:
        """The variance without the independent contribution of this standard deviation; not negative."""
        return max(self.deviation**2 - deviation**2, 0.0)

    def rounded(self) -> str:
        """The value, rounded to two digits of its standard deviation.

        >>> Estimate(58.80315, 0.012).rounded(), Estimate(71.8, 2.1).rounded()
        ('58.803', '71.8')
        >>> Estimate(0.03, 0.0).rounded(), Estimate(-1e-9, 1e-3).rounded()
        ('0.03', '0.0000')
        """
        if not (self.is_known and self.deviation > 0.0):
            return f"{self.value:.6g}"
        digits = min(max(1 - floor(log10(self.deviation)), 0), MAX_DIGITS)
        text = f"{self.value:.{digits}f}"
        return text.removeprefix("-") if float(text) == 0.0 else text


def most_certain(estimates: Iterable[Estimate]) -> Estimate:
    """The one with the smallest standard deviation; of equally certain ones that of the smallest value."""
    return min(estimates, key=lambda each: (each.deviation, each.value))
