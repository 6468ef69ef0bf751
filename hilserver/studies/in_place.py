"""The packed circuit with other values: written in place where packed numbers follow them, packed again otherwise.

Packing takes as long as some milliseconds of simulated time, so a study of thousands of runs avoids it. A packed number
follows a value x if it is a + b·x over the whole range of x, and depends on no other varied value. Both are found by
trial: the circuit is packed with other values, alone and together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.numerics.arrays import Floats, Integers
from hilserver.studies.quantities import Changeable, changed, short

SHARES = (0.0, 0.31, 0.73, 1.0)
"""Places within its range at which a value is tried alone."""
JOINT_TRIALS = 4
"""Number of combinations of all values that are tried: both ends, and others at random."""
ROUNDING = 1e-14
"""Relative difference of a number from a + b·x that is due to the order of the calculation."""


class Pack(Protocol):
    """Packs a circuit; ``like``: see `hilserver.circuit.pack.pack`."""

    def __call__(self, circuit: Circuit, *, like: PackedCircuit | None = None) -> PackedCircuit: ...


@dataclass(frozen=True)
class _Follows:
    """Cells of ``packed.value`` that are ``a + b·x``."""

    cells: Integers
    a: Floats
    b: Floats


class VariedCircuit:
    """A circuit packed with other values.

    ``in_place``: for each quantity, whether its values are written in place; ``without_effect``: short keys of
    quantities that change no number.
    """

    def __init__(
        self,
        circuit: Circuit,
        quantities: Sequence[Changeable],
        ranges: Sequence[tuple[float, float]],
        pack: Pack,
        library: Library,
        file: str = "",
    ) -> None:
        self.circuit, self.quantities, self.library, self.file = circuit, tuple(quantities), library, file
        self._pack, self._ranges = pack, tuple(ranges)
        self.packed = pack(circuit)
        self._rules = self._found()
        if not all(map(self._holds_together, range(JOINT_TRIALS))):
            self._rules = [None] * len(self.quantities)

    @property
    def in_place(self) -> tuple[bool, ...]:
        return tuple(rule is not None for rule in self._rules)

    @property
    def without_effect(self) -> tuple[str, ...]:
        return tuple(
            short(each.key)
            for each, rule in zip(self.quantities, self._rules, strict=True)
            if rule is not None and not len(rule.cells)
        )

    def changed(self, values: Sequence[float]) -> Circuit:
        """The circuit with these values, SI. Raises ValueError or ConfigurationError if it can't have them."""
        return changed(self.circuit, self.quantities, values, self.library, self.file)

    def at(self, values: Sequence[float]) -> PackedCircuit:
        """The circuit packed with these values, SI. Raises ValueError or ConfigurationError if it can't have them."""
        again = [k for k, rule in enumerate(self._rules) if rule is None]
        packed = self._with(again, values) if again else self.packed
        if len(again) == len(self.quantities):
            return packed
        if packed is not self.packed and not self._same_layout(packed):
            return self._pack(self.changed(values), like=self.packed)
        value = packed.value.copy()
        for rule, x in zip(self._rules, values, strict=True):
            if rule is not None:
                value[rule.cells] = rule.a + rule.b * x
        return replace(packed, value=value)

    def _with(self, places: Sequence[int], values: Sequence[float]) -> PackedCircuit:
        some = [self.quantities[k] for k in places]
        circuit = changed(self.circuit, some, [values[k] for k in places], self.library, self.file)
        return self._pack(circuit, like=self.packed)

    def _same_layout(self, packed: PackedCircuit) -> bool:
        return np.array_equal(packed.index, self.packed.index) and packed.value.shape == self.packed.value.shape

    def _found(self) -> list[_Follows | None]:
        """The rule of each quantity; None where it must be packed again."""
        alone = [self._alone(k) for k in range(len(self.quantities))]
        touched = np.zeros(len(self.packed.value), dtype=int)
        for _, cells in alone:
            touched += cells
        return [rule if rule is not None and not np.any(touched[rule.cells] > 1) else None for rule, _ in alone]

    def _alone(self, k: int) -> tuple[_Follows | None, NDArray[np.bool_]]:
        """The rule of a quantity alone, and which cells it changes."""
        low, high = self._ranges[k]
        places = low + (high - low) * np.array(SHARES)
        nowhere = np.zeros(len(self.packed.value), dtype=bool)
        tried = []
        for x in places.tolist():
            packed = self._tried([k], {k: x})
            if packed is None:
                return None, nowhere
            tried.append(packed.value)
        rows = np.array([self.packed.value, *tried])
        with np.errstate(invalid="ignore"):  # limits may be infinite
            touched = np.any(rows != rows[0], axis=0)
        cells = np.flatnonzero(touched)
        first, last = tried[0][cells], tried[-1][cells]
        b = (last - first) / (high - low)
        a = first - b * low
        # A multiple of the value has no rounding error of a difference.
        multiple = np.isclose(first * high, last * low, rtol=ROUNDING, atol=0.0)
        a, b = np.where(multiple, 0.0, a), np.where(multiple, last / high if high else b, b)
        follows = all(
            np.allclose(value[cells], a + b * x, rtol=ROUNDING, atol=0.0)
            for value, x in zip(tried, places.tolist(), strict=True)
        )
        return _Follows(cells, a, b) if follows else None, touched

    def _tried(self, places: Sequence[int], values: dict[int, float]) -> PackedCircuit | None:
        """Packed with these values of some quantities; None if that is not possible, or has another layout."""
        try:
            packed = self._pack(
                changed(self.circuit, [self.quantities[k] for k in places], list(values.values()), self.library)
            )
        except Exception:  # also of a component of the user's: the runs with such values will say it
            return None
        return packed if self._same_layout(packed) else None

    def _holds_together(self, trial: int) -> bool:
        """Whether numbers written in place are those of the circuit packed with all values."""
        if not any(self.in_place):
            return True
        low, high = np.array(self._ranges).T
        share = np.full(len(low), float(trial)) if trial < 2 else np.random.default_rng(trial).random(len(low))
        values = (low + share * (high - low)).tolist()
        try:
            whole = self._pack(self.changed(values))
            written = self.at(values)
        except Exception:
            return False
        return (
            np.array_equal(whole.index, written.index)
            and whole.value.shape == written.value.shape
            and np.allclose(whole.value, written.value, rtol=10.0 * ROUNDING, atol=0.0)
        )
