"""How far what is measured is from what it should follow, as sums over the batches of a log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hilserver.numerics.arrays import Floats


@dataclass
class Deviations:
    """Sums over the rows in mode RUNNING, in SI units; ``known``: rows with a measurement.

    ``squares``, ``largest``: of measured minus followed; ``low``, ``high``: bounds of what is followed; ``limited``:
    rows with the command at a limit.
    """

    rows: int = 0
    known: int = 0
    squares: float = 0.0
    largest: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    limited: int = 0

    def compare(self, followed: Floats, measured: Floats, flags: Floats, limits: int) -> None:
        """Add rows; ``limits``: the bits of ``flags`` that count as limits."""
        deviation = measured - followed
        deviation = deviation[np.isfinite(deviation)]
        self.rows += len(followed)
        self.known += len(deviation)
        self.squares += float(np.square(deviation).sum())
        self.largest = max(self.largest, float(np.abs(deviation).max(initial=0.0)))
        self.low = min(self.low, float(followed.min(initial=np.inf)))
        self.high = max(self.high, float(followed.max(initial=-np.inf)))
        self.limited += int(np.count_nonzero(flags.astype(np.int64) & limits))

    @property
    def rms(self) -> float:
        """RMS of the deviation; NaN: not known."""
        return float((self.squares / self.known) ** 0.5) if self.known else float("nan")

    @property
    def span(self) -> float:
        """Range of what is followed; 0 if it never ran."""
        return self.high - self.low if self.rows else 0.0

    @property
    def share_limited(self) -> float:
        """Fraction of the time in which the command was at a limit."""
        return self.limited / self.rows if self.rows else 0.0
