"""Atomic accesses to memory that two threads of compiled code share. In Python itself they are ordinary ones."""

from __future__ import annotations

from hilserver.numerics.arrays import Integers
from hilserver.numerics.compilable import Compile, mark


def load_acquire(array: Integers, place: int) -> int:
    """A value of another thread, with everything that it wrote before."""
    return int(array[place])


def store_release(array: Integers, place: int, value: int) -> None:
    """Publish a value, with everything that was written before."""
    array[place] = value


mark(load_acquire, Compile.ACQUIRE)
mark(store_release, Compile.RELEASE)
