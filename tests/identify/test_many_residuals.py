"""The condensed problem leads to the same minimum as the one with all residuals, on the same way."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import least_squares

from hilserver.identify.many_residuals import condensed, minimum
from hilserver.numerics.arrays import Floats

TIMES = np.linspace(0.0, 3.0, 4000)


def decay(x: Floats) -> Floats:
    """Residuals of an oscillation that decays: amplitude, rate, frequency, and what has no influence."""
    truth = 2.0 * np.exp(-0.7 * TIMES) * np.cos(5.0 * TIMES)
    noise = 0.05 * np.random.default_rng(4).standard_normal(len(TIMES))
    found: Floats = x[0] * np.exp(-x[1] * TIMES) * np.cos(x[2] * TIMES) - truth - noise
    return found


def slopes(x: Floats) -> Floats:
    e, c, s = np.exp(-x[1] * TIMES), np.cos(x[2] * TIMES), np.sin(x[2] * TIMES)
    return np.array([e * c, -x[0] * TIMES * e * c, -x[0] * TIMES * e * s, np.zeros_like(TIMES)]).T


@pytest.mark.parametrize("high", [[9.0, 9.0, 9.0, 9.0], [9.0, 0.5, 9.0, 9.0]], ids=["inside", "at a bound"])
def test_it_is_the_minimum_of_all_residuals(high: list[float]) -> None:
    start, bounds, asked = np.array([1.0, 0.3, 4.6, 1.0]), (np.full(4, -9.0), np.array(high)), list[Floats]()

    def slopes_asked(x: Floats) -> Floats:
        asked.append(x)
        return slopes(x)

    direct = least_squares(decay, start, jac=slopes, bounds=bounds, ftol=1e-10)
    found, squares = minimum(decay, slopes_asked, start, bounds, 1e-10, 100)
    assert found == pytest.approx(direct.x, rel=1e-7)
    assert squares == pytest.approx(2.0 * direct.cost, rel=1e-12)
    assert len(asked) == direct.njev


@pytest.mark.parametrize("seed", range(3))
def test_the_condensed_jacobian_has_the_same_products(seed: int) -> None:
    """Also of parameters that differ in size by six decades, and of two with the same influence."""
    rng = np.random.default_rng(seed)
    J, r = rng.standard_normal((500, 12)) * 10.0 ** rng.uniform(-3.0, 3.0, 12), rng.standard_normal(500)
    J[:, 7] = 3.0 * J[:, 2]
    few = condensed(J.T @ J, J.T @ r, float(np.linalg.norm(r)))
    length = np.linalg.norm(J, axis=0)
    assert np.all(np.abs(few.T @ few - J.T @ J) <= 1e-13 * np.outer(length, length))
    assert np.abs(-few[-1] * np.linalg.norm(r) - J.T @ r) == pytest.approx(0.0, abs=1e-7 * length.max())
