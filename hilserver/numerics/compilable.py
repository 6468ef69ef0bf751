"""Marks the functions that compiled code may call; the compiler itself is not loaded for this.

A marked function is and remains an ordinary Python function. `hilserver.compiler` reads the marks and tells Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Compile(Enum):
    """How a marked function is compiled."""

    CALL = "as a function"
    ARRAYS = "as a function that returns parts of its arrays"
    ADDRESS = "as the address of a record, without a call"
    RECORDS = "as an array of records on the memory of another, without a call"
    MATRIX = "as an array of two dimensions on the memory of another, without a call"
    CELLS = "as the cells of a record, without a copy"
    ACQUIRE = "as an atomic load of a cell, after which others' writes are seen"
    RELEASE = "as an atomic store to a cell, before which own writes are seen"


@dataclass(frozen=True)
class Marked:
    """A marked function, how it is compiled, and what the compiler needs to know for that."""

    function: Callable[..., Any]
    how: Compile
    details: tuple[Any, ...] = ()


MARKS: list[Marked] = []
"""All marks of this process, in the order of import."""


def mark(function: Callable[..., Any], how: Compile, *details: Any) -> None:
    """Mark a function for the compiler."""
    MARKS.append(Marked(function, how, details))


def compilable(function: Function) -> Function:
    """Mark a function that compiled code may call."""
    mark(function, Compile.CALL)
    return function


def gives_arrays(function: Function) -> Function:
    """Mark a function that compiled code may call and that returns parts of its arrays.

    Without Numba's memory runtime, which compiled code does without, a function may not return an array. It is
    switched on for the function alone, and has nothing to count: no array of the tick is owned by compiled code.
    """
    mark(function, Compile.ARRAYS)
    return function
