"""Drift of a simulated device: values of its machine and drive that change while it runs, as when the oil warms up.

The circuits are given as they are at the beginning, and with the values at the end; in between, each number of the
joined circuit goes from the one to the other in a straight line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hilserver.circuit.library import Library
from hilserver.circuit.model import read_part
from hilserver.circuit.pack import Drift, PackedCircuit
from hilserver.errors import ConfigurationError, Problem, did_you_mean

ONLY_NUMBERS = (
    "only numbers can drift: the circuit at the end has other connections, limits or curves of other lengths."
)


def circuits_at_end(circuits: Mapping[str, Mapping[str, Any]], drift: Any, library: Library) -> dict[str, Any]:
    """The circuit tables of a simulated device, by name, with the values at the end of the drift of its driver.

    Raises ConfigurationError, with keys within the drift, where a value is wrong or of nothing in the circuit.
    """
    problems, found = list[Problem](), {}
    for part, circuit in circuits.items():
        changes = getattr(drift, part)
        found[part] = _merged(circuit, changes.model_dump(exclude_unset=True))
        wrong = list(_unknown(circuit, changes.components))
        if not wrong and changes.model_fields_set:
            try:
                read_part(found[part], library)
            except ConfigurationError as error:
                wrong += error.problems
        problems += (replace(each, key=f"{part}.{each.key}", file="") for each in wrong)
    if problems:
        raise ConfigurationError(problems)
    return found


def drifting(packed: PackedCircuit, at_end: PackedCircuit, over: float) -> PackedCircuit:
    """A circuit that drifts to another within ``over`` s. Raises ConfigurationError if more than numbers differs."""
    same = np.array_equal(packed.index, at_end.index) and packed.value.shape == at_end.value.shape
    if not same or not np.array_equal(np.isfinite(packed.value), np.isfinite(at_end.value)):
        raise ConfigurationError([Problem(ONLY_NUMBERS)])
    return replace(packed, drift=Drift(at_end.value, over))


def _unknown(circuit: Mapping[str, Any], components: Mapping[str, Any]) -> Iterator[Problem]:
    """Components of the drift that the circuit does not have."""
    known = circuit.get("components", {})
    for name in components:
        if name not in known:
            yield Problem("there is no such component." + did_you_mean(name, known), f"components.{name}")


def _merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A table with other values; tables within it keep their other keys."""
    found = dict(table)
    for key, value in changes.items():
        inner = found.get(key)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            value = _merged(inner, value)
        found[key] = value
    return found
