"""Tells Numba how to compile what the compiled functions consist of: marked functions, records, frames.

Importing this module loads Numba.
"""
# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing import templates
from numba.extending import intrinsic, lower_builtin, lower_cast, overload, register_jitable, type_callable
from numba.np.arrayobj import populate_array

from hilserver.circuit.program import Argument, Parameter, Record, parameters_of
from hilserver.numerics import compilable
from hilserver.numerics.compilable import Compile, Marked
from hilserver.tick.lockstep import attached_at, run_bridged

CELL = 8
"""Bytes of a field of a record and of a cell of a frame."""
FRAME = types.CPointer(types.int64)
"""Type of a frame in compiled code."""


# --- marked functions ------------------------------------------------------------------------------------------------

_registered: list[Marked] = []


def register_marks() -> None:
    """Register the functions marked since the last call. (Importing a module marks its functions.)"""
    for mark in compilable.MARKS[len(_registered) :]:
        _registered.append(mark)
        if mark.how is Compile.ADDRESS:
            _compile_as_address(mark.function, *mark.details)
        elif mark.how is Compile.RECORDS:
            _compile_as_records(mark.function, *mark.details)
        elif mark.how is Compile.MATRIX:
            _compile_as_matrix(mark.function)
        elif mark.how is Compile.CELLS:
            _compile_as_cells(mark.function)
        elif mark.how is Compile.ACQUIRE:
            _compile_as_acquire(mark.function)
        elif mark.how is Compile.RELEASE:
            _compile_as_release(mark.function)
        else:
            arrays = {"_nrt": True} if mark.how is Compile.ARRAYS else {}
            register: Any = register_jitable(no_cfunc_wrapper=True, **arrays)
            register(mark.function)


def _compile_as_address(find: Any, place: Any, dtype: np.dtype[Any], row: int) -> None:
    """Compile ``find`` as the address of a record in argument number ``row``, which starts at column ``place(…)``.

    A compiled function that *returned* a record would return a copy of it, so these are lowered where they are called.
    """
    kind: Any = numba.from_dtype(dtype)

    def typer(*args: Any) -> Any:
        return kind

    vars(typer)["__signature__"] = inspect.signature(place)
    type_callable(find)(lambda context: typer)

    @lower_builtin(find, types.VarArg(types.Any))
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        column = context.compile_internal(builder, place, templates.signature(types.intp, *sig.args), args)
        cells = context.make_array(sig.args[row])(context, builder, args[row])
        return builder.bitcast(builder.gep(cells.data, [column]), context.get_value_type(kind))


def _compile_as_cells(find: Any) -> None:
    """Compile ``find(record)`` as an array of float64 that shares the memory of the record."""
    array = types.Array(types.float64, 1, "C")
    type_callable(find)(lambda context: lambda record: array if isinstance(record, types.Record) else None)

    @lower_builtin(find, types.Record)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = context.make_array(array)(context, builder)
        length, width = (context.get_constant(types.intp, n) for n in (len(sig.args[0].fields), CELL))
        populate_array(made, builder.bitcast(args[0], made.data.type), [length], [width], width, None)
        return made._getvalue()


def _compile_as_records(find: Any, dtype: np.dtype[Any]) -> None:
    """Compile ``find(cells, first, last)`` as an array of records that shares the memory of these cells."""
    kind: Any = numba.from_dtype(dtype)
    array = types.Array(kind, 1, "C")
    type_callable(find)(lambda context: lambda cells, first, last: array if isinstance(cells, types.Array) else None)

    @lower_builtin(find, types.Array, types.Integer, types.Integer)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        cells = context.make_array(sig.args[0])(context, builder, args[0])
        first, last = (context.cast(builder, args[n], sig.args[n], types.intp) for n in (1, 2))
        length = builder.sdiv(builder.sub(last, first), context.get_constant(types.intp, dtype.itemsize // CELL))
        made = context.make_array(array)(context, builder)
        start = builder.bitcast(builder.gep(cells.data, [first]), made.data.type)
        size = context.get_constant(types.intp, dtype.itemsize)
        populate_array(made, start, [length], [size], size, None)
        return made._getvalue()


def _compile_as_matrix(find: Any) -> None:
    """Compile ``find(cells, lines)`` as a matrix that shares the memory of the array of cells."""
    array = types.Array(types.float64, 2, "C")
    type_callable(find)(lambda context: lambda cells, lines: array if isinstance(cells, types.Array) else None)

    @lower_builtin(find, types.Array, types.Integer)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        cells = context.make_array(sig.args[0])(context, builder, args[0])
        lines = context.cast(builder, args[1], sig.args[1], types.intp)
        one, size = (context.get_constant(types.intp, n) for n in (1, CELL))
        divisor = builder.select(builder.icmp_signed(">", lines, one), lines, one)
        columns = builder.sdiv(cells.nitems, divisor)
        made = context.make_array(array)(context, builder)
        populate_array(made, cells.data, [lines, columns], [builder.mul(columns, size), size], size, None)
        return made._getvalue()


def _compile_as_acquire(find: Any) -> None:
    """Compile ``find(array, place)`` as an atomic load."""
    type_callable(find)(lambda context: lambda array, place: types.int64)

    @lower_builtin(find, types.Array, types.Integer)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(_cell(context, builder, sig, args), ordering="acquire", align=CELL)


def _compile_as_release(write: Any) -> None:
    """Compile ``write(array, place, value)`` as an atomic store."""
    type_callable(write)(lambda context: lambda array, place, value: types.none)

    @lower_builtin(write, types.Array, types.Integer, types.Integer)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _cell(context, builder, sig, args), ordering="release", align=CELL)
        return context.get_dummy_value()


def _cell(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Address of a cell, of the array and the place that a call begins with."""
    cells = context.make_array(sig.args[0])(context, builder, args[0])
    return builder.gep(cells.data, [context.cast(builder, args[1], sig.args[1], types.intp)])


@lower_cast(types.IntEnumMember, types.Float)
def _enum_as_float(context: Any, builder: Any, given: Any, wanted: Any, number: Any) -> Any:
    """Convert a member of an IntEnum to float64, which Numba itself does not.

    As in NumPy, that is the common type of int64 and uint64, the type of a circuit's index: to compare the two, Numba
    converts both to it.
    """
    return context.cast(builder, number, given.dtype, wanted)


# --- frames ----------------------------------------------------------------------------------------------------------


def _type_of(parameter: Parameter) -> Any:
    """The Numba type of an argument."""
    if isinstance(parameter, Record):
        if parameter.many:
            return _type_of(Argument.INTEGERS)  # their addresses
        return types.NamedTuple([_type_of(field) for field in parameter.fields], parameter.type)
    cell: Any = numba.from_dtype(parameter.dtype)
    return types.Array(cell, parameter.dimensions, "C") if parameter.dimensions else cell


def _load(context: Any, builder: Any, frame: Any, place: int, parameter: Parameter) -> Any:
    """Generate the code that reads an argument out of a frame."""
    if isinstance(parameter, Record):
        if parameter.many:
            return _load(context, builder, frame, place, Argument.INTEGERS)
        values = []
        for field in parameter.fields:
            values.append(_load(context, builder, frame, place, field))
            place += field.cells
        return context.make_tuple(builder, _type_of(parameter), values)
    cells = [builder.load(builder.gep(frame, [ir.IntType(64)(place + n)])) for n in range(parameter.cells)]
    if parameter is Argument.WHOLE:
        return cells[0]
    if parameter is Argument.NUMBER:
        return builder.bitcast(cells[0], ir.DoubleType())
    array = context.make_array(_type_of(parameter))(context, builder)
    width = ir.IntType(64)(CELL)
    strides = [builder.mul(cells[2], width), width] if parameter is Argument.MATRIX else [width]
    populate_array(array, builder.inttoptr(cells[0], array.data.type), cells[1:], strides, width, None)
    return array._getvalue()


def unpacking(parameters: Sequence[Parameter]) -> Any:
    """A compiled function ``unpack(frame)`` that gives all arguments as a tuple."""
    made = types.Tuple([_type_of(parameter) for parameter in parameters])

    def unpack(typing_context: Any, frame: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values, place = [], 0
            for parameter in parameters:
                values.append(_load(context, builder, arguments[0], place, parameter))
                place += parameter.cells
            return context.make_tuple(builder, made, values)

        return made(FRAME), generate

    return intrinsic(unpack)


def _address_as_frame(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())

    return FRAME(types.int64), generate


_frame_at: Any = intrinsic(_address_as_frame)


@overload(attached_at)
def _attached_at(devices: Any, number: Any) -> Any:
    record = parameters_of(run_bridged)["devices"]
    assert isinstance(record, Record)
    unpack = unpacking([record.one()])

    def find(devices: Any, number: Any) -> Any:
        return unpack(_frame_at(devices[number]))[0]

    return find
