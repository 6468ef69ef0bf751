"""``hilserver simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def simulate(
    file: Annotated[
        Path,
        typer.Argument(help="rig file (TOML) with a simulated rig and a work cycle; circuit file; mechanism file"),
    ],
    out: Annotated[
        Path, typer.Option("--output", "-o", help="folder for the report (HTML) and the figures (JSON) or values")
    ] = Path("reports"),
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="rig: bridge strategy to run; may be repeated; default: all possible ones"),
    ] = None,
    cycle: Annotated[Path | None, typer.Option(help="circuit: work cycle file for its inputs")] = None,
    duration: Annotated[
        float | None,
        typer.Option(min=0.001, help="circuit: seconds to run; default: the duration of the work cycle, or 10"),
    ] = None,
    table: Annotated[str, typer.Option(help="circuit: file format of the values, csv or parquet")] = "csv",
    animation: Annotated[
        bool, typer.Option("--animation/--no-animation", help="circuit: animate its mechanisms as GIF files")
    ] = True,
) -> None:
    """Simulate a rig and report how closely it follows the virtual circuit, or run a circuit on its own.

    With a rig file: runs the work cycle with the virtual circuit connected directly to the simulated machine (the
    reference simulation), then with the bridged rig: once for each bridge strategy, and once without a bridge, where
    the virtual valve's command goes straight to the real valve. Reports the deviations of position and flow from the
    reference.

    With a circuit file that includes its cylinder and load: runs the circuit over a work cycle, plots pressures, flows
    and positions, writes all values, and animates each of its mechanisms. No hardware is used, and the run is not in
    real time. A mechanism file is run as a circuit that consists of the mechanism only.
    """
    from hilserver.errors import HilserverError
    from hilserver.simulation.circuit_run import is_circuit_file

    given = {"--cycle": cycle, "--duration": duration} if not is_circuit_file(file) else {"--strategy": strategy}
    for option in (name for name, value in given.items() if value):
        kind = "circuit" if option == "--strategy" else "rig"
        raise HilserverError(f"{file}: {option} has no meaning for a {kind} file.")
    if is_circuit_file(file):
        _circuit(file, cycle, duration, out, table, animation)
    else:
        _rig(file, strategy, out)


def _rig(file: Path, strategy: list[str] | None, out: Path) -> None:
    from rich.console import Console

    from hilserver.cli.fidelity import tables
    from hilserver.fidelity.report import write_simulation
    from hilserver.fidelity.strategies import simulate as run
    from hilserver.fidelity.summary import sentences
    from hilserver.rig.build import load_rig

    console = Console(highlight=False, markup=False)
    result = run(load_rig(file), strategy)
    for table in tables(result):
        console.print(table)
    for line in [*sentences(result), *(f"Written: {path}" for path in write_simulation(result, out))]:
        console.print(line, soft_wrap=True)


def _circuit(file: Path, cycle: Path | None, duration: float | None, out: Path, table: str, animation: bool) -> None:
    from hilserver.circuit.library import circuit_library
    from hilserver.simulation.cavitation import cavitation
    from hilserver.simulation.circuit_run import (
        TICK,
        balance_facts,
        run_circuit_file,
        step_note,
        write_animations,
        write_run,
    )

    run = run_circuit_file(file, circuit_library(file), cycle, duration)
    if note := step_note(run):
        print(f"Note: {note}")
    print(f"{run.name}: {run.time[-1]:g} s, {len(run.series)} values in {len(run.time)} ticks.")
    for name, text in balance_facts(run):
        print(f"{name}: {text}.")
    for note in cavitation(run.circuit, run.series, TICK):
        print(f"Note: {note}")
    for path in [*write_run(run, out, table), *(write_animations(run, out) if animation else ())]:
        print(f"Written: {path}")
