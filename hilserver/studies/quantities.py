"""The quantities of a circuit that a study varies or a fit identifies: found by their key, changed in the circuit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from hilserver.circuit.datasheet import DatasheetParameter, Path, datasheet_values, with_value
from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit, read_circuit, wrong_connections
from hilserver.errors import ConfigurationError, Problem, did_you_mean, problems_of
from hilserver.tolerances import Toleranced
from hilserver.units import value_and_unit

COMPONENTS = "components."
"""Beginning of the keys of most quantities, which may be left out."""


@dataclass(frozen=True)
class WrittenValue:
    """A value of the circuit as written: a parameter, from which others follow, or one of a mechanism. SI."""

    path: Path
    value: float
    unit: str

    @property
    def key(self) -> str:
        """Its key in the file."""
        return ".".join(self.path)


Changeable = DatasheetParameter | WrittenValue


def short(key: str) -> str:
    """A key without its beginning ``components.``."""
    return key.removeprefix(COMPONENTS)


def changeable(circuit: Circuit) -> dict[str, Changeable]:
    """All quantities that can be changed, by their short key: datasheet values, initial values, parameters.

    Of mechanisms and sub-circuits also those values and parameters that have a tolerance.
    """
    found: dict[str, Changeable] = {short(each.key): each for each in datasheet_values(circuit)}
    for name, given in circuit.written.get("parameters", {}).items():
        with suppress(ValueError):  # a word
            found[f"parameters.{name}"] = WrittenValue(("parameters", name), *value_and_unit(given))
    for path, value in toleranced_values(circuit.written):
        if (key := short(".".join(expanded(path)))) not in found:
            found[key] = WrittenValue(path, value.tolerance.value, value.tolerance.unit)
    return found


def toleranced_values(table: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Toleranced]]:
    """The values with a tolerance in a circuit as written, with their paths."""
    for name, entry in table.items():
        if isinstance(entry, Mapping):
            yield from toleranced_values(entry, (*path, name))
        elif isinstance(entry, Toleranced) and hasattr(entry, "tolerance"):
            yield (*path, name), entry


def expanded(path: Path) -> Path:
    """The path of a value of a sub-circuit in the circuit of which it is a part.

    >>> expanded(("components", "front", "definition", "components", "relief", "opening_pressure"))
    ('components', 'front.relief', 'opening_pressure')
    """
    while len(path) > 4 and path[0] == "components" and path[2] == "definition" and path[3] in ("components", "nodes"):
        path = (path[3], f"{path[1]}.{path[4]}", *path[5:])
    return path


def find(known: Mapping[str, Changeable], key: str) -> Changeable:
    """The quantity of this key. Raises ValueError that names similar ones."""
    return known[known_key(known, key, "the circuit")]


def known_key(known: Mapping[str, object], key: str, of: str) -> str:
    """The key of a quantity as it is known. Raises ValueError that names similar ones, ``of`` what is studied."""
    wanted = short(key)
    if wanted in known:
        return wanted
    part = wanted.rpartition(".")[0]
    near = [name for name in known if name.startswith(f"{part}.")] if part else list(known)
    if below := [name for name in known if name.startswith(f"{wanted}.")]:
        raise ValueError(f"{key} consists of several values: choose from {', '.join(below)}")
    raise ValueError(f"{key} is not a value of {of}.{did_you_mean(wanted, near or known)}")


def changed(
    circuit: Circuit, quantities: Sequence[Changeable], values: Sequence[float], library: Library, file: str = ""
) -> Circuit:
    """The circuit with other values, SI. Raises ValueError or ConfigurationError if it can't have them."""
    pairs = [(each, float(x)) for each, x in zip(quantities, values, strict=True)]
    written = circuit.written
    for each, x in pairs:
        if isinstance(each, WrittenValue):
            written = with_value(written, each.path, f"{x!r} {each.unit}" if each.unit else x)
    found = circuit if written is circuit.written else read_circuit(written, library, file)
    for each, x in pairs:
        if isinstance(each, DatasheetParameter):
            try:
                found = each.changed(found, x)
            except ValidationError as error:
                own = [problem.message for problem in problems_of(error, None)]
                raise ConfigurationError([Problem(message, short(each.key)) for message in own]) from None
    if problems := list(wrong_connections(found, file)):
        raise ConfigurationError(problems)
    return found
