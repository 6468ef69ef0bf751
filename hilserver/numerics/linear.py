"""Linear equations: Gaussian elimination with partial pivoting, on matrices stored in an array.

They are stored row by row, unless a function says otherwise.
"""

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
            if matrix[row + col] != 0.0:
                factor = matrix[row + col] / matrix[top + col]
                matrix[row + col] = factor
                for j in range(col + one, size):
                    matrix[row + j] -= factor * matrix[top + j]


@compilable
def factorise_columns(matrix: Floats, n: int, pivots: Floats) -> None:
    """The same of a matrix that is stored column by column: the same operations, but for those with a zero.

    A pivot is searched, and a column eliminated, in memory that is contiguous; of sparse rows little is touched.
    """
    size, one = np.uint64(n), np.uint64(1)
    for col in range(size):
        top, best = col * size, col
        largest = abs(matrix[top + col])
        for i in range(col + one, size):
            if abs(matrix[top + i]) > largest:
                best, largest = i, abs(matrix[top + i])
        pivots[col] = best
        if best != col:
            for j in range(size):
                matrix[j * size + col], matrix[j * size + best] = matrix[j * size + best], matrix[j * size + col]
        for i in range(col + one, size):
            if matrix[top + i] != 0.0:
                matrix[top + i] = matrix[top + i] / matrix[top + col]
        for j in range(col + one, size):
            factor = matrix[j * size + col]
            if factor != 0.0:
                for i in range(col + one, size):
                    matrix[j * size + i] -= matrix[top + i] * factor


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


@compilable
def compress(matrix: Floats, n: int, factors: Floats) -> None:
    """Write the factors of ``factorise_columns`` without their zeros, in the order in which ``solve_compressed`` needs
    them.

    Of each row the number of its entries, and place and value of each: of the lower triangle from the first row to the
    last, of the upper triangle from the last row to the first, there with the diagonal before the number.
    ``factors`` has room for `compressed_size` values.
    """
    size, one, first = np.uint64(n), np.uint64(1), np.uint64(0)
    at = first
    for down in range(size):
        i = np.uint64(down)
        at = _compress_row(matrix, i, size, first, i, factors, at)
    for up in range(size):
        i = size - one - np.uint64(up)
        factors[at] = matrix[i * size + i]
        at = _compress_row(matrix, i, size, i + one, size, factors, at + one)


@compilable
def _compress_row(
    matrix: Floats, row: np.uint64, size: np.uint64, first: np.uint64, end: np.uint64, factors: Floats, at: np.uint64
) -> np.uint64:
    """Write the entries of a row from one place to another; returns the place behind them."""
    one, two = np.uint64(1), np.uint64(2)
    head, at = at, at + one
    for j in range(first, end):
        if matrix[j * size + row] != 0.0:
            factors[at], factors[at + one] = j, matrix[j * size + row]
            at += two
    factors[head] = (at - head) >> one
    return at


def compressed_size(n: int) -> int:
    """Length of the array for the factors of a matrix of which no entry is zero."""
    return 2 * n * n + n


@compilable
def solve_compressed(factors: Floats, b: Floats, n: int, pivots: Floats) -> None:
    """The same as `solve`, from what ``compress`` has written: the same operations, but for those with a zero."""
    size, one, two = np.uint64(n), np.uint64(1), np.uint64(2)
    at = np.uint64(0)
    for col in range(size):
        best = np.uint64(np.int64(pivots[col]))
        b[col], b[best] = b[best], b[col]
    for down in range(size):
        i = np.uint64(down)
        x, entries = b[i], np.uint64(np.int64(factors[at]))
        at += one
        for _ in range(entries):
            x -= factors[at + one] * b[np.uint64(np.int64(factors[at]))]
            at += two
        b[i] = x
    for up in range(size):
        i = size - one - np.uint64(up)
        x, diagonal, entries = b[i], factors[at], np.uint64(np.int64(factors[at + one]))
        at += two
        for _ in range(entries):
            x -= factors[at + one] * b[np.uint64(np.int64(factors[at]))]
            at += two
        b[i] = x / diagonal
