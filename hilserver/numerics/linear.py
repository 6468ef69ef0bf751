"""Linear equations: Gaussian elimination with partial pivoting, on matrices stored row by row in an array."""

from __future__ import annotations

from hilserver.numerics.arrays import Floats


def factorise(matrix: Floats, n: int, pivots: Floats) -> None:
    """Gaussian elimination with partial pivoting, in place: the factors take the matrix' place."""
    for col in range(n):
        best = col
        for i in range(col + 1, n):
            if abs(matrix[i * n + col]) > abs(matrix[best * n + col]):
                best = i
        pivots[col] = best
        if best != col:
            for j in range(n):
                matrix[col * n + j], matrix[best * n + j] = matrix[best * n + j], matrix[col * n + j]
        for i in range(col + 1, n):
            factor = matrix[i * n + col] / matrix[col * n + col]
            matrix[i * n + col] = factor
            if factor != 0.0:
                for j in range(col + 1, n):
                    matrix[i * n + j] -= factor * matrix[col * n + j]


def solve(matrix: Floats, b: Floats, n: int, pivots: Floats) -> None:
    """b <- matrix^-1 b, from the factors and pivots of ``factorise``."""
    for col in range(n):
        best = int(pivots[col])
        b[col], b[best] = b[best], b[col]
    for i in range(n):
        for j in range(i):
            b[i] -= matrix[i * n + j] * b[j]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            b[i] -= matrix[i * n + j] * b[j]
        b[i] /= matrix[i * n + i]
