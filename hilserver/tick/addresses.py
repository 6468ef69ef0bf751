"""How Numba compiles the functions that return a record or its cells: as addresses, without a call and without a copy.

A compiled function that *returned* a record would return a copy of it, so these are lowered where they are called.
"""
# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import inspect
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.typing import templates
from numba.extending import lower_builtin, lower_cast, type_callable
from numba.np.arrayobj import populate_array

CELL = 8
"""Bytes of a field."""


def compile_as_address(find: Any, place: Any, dtype: np.dtype[Any], row: int) -> None:
    """Compile ``find`` as the address of a record in argument number ``row``, which starts at column ``place(…)``."""
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

    find.compiled_with = f"{dtype} {inspect.getsource(compile_as_address)}"  # for the hash of the compiled program


def compile_as_cells(find: Any) -> None:
    """Compile ``find(record)`` as an array of float64 that shares the memory of the record."""
    array = types.Array(types.float64, 1, "C")
    type_callable(find)(lambda context: lambda record: array if isinstance(record, types.Record) else None)

    @lower_builtin(find, types.Record)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = context.make_array(array)(context, builder)
        length, width = (context.get_constant(types.intp, n) for n in (len(sig.args[0].fields), CELL))
        populate_array(made, builder.bitcast(args[0], made.data.type), [length], [width], width, None)
        return made._getvalue()

    find.compiled_with = inspect.getsource(compile_as_cells)


@lower_cast(types.IntEnumMember, types.Float)
def _enum_as_float(context: Any, builder: Any, given: Any, wanted: Any, number: Any) -> Any:
    """Convert a member of an IntEnum to float64, the type of the row's cells. (Numba converts to integers only.)"""
    return context.cast(builder, number, given.dtype, wanted)
