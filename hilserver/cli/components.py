"""``hilserver components``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from hilserver.circuit.library import Library
    from hilserver.cli.tables import TerminalTable
    from hilserver.components.base import Component


def components(
    words: Annotated[
        list[str] | None, typer.Argument(help="a type (relief_valve), or words to search for: overcentre, LS, PRV")
    ] = None,
    library: Annotated[
        list[Path] | None, typer.Option("--library", help="Python file with components of your own; may be repeated")
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="print only the example circuit, to be saved")] = False,
) -> None:
    """List the component types, search them by the names that catalogues use, or show one with an example.

    Several words narrow the search. A type is shown with its connections, its datasheet values and a circuit.
    """
    from hilserver.circuit.library import library_of
    from hilserver.circuit.own import OwnFile
    from hilserver.cli.tables import new_console
    from hilserver.components.describe import matches
    from hilserver.components.synonyms import meant_type
    from hilserver.errors import ConfigurationError, HilserverError, Problem

    problems: list[Problem] = []
    own = OwnFile.named([str(file) for file in library or ()], Path.cwd(), "--library", problems)
    if problems:
        raise ConfigurationError(problems)
    known = library_of(own)
    named = "_".join(words or ()).casefold()
    kind = known.types.get(named)
    console = new_console()
    if example and kind is None:
        raise HilserverError(f'--example needs a component type, "{" ".join(words or ())}" is not one.')
    if example:
        typer.echo(_example(named))
    elif kind is not None:
        for part in _shown(named, kind):
            console.print(part, soft_wrap=isinstance(part, str))
    else:
        found = [name for name in known.types if matches(name, known.types[name], words or [])]
        if not found:
            close = meant_type(named, known.types)
            hint = close if "mean" in close else " hilserver components lists all of them."
            raise HilserverError(f'no component is called "{" ".join(words or ())}".{hint}')
        console.print(_listed(found, known))


def _listed(names: list[str], library: Library) -> TerminalTable:
    from hilserver.cli.tables import TerminalTable
    from hilserver.components.describe import in_plain_words
    from hilserver.components.synonyms import SYNONYMS

    table = TerminalTable("type", "what it is", "also called", box=None)
    for name in names:
        table.add_row(name, in_plain_words(library.types[name]), ", ".join(SYNONYMS.get(name, ())))
    return table


def _shown(name: str, kind: type[Component]) -> Iterator[TerminalTable | str]:
    """A component type: what it is, its connections, its values, an example."""
    from hilserver.cli.tables import TerminalTable
    from hilserver.components.describe import connections, in_plain_words

    yield f"{name}: {in_plain_words(kind)}\n"
    table = TerminalTable("connection", "kind", "written as", box=None)
    for each in connections(kind):
        table.add_row(each.port, each.kind, each.written + each.otherwise)
    yield table
    yield ""
    table = TerminalTable("datasheet value", "default", "meaning", box=None)
    for key, field in kind.model_fields.items():
        table.add_row(key, _default(field), field.description or "")
    yield table
    yield f"\nAn example, as a complete circuit (hilserver components {name} --example > circuit.toml):\n"
    yield _example(name)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None or field.default in (None, "", ()):
        return "–"
    return str(field.default)


def _example(name: str) -> str:
    from hilserver.cli.examples import component_example

    path = component_example(name)
    return path.read_text().strip() if path is not None else f"({name} comes without an example.)"
