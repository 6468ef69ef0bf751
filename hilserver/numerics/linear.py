"""Linear equations: Gaussian elimination with partial pivoting, on matrices stored row by row in an array."""

from __future__ import annotations

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable


@compilable
def factorise(matrix: Floats, n: int, pivots: Floats) -> None:
    """Gaussian elimination with partial pivoting, in place: the factors overwrite the matrix.

    Indices are unsigned: with indices that can't be negative, the compiler vectorises the elimination of a row.
    """
    size, one = np.uint64(n), np.uint64(1)
    for col in range(size):
        top, best = col * size, col
        largest = abs(matrix[top + col])
        for i in range(col + one, size):
            if abs(matrix[i * size + col]) > largest:
                best, largest = i, abs(matrix[i * size + col])
        pivots[col] = best
        if best != col:
            for j in range(size):
                matrix[top + j], matrix[best * size + j] = matrix[best * size + j], matrix[top + j]
        for i in range(col + one, size):
            row = i * size
            factor = matrix[row + col] / matrix[top + col]
            matrix[row + col] = factor
            if factor != 0.0:
                for j in range(col + one, size):
                    matrix[row + j] -= factor * matrix[top + j]


@compilable
def solve(matrix: Floats, b: Floats, n: int, pivots: Floats) -> None:
    """b <- matrix^-1 b, from the factors and pivots of ``factorise``."""
    for col in range(n):
        best = int(pivots[col])
        b[col], b[best] = b[best], b[col]
    for i in range(n):
        x = b[i]
        for j in range(i):
            x -= matrix[i * n + j] * b[j]
        b[i] = x
    for i in range(n - 1, -1, -1):
        x = b[i]
        for j in range(i + 1, n):
            x -= matrix[i * n + j] * b[j]
        b[i] = x / matrix[i * n + i]
