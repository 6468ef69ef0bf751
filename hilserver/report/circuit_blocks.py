"""Blocks about a circuit: its schematic, its components with their datasheet values, the changes of a switch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hilserver.circuit.change import as_lines, differences
from hilserver.drawing.parts import RIG
from hilserver.drawing.schematic import picture
from hilserver.errors import HilserverError
from hilserver.report.document import Block, Diagram, Grid

Source = Mapping[str, Any]
"""A circuit as the table in its file."""


def drawing(source: Source, name: str = "circuit") -> Iterator[Diagram]:
    """The schematic; nothing for a circuit without components."""
    if parts := source.get("components"):
        nodes = [str(node) for table in parts.values() for node in table.get("ports", {}).values()]
        machine = "; grey frames: ports of the machine" if any(node.startswith(RIG) for node in nodes) else ""
        yield Diagram(name, picture(source), f"The circuit, with symbols according to ISO 1219{machine}.")


def write_drawing(source: Source, file: Path) -> Path:
    """Write the schematic as an SVG file. Raises HilserverError if it can't be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(picture(source), encoding="utf-8")
    except OSError as error:
        raise HilserverError(f"{file}: can't be written: {error.strerror or error}.") from error
    return file


def components(source: Source) -> Grid:
    """The components of a circuit."""
    rows = []
    for name, table in source.get("components", {}).items():
        rest = {key: value for key, value in table.items() if key not in ("type", "ports", "description")}
        ports = ", ".join(f"{port} → {node}" for port, node in table.get("ports", {}).items())
        values = "\n".join(f"{key} = {value}" for key, value in as_lines(rest))
        rows.append((name, str(table.get("type", "")), ports, values))
    return Grid(("component", "type", "ports", "datasheet values"), tuple(rows))


def changes(before: Source, after: Source) -> Block:
    """The datasheet values that differ between two circuits."""
    rows = differences(before, after)
    return Grid(("key", "before", "after"), tuple(rows)) if rows else "No datasheet value was changed."
