"""Records with named fields in plain memory, of which the tick's plan and row consist.

A record is declared once, as a class, with name, type, unit and description of each field. From this declaration follow
its NumPy structured dtype, which compiled code reads by attribute (``b.spool``), and the log's columns with their units
and reference. All fields have 8 bytes (float64, or int64 for whole numbers), so that any record is a section of an
array of cells.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import Compile, mark

NONE = -1
"""Stands for no channel, port, valve or cylinder in a field that holds a number or column of one."""


class Field(NamedTuple):
    """The declaration of a field: SI unit (empty: a number without unit) and description."""

    unit: str
    description: str


def value(unit: str, description: str) -> Any:
    """Declare a field of a record."""
    return Field(unit, description)


class Struct:
    """Base of all records. At run time an instance is a NumPy record (``numpy.record``) in the memory of its array."""

    @classmethod
    @functools.cache
    def fields(cls) -> Mapping[str, Field]:
        """The fields by name, in the order in memory."""
        return {name: found for name, found in vars(cls).items() if isinstance(found, Field)}

    @classmethod
    @functools.cache
    def names(cls) -> tuple[str, ...]:
        """The fields' names."""
        return tuple(cls.fields())

    @classmethod
    def whole(cls) -> tuple[str, ...]:
        """The names of the fields that hold whole numbers."""
        return tuple(name for name in cls.names() if dtype_of(cls)[name] == np.int64)

    @classmethod
    def cells(cls) -> int:
        """Number of cells of 8 bytes in a record."""
        return len(cls.fields())


R = TypeVar("R", bound=Struct)
R_co = TypeVar("R_co", bound=Struct, covariant=True)
P = ParamSpec("P")


class RecordTable(Protocol[R_co]):
    """An array of records: ``table[i]`` is a record, ``table["spool"]`` a field of all of them; both are views."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of the array."""

    @overload
    def __getitem__(self, key: int) -> R_co: ...
    @overload
    def __getitem__(self, key: str) -> NDArray[Any]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[R_co]: ...
    def __setitem__(self, key: str, value: Any) -> None: ...


_DTYPES: dict[type[Struct], np.dtype[Any]] = {}


def dtype_of(record: type[Struct]) -> np.dtype[Any]:
    """The structured dtype of a record: fields annotated ``float`` are float64, all others (enums too) int64."""
    if record not in _DTYPES:  # to evaluate the annotations takes milliseconds
        kinds = typing.get_type_hints(record)
        fields = [(name, np.float64 if kinds[name] is float else np.int64) for name in record.names()]
        _DTYPES[record] = np.dtype((np.record, np.dtype(fields, align=True)))
    return _DTYPES[record]


def table_on(cells: NDArray[Any], record: type[R]) -> RecordTable[R]:
    """The records that follow each other along the last axis of an array of cells, as a view."""
    found: RecordTable[R] = cells.view(dtype_of(record))
    return found


def records_in(record: type[Struct]) -> Callable[[Floats, int, int], RecordTable[Any]]:
    """A function that gives the records in a range of cells, as a view; in compiled code, almost without computing."""
    dtype = dtype_of(record)

    def find(cells: Floats, first: int, last: int) -> RecordTable[Any]:
        found: RecordTable[Any] = cells[first:last].view(dtype)
        return found

    mark(find, Compile.RECORDS, dtype)
    return find


def blank(record: type[R]) -> R:
    """A separate record, all zero."""
    found: R = np.zeros(1, dtype_of(record))[0]
    return found


def plain(record: R) -> R:
    """A copy of a record as ordinary numbers, which Python reads faster than the fields of an array."""
    fields: Any = record
    return typing.cast(R, SimpleNamespace(**{name: fields[name].item() for name in fields.dtype.names}))


def record_at(record: type[R]) -> Callable[[Callable[P, int]], Callable[P, R]]:
    """Convert a function that returns a column of its argument ``row`` into one that returns the record at this column.

    The record is a view. In compiled code it is an address without computing time, whereas a function that *returned* a
    record would return a copy.
    """

    def wrap(place: Callable[P, int]) -> Callable[P, R]:
        dtype, row = dtype_of(record), list(inspect.signature(place).parameters).index("row")
        size = record.cells()

        @functools.wraps(place)
        def find(*args: P.args, **kwargs: P.kwargs) -> R:
            start: int = place(*args, **kwargs)
            cells: Any = args[row]
            found: R = cells[start : start + size].view(dtype)[0]
            return found

        mark(find, Compile.ADDRESS, place, dtype, row)
        return find

    return wrap


def cells_of(record: Struct) -> Floats:
    """All fields of a record whose cells are float64, as an array that shares its memory."""
    memory: Any = record
    cells: Floats = memory.base.view(np.float64).reshape(-1)  # of all records in the same array
    first = (np.frombuffer(memory.data).ctypes.data - cells.ctypes.data) // cells.itemsize
    return cells[first : first + len(memory.dtype)]


mark(cells_of, Compile.CELLS)
