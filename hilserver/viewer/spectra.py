"""Spectrum of a signal, and frequency response between two, by Welch's method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats

LONGEST = 1 << 15
"""Largest number of samples in a segment: it bounds the number of frequencies, not the span that is used."""
LEAST = 16
"""Smallest number of samples in a segment."""
SEGMENTS = (1, 4, 8, 16, 32)


@dataclass(frozen=True)
class AmplitudeSpectrum:
    """Amplitudes by frequency in Hz: a sine a·sin(2π·f·t) is a peak of height a at f. ``note``: what was done."""

    frequency: Floats
    amplitude: Floats
    note: str


@dataclass(frozen=True)
class FrequencyResponse:
    """Output over input by frequency in Hz: gain, phase in degrees (continuous), coherence 0 … 1."""

    frequency: Floats
    gain: Floats
    phase: Floats
    coherence: Floats
    note: str


def spectrum(times: Floats, values: Floats, segments: int = 8) -> AmplitudeSpectrum:
    """Amplitude spectrum without the mean: Hann window, ``segments`` lengths of segment with half overlap, averaged.

    Raises `HilserverError` if the span is too short, or contains samples without a number.
    """
    from scipy import signal

    rate, (equidistant,), note = _raster(times, [values])
    length = _length(len(equidistant), segments)
    frequency, power = signal.welch(equidistant, rate, "hann", nperseg=length, scaling="spectrum")
    return AmplitudeSpectrum(frequency[1:], np.sqrt(2.0 * power[1:]), f"{note}{_resolution(rate, length)}")


def response(times: Floats, cause: Floats, effect: Floats, segments: int = 8) -> FrequencyResponse:
    """Frequency response from ``cause`` to ``effect``: cross spectrum over the spectrum of the cause (H1 estimator).

    Source: J. S. Bendat, A. G. Piersol, Random Data, 4th ed., 2010, section 6.2. Noise of the effect is averaged out,
    that of the cause lowers the gain; the coherence says where neither can be neglected.

    Raises `HilserverError` as `spectrum`, and if the cause does not move.
    """
    from scipy import signal

    rate, (moving, moved), note = _raster(times, [cause, effect])
    if np.ptp(moving) == 0.0:
        raise HilserverError("The first signal is constant in this span: there is no frequency response.")
    length = _length(len(moving), segments)
    options = {"fs": rate, "window": "hann", "nperseg": length}
    frequency, own = signal.welch(moving, **options)
    _, cross = signal.csd(moving, moved, **options)
    _, other = signal.welch(moved, **options)
    used = slice(1, None)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = cross[used] / own[used]
        coherence = np.abs(cross[used]) ** 2 / (own[used] * other[used])
    phase = np.rad2deg(np.unwrap(np.angle(np.where(np.isfinite(ratio), ratio, 1.0))))
    return FrequencyResponse(frequency[used], np.abs(ratio), phase, coherence, f"{note}{_resolution(rate, length)}")


def _raster(times: Floats, signals: list[Floats]) -> tuple[float, list[Floats], str]:
    """Rate in Hz, the signals at equal intervals, and a note if they had to be interpolated."""
    if len(times) < LEAST:
        raise HilserverError(f"The span has {len(times)} samples: choose one with at least {LEAST}.")
    for values in signals:
        if missing := int(np.count_nonzero(~np.isfinite(values))):
            raise HilserverError(f"A signal has {missing} missing samples (NaN) in this span: choose another one.")
    steps = np.diff(times)
    step = float(np.median(steps))
    if step <= 0.0:
        raise HilserverError("The sample times don't increase, so no spectrum or frequency response can be calculated.")
    if np.abs(steps - step).max() <= 0.01 * step:
        return (len(times) - 1) / float(times[-1] - times[0]), signals, ""
    raster = np.arange(times[0], times[-1], step)
    note = f"Not equidistant: interpolated at {1.0 / step:.6g} Hz. "
    return 1.0 / step, [np.interp(raster, times, values) for values in signals], note


def _length(count: int, segments: int) -> int:
    return max(min(count // segments, LONGEST), min(count, LEAST))


def _resolution(rate: float, length: int) -> str:
    return f"Welch's method, Hann window, segments of {length / rate:.4g} s: resolution {rate / length:.4g} Hz."
