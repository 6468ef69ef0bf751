"""An image of memory for the runner: arrays and frames in one block of 8-byte cells.

In place of an address, a frame has the number of the cell; the runner sets the addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hilserver.circuit.program import Argument, Parameter, Record
from hilserver.numerics.arrays import Integers

CELL = 8


class Cells(NamedTuple):
    """Cells of an image: the first one, and their number."""

    at: int
    n: int


class Image:
    """Collects arrays."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, array: Any) -> Cells:
        """Add an array of 8-byte numbers."""
        cells = np.ascontiguousarray(array)
        if cells.itemsize != CELL:
            raise TypeError(f"an array of {cells.dtype} does not consist of cells of {CELL} bytes")
        part = Cells(len(self._bytes) // CELL, cells.size)
        self._bytes += cells.tobytes()
        return part

    def add_text(self, text: str) -> Cells:
        """Add a text, with at least one zero byte behind it."""
        content = text.encode() + b"\0"
        return self.add(np.frombuffer(content.ljust(-(-len(content) // CELL) * CELL, b"\0"), dtype=np.int64))

    def add_frames(self, record: Record, values: Sequence[Any]) -> Cells:
        """Add the frames of some arguments of a compiled function, and the array of their places."""
        frames = [self.add(np.array([*self._arguments(record, value)], dtype=np.int64)).at for value in values]
        return self.add(np.array(frames, dtype=np.int64))

    def _arguments(self, kind: Parameter, value: Any) -> Iterator[int]:
        """The cells of a frame as `hilserver.circuit.program.Function` makes it."""
        if isinstance(kind, Record):
            for field, each in zip(kind.fields, value, strict=True):
                yield from self._arguments(field, each)
            return
        require_array(kind)
        yield from (self.add(value).at, *value.shape)

    @property
    def cells(self) -> Integers:
        """The image."""
        return np.frombuffer(bytes(self._bytes), dtype=np.int64)


def dimensions_of(kind: Parameter) -> list[int]:
    """The dimensions of the arrays in a frame of an argument, in their order."""
    if isinstance(kind, Record):
        return [number for field in kind.fields for number in dimensions_of(field)]
    require_array(kind)
    return [kind.dimensions]


def require_array(kind: Argument) -> None:
    """Raises TypeError for an argument that is a number."""
    if kind.dimensions == 0:
        raise TypeError(f"{kind.annotation}: an image holds arrays only")
