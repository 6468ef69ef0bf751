"""Spectra and responses of signals whose spectra are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from hilserver.errors import HilserverError
from hilserver.viewer.spectra import response, spectrum

RATE = 1000.0
TIMES = np.arange(32_000) / RATE


@pytest.mark.parametrize("segments", [1, 8, 32])
def test_a_sine_is_a_peak_of_its_amplitude(segments: int) -> None:
    """At a frequency of the raster of all three: 62.0 Hz. The mean is not in the spectrum."""
    values = 5e6 + 3e5 * np.sin(2 * np.pi * 62.0 * TIMES)
    found = spectrum(TIMES, values, segments)
    peak = int(np.argmax(found.amplitude))
    assert found.frequency[peak] == pytest.approx(62.0, rel=1e-9)
    assert found.amplitude[peak] == pytest.approx(3e5, rel=1e-6)
    assert found.frequency[0] > 0.0
    assert found.amplitude[: peak - 3].max() < 1.0


def test_the_response_of_a_first_order_lag_with_delay() -> None:
    """T = 20 ms discretised exactly, 5 ms of delay, against its transfer function in z; noise is averaged out."""
    generator = np.random.default_rng(0)
    cause = generator.normal(size=len(TIMES))
    pole = np.exp(-1.0 / (RATE * 0.02))
    effect = signal.lfilter([0, 0, 0, 0, 0, 1 - pole], [1, -pole], cause) + 0.01 * generator.normal(size=len(TIMES))
    found = response(TIMES, cause, effect, 32)
    z = np.exp(2j * np.pi * found.frequency / RATE)
    expected = (1 - pole) * z**-5 / (1 - pole / z)
    band = (found.frequency > 2.0) & (found.frequency < 30.0)
    np.testing.assert_allclose(found.gain[band], np.abs(expected[band]), rtol=0.06)
    np.testing.assert_allclose(found.phase[band], np.rad2deg(np.unwrap(np.angle(expected)))[band], atol=4.0)
    assert found.coherence[band].min() > 0.9


def test_samples_at_unequal_intervals_are_interpolated_and_that_is_said() -> None:
    kept = np.delete(np.arange(8000), [100, 101, 5000])
    values = np.sin(2 * np.pi * 10.0 * TIMES)
    found = spectrum(TIMES[kept], values[kept], 1)
    assert found.note.startswith("Not equidistant: interpolated at 1000 Hz.")
    assert found.frequency[np.argmax(found.amplitude)] == pytest.approx(10.0, abs=0.2)
    assert spectrum(TIMES, values, 1).note.startswith("Welch's method, Hann window")


def test_what_has_no_spectrum_is_refused() -> None:
    values = np.ones(100)
    with pytest.raises(HilserverError, match="has 3 samples: choose one with at least 16"):
        spectrum(TIMES[:3], values[:3])
    with pytest.raises(HilserverError, match="is constant"):
        response(TIMES[:100], values, values)
    values[5] = np.nan
    with pytest.raises(HilserverError, match="1 missing samples"):
        spectrum(TIMES[:100], values)
