"""The quantities that a study varies: values with a tolerance, and choices of component types or strategies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan

from hilserver.errors import did_you_mean
from hilserver.tolerances import STEPS, Tolerance
from hilserver.units import shown_value, si_value, to_si


@dataclass(frozen=True)
class VariedValue:
    """A quantity that a study varies: key, its value in the files, SI (NaN if they have none), and its tolerance.

    ``choices``: names of what is chosen from; the values are then their numbers, from 0 on, and ``value`` is NaN if
    the files have none of them.
    """

    key: str
    value: float
    unit: str
    tolerance: Tolerance
    choices: tuple[str, ...] = ()

    def shown(self, x: float, digits: int = 4) -> str:
        """A value for the reader."""
        if self.choices:
            return self.choices[int(x)] if isfinite(x) else "another"
        if not isfinite(x):
            return "absent"
        return shown_value(x, self.unit, digits)

    def written(self, x: float) -> str:
        """A value as ``--set`` takes it."""
        return self.choices[int(x)] if self.choices else f"{x!r} {self.unit}".rstrip()

    def read(self, text: str) -> float:
        """The value of such a text. Raises ValueError."""
        if self.choices:
            if text.strip() not in self.choices:
                raise ValueError(f"{text.strip()} is not one of the choices.{did_you_mean(text.strip(), self.choices)}")
            return float(self.choices.index(text.strip()))
        return to_si(text, self.unit) if self.unit else si_value(text)[0]


def choice_of(key: str, choices: Sequence[str], own: str = "") -> VariedValue:
    """A choice; ``own``: that of the files."""
    value = float(choices.index(own)) if own in choices else nan
    numbers = tuple(map(float, range(len(choices))))
    return VariedValue(key, value, "", Tolerance(value, 0.0, numbers[-1], "", STEPS, numbers), tuple(choices))
