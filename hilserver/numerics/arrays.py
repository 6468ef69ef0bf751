"""The array types of compiled code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hilserver.numerics.compilable import Compile, compilable, mark

Floats = NDArray[np.float64]
Matrix = NDArray[np.float64]
"""An array of two dimensions, stored row by row."""
Integers = NDArray[np.int64]
Indices = NDArray[np.uint64]
"""A packed circuit's index: unsigned, so that compiled code need not check for negative ones."""


def as_matrix(cells: Floats, lines: int) -> Matrix:
    """The cells of an array as a matrix with this number of lines: a view.

    >>> as_matrix(np.arange(6.0), 2).tolist()
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    return cells.reshape(lines, len(cells) // max(lines, 1))


mark(as_matrix, Compile.MATRIX)


@compilable
def overwrite(target: Floats, source: Floats) -> None:
    """Copy ``source`` into ``target`` of equal length. (Compiled, ``target[:] = source`` may allocate on the heap.)

    >>> target = np.zeros(2)
    >>> overwrite(target, np.array([1.0, 2.0]))
    >>> target.tolist()
    [1.0, 2.0]
    """
    for i in range(target.shape[0]):
        target[i] = source[i]


@compilable
def signed(ix: Indices, place: int) -> int:
    """An entry of an index as a signed number: for further arithmetic.

    >>> signed(np.array([7], dtype=np.uint64), 0) - 8
    -1
    """
    return int(np.int64(ix[place]))
