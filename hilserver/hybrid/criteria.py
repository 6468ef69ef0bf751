"""The nine criteria of the benchmark problem, numbered as in its Table 3 and its evaluation program.

The criteria are those of Silva, Gomez, Maghareh, Dyke & Spencer (2020). Equations 15-20 of that paper number J5 to J7
differently.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hilserver.numerics.arrays import Floats

LONGEST = 50
"""Number of ticks within which the delay is searched."""


class Criteria(NamedTuple):
    """Delay in ms; all others in %.

    J1: delay of the measured displacement behind the position of the structure. J2, J3: its error, RMS and peak.
    J4, J5: measured displacement against the first floor of the reference, RMS and peak. J6, J7: second and third floor
    against the reference, RMS; J8, J9: the same, peaks.
    """

    J1: float
    J2: float
    J3: float
    J4: float
    J5: float
    J6: float
    J7: float
    J8: float
    J9: float


def criteria(measured: Floats, positions: Floats, reference: Floats, dt: float) -> Criteria:
    """The criteria of a run; ``positions`` and ``reference``: a line per tick, a column per floor, m."""
    first = positions[:, 0]
    return Criteria(
        1e3 * dt * delay(measured, first),
        *_errors(measured, first),
        *_errors(measured, reference[:, 0]),
        _errors(positions[:, 1], reference[:, 1])[0],
        _errors(positions[:, 2], reference[:, 2])[0],
        _errors(positions[:, 1], reference[:, 1])[1],
        _errors(positions[:, 2], reference[:, 2])[1],
    )


def delay(late: Floats, early: Floats) -> int:
    """Ticks by which a signal follows another one: the shift of the greatest correlation; a lead counts as 0."""
    late, early = late - late.mean(), early - early.mean()
    return int(np.argmax([_correlation(late[k:], early[: len(early) - k]) for k in range(LONGEST)]))


def _correlation(x: Floats, y: Floats) -> float:
    """As `numpy.corrcoef`, without the copies that it makes of long signals."""
    n, x_sum, y_sum = len(x), x.sum(), y.sum()
    return float((x @ y - x_sum * y_sum / n) / np.sqrt((x @ x - x_sum**2 / n) * (y @ y - y_sum**2 / n)))


def _errors(found: Floats, right: Floats) -> tuple[float, float]:
    """Standard deviation and peak of the error, relative to those of the correct signal, %."""
    error = found - right
    return 100.0 * float(np.std(error) / np.std(right)), 100.0 * float(np.max(np.abs(error)) / np.max(np.abs(right)))
