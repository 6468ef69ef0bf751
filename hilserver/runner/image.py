"""An image of memory for the runner: arrays and frames in one block of 8-byte cells, with addresses set when loaded."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Collects arrays. ``relocations`` are pairs: a cell with an address, and the cell that it is the address of."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.relocations: list[int] = []

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
        """Add the frames of some arguments of a compiled function, and the array of their addresses."""
        frames = [self._frame(record, value) for value in values]
        part = self.add(np.zeros(len(frames), dtype=np.int64))
        for number, frame in enumerate(frames):
            self.relocations += (part.at + number, frame.at)
        return part

    def _frame(self, record: Record, value: Any) -> Cells:
        """A frame as `hilserver.circuit.program.Function` makes it."""
        cells: list[int] = []
        addresses: list[tuple[int, int]] = []
        self._arguments(record, value, cells, addresses)
        part = self.add(np.array(cells, dtype=np.int64))
        for cell, target in addresses:
            self.relocations += (part.at + cell, target)
        return part

    def _arguments(self, kind: Parameter, value: Any, cells: list[int], addresses: list[tuple[int, int]]) -> None:
        if isinstance(kind, Record):
            for field, each in zip(kind.fields, value, strict=True):
                self._arguments(field, each, cells, addresses)
            return
        if kind in (Argument.WHOLE, Argument.NUMBER):
            raise TypeError(f"{kind.annotation}: an image holds arrays only")
        addresses.append((len(cells), self.add(value).at))
        cells += (0, *value.shape)

    @property
    def cells(self) -> Integers:
        """The image."""
        return np.frombuffer(bytes(self._bytes), dtype=np.int64)
