"""The compiled program: a shared library whose functions are called with NumPy arrays.

An entry point gets one argument, the *frame*: a block of 8-byte cells with its arguments in order. An array is its
address and its shape, a named tuple its fields, a number its value, and a tuple of named tuples the address of an array
with the addresses of their frames, and their number.
"""

from __future__ import annotations

import ctypes
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Integers

SYMBOL = "hilserver_"
"""Prefix of the entry points' names in the shared library."""


class Argument(Enum):
    """What a parameter of an entry point is: the name of its annotation, its dimensions (0: a number), their type."""

    FLOATS = "Floats", 1, "float64"
    MATRIX = "Matrix", 2, "float64"
    INTEGERS = "Integers", 1, "int64"
    INDICES = "Indices", 1, "uint64"
    WHOLE = "int", 0, "int64"
    NUMBER = "float", 0, "float64"

    def __init__(self, annotation: str, dimensions: int, dtype: str) -> None:
        self.annotation = annotation
        self.dimensions = dimensions
        self.dtype = np.dtype(dtype)

    @property
    def cells(self) -> int:
        """Number of cells that the argument takes in a frame."""
        return 1 + self.dimensions


OF_ANNOTATION = {kind.annotation: kind for kind in Argument}


@dataclass(frozen=True)
class Record:
    """A parameter that is a named tuple: its type and the kinds of its fields; ``many``: a tuple of any number."""

    type: type[tuple[Any, ...]]
    fields: tuple[Parameter, ...]
    many: bool = False

    @property
    def cells(self) -> int:
        """Number of cells that the argument takes in a frame."""
        return 2 if self.many else sum(field.cells for field in self.fields)

    def one(self) -> Record:
        """The same for a single one of them."""
        return Record(self.type, self.fields)


Parameter = Argument | Record


def parameters_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a function by name, from its annotations."""
    return _parameters(function, function.__globals__)


def _parameters(owner: Any, scope: Mapping[str, Any]) -> dict[str, Parameter]:
    return {name: _parameter(str(text), scope) for name, text in owner.__annotations__.items() if name != "return"}


def _parameter(annotation: str, scope: Mapping[str, Any]) -> Parameter:
    annotation = annotation.removeprefix("ForwardRef('").removesuffix("')")  # of a named tuple's field
    if annotation in OF_ANNOTATION:
        return OF_ANNOTATION[annotation]
    name = annotation.removeprefix("tuple[").removesuffix(", ...]")
    found = scope[name]
    fields = _parameters(found, vars(sys.modules[found.__module__]))
    return Record(found, tuple(fields.values()), many=name != annotation)


class Function:
    """An entry point of a program, called with the arguments of the Python function from which it was compiled."""

    def __init__(self, name: str, parameters: Mapping[str, Parameter], address: int) -> None:
        self.name = name
        self.parameters = dict(parameters)
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address)  # releases Python's lock

    def __call__(self, *arguments: Any) -> None:
        """Call it. Raises TypeError for an argument of the wrong type."""
        self.bound(*arguments)()

    def bound(self, *arguments: Any) -> Callable[[], None]:
        """The function with these arguments, for many calls: they are not examined in each call."""
        self.require_number(arguments)
        return self.at(*self._frame(self.parameters.items(), arguments), arguments)

    def repeated(self) -> Repeated:
        """The function for calls one after the other, mostly with the same arguments."""
        return Repeated(self)

    def require_number(self, arguments: Sequence[Any]) -> None:
        """Raises TypeError if there are more or fewer arguments than the function has."""
        if len(arguments) != len(self.parameters):
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments, got {len(arguments)}")

    def at(self, frame: Integers, *kept: Any) -> Callable[[], None]:
        """The function with the arguments in a frame; ``kept``: what must live as long as it."""
        call, place, name = self._call, frame.ctypes.data, self.name

        def run(_kept: Any = (frame, kept)) -> None:
            if call(place):
                raise HilserverError(f"the compiled function {name} failed")

        return run

    def _frame(self, parameters: Any, arguments: Sequence[Any]) -> tuple[Integers, list[Any]]:
        """A frame, and the objects that must live as long as it."""
        cells: list[int] = []
        kept: list[Any] = []
        for (name, kind), argument in zip(parameters, arguments, strict=True):
            self.add(name, kind, argument, cells, kept)
        return np.array(cells, dtype=np.int64), kept

    def add(self, name: str, kind: Parameter, argument: Any, cells: list[int], kept: list[Any]) -> None:
        """Add the cells of an argument."""
        if isinstance(kind, Record):
            self._add_records(name, kind, argument, cells, kept)
        elif kind.dimensions:
            if not (
                isinstance(argument, np.ndarray)
                and argument.dtype == kind.dtype
                and argument.ndim == kind.dimensions
                and argument.flags.c_contiguous
            ):
                wanted = f"a contiguous array of {kind.dtype} with {kind.dimensions} dimensions"
                raise TypeError(f"{self.name}: {name} must be {wanted}, is {_described(argument)}")
            cells.append(argument.__array_interface__["data"][0])
            cells.extend(argument.shape)
        elif kind is Argument.WHOLE:
            if not isinstance(argument, Integral):
                raise TypeError(f"{self.name}: {name} must be a whole number, is {_described(argument)}")
            cells.append(int(argument))
        else:
            if not isinstance(argument, Real):
                raise TypeError(f"{self.name}: {name} must be a number, is {_described(argument)}")
            cells.append(int(np.float64(argument).view(np.int64)))

    def _add_records(self, name: str, kind: Record, argument: Any, cells: list[int], kept: list[Any]) -> None:
        if not isinstance(argument, tuple) or not (kind.many or len(argument) == len(kind.fields)):
            wanted = f"a tuple of {kind.type.__name__}" if kind.many else f"a {kind.type.__name__}"
            raise TypeError(f"{self.name}: {name} must be {wanted}, is {_described(argument)}")
        if not kind.many:
            for field, one, value in zip(kind.type._fields, kind.fields, argument, strict=True):  # type: ignore[attr-defined]
                self.add(f"{name}.{field}", one, value, cells, kept)
            return
        frames = [self._frame([(name, kind.one())], [value]) for value in argument]
        addresses = np.array([frame.ctypes.data for frame, _ in frames], dtype=np.int64)
        kept += (frames, addresses)
        cells += (addresses.ctypes.data, len(frames))


class Repeated:
    """A function for calls one after the other: an argument that is the same object as in the last is not examined."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._kinds = list(function.parameters.items())
        self._last: list[tuple[Any, list[int], list[Any]]] = [(None, [], [])] * len(self._kinds)

    def bound(self, *arguments: Any) -> Callable[[], None]:
        """The function with these arguments. Raises TypeError for one of the wrong type."""
        self._function.require_number(arguments)
        for k, argument in enumerate(arguments):
            if argument is not self._last[k][0]:
                cells, kept = list[int](), list[Any]()
                self._function.add(*self._kinds[k], argument, cells, kept)
                self._last[k] = argument, cells, kept
        frame = np.array([cell for _, cells, _ in self._last for cell in cells], dtype=np.int64)
        return self._function.at(frame, list(self._last))


def _described(argument: Any) -> str:
    if not isinstance(argument, np.ndarray):
        return f"{type(argument).__name__}"
    contiguous = "" if argument.flags.c_contiguous else "not contiguous, "
    return f"{contiguous}{argument.dtype} with {argument.ndim} dimensions"


class Program:
    """The functions of a shared library by name (``program.advance``, …).

    ``fingerprint`` identifies what was compiled; ``library`` keeps the code loaded.
    """

    def __init__(self, functions: Mapping[str, Function], fingerprint: str, library: ctypes.CDLL) -> None:
        self.functions = dict(functions)
        self.fingerprint = fingerprint
        self.library = library
        self.kept: list[object] = []

    def table(self, symbol: str, cells: int) -> NDArray[np.uint64]:
        """A table of the shared library, as an array on its memory."""
        return np.ctypeslib.as_array((ctypes.c_uint64 * cells).in_dll(self.library, symbol))

    def __getattr__(self, name: str) -> Function:
        try:
            return typing.cast(Function, self.__dict__["functions"][name])
        except KeyError:
            raise AttributeError(name) from None
