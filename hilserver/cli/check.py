"""``hilserver check``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.prose import say

if TYPE_CHECKING:
    from rich.console import Console

    from hilserver.circuit.mechanisms import PlacedMechanism
    from hilserver.cli.tables import TerminalTable
    from hilserver.errors import Problem
    from hilserver.margins.margins import RigMargins
    from hilserver.report.document import Grid
    from hilserver.rig.rig import Rig


Files = Annotated[
    list[Path],
    typer.Argument(help="rig files (TOML), or files of any other kind", show_default=False),
]
Drawings = Annotated[
    Path, typer.Option("--output", "-o", help="folder for drawings: of a circuit file (SVG), of mechanisms (PNG)")
]
Run = Annotated[bool, typer.Option("--run", help="rig: run the bridged rig in simulation, with a verdict per strategy")]
Strategies = Annotated[
    list[str] | None,
    typer.Option(help="with --run: bridge strategy to run; may be repeated; default: all possible ones"),
]
Seconds = Annotated[
    float, typer.Option(min=1.0, max=60.0, help="with --run: duration of each case with all inputs at rest")
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="exit code 1 if there are notes; with --run: exit code 2 also if a configured strategy is doubtful",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="with --run: print the verdicts as JSON, nothing else")]


def check(
    files: Files,
    out: Drawings = Path("reports"),
    run: Run = False,
    strategy: Strategies = None,
    seconds: Seconds = 3.0,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Check configurations. Nothing is started.

    Lists all errors in the rig file and in all files that it names, each with file, line and key, with exit code 2.
    Without errors it shows the channels, the virtual circuit, the limits and the rates as tables, and all margins:
    whether the real valves are large and fast enough for the virtual circuit, the tick short enough, and the loop of
    circuit, bridge and machine stable; of actuators whose position is controlled, the critical delay of the force at
    the specimen, and the delay that each strategy leaves. Notes point out what is allowed but insufficient or probably
    unintended; with --strict, the exit code is then 1.

    Circuits, mechanisms, sub-circuits, work cycles, test sequences, studies, catalogues of valves, calibrations, maps
    of a log's columns, layouts of recordings, logins at a broker and answers of hilserver new are checked on their own,
    too. The output states what can't be checked without another file.

    A circuit file is drawn as a schematic with ISO 1219 symbols, to be compared with your own drawing.

    Mechanisms (of the rig's circuit and simulated machine, or of a circuit or mechanism file) are drawn at their
    initial position, with their degrees of freedom and redundant constraints.

    With --run the bridged rig is commissioned virtually: it runs in simulation, without a clock, over its work cycle,
    at rest, and over steps and sweeps of each input, at several positions of the stroke and with lighter and heavier
    loads. Each strategy is judged fit, doubtful or unfit by its deviations from the virtual circuit connected directly
    to the machine. The strategies of actuators are judged over the work cycle: as described, and with command and force
    a tick late. The exit code is 2 if a configured strategy is unfit.
    """
    from hilserver.cli.tables import new_console
    from hilserver.errors import HilserverError

    console = new_console()
    if not run and (options := [name for name, value in {"--strategy": strategy, "--json": json}.items() if value]):
        raise HilserverError(f"{files[0]}: {options[0]} is for virtual commissioning: add --run.")
    if json and len(files) > 1:
        raise HilserverError("--json is for one rig file.")

    def check_one(file: Path) -> bool:
        if run:
            _require_rig(file)
        noted = not json and _conclude(console, file, _file(console, file, out), strict and not run)
        if run:
            _commission(console, file, strategy, seconds, strict, None if json else out)
        return noted

    if _all(files, check_one):
        raise typer.Exit(1)


def _require_rig(file: Path) -> None:
    from hilserver.errors import HilserverError
    from hilserver.rig.file_kinds import kind_of
    from hilserver.toml import read_toml

    if (kind := kind_of(read_toml(file))) not in ("", "rig"):
        raise HilserverError(f"{file} is a {kind}: --run needs a rig file; hilserver simulate runs a circuit.")


def _all(files: Iterable[Path], check_one: Callable[[Path], bool]) -> bool:
    """Check all files, also those after one with errors; whether one has notes that count. Raises HilserverError."""
    from hilserver.errors import ConfigurationError, HilserverError, Problem

    errors, noted = list[HilserverError](), False
    for file in files:
        try:
            noted |= check_one(file)
        except HilserverError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        found = [each.problems if isinstance(each, ConfigurationError) else [Problem(str(each))] for each in errors]
        raise ConfigurationError(dict.fromkeys(problem for problems in found for problem in problems))
    return noted


def _file(console: Console, file: Path, out: Path) -> list[str]:
    """Print the result for a file of any kind; returns its notes. Raises ConfigurationError with its problems."""
    from hilserver.cli.file_checks import FILE_CHECKS, kind_of_file

    kind = kind_of_file(file)
    if kind in FILE_CHECKS:
        for line in FILE_CHECKS[kind](file):
            say(line, console)
        return []
    return _circuit(console, file, out) if kind in ("circuit", "mechanism") else _rig(console, file, out)


def _conclude(console: Console, file: Path, notes: list[str], strict: bool) -> bool:
    """Print the notes and the verdict; whether there are notes that count as problems, which is with ``strict``."""
    for line in notes:
        say(f"Note: {line}", console)
    if notes and strict:
        count = "1 note counts as a problem" if len(notes) == 1 else f"{len(notes)} notes count as problems"
        typer.echo(f"{file}: {count} (--strict).", err=True)
        return True
    counted = "1 note" if len(notes) == 1 else f"{len(notes)} notes"
    say(f"{file}: {f'no errors, {counted}' if notes else 'no problems'}.", console)
    return False


def _commission(
    console: Console, file: Path, strategies: list[str] | None, seconds: float, strict: bool, out: Path | None
) -> None:
    """Virtual commissioning, with a report in the folder ``out``; None: print JSON instead.

    Raises HilserverError if a configured strategy is not suitable.
    """
    from hilserver.cli.progress import progress_bar
    from hilserver.errors import HilserverError
    from hilserver.report.figures import json_text
    from hilserver.rig.build import load_rig
    from hilserver.virtual_commissioning import report
    from hilserver.virtual_commissioning.trial import commission

    rig = load_rig(file)
    if rig.settings.actuators:
        _commission_actuators(console, rig, strategies, strict, out)
        if not rig.settings.valves:
            return
    with progress_bar() as tell:
        result = commission(rig, strategies, seconds=seconds, progress=tell)
    if out is None:
        print(json_text(report.figures(result)))
    else:
        console.print(_compact(report.overview(result), f"{result.rig}: virtual commissioning"))
        written = [f"Written: {path}" for path in report.write_report(result, out)]
        for line in [*report.sentences(result), *written]:
            say(line, console)
    if refused := report.refusals(result, strict=strict):
        raise HilserverError("\n".join(f"{file}: {text}" for text in refused))


def _commission_actuators(
    console: Console, rig: Rig, strategies: list[str] | None, strict: bool, out: Path | None
) -> None:
    """The same of the actuators of a rig."""
    from hilserver.cli.progress import progress_bar
    from hilserver.errors import HilserverError
    from hilserver.report.figures import json_text
    from hilserver.virtual_commissioning import actuators

    with progress_bar() as tell:
        found = actuators.commission_actuators(rig, strategies, tell)
    configured = {name: a.bridge.strategy for name, a in rig.settings.actuators.items()}
    if out is None:
        print(json_text({"actuators": actuators.figures(found)}))
    else:
        from hilserver.virtual_commissioning import actuator_report  # slow to load: Matplotlib

        title = f"{rig.settings.name}: virtual commissioning of the actuators"
        console.print(_compact(actuators.overview(found, configured), title))
        written = [f"Written: {path}" for path in actuator_report.write_report(found, rig, out)]
        for line in [*map(actuators.sentence, found), *written]:
            say(line, console)
    if refused := actuators.refusals(found, configured, strict):
        raise HilserverError("\n".join(f"{rig.file}: {text}" for text in refused))


def _compact(grid: Grid, title: str) -> TerminalTable:
    """A wide table for the terminal, without lines between its columns."""
    from hilserver.cli.tables import TerminalTable

    table = TerminalTable(title=title, caption=grid.caption, box=None, pad_edge=False)
    for number, head in enumerate(grid.head):
        table.add_column(head, justify="right" if number > 1 else "left")
    for row in grid.rows:
        table.add_row(*row)
    return table


def _rig(console: Console, file: Path, out: Path) -> list[str]:
    """Tables of a rig; returns its notes."""
    from hilserver.compiler import compiled_program
    from hilserver.errors import ConfigurationError
    from hilserver.margins.margins import margins
    from hilserver.rig.build import load_rig

    rig = load_rig(file)
    found = margins(rig, compiled_program(rig.library))
    for table in _tables(rig, found):
        console.print(table)
    configured = {valve.bridge.strategy: None for valve in rig.settings.valves.values()}
    if refusals := [_refusal(text, file) for text in found.refusals(rig, configured)]:
        raise ConfigurationError(refusals)
    return [*rig_notes(rig, found), *_mechanisms(console, mechanisms(rig), out, file.stem)]


def _refusal(text: str, file: Path) -> Problem:
    """What forbids to arm a rig, at the key that it begins with, or at the devices that are too slow."""
    from hilserver.errors import Problem

    key, _, rest = text.partition(": ")
    return Problem(rest, key, str(file)) if key.startswith("actuators.") else Problem(text, "devices", str(file))


def _tables(rig: Rig, found: RigMargins) -> Iterator[TerminalTable]:
    """Channels, limits, circuit, nodes, valves with their margins, rates and solver, one table each."""
    from hilserver.cli import circuit_tables as circuit
    from hilserver.cli import rig_tables as tables
    from hilserver.cli.margin_tables import actuator_margin_table, margin_tables

    yield tables.channel_table(rig)
    yield tables.watch_table(rig)
    if rig.settings.limits:
        yield tables.limit_table(rig)
    yield circuit.component_table(rig.circuit)
    yield circuit.node_table(rig)
    if rig.settings.valves:
        yield tables.valve_table(rig)
        yield from margin_tables(found)
    if rig.settings.actuators:
        yield tables.actuator_table(rig)
        yield actuator_margin_table(found.actuators)
    yield tables.rate_table(rig)
    yield circuit.solver_table(rig)


def rig_notes(rig: Rig, found: RigMargins) -> Iterator[str]:
    """What is allowed, but insufficient or probably unintended: margins, solver, settings."""
    from hilserver.compiler import compiled_program
    from hilserver.margins.cycle_step import cycle_step_error
    from hilserver.margins.solver import solver_warning
    from hilserver.rig.notes import notes

    yield from found.warnings({valve.bridge.strategy: None for valve in rig.settings.valves.values()})
    program = compiled_program(rig.library)
    if text := solver_warning(rig, program):
        yield f"solver: {text}"
    elif (error := cycle_step_error(rig, program)) is not None and error.too_long:
        yield f"solver, over the work cycle: {error.verdict()}"
    yield from notes(rig)


def mechanisms(rig: Rig) -> tuple[PlacedMechanism, ...]:
    """The mechanisms of the virtual circuit and of the simulated machines."""
    from hilserver.circuit.model import read_part

    machines = [tables["machine"] for tables in rig.sources.get("devices", {}).values() if "machine" in tables]
    return sum((read_part(machine, rig.library).mechanisms for machine in machines), rig.circuit.mechanisms)


def _circuit(console: Console, file: Path, out: Path) -> list[str]:
    """Tables of a circuit or mechanism file; returns its notes."""
    from hilserver.circuit.library import circuit_library
    from hilserver.circuit.pack import pack
    from hilserver.cli.circuit_tables import component_table
    from hilserver.report.circuit_blocks import write_drawing
    from hilserver.simulation.circuit_run import read_circuit_file

    library = circuit_library(file)
    circuit = read_circuit_file(file, library)
    pack(circuit, library, file=str(file))
    if circuit.placed:
        console.print(component_table(circuit))
        drawing = write_drawing(circuit.source, out / f"{file.stem}_circuit.svg")
        say(f"Written: {drawing}", console)
    return _mechanisms(console, circuit.mechanisms, out, file.stem)


def _mechanisms(console: Console, mechanisms: Iterable[PlacedMechanism], out: Path, stem: str) -> list[str]:
    """Tables and drawings of mechanisms; returns their notes."""
    from hilserver.cli.rig_tables import new_table

    notes: list[str] = []
    for placed in mechanisms:
        from hilserver.report.mechanisms import draw, summary  # slow to load: Matplotlib

        found = summary(placed.name, placed.mechanism)
        table = new_table(f"Mechanism {placed.name}", "body", "mass", "moment of inertia", "joints")
        for row in found.bodies:
            table.add_row(*row)
        console.print(table)
        say(found.line, console)
        name = stem if stem == placed.name else f"{stem}_{placed.name}"
        say(f"Written: {draw(placed.mechanism, out / f'{name}_drawing.png', placed.name)}", console)
        notes += found.notes
    return notes
