"""The array types of compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Indices = NDArray[np.uint64]
"""A packed circuit's index: unsigned, so that compiled code need not check for negative ones."""

Function = TypeVar("Function", bound=Callable[..., Any])


def gives_arrays(function: Function) -> Function:
    """Let compiled code call a function that returns parts of its arrays: `register_jitable` for these.

    Without Numba's memory runtime, which the tick does without, a function may not return an array. It is
    switched on for the function alone, and has nothing to count: no array of the tick is owned by compiled code.
    """
    made: Function = register_jitable(_nrt=True)(function)
    return made


@register_jitable
def overwrite(target: Floats, source: Floats) -> None:
    """Copy ``source`` into ``target`` of equal length. (Compiled, ``target[:] = source`` may allocate on the heap.)

    >>> target = np.zeros(2)
    >>> overwrite(target, np.array([1.0, 2.0]))
    >>> target.tolist()
    [1.0, 2.0]
    """
    for i in range(target.shape[0]):
        target[i] = source[i]


@register_jitable
def signed(ix: Indices, place: int) -> int:
    """An entry of an index as a signed number: for further arithmetic.

    >>> signed(np.array([7], dtype=np.uint64), 0) - 8
    -1
    """
    return int(np.int64(ix[place]))
