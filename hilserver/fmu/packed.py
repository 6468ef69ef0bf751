"""The circuit in an FMU: the file that its shared library reads, as declared in ``compiler/fmi/instance.h``."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.pack import PackedCircuit
from hilserver.fmu.variables import Causality, Variable
from hilserver.simulation.packed_run import initial_values

MAGIC = b"HILFMU01"


def circuit_bytes(packed: PackedCircuit, tick: float, variables: Sequence[Variable], token: str) -> bytes:
    """The file: header, index, cells at the start, variables, their places, texts. ``tick``: s."""
    text, rows, places = token.encode() + b"\0", b"", list[tuple[int, float]]()
    constants: list[float] = []
    n_constants = sum(variable.is_parameter for variable in variables) + 1
    row = [*initial_values(packed), *[0.0] * len(packed.recorded)]
    for variable in variables:
        end = len(row) + len(packed.value)
        own = _places(variable, end + len(constants), end + n_constants)
        constants += [variable.start] if variable.is_parameter else []
        rows += _cells(variable.kind, len(places), len(own), len(text)) + _numbers(variable.lower, variable.upper)
        places += own
        text += variable.name.encode() + b"\0"
    constants.append(-inf)  # when sampled components are due
    ix = packed.index
    counts = [len(ix), len(row), len(packed.value), len(constants), packed.work_size]
    sizes = _cells(*counts, len(variables), len(places), len(text))
    engine = [ix[each] for each in (e.SUBSTEPS, e.N_SAMPLED, e.N_MECHANISMS, e.LOWER, e.UPPER, e.SCALE)]
    header = MAGIC + sizes + _cells(packed.n_states, len(packed.values), *engine) + _numbers(tick)
    cells = _numbers(*row, *packed.value, *constants)
    where = _cells(*(place for place, _ in places)) + _numbers(*(factor for _, factor in places))
    return header + ix.astype("<u8").tobytes() + cells + rows + where + text


def _places(variable: Variable, own: int, scratch: int) -> list[tuple[int, float]]:
    """The cells of a variable, each with its factor; the first one holds its value."""
    if variable.kind is Causality.DERIVATIVE:
        return [(scratch + variable.places[0], 1.0)]
    follows = list(zip(variable.places, variable.factors or [1.0] * len(variable.places), strict=True))
    return [(own, 1.0), *follows] if variable.is_parameter else follows


def _cells(*numbers: int | np.uint64) -> bytes:
    return np.array([int(number) for number in numbers], dtype="<i8").tobytes()


def _numbers(*numbers: float) -> bytes:
    return np.array(numbers, dtype="<f8").tobytes()
