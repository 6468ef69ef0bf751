"""The datasheet values of a circuit as parameters of an FMU: which of them can be changed without packing it again.

A circuit is packed from datasheet values by ordinary Python code, which an FMU does not have. Many packed numbers are a
datasheet value in SI units, or a multiple of it. These are found by trial: the circuit is packed with other values, and
must differ from the original in such numbers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import frexp
from typing import Any

import numpy as np
from pydantic import BaseModel

from hilserver.circuit import engine as e
from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit, NodeStart, Placed, wrong_connections
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.components.base import Fluid
from hilserver.errors import ConfigurationError
from hilserver.fmu.variables import Causality, Variable
from hilserver.numerics.arrays import Floats
from hilserver.units import PlainNumber, Unit, dimensional, round_trip, unit_of

FACTORS = (1.1, 2.0, 10.0)
"""Multiples of a value, and fractions, that are tried: the last one that is possible is the end of its range."""
ROUNDING = 4e-15
"""Relative difference of a multiple from the packed number, which may be calculated in another order."""
TYPICAL = {"Pa": 1e6, "m": 0.1, "rad": 0.5}
"""Changes of a value that is 0; for other units 1."""


Path = tuple[str, ...]
"""Of a value in the table of a circuit, such as ``("components", "relief", "opening_pressure")``."""


@dataclass(frozen=True)
class DatasheetParameter:
    """A value of the circuit file in SI units."""

    path: Path
    value: float
    unit: str
    description: str

    @property
    def key(self) -> str:
        """Its key in the file."""
        return ".".join(self.path)

    def changed(self, circuit: Circuit, x: float) -> Circuit:
        """The circuit with another value; raises ValueError if its part can't have it."""
        source = _with(circuit.source, self.path, f"{x!r} {self.unit}" if self.unit else x)
        part, name = self.path[:2]
        if part == "fluid":
            return replace(circuit, source=source, fluid=Fluid.model_validate(source["fluid"]))
        if part == "nodes":
            start = NodeStart.model_validate(source["nodes"][name])
            return replace(circuit, source=source, starts={**circuit.starts, name: start})
        placed = tuple(_rebuilt(each, source) if each.name == name else each for each in circuit.placed)
        return replace(circuit, source=source, placed=placed)


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


# --- the values of a circuit -----------------------------------------------------------------------------------------


def datasheet_values(circuit: Circuit) -> Iterator[DatasheetParameter]:
    """The named values of oil, components and nodes, with defaults; neither curves nor mechanisms."""
    for path, value, unit, text in _leaves(circuit.source.get("fluid", {}), circuit.fluid):
        yield DatasheetParameter(("fluid", *path), value, unit, text)
    for placed in circuit.placed:
        who = f"{placed.name} ({type(placed.component).type_name})"
        for path, value, unit, text in _leaves(_own_values(placed, circuit.source), placed.component):
            about = f"{text}, of {who}" if text else f"value of {who}"
            yield DatasheetParameter(("components", placed.name, *path), value, unit, about)
    for node, start in circuit.starts.items():
        table = circuit.source["nodes"][node]
        for path, value, unit, text in _leaves(table, start, with_defaults=False):
            yield DatasheetParameter(("nodes", node, *path), value, unit, f"{text}: {node}")


def _leaves(
    table: Mapping[str, Any], model: BaseModel, with_defaults: bool = True
) -> Iterator[tuple[Path, float, str, str]]:
    """Path, SI value, unit and description of each named quantity; the defaults of a model's own fields, too."""
    fields = type(model).model_fields
    for path, value, unit in _quantities(table):
        text = fields[path[0]].description if path[0] in fields else None
        yield path, value, unit, text or ""
    for name, info in fields.items():
        kind = next((each for each in info.metadata if isinstance(each, Unit | PlainNumber)), None)
        value = getattr(model, name)
        if with_defaults and name not in table and kind is not None and isinstance(value, float):
            yield (name,), value, kind.si if isinstance(kind, Unit) else "", info.description or ""


def _quantities(table: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, float, str]]:
    for name, given in table.items():
        if isinstance(given, Mapping):
            yield from _quantities(given, (*path, name))
        elif isinstance(given, int | float) and not isinstance(given, bool):
            yield (*path, name), float(given), ""
        elif isinstance(given, str):
            try:
                value, dimension = dimensional(given)
            except ValueError:
                continue  # a word
            angle = not dimension and any(word in given for word in ("deg", "rad"))
            yield (*path, name), round_trip(value), "rad" if angle else unit_of(dimension)


def _own_values(placed: Placed, source: Mapping[str, Any]) -> dict[str, Any]:
    """The datasheet values in a component's table."""
    kind = type(placed.component)
    others = ("type", "ports", "fluid", *kind.inputs, *kind.outputs)
    return {k: v for k, v in source["components"][placed.name].items() if k not in others}


def _rebuilt(placed: Placed, source: Mapping[str, Any]) -> Placed:
    """A component with the values in this table of a circuit."""
    return replace(placed, component=type(placed.component).model_validate(_own_values(placed, source)))


def _with(table: Mapping[str, Any], path: Path, value: object) -> dict[str, Any]:
    """A table with another value."""
    name, *rest = path
    return {**table, name: _with(table.get(name, {}), tuple(rest), value) if rest else value}


def _constant_signals(circuit: Circuit, packed: PackedCircuit) -> Iterable[Variable]:
    """Signal inputs of components that the circuit sets to a number."""
    for placed in circuit.placed:
        for port, signal in placed.signals.items():
            if not isinstance(signal, str):
                name = f"{placed.name}.{port}"
                about = f"signal {port} of {placed.name} ({type(placed.component).type_name})"
                place = packed.names.index(name)
                yield Variable(f"components.{name}", Causality.TUNABLE, "", about, signal, (place,), factors=(1.0,))
