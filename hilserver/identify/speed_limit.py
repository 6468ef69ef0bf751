r"""Whether a spool lags as much in fast movements as in slow ones: a speed-limited spool lags more in fast ones.

The model of the valve has one motion of the spool for all movements: lag, frequency, damping ratio. Near the best fit,
the values θ that the ticks of a group G alone would have follow from the white residuals r and their derivatives J

.. math:: \theta_G = \theta + N^{-1} \sum_G J^T r, \qquad N = \sum_G J^T J

with a covariance that allows for residuals that are not white (`newey_west`). The lags of two groups are compared: of
the ticks up to `AFTER` seconds after a spool speed above half of the highest, and of all others. (Freeing the lag alone
does not suffice: the fit makes up for a speed limit with frequency and damping.) Source of the idea: the test for equal
parameters in two groups, Chow, Econometrica 28 (1960) 591.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from hilserver.identify.experiment import Experiment
from hilserver.identify.fit import FitResult
from hilserver.identify.linearised import STEP
from hilserver.identify.model import lag_of
from hilserver.identify.parameters import Parameter, Values
from hilserver.identify.scatter import newey_west
from hilserver.numerics.arrays import Floats

FAST = 0.5
"""Share of the highest speed of the spool above which a movement is fast."""
HIGHEST = 0.999
"""Quantile of the speed that counts as the highest: the maximum would depend on a single tick."""
AFTER = 0.02
"""s after a fast movement in which the flow still shows it."""
FREED = ("lag", "frequency", "damping")
"""Parameters that each group may have otherwise, the lag first."""
USUAL = 0.1
"""Fraction of the spool's lag that is tolerated: three times the largest difference on simulated rigs that have all
unknown properties but no speed limit.
"""

MANY = 2.0
"""Multiple of the stated lag, beside wrong delays, above which a spool is so late in all movements that it seems to be
at its highest speed all the time: a datasheet's frequency is less wrong.
"""
LATE, LATE_TICKS = 5e-3, 5
"""How much later than stated valve and sensors together may be, s and in ticks; the longer one counts."""


class LagBySpeed(NamedTuple):
    """Lag of a spool in fast movements and in all others, s, the deviation of their difference, and its tolerance.

    ``most``: what the lag may be in all movements, s.
    """

    fast: float
    slow: float
    deviation: float
    usual: float
    most: float

    @property
    def is_later_if_fast(self) -> bool:
        """Whether the spool is later in fast movements with 95 % confidence, and by more than is usual."""
        return self.fast - self.slow > max(2.0 * self.deviation, self.usual)

    @property
    def is_limited(self) -> bool:
        """Whether the spool is later in fast movements, or far later in all of them."""
        return self.is_later_if_fast or min(self.fast, self.slow) > self.most


class FittedValve(NamedTuple):
    """The model of a valve with the values with which it fits best; ``is_second``: order of the spool."""

    experiment: Experiment
    fit: FitResult
    values: Values
    is_second: bool

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Those of this order."""
        return self.experiment.parameters(self.is_second)


def lag_by_speed(found: FittedValve) -> LagBySpeed | None:
    """Of a valve; None if one of the groups does not show it."""
    experiment, values = found.experiment, found.values
    speed = experiment.spool_speed(values)
    before = round(AFTER / experiment.dt)
    recent = maximum_filter1d(speed, before + 1, origin=before // 2)
    is_fast = recent > FAST * np.quantile(speed, HIGHEST)
    slopes = _slopes(found)
    groups = [_lag_of_group(found, slopes, group) for group in (is_fast, ~is_fast)]
    if not all(np.isfinite(variance) for _, variance in groups):
        return None
    (fast, variance_fast), (slow, variance_slow) = groups
    usual = USUAL * lag_of(values["frequency"], values.get("damping", 0.0))
    is_stated = bool({"f90", "f45"} & experiment.settings.model_fields_set)
    is_found = "frequency" in found.fit.values
    late = max(LATE, LATE_TICKS * experiment.dt)
    most = MANY * found.parameters["lag"].start + late if is_stated or not is_found else inf
    return LagBySpeed(fast, slow, float(np.sqrt(variance_fast + variance_slow)), usual, most)


def _slopes(found: FittedValve) -> list[Floats]:
    """By signal: derivatives of the whitened prediction, per size of each of `FREED`: float64[parameters, ticks]."""
    experiment, values, parameters = found.experiment, found.values, found.parameters
    moved = [
        experiment.predict({**values, name: values[name] + STEP * parameters[name].size})
        for name in FREED
        if name in parameters
    ]
    signals = zip(experiment.signals, experiment.predict(values), *moved, strict=True)
    return [
        np.array([found.fit.whiteners[signal.name]((other - now) / STEP, signal.used) for other in others])
        for signal, now, *others in signals
    ]


def _lag_of_group(found: FittedValve, slopes: list[Floats], group: NDArray[np.bool_]) -> tuple[float, float]:
    """The lag that these ticks alone would have, s, and its variance; infinite if they don't show it."""
    inside = [np.where(group[: slope.shape[1]], slope, 0.0) for slope in slopes]
    normal = np.sum([slope @ slope.T for slope in inside], axis=0)
    if np.any(np.diag(normal) <= 0.0):
        return found.values["lag"], np.inf
    white = [found.fit.white[signal.name] for signal in found.experiment.signals]
    scatter = np.sum([newey_west((slope * r).T) for slope, r in zip(inside, white, strict=True)], axis=0)
    pull = np.sum([slope @ r for slope, r in zip(inside, white, strict=True)], axis=0)
    norm = np.sqrt(np.diag(normal))
    inverse = np.linalg.pinv(normal / np.outer(norm, norm), rcond=1e-9, hermitian=True) / np.outer(norm, norm)
    size = found.parameters["lag"].size
    shift, variance = inverse[0] @ pull, inverse[0] @ scatter @ inverse[0]
    return found.values["lag"] + size * float(shift), size**2 * float(variance)
