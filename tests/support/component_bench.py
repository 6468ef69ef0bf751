"""For the tests of components: kernels called as plain Python by name, small circuits through the compiled engine."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.optimize import brentq

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.components.base import Component, Fluid
from hilserver.errors import problems_of
from hilserver.numerics.arrays import Floats

Recording = dict[str, np.ndarray[Any, np.dtype[np.float64]]]

L_MIN = 1e-3 / 60.0
BAR = 1e5
pressures = st.floats(-0.9 * BAR, 350 * BAR)
"""Gauge pressures from near vacuum to well above what is usual."""


def evaluate(component: Component, fluid: Fluid | None = None, **values: float) -> dict[str, float]:
    """Results of all kernels of a component by name; ``values`` are its port variables, signals and states.

    What it remembers is 0 if it is not among these.
    """
    memories = dict.fromkeys((memory.name for memory in component.memories), 0.0)
    known = {"h_explicit": 0.0, **memories, **component.parameters(fluid or Fluid()), **values}
    results: dict[str, float] = {}
    for kernel in component.kernels:
        result = kernel.function(**{name: known[name] for name in kernel.arguments})
        results |= zip(kernel.results, result if isinstance(result, tuple) else (result,), strict=True)
    return results


def refusal(kind: type[Component], **values: Any) -> str:
    """The sentences that the user sees when these datasheet values are refused; fails if they are not."""
    try:
        kind.model_validate(values)
    except ValidationError as error:
        return "\n".join(map(str, problems_of(error, values, names=kind.model_fields)))
    raise AssertionError(f"{kind.__name__} accepted {values}")


def root(function: Callable[[float], float], lower: float, upper: float) -> float:
    """Where ``function`` is zero."""
    return float(brentq(function, lower, upper, xtol=1e-12, rtol=1e-12))


@functools.cache
def program() -> Program:
    """The compiled engine with the standard library."""
    return compiled_program(standard_library())


class Bench:
    """A circuit given as TOML (or its table), stepped by the compiled engine; values are read and set by name."""

    def __init__(self, circuit: str | Mapping[str, Any]) -> None:
        raw = tomllib.loads(circuit) if isinstance(circuit, str) else circuit
        packed = pack(read_circuit(raw, standard_library()), standard_library())
        self.put(packed, np.zeros(len(packed.values)))
        program().load(packed.index, packed.value, self.z)

    def put(self, packed: PackedCircuit, z: Floats) -> None:
        """This circuit, with these values."""
        self.packed, self.z = packed, z
        self.y = np.zeros(max(len(packed.recorded), 1))
        self.work = np.zeros(packed.work_size)
        self._places = {name: (self.y, place) for place, name in enumerate(self.packed.recorded)}
        self._places |= {name: (self.z, place) for place, name in enumerate(self.packed.values)}
        self._calls: dict[tuple[int, float], Callable[[], None]] = {}

    def __getitem__(self, name: str) -> float:
        values, place = self._places[name]
        return float(values[place])

    def __setitem__(self, name: str, value: float) -> None:
        self.z[self.packed.values.index(name)] = value

    def run(self, duration: float, step: float) -> None:
        """Advance with inputs held; ``duration`` is a multiple of ``step``."""
        n = round(duration / step)
        assert abs(n * step - duration) < 1e-9
        if (n, step) not in self._calls:
            arguments = (self.packed.index, self.packed.value, self.z, self.y, self.work, n, step)
            self._calls[n, step] = program().advance.bound(*arguments)
        self._calls[n, step]()

    def record(self, names: tuple[str, ...], duration: float, step: float, every: float | None = None) -> Recording:
        """Run and note these values after every step, or every ``every`` seconds."""
        interval = every or step
        rows = []
        for _ in range(round(duration / interval)):
            self.run(interval, step)
            rows.append([self[name] for name in names])
        return dict(zip(names, np.array(rows).T, strict=True))
