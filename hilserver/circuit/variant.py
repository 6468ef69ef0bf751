"""A circuit that differs from one that was read before in tables of components: only these are read.

Studies read thousands of such circuits, and a running server or a test sequence one with every switch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hilserver.circuit.library import Library
from hilserver.circuit.model import (
    Circuit,
    Placed,
    impossible_starts,
    read_circuit,
    read_component,
    read_part,
)
from hilserver.circuit.subcircuits import Expanded
from hilserver.components.base import Fluid
from hilserver.errors import ConfigurationError, Problem
from hilserver.parameters import has_expressions
from hilserver.toml import copied


def read_variant(
    before: Circuit, raw: Mapping[str, Any], library: Library, file: str = "", folder: Path | None = None
) -> Circuit:
    """The same as `read_circuit` gives, and the same errors; faster where little differs from ``before``.

    ``before``: a whole circuit, read with the same library, in the same folder.
    """
    circuit = _like(before, raw, library, file, folder)
    if circuit is None:
        return read_circuit(raw, library, file, folder)
    if problems := list(impossible_starts(circuit, file)):  # its connections are those of ``before``
        raise ConfigurationError(problems)
    return circuit


def source_of_part(
    before: Mapping[str, Any], raw: Mapping[str, Any], library: Library, file: str = "", folder: Path | None = None
) -> Mapping[str, Any]:
    """The same as the source of `read_part`, and the same errors; ``before``: that of a part read before."""
    changed = changed_tables(before, raw)
    if changed and all(_ports(before["components"][name]) == _ports(table) for name, table in changed.items()):
        fluid = Fluid.model_validate(before.get("fluid", {}))
        if "library" not in raw and _read_alone(changed, library, file, fluid) is not None:
            return _with_components(before, copied(changed))
        part = _read(_only(raw, changed), library, file, folder)
        if list(part.source["components"]) == list(changed):  # no sub-circuit
            return _with_components(before, part.source["components"])
    return read_part(raw, library, file, folder).source


def with_tables(
    before: Circuit, changed: Mapping[str, Mapping[str, Any]], library: Library, file: str = ""
) -> Circuit | None:
    """A circuit with other tables of some components, as `read_variant` gives it, its initial values not yet checked.

    None if these tables are not all that has to be read for it, or something is wrong with one of them.
    """
    placed = _read_alone(changed, library, file, before.fluid)
    if placed is None or not _are_in_place_of(before, placed):
        return None
    tables = copied(changed)
    return _with_placed(before, placed, before.written, tables, Expanded({"components": tables}))


def is_same(one: object, other: object) -> bool:
    """Whether two values of a file are read as the same: ``1``, ``1.0`` and ``true`` are equal, but not the same."""
    return one is other or repr(one) == repr(other)


def changed_tables(before: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """The tables of components that differ between two circuits as written; None if anything else does."""
    old, new = before.get("components"), raw.get("components")
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or list(old) != list(new):
        return None
    others = (before.keys() | raw.keys()) - {"components", "library"}
    if not all(key in before and key in raw and is_same(before[key], raw[key]) for key in others):
        return None
    return {name: new[name] for name in new if not is_same(old[name], new[name])}


def _like(before: Circuit, raw: Mapping[str, Any], library: Library, file: str, folder: Path | None) -> Circuit | None:
    """The circuit, its connections not yet checked; None if it has other parts. Raises ConfigurationError."""
    changed = changed_tables(before.written, raw) if isinstance(raw, Mapping) else None
    if changed is None or any(place.file != file for place in before.origin.places.values()):
        return None  # sub-circuits have their contents now instead of files, which problems would name
    written = {key: before.written[key] for key in raw if key != "library"}  # whoever has ``raw`` may change it
    if not changed:
        return replace(before, written=written, known={})
    if "library" not in raw and (found := with_tables(before, changed, library, file)) is not None:
        return found
    part = _read(_only(raw, changed), library, file, folder)
    if part.starts or part.mechanisms or not _are_in_place_of(before, part.placed, changed):
        return None  # of sub-circuits, or components of another type
    tables = copied(changed) if _is_embedded(part, changed) else part.written["components"]
    found = _with_placed(before, part.placed, written, tables, part.origin)
    return replace(found, source=_with_components(before.source, part.source["components"]))


def _with_placed(
    before: Circuit, placed: Sequence[Placed], written: Mapping[str, Any], tables: Mapping[str, Any], origin: Expanded
) -> Circuit:
    """The circuit with these components, which have these tables as written, in the place of others."""
    new = {each.name: each for each in placed}
    return replace(
        before,
        placed=tuple(new.get(each.name, each) for each in before.placed),
        source=_with_components(before.source, tables),
        written=_with_components(written, tables),
        known={},
        origin=_joined(before.origin, origin, tables),
    )


_MOST_KNOWN = 64
_known: dict[object, Circuit | ConfigurationError] = {}
"""What was read of components lately, by their tables: many variants are switched to the same values."""
_one_at_a_time = threading.Lock()


def _read(raw: Mapping[str, Any], library: Library, file: str, folder: Path | None) -> Circuit:
    """The same as `read_part` gives; what was read lately is known. Raises ConfigurationError."""
    key = (repr(raw), library, file, folder)
    found = _known.get(key)
    if found is None:
        try:
            found = read_part(raw, library, file, folder)
        except ConfigurationError as error:
            found = error
        if isinstance(found, Circuit) and not _is_embedded(found, raw["components"]):
            return found  # its files may change
        with _one_at_a_time:
            while len(_known) >= _MOST_KNOWN:
                del _known[next(iter(_known))]
            _known[key] = found
    if isinstance(found, ConfigurationError):
        raise ConfigurationError(found.problems)
    return found


def _read_alone(components: Mapping[str, Any], library: Library, file: str, fluid: Fluid) -> Sequence[Placed] | None:
    """These components of a circuit, as `read_part` gives them: each table is all that has to be read.

    None if that is not so: they hold expressions, may name files, are sub-circuits, or something is wrong.
    """
    placed, problems = list[Placed](), list[Problem]()
    for name, table in components.items():
        kind = library.types.get(str(table.get("type"))) if isinstance(table, Mapping) else None
        if kind is None or has_expressions(table) or kind.names_files():
            return None
        found = read_component(name, table, library, file, problems)
        if found is None or problems or any(library.wrong_parameters(kind, partial(found.parameters, fluid))):
            return None
        placed.append(found)
    return placed


def _is_embedded(part: Circuit, raw: Mapping[str, Any]) -> bool:
    """Whether components, as they were given, named no files."""
    return is_same(part.written["components"], raw)


def _only(raw: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    """The circuit with these components only."""
    shared = {key: value for key, value in raw.items() if key not in ("components", "nodes", "mechanisms", "drawing")}
    return {**shared, "components": components}


def _is_of(name: str, components: Iterable[str]) -> bool:
    """Whether a component of the circuit is one of these as written, or in one that is a sub-circuit."""
    return any(name == each or name.startswith(f"{each}.") for each in components)


def _ports(table: object) -> object:
    """What a component is connected to: a drawing shows it, too."""
    return table.get("ports") if isinstance(table, Mapping) else None


def _connections(placed: Placed) -> object:
    return type(placed.component), list(placed.ports.items()), list(placed.signals)


def _are_in_place_of(before: Circuit, placed: Sequence[Placed], changed: Iterable[str] | None = None) -> bool:
    """Whether components are connected like those that they replace; ``changed``: their names as written."""
    new = {each.name: _connections(each) for each in placed}
    names = new if changed is None else changed
    return new == {each.name: _connections(each) for each in before.placed if _is_of(each.name, names)}


def _with_components(table: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    return {**table, "components": {**table["components"], **components}}


def _joined(before: Expanded, part: Expanded, changed: Iterable[str]) -> Expanded:
    """Where the parts of the circuit are written."""
    keys = [f"components.{name}" for name in changed]
    kept = {key: text for key, text in before.expressions.items() if not _is_of(key, keys)}
    table = _with_components(before.table, part.table["components"])
    return Expanded(table, {**before.places, **part.places}, {**kept, **part.expressions})
