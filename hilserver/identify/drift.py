r"""How closely a valve keeps to its model, and how fast the bridge's feedback should correct it.

The real flow differs from that of the model by b, a random walk: in the time t it changes by :math:`q\sqrt t` (standard
deviation). The bridge knows the volume that has flowed with white noise of the intensity R (variance times time between
samples). It estimates volume error and b by a Kalman filter, and corrects the error within the feedback time T. The
stationary filter of this double integrator has the frequency :math:`\omega_0 = (q^2/R)^{1/4}` (Kalman & Bucy, New
results in linear filtering and prediction theory, J. Basic Eng. 83 (1961) 95). The closed loop then leaves a flow error
with the variance

.. math:: \sigma^2 = \tfrac12 q^2\,T + \frac{\sqrt{q^2 R}}{T}

The first part is the drift, which is corrected too late; the second is the noise, which is taken for missing volume.
The sum is smallest for :math:`T = \sqrt 2/\omega_0`, where both are equal.

Both intensities follow from the residuals of the identification, which are volumes: their means over blocks of the
length w have second differences, over the time :math:`\tau`, of the variance
:math:`6\,R/w + \tfrac23 q^2 \tau^3`, which is calculated for a short and for a long time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, sqrt

import numpy as np
from numpy.typing import NDArray

from hilserver.identify.estimate import Estimate
from hilserver.identify.identification import Identified
from hilserver.identify.influences import uniform
from hilserver.numerics.arrays import Floats
from hilserver.rig.settings import BridgeSettings

DRIFT_TIME = 0.1
"""s over which a drift is stated, and observed."""
BLOCK_TIME = 0.02
"""s: length of the blocks. The short time is twice as long: a drift is small there, and between the blocks there is as
much time again, in which the noise of a slow or filtered sensor changes (else it would appear as drift)."""
PARTS = 20
"""Parts of the recording, from whose differences the standard deviation follows."""
UNSEEN_DRIFT = 0.005
"""Drift that a recording does not show, as a fraction of the nominal flow.

It shows the valve of one hour: at another oil temperature, supply pressure or load the valve differs from it. A quarter
of what a rig file states without identification.
"""
LARGEST_DRIFT = 1.0
"""Largest drift, as a fraction of the nominal flow: the limit of ``flow_drift`` in the rig file."""
SHORTEST: float = BridgeSettings().feedback_time
"""s: shortest feedback time. With shorter ones, an unknown hose could make the loop oscillate."""
LONGEST = 0.1
"""s: longest feedback time. A lasting error of the flow then leaves a volume of at most 0.1 s times this flow."""


@dataclass(frozen=True)
class Intensities:
    """Of a volume's drift q² (m^6/s^3) and noise R (m^6·s)."""

    drift: Estimate
    noise: float

    @classmethod
    def of(cls, residual: Floats, used: NDArray[np.bool_], dt: float) -> Intensities | None:
        """From residual volumes per tick of ``dt`` s, where ``used``; None if these are too few."""
        block = max(round(BLOCK_TIME / dt), 1)
        apart = max(round(DRIFT_TIME / dt), 5 * block)
        near, far = (second_differences(residual, used, block, lag) for lag in (2 * block, apart))
        if min(len(near), len(far)) < PARTS * apart:
            return None
        w, short, long = block * dt, 2 * block * dt, apart * dt

        def drift_of(near: Floats, far: Floats) -> float:
            return float((np.mean(far * far) - np.mean(near * near)) / (2.0 / 3.0 * (long**3 - short**3)))

        q2 = drift_of(near, far)
        pairs = zip(np.array_split(near, PARTS), np.array_split(far, PARTS), strict=True)
        deviation = float(np.std([drift_of(*pair) for pair in pairs], ddof=1)) / sqrt(PARTS)
        noise = w / 6.0 * (float(np.mean(near * near)) - 2.0 / 3.0 * max(q2, 0.0) * short**3)
        return cls(Estimate(q2, deviation), max(noise, 0.0))


def second_differences(residual: Floats, used: NDArray[np.bool_], block: int, apart: int) -> Floats:
    """Second differences over ``apart`` ticks of the volume, the sum of ``residual``, as means over ``block`` ticks.

    Where every tick is used.

    >>> second_differences(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), np.full(6, True), 1, 2)
    array([4., 4.])
    """
    span = 2 * apart + block
    if len(residual) < span:
        return np.empty(0)
    summed = np.cumsum(np.concatenate([[0.0], np.cumsum(np.where(used, residual, 0.0))]))
    mean = (summed[block:] - summed[:-block]) / block
    difference = mean[2 * apart :] - 2.0 * mean[apart:-apart] + mean[: -2 * apart]
    unused = np.cumsum(np.concatenate([[0], ~used]))
    return np.asarray(difference[unused[span:] == unused[:-span]])


@dataclass(frozen=True)
class Trust:
    """Settings by which the bridge relies on a valve's model. ``drift``: m³/s in DRIFT_TIME; ``feedback_time``: s."""

    drift: Estimate
    feedback_time: Estimate

    @classmethod
    def of(cls, seen: Intensities, nominal: float) -> Trust:
        """For residuals with these intensities, and a valve with this ``nominal`` flow, m³/s."""
        unseen, cautious = UNSEEN_DRIFT * nominal, max(seen.drift.value + seen.drift.deviation, 0.0)
        drift = min(sqrt(cautious * DRIFT_TIME + unseen * unseen), LARGEST_DRIFT * nominal)
        deviation = min(hypot(0.5 * seen.drift.deviation * DRIFT_TIME / drift, uniform(unseen)), drift)
        best = best_feedback_time(drift * drift / DRIFT_TIME, seen.noise)
        time = min(max(best, SHORTEST), LONGEST)
        return cls(Estimate(drift, deviation), Estimate(time, 0.5 * time * deviation / drift))


def trust_in(found: Identified, nominal: float) -> Trust | None:
    """The settings for an identified valve with this ``nominal`` flow, m³/s; None if the recording does not show them.

    They require the chamber at the valve's own port, and both flow coefficients.
    """
    e = found.experiment
    if not e.chambers or e.chambers[0].port != e.settings.port or not {"C_PA", "C_AT"} <= found.fit.deviations.keys():
        return None
    signal = e.signals[0]
    seen = Intensities.of(signal.measured - e.predict(found.values)[0], signal.used, e.dt)
    return Trust.of(seen, nominal) if seen is not None else None


def best_feedback_time(drift: float, noise: float) -> float:
    """The feedback time with the smallest flow error, s, for these intensities.

    >>> round(best_feedback_time(2.5e-10, 1.4e-15), 3)
    0.069
    """
    return sqrt(2.0 * sqrt(noise / drift))
