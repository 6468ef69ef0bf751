"""``hilserver check``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from hilserver.circuit.mechanisms import PlacedMechanism


def check(
    file: Annotated[Path, typer.Argument(help="rig file (TOML); or a circuit or mechanism file.")],
    out: Annotated[
        Path, typer.Option("--output", "-o", help="folder for drawings: of a circuit file (SVG), of mechanisms (PNG).")
    ] = Path("reports"),
) -> None:
    """Is the configuration right? Nothing is started.

    Says all that is wrong with the rig file, its circuit and its work cycle. Otherwise shows the channels, the virtual
    circuit as a table, the limits and the rates; and whether the real valves are large and fast enough for the virtual
    circuit, the tick short enough, and the loop of circuit, bridge and machine stable, with all margins.

    A circuit file is drawn as a schematic, with ISO 1219 symbols, to be held beside your own drawing.

    Mechanisms, of the rig's circuit and simulated machine, or of a circuit or mechanism file, are drawn at their start;
    their degrees of freedom are counted and redundant constraints named.
    """
    from rich.console import Console

    from hilserver.simulation.circuit_run import is_circuit_file

    console = Console(highlight=False, markup=False)
    notes = _circuit(console, file, out) if is_circuit_file(file) else _rig(console, file, out)
    for line in notes:
        console.print(f"Note: {line}", soft_wrap=True)
    console.print(f"{file}: no problems.", soft_wrap=True)


def _rig(console: Console, file: Path, out: Path) -> list[str]:
    """Tables of a rig; what is to be noted."""
    from hilserver.margins.check import mechanisms, tables, warnings
    from hilserver.margins.margins import margins
    from hilserver.rig.build import load_rig
    from hilserver.tick.program import compiled_program

    rig = load_rig(file)
    found = margins(rig, compiled_program(rig.library))
    for table in tables(rig, found):
        console.print(table)
    return [*warnings(rig, found), *_mechanisms(console, mechanisms(rig), out, file.stem)]


def _circuit(console: Console, file: Path, out: Path) -> list[str]:
    """Tables of a circuit or mechanism by itself; what is to be noted."""
    from hilserver.circuit.library import standard_library
    from hilserver.circuit.pack import pack
    from hilserver.margins.check import component_table
    from hilserver.report.circuit_blocks import write_drawing
    from hilserver.simulation.circuit_run import read_circuit_file

    circuit = read_circuit_file(file, standard_library())
    pack(circuit, standard_library(), file=str(file))
    if circuit.placed:
        console.print(component_table(circuit))
        drawing = write_drawing(circuit.source, out / f"{file.stem}_circuit.svg")
        console.print(f"Written: {drawing}", soft_wrap=True)
    return _mechanisms(console, circuit.mechanisms, out, file.stem)


def _mechanisms(console: Console, mechanisms: Iterable[PlacedMechanism], out: Path, stem: str) -> list[str]:
    """Tables and drawings of mechanisms; what is to be noted."""
    from hilserver.report.mechanisms import draw, summary

    notes: list[str] = []
    for placed in mechanisms:
        found = summary(placed.name, placed.mechanism)
        console.print(found.table)
        console.print(found.line)
        name = stem if stem == placed.name else f"{stem}_{placed.name}"
        console.print(f"Written: {draw(placed.mechanism, out / f'{name}_drawing.png', placed.name)}", soft_wrap=True)
        notes += found.notes
    return notes
