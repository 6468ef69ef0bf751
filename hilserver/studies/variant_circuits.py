"""The circuits of a study's variants: with other values, and with other types of components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.errors import HilserverError, as_sentence
from hilserver.numerics.arrays import Floats
from hilserver.studies.component_types import has_value, with_components
from hilserver.studies.in_place import Pack, VariedCircuit
from hilserver.studies.quantities import changeable, changed, find
from hilserver.studies.subject import VariantFailedError, reason_of

Tables = Mapping[str, Mapping[str, Any]]
"""Tables of components by name."""
Choices = Mapping[str, tuple[Mapping[str, Any], ...]]
"""The tables that components are chosen from, by name."""


@dataclass(frozen=True)
class _Alternative:
    """The circuit with a combination of component types; ``places``: of the values, those that it has."""

    varied: VariedCircuit
    places: tuple[int, ...]


class VariantCircuits:
    """The packed circuits of the variants of a study.

    ``varied``: short keys; ``ranges``: the lowest and the highest value of each, SI; ``choices``: for those of
    ``varied`` that are components, the tables that they are chosen from; ``pack``: how the study packs a circuit.
    """

    def __init__(
        self,
        circuit: Circuit,
        varied: Sequence[str],
        ranges: Sequence[tuple[float, float]],
        choices: Choices,
        pack: Pack,
        library: Library,
        file: str,
    ) -> None:
        self._varied, self._ranges, self._choices = tuple(varied), tuple(ranges), choices
        self._pack, self._library, self._file = pack, library, file
        self._chosen = tuple(k for k, key in enumerate(varied) if key in choices)
        known = changeable(circuit)
        self._paths = {key: find(known, key).path for key in varied if key not in choices}
        self._own = self._alternative(circuit)
        self._alternatives: dict[tuple[int, ...], _Alternative] = {}

    @property
    def own(self) -> VariedCircuit:
        """The circuit with its own components."""
        return self._own.varied

    @property
    def in_place(self) -> tuple[bool, ...]:
        """For each varied quantity, whether its values are written in place; choices are packed once each."""
        rules = dict(zip(self._own.places, self.own.in_place, strict=True))
        return tuple(rules.get(k, True) for k in range(len(self._varied)))

    def packed(self, values: Floats) -> PackedCircuit:
        """The circuit of a variant. Raises VariantFailedError if it can't have these values."""
        try:
            found = self._alternative_of(tuple(int(values[k]) for k in self._chosen))
            return found.varied.at([float(values[k]) for k in found.places])
        except Exception as error:
            raise VariantFailedError(f"this variant can't be built: {reason_of(error)}") from error

    def _alternative_of(self, chosen: tuple[int, ...]) -> _Alternative:
        """The circuit with these component types, prepared when it is first needed."""
        if not chosen:
            return self._own
        if chosen not in self._alternatives:
            keys = [self._varied[k] for k in self._chosen]
            tables = {key: self._choices[key][number] for key, number in zip(keys, chosen, strict=True)}
            table = with_components(self.own.circuit, tables)
            self._alternatives[chosen] = self._alternative(read_circuit(table, self._library, self._file))
        return self._alternatives[chosen]

    def _alternative(self, circuit: Circuit) -> _Alternative:
        known = changeable(circuit)
        has = {key for key, path in self._paths.items() if has_value(circuit.source, path, self._library)}
        places = tuple(k for k, key in enumerate(self._varied) if key in has)
        quantities, ranges = [find(known, self._varied[k]) for k in places], [self._ranges[k] for k in places]
        return _Alternative(VariedCircuit(circuit, quantities, ranges, self._pack, self._library, self._file), places)


def circuit_with(circuit: Circuit, values: Mapping[str, float], chosen: Tables, library: Library, file: str) -> Circuit:
    """A circuit with other values, SI, by short key, and other tables of components.

    Values that the components chosen don't have are left out. Raises HilserverError if it can't have the others.
    """
    own = changeable(circuit)
    try:
        if chosen:
            circuit = read_circuit(with_components(circuit, chosen), library, file)
        known = changeable(circuit)
        has = {key: x for key, x in values.items() if has_value(circuit.source, find(own, key).path, library)}
        return changed(circuit, [find(known, key) for key in has], list(has.values()), library, file)
    except ValueError as error:
        raise HilserverError(f"{file}: the circuit can't have these values: {as_sentence(error)}") from error
