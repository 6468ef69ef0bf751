"""A circuit that differs from one that was read before in tables of components: only these are read.

Studies read thousands of such circuits, and a running server or a test sequence one with every switch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit, Placed, read_circuit, read_part, wrong_connections
from hilserver.circuit.subcircuits import Expanded
from hilserver.errors import ConfigurationError
from hilserver.toml import copied


def read_variant(
    before: Circuit, raw: Mapping[str, Any], library: Library, file: str = "", folder: Path | None = None
) -> Circuit:
    """The same as `read_circuit` gives, and the same errors; faster where little differs from ``before``.

    ``before``: read with the same library, in the same folder.
    """
    circuit = _like(before, raw, library, file, folder)
    if circuit is None:
        return read_circuit(raw, library, file, folder)
    if problems := list(wrong_connections(circuit, file)):
        raise ConfigurationError(problems)
    return circuit


def source_of_part(
    before: Mapping[str, Any], raw: Mapping[str, Any], library: Library, file: str = "", folder: Path | None = None
) -> Mapping[str, Any]:
    """The same as the source of `read_part`, and the same errors; ``before``: that of a part read before."""
    changed = changed_tables(before, raw)
    if changed and all(_ports(before["components"][name]) == _ports(table) for name, table in changed.items()):
        part = _read(_only(raw, changed), library, file, folder)
        if list(part.source["components"]) == list(changed):  # no sub-circuit
            return _with_components(before, part.source)
    return read_part(raw, library, file, folder).source


def is_same(one: object, other: object) -> bool:
    """Whether two values of a file are read as the same: ``1``, ``1.0`` and ``true`` are equal, but not the same."""
    return one is other or repr(one) == repr(other)


def changed_tables(before: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """The tables of components that differ between two circuits as written; None if anything else does."""
    others, own = ({k: v for k, v in each.items() if k not in ("components", "library")} for each in (before, raw))
    old, new = before.get("components"), raw.get("components")
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or list(old) != list(new):
        return None
    return {name: new[name] for name in new if not is_same(old[name], new[name])} if is_same(others, own) else None


def _like(before: Circuit, raw: Mapping[str, Any], library: Library, file: str, folder: Path | None) -> Circuit | None:
    """The circuit, its connections not yet checked; None if it has other parts. Raises ConfigurationError."""
    changed = changed_tables(before.written, raw) if isinstance(raw, Mapping) else None
    if changed is None or any(place.file != file for place in before.origin.places.values()):
        return None  # sub-circuits have their contents now instead of files, which problems would name
    written = {key: value for key, value in raw.items() if key != "library"}
    if not changed:
        return replace(before, written=copied(written), known={})
    part = _read(_only(raw, changed), library, file, folder)
    old = [_connections(placed) for placed in before.placed if _is_of(placed.name, changed)]
    if part.starts or part.mechanisms or old != [_connections(placed) for placed in part.placed]:
        return None  # of sub-circuits, or components of another type
    new = {placed.name: placed for placed in part.placed}
    return replace(
        before,
        placed=tuple(new.get(placed.name, placed) for placed in before.placed),
        source=_with_components(before.source, part.source),
        written=copied(written if _is_embedded(part, changed) else _with_components(written, part.written)),
        known={},
        origin=_joined(before.origin, part.origin, changed),
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
    return placed.name, type(placed.component), list(placed.ports.items()), list(placed.signals)


def _with_components(table: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    return {**table, "components": {**table["components"], **part["components"]}}


def _joined(before: Expanded, part: Expanded, changed: Iterable[str]) -> Expanded:
    """Where the parts of the circuit are written."""
    keys = [f"components.{name}" for name in changed]
    kept = {key: text for key, text in before.expressions.items() if not _is_of(key, keys)}
    table = _with_components(before.table, part.table)
    return Expanded(table, {**before.places, **part.places}, {**kept, **part.expressions})
