"""Linear equations with many zeros, against NumPy's solution and against the same operations with the zeros."""

from __future__ import annotations

import numpy as np
import pytest

from hilserver.numerics.linear import compress, compressed_size, factorise, factorise_columns, solve, solve_compressed


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("share", [0.1, 0.4, 1.0])
def test_without_the_zeros_the_solution_is_the_same(seed: int, share: float) -> None:
    """Rows that have to be exchanged are among them: the diagonal has zeros, too."""
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 13))
    matrix = random.standard_normal((n, n)) * (random.random((n, n)) < share)
    matrix[np.arange(n), random.permutation(n)] += 3.0  # so that it has an inverse
    assert np.linalg.cond(matrix) < 1e6
    right = random.standard_normal(n)
    factors, pivots = matrix.ravel().copy(), np.zeros(n)
    factorise(factors, n, pivots)
    found, compressed = right.copy(), np.full(compressed_size(n) + 1, np.nan)
    solve(factors, found, n, pivots)
    assert found == pytest.approx(np.linalg.solve(matrix, right), rel=1e-8, abs=1e-8)
    columns, pivots_too = matrix.T.ravel().copy(), np.zeros(n)
    factorise_columns(columns, n, pivots_too)
    assert pivots_too.tolist() == pivots.tolist()
    assert columns.reshape(n, n).T.ravel().tolist() == factors.tolist()
    compress(columns, n, compressed)
    assert np.isnan(compressed[-1])
    same = right.copy()
    solve_compressed(compressed, same, n, pivots)
    assert same.tolist() == found.tolist()
