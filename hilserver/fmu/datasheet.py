"""The datasheet values of a circuit as parameters of an FMU: which of them can be changed without packing it again.

A circuit is packed from datasheet values by ordinary Python code, which an FMU does not have. Many packed numbers are a
datasheet value in SI units, or a multiple of it. These are found by trial: the circuit is packed with other values, and
must differ from the original in such numbers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import frexp

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.datasheet import DatasheetParameter, datasheet_values
from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit, wrong_connections
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.errors import ConfigurationError
from hilserver.fmu.variables import Causality, Variable
from hilserver.numerics.arrays import Floats
from hilserver.units import round_trip

FACTORS = (1.1, 2.0, 10.0)
"""Multiples of a value, and fractions, that are tried: the last one that is possible is the end of its range."""
ROUNDING = 4e-15
"""Relative difference of a multiple from the packed number, which may be calculated in another order."""
TYPICAL = {"Pa": 1e6, "m": 0.1, "rad": 0.5}
"""Changes of a value that is 0; for other units 1."""


@dataclass(frozen=True)
class _Effect:
    """The cells of ``packed.value`` that follow from a value, each by a factor, and the range in which they do."""

    cells: Sequence[int]
    factors: Floats
    lower: float
    upper: float


def parameters(circuit: Circuit, packed: PackedCircuit, library: Library) -> list[Variable]:
    """All datasheet values: tunable ones, initial values, and those that are fixed in the FMU.

    A number that would follow from two values follows from the first. Each parameter is also tried together with all
    before it, which shows a product of two.
    """
    trial, together = _Trial(circuit, packed, library), _Trial(circuit, packed, library)
    found, taken = [*_constant_signals(circuit, packed)], set[int]()
    for given in datasheet_values(circuit):
        effect = trial.effect(given)
        if effect is not None and taken.isdisjoint(effect.cells) and together.accepts(given, effect):
            taken |= set(effect.cells)
            found.append(_parameter(given, effect, packed))
        else:
            found.append(Variable(given.key, Causality.CONSTANT, given.unit, given.description, given.value, ()))
    return found


def _parameter(given: DatasheetParameter, effect: _Effect, packed: PackedCircuit) -> Variable:
    """A parameter with its places in the memory of an instance: an initial value is also that of the row."""
    n, first = len(packed.names), int(packed.index[e.INITIAL])
    follows = list(zip(effect.cells, effect.factors.tolist(), strict=True))
    row = [(cell - first, k) for cell, k in follows if first <= cell < first + len(packed.values)]
    places, factors = zip(*row, *((n + cell, k) for cell, k in follows), strict=True)
    return Variable(
        given.key,
        Causality.FIXED if row else Causality.TUNABLE,
        given.unit,
        given.description,
        given.value,
        places,
        effect.lower,
        effect.upper,
        factors,
    )


class _Trial:
    """Packs a circuit with other values."""

    def __init__(self, circuit: Circuit, packed: PackedCircuit, library: Library) -> None:
        self.circuit, self.library = circuit, library
        self.index, self.value = packed.index, packed.value

    def packed(self, given: DatasheetParameter, x: float) -> Floats | None:
        """``value`` of the circuit packed with ``x``; None if that is not possible, or needs another index."""
        try:
            circuit = given.changed(self.circuit, x)
            packed = pack(circuit, self.library)
        except (ValueError, ConfigurationError):
            return None
        if any(wrong_connections(circuit)):
            return None
        same = np.array_equal(packed.index, self.index) and packed.value.shape == self.value.shape
        return packed.value if same else None

    def effect(self, given: DatasheetParameter) -> _Effect | None:
        """The cells that are this value or a multiple of it; None if it has any other effect, or none."""
        for x in _near(given):
            if (value := self.packed(given, x)) is not None:
                changed = np.flatnonzero(value != self.value)
                cells, factors = changed.tolist(), value[changed] / x
                if not cells or not self._follows(given, cells, factors, given.value):
                    return None
                lower, upper = (self._end(given, cells, factors, up) for up in (False, True))
                return _Effect(cells, factors, lower, upper) if lower < upper else None
        return None

    def _end(self, given: DatasheetParameter, cells: Sequence[int], factors: Floats, up: bool) -> float:
        """The end of the range in which the cells follow the value: the last one tried before one where they don't."""
        end = given.value
        for k in FACTORS:
            x = given.value * (k if (given.value > 0.0) == up else 1.0 / k)
            if given.value == 0.0:
                x = (k if up else -k) / FACTORS[-1] * TYPICAL.get(given.unit, 1.0)
            x = round_trip(x)
            if not self._follows(given, cells, factors, x):
                break
            end = x
        return end

    def _follows(self, given: DatasheetParameter, cells: Sequence[int], factors: Floats, x: float) -> bool:
        """Whether the circuit with this value differs from the original by the cells alone, as expected."""
        expected = self.value.copy()
        expected[cells] = x * factors
        value = self.packed(given, x)
        return value is not None and np.allclose(value, expected, rtol=ROUNDING, atol=0.0)

    def accepts(self, given: DatasheetParameter, effect: _Effect) -> bool:
        """Change the circuit for all further trials, if the cells follow this value there, too."""
        x = round_trip(0.5 * (given.value + (effect.upper if effect.upper > given.value else effect.lower)))
        if not self._follows(given, effect.cells, effect.factors, x):
            return False
        self.circuit, self.value = given.changed(self.circuit, x), self.value.copy()
        self.value[effect.cells] = x * effect.factors
        return True


def _near(given: DatasheetParameter) -> Iterator[float]:
    """Powers of two near a value, of which a multiple shows its factor without rounding error; otherwise others."""
    x = given.value or TYPICAL.get(given.unit, 1.0)
    _, exponent = frexp(x)
    for power in (exponent, exponent - 1, exponent + 1):
        near = float(np.copysign(2.0**power, x))
        if near != given.value and round_trip(near) == near:
            yield near
    yield round_trip(1.25 * x)
    yield round_trip(0.75 * x)


def _constant_signals(circuit: Circuit, packed: PackedCircuit) -> Iterable[Variable]:
    """Signal inputs of components that the circuit sets to a number."""
    for placed in circuit.placed:
        for port, signal in placed.signals.items():
            if not isinstance(signal, str):
                name = f"{placed.name}.{port}"
                about = f"signal {port} of {placed.name} ({type(placed.component).type_name})"
                place = packed.names.index(name)
                yield Variable(f"components.{name}", Causality.TUNABLE, "", about, signal, (place,), factors=(1.0,))
