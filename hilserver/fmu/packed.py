"""The circuit in an FMU: the file that its shared library reads, as declared in ``compiler/fmi/instance.h``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.pack import PackedCircuit
from hilserver.fmu.variables import Variable
from hilserver.simulation.packed_run import initial_values

MAGIC = b"HILFMU01"


def circuit_bytes(packed: PackedCircuit, tick: float, variables: Sequence[Variable], token: str) -> bytes:
    """The file: header, index, cells at the start, variables, their places, texts. ``tick``: s."""
    text, names = token.encode() + b"\0", []
    for variable in variables:
        names.append(len(text))
        text += variable.name.encode() + b"\0"
    first = np.cumsum([0, *(len(variable.places) for variable in variables)])
    rows = [
        _cells(v.kind, first[k], len(v.places), names[k]) + _numbers(v.lower, v.upper) for k, v in enumerate(variables)
    ]
    row, constants = _row(packed), _constants(packed, variables)
    places = [place for variable in variables for place in variable.places]
    ix = packed.index
    counts = [len(ix), len(row), len(packed.value), len(constants), packed.work_size]
    sizes = _cells(*counts, len(variables), len(places), len(text))
    engine = [e.SUBSTEPS, e.N_HYDRAULIC, e.HYDRAULIC, e.N_LIMITED, e.LIMITED, e.LOWER, e.UPPER, e.SCALE]
    header = MAGIC + sizes + _cells(packed.n_states, len(packed.values), *(ix[each] for each in engine))
    cells = _numbers(*row, *packed.value, *constants)
    return header + _numbers(tick) + ix.astype("<u8").tobytes() + cells + b"".join(rows) + _cells(*places) + text


def _row(packed: PackedCircuit) -> list[float]:
    return [*initial_values(packed), *[0.0] * len(packed.recorded)]


def _constants(packed: PackedCircuit, variables: Sequence[Variable]) -> list[float]:
    """The cells behind those of the circuit; each belongs to one variable."""
    end = len(packed.names) + len(packed.value)
    own = {place: variable.start for variable in variables for place in variable.places if place >= end}
    return [own[place] for place in sorted(own)]


def _cells(*numbers: int | np.uint64) -> bytes:
    return np.array([int(number) for number in numbers], dtype="<i8").tobytes()


def _numbers(*numbers: float) -> bytes:
    return np.array(numbers, dtype="<f8").tobytes()
