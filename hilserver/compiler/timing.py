"""Compiles the functions of `hilserver.tick.timed`. Importing this module loads Numba."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

import numba
from llvmlite import ir
from numba.extending import intrinsic

from hilserver.compiler.linking import HEAPLESS, UNWRAPPED
from hilserver.tick.timed import CELLS, COUNTER, EMPTY, PARTS, TABLE


def timed(functions: Mapping[str, Any]) -> dict[str, Any]:
    """The functions by name, made from those of a program."""
    scope = functions["tick"].py_func.__globals__
    wrapped = {name: _timed(scope[name], place) for place, name in enumerate(PARTS)}
    run = _with(functions["run_recorded"], tick=_with(functions["tick"], **wrapped))
    empty = _timed(_compiled(_nothing), EMPTY)

    def time_nothing(times):  # type: ignore[no-untyped-def]
        for _ in range(times):
            empty()

    return {"timed_run": run, "time_nothing": _compiled(time_nothing), "read_counter": _compiled(_read_counter)}


def _with(function: Any, **replaced: Any) -> Any:
    """A function of the program in which some of the called functions are replaced."""
    original = function.py_func
    copy = FunctionType(original.__code__, {**original.__globals__, **replaced}, original.__name__)
    copy.__module__, copy.__qualname__ = __name__, f"timed_{original.__name__}"
    return _compiled(copy)


def _compiled(function: Any) -> Any:
    return numba.njit(function, **HEAPLESS, **UNWRAPPED)


def _timed(function: Any, place: int) -> Any:
    """A function which adds the cycles that it takes to the table at this place."""

    def call(*arguments):  # type: ignore[no-untyped-def]
        begin = _cycles()
        result = function(*arguments)
        _add(place, _cycles() - begin)
        return result

    return _compiled(call)


def _nothing(*_arguments):  # type: ignore[no-untyped-def]
    pass


def _read_counter():  # type: ignore[no-untyped-def]
    _set(COUNTER, _cycles())


def _cycle_counter(_typing: Any) -> Any:
    """The processor's time stamp counter, whose rate is constant on every current x86-64."""

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        return builder.call(builder.module.declare_intrinsic("llvm.readcyclecounter", fnty=kind), [])

    return numba.types.uint64(), generate


def _cell(builder: Any, place: Any) -> Any:
    if TABLE not in builder.module.globals:
        ir.GlobalVariable(builder.module, ir.ArrayType(ir.IntType(64), CELLS), TABLE)
    return builder.gep(builder.module.globals[TABLE], [ir.IntType(64)(0), place])


def _add_to_table(_typing: Any, _place: Any, _amount: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        cell = _cell(builder, arguments[0])
        builder.store(builder.add(builder.load(cell), arguments[1]), cell)
        return context.get_dummy_value()

    return numba.types.void(numba.types.uint64, numba.types.uint64), generate


def _write_to_table(_typing: Any, _place: Any, _amount: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], _cell(builder, arguments[0]))
        return context.get_dummy_value()

    return numba.types.void(numba.types.uint64, numba.types.uint64), generate


_cycles: Any = intrinsic(_cycle_counter)
_add: Any = intrinsic(_add_to_table)
_set: Any = intrinsic(_write_to_table)
