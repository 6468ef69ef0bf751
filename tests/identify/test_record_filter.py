"""The filter over a whole record; the judge is SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from hilserver.compiler import standard_program
from hilserver.numerics.record_filter import BLOCK


@pytest.mark.parametrize("pole", [0.0, 0.95])
@pytest.mark.parametrize("samples", [1, 7, BLOCK, 2 * BLOCK + 5])
def test_a_record_is_filtered_as_by_scipy(samples: int, pole: float) -> None:
    rng = np.random.default_rng(samples)
    record, model, filtered = rng.normal(size=samples), rng.normal(size=31), np.full(samples, np.nan)
    standard_program().filter_record(record, model, pole, filtered)
    np.testing.assert_allclose(filtered, lfilter(model, [1.0, -pole], record), rtol=1e-12, atol=1e-12)
