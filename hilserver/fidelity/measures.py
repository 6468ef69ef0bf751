"""Deviation between two signals, over a segment and at a frequency; and the noise of a command."""

from __future__ import annotations

from dataclasses import dataclass
from math import degrees, nan, pi, tan

import numpy as np

from hilserver.numerics.arrays import Floats

HARMONICS = 5
"""Harmonics fitted together with a sine, so that a valve's distortion does not affect its amplitude and phase."""
TREND = 3
"""Coefficients of the trend fitted together with it: a cylinder drifts under a sine."""
NOISE_ORDER = 4


@dataclass(frozen=True)
class Deviation:
    """Deviation of a quantity from its reference: RMS and largest, SI, and the range of the reference."""

    rms: float
    largest: float
    range: float

    @property
    def nrmse(self) -> float:
        """RMS of the deviation divided by the range of the reference."""
        return self.rms / self.range if self.range > 0.0 else nan

    @classmethod
    def between(cls, values: Floats, reference: Floats) -> Deviation:
        """Deviation of ``values`` from ``reference``, both over the same ticks."""
        difference = values - reference
        return cls(
            float(np.sqrt(np.mean(difference * difference))),
            float(np.max(np.abs(difference))),
            float(np.ptp(reference)),
        )


@dataclass(frozen=True)
class Response:
    """A quantity at a frequency (Hz) against its reference: amplitude ratio, and phase in degrees, negative for a lag.

    ``ratio_deviation`` and ``phase_deviation``: standard deviations of both, where the quantity itself is uncertain.
    NaN where the reference hardly oscillates at this frequency.
    """

    frequency: float
    ratio: float
    phase: float
    ratio_deviation: float = 0.0
    phase_deviation: float = 0.0

    @classmethod
    def between(
        cls, time: Floats, values: Floats, reference: Floats, frequency: float, deviation: float = 0.0
    ) -> Response:
        """Response of ``values`` to a sine, against ``reference``; ``deviation``: standard deviation of the values.

        The worst case is assumed: that all of the deviation lies at this frequency.
        """
        actual, expected = sine_at(time, values, frequency), sine_at(time, reference, frequency)
        if abs(expected) <= max(deviation, 1e-9 * float(np.max(np.abs(reference), initial=0.0))):
            return cls(frequency, nan, nan, nan, nan)
        ratio = actual / expected
        return cls(
            frequency,
            abs(ratio),
            degrees(np.angle(ratio)),
            deviation / abs(expected),
            degrees(deviation / max(abs(actual), deviation)) if deviation > 0.0 else 0.0,
        )


def sine_at(time: Floats, values: Floats, frequency: float) -> complex:
    r"""Complex amplitude A of the part of ``values`` at a frequency (Hz): :math:`\Re(A\,e^{j 2\pi f t})`.

    Least squares over the given samples, evenly spaced or not, together with harmonics and a slow drift; a whole number
    of periods need not be a whole number of samples. Source: IEEE Std 1057, three-parameter fit (known frequency).

    >>> t = np.arange(1000) * 1e-3
    >>> A = sine_at(t, 5.0 + 2.0 * t + 3.0 * np.cos(2 * np.pi * 7.0 * t), 7.0)
    >>> print(f"{abs(A):.3f}")
    3.000
    """
    middle = 0.5 * (time[0] + time[-1])
    span = max(0.5 * (time[-1] - time[0]), 1e-12)
    spacing = 2.0 * span / max(len(time) - 1, 1)
    columns = [((time - middle) / span) ** power for power in range(TREND)]
    for harmonic in range(1, HARMONICS + 1):
        if harmonic > 1 and harmonic * frequency * spacing > 0.4:  # too few samples per period: aliases
            break
        angle = 2.0 * pi * harmonic * frequency * time
        columns += [np.cos(angle), np.sin(angle)]
    matrix = np.column_stack(columns)
    found = np.linalg.solve(
        matrix.T @ matrix, matrix.T @ values
    )  # columns of similar norm, nearly orthogonal: well-conditioned
    return complex(found[TREND], -found[TREND + 1])


def rms_above(values: Floats, corner: float, dt: float) -> float:
    """RMS of the part of evenly spaced values (``dt`` s apart) above a corner frequency, Hz; NaN for too few values.

    Fourth-order Butterworth filter, forwards and backwards: zero phase, -6 dB at the corner. It is applied as a factor
    of the spectrum, with the frequencies of the bilinear transform (Oppenheim and Schafer, Discrete-Time Signal
    Processing, 7.1.2). A spectrum belongs to values that repeat periodically; therefore the line through both ends is
    subtracted first, which the filter would remove anyway.

    >>> t = np.arange(4000) * 1e-3
    >>> noise = rms_above(np.sin(2 * np.pi * 5 * t) + 0.1 * np.sin(2 * np.pi * 250 * t), 100.0, 1e-3)
    >>> print(f"{noise:.4f}")
    0.0707
    """
    edge = round(3.0 / (corner * dt))
    if len(values) < 4 * edge:
        return nan
    periodic = values - np.linspace(values[0], values[-1], len(values))
    warped = np.tan(0.5 * pi * np.linspace(0.0, 2.0 * (len(values) // 2) / len(values), len(values) // 2 + 1))
    power = warped ** (2 * NOISE_ORDER)
    gain = power / (power + tan(pi * corner * dt) ** (2 * NOISE_ORDER))
    high = np.fft.irfft(gain * np.fft.rfft(periodic), len(values))[edge:-edge]
    return float(np.sqrt(np.mean(high * high)))


def largest_errors(responses: tuple[Response, ...]) -> tuple[float, float]:
    """Largest amplitude error (a fraction) and largest phase error (degrees), both signed, over several frequencies."""
    known = [r for r in responses if np.isfinite(r.ratio)]
    if not known:
        return nan, nan
    amplitude = max((r.ratio - 1.0 for r in known), key=abs)
    return amplitude, max((r.phase for r in known), key=abs)
