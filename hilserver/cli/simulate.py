"""``hilserver simulate``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.prose import say

if TYPE_CHECKING:
    from hilserver.rig.rig import Rig
    from hilserver.simulation.circuit_run import RunSettings

Tick = Annotated[
    str | None, typer.Option(help='circuit: time that is divided into solver.substeps, such as "0.5 ms"; default: 1 ms')
]
OutputStep = Annotated[
    str | None, typer.Option(help="circuit: time between two values of the result; default: the tick")
]
Tolerance = Annotated[
    float | None,
    typer.Option(help="permitted error of the solver step, as a fraction of a quantity (default: 0.01)"),
]
Speed = Annotated[
    float | None,
    typer.Option(
        help="pace the run at this multiple of real time, such as 0.1 (slow motion) or 10; default: as fast as possible"
    ),
]
HoldInputs = Annotated[
    bool, typer.Option("--hold-inputs", help="circuit: hold the inputs during each tick, as a real loop must")
]


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
    tick: Tick = None,
    output_step: OutputStep = None,
    tolerance: Tolerance = None,
    hold_inputs: HoldInputs = False,
    speed: Speed = None,
    animation: Annotated[
        bool, typer.Option("--animation/--no-animation", help="circuit: animate its mechanisms as GIF files")
    ] = True,
) -> None:
    """Simulate a rig and report how closely it follows the virtual circuit, or run a circuit on its own.

    With a rig file: runs the work cycle with the virtual circuit connected directly to the simulated machine (the
    reference simulation), then with the bridged rig: once for each bridge strategy, and once without a bridge, where
    the virtual valve's command goes straight to the real valve. Reports the deviations of position and flow from the
    reference.

    Of actuators whose position is controlled (--strategy: those of actuators), it reports delay and error of the
    displacement behind the virtual position, and its deviation from the reference simulation, in which the specimen is
    connected directly to the circuit.

    With a circuit file that includes its cylinder and load: runs the circuit over a work cycle, plots pressures, flows
    and positions, writes all values, and animates each of its mechanisms. No hardware is used, and the run is not in
    real time. A mechanism file is run as a circuit that consists of the mechanism only.

    The error of the solver's step is found from a second run with half of it (of a rig: half of every step, of circuit,
    machine and reference simulation); if it is above the tolerance, a sufficient step is recommended.

    With --speed, each tick is computed when it is due on the clock, slower or faster than real time, and the present
    values are shown. Results are the same as without a clock; ticks that were not completed in time are reported.
    """
    from hilserver.simulation.circuit_run import is_circuit_file

    of_circuit: dict[str, object] = {"--cycle": cycle, "--duration": duration, "--tick": tick}
    of_circuit |= {"--output-step": output_step, "--hold-inputs": hold_inputs}
    _refuse_misplaced(file, {"--strategy": strategy} if is_circuit_file(file) else of_circuit)
    if is_circuit_file(file):
        settings = _settings(tick, output_step, tolerance, hold_inputs, speed)
        _circuit(file, cycle, duration, settings, out, table, animation)
    else:
        _rig(file, strategy, speed, out, tolerance)


def _refuse_misplaced(file: Path, options: Mapping[str, object]) -> None:
    """Raises HilserverError if one of these options, which have no meaning for the kind of file, is given."""
    from hilserver.errors import HilserverError

    for option in (name for name, value in options.items() if value):
        kind = "circuit" if option == "--strategy" else "rig"
        raise HilserverError(f"{file}: {option} does not apply to a {kind} file.")


def _rig(file: Path, strategy: list[str] | None, speed: float | None, out: Path, tolerance: float | None) -> None:
    from hilserver.cli.fidelity import step_lines, tables
    from hilserver.cli.tables import new_console
    from hilserver.cli.watching import watched_rig
    from hilserver.fidelity.report import write_simulation
    from hilserver.fidelity.step import with_step_error
    from hilserver.fidelity.strategies import at_step
    from hilserver.fidelity.strategies import simulate as run
    from hilserver.fidelity.summary import sentences
    from hilserver.rig.build import load_rig
    from hilserver.simulation.step_error import TOLERANCE, check_tolerance

    check_tolerance(TOLERANCE if tolerance is None else tolerance)
    console = new_console()
    rig = load_rig(file)
    if rig.settings.actuators:
        refuse_options_of_valves(rig, {"--speed": speed, "--tolerance": tolerance})
        actuators(rig, strategy, out)
        if not rig.settings.valves:
            return
    with watched_rig(console, speed) as watch:
        result = run(rig, strategy, speed, watch)
    result = with_step_error(rig, result, at_step(rig), TOLERANCE if tolerance is None else tolerance)
    for table in tables(result):
        console.print(table)
    balances = [f"{name}: {text}." for name, text in result.balances()]
    said = [*sentences(result), *result.notes, *balances, *step_lines(result)]
    for line in [*said, *(f"Written: {path}" for path in write_simulation(result, out))]:
        say(line, console)


def refuse_options_of_valves(rig: Rig, options: Mapping[str, object]) -> None:
    """Raises HilserverError if an option is given that means nothing for actuators."""
    from hilserver.errors import HilserverError

    if given := [name for name, value in options.items() if value is not None]:
        raise HilserverError(f"{rig.file}: {given[0]} does not apply to a rig with actuators.")


def actuators(rig: Rig, strategies: list[str] | None, out: Path) -> None:
    """Run the work cycle of a rig with actuators under each strategy, and report."""
    from hilserver.cli.fidelity import grid_table
    from hilserver.cli.progress import progress_bar
    from hilserver.cli.tables import new_console
    from hilserver.hybrid import rig_report
    from hilserver.hybrid.rig_runs import simulate

    with progress_bar() as tell:
        result = simulate(rig, strategies, tell)
    console = new_console()
    title = f"{result.rig}: work cycle under every strategy"
    console.print(grid_table(rig_report.actuator_grid(result), title, compact=True))
    if (grid := rig_report.position_grid(result)) is not None:
        console.print(grid_table(grid, "", compact=True))
    written = [f"Written: {path}" for path in rig_report.write_report(result, out)]
    for line in [*rig_report.sentences(result), *written]:
        say(line, console)


def _settings(
    tick: str | None, output_step: str | None, tolerance: float | None, hold_inputs: bool, speed: float | None
) -> RunSettings:
    """The options as settings of a circuit run. Raises HilserverError."""
    from hilserver.simulation.circuit_run import DEFAULT_SETTINGS, RunSettings

    return RunSettings(
        tick=DEFAULT_SETTINGS.tick if tick is None else seconds("--tick", tick),
        output_step=None if output_step is None else seconds("--output-step", output_step),
        tolerance=DEFAULT_SETTINGS.tolerance if tolerance is None else tolerance,
        hold_inputs=hold_inputs,
        speed=speed,
    )


def seconds(option: str, text: str) -> float:
    """A time with its unit in s. Raises HilserverError."""
    from hilserver.errors import HilserverError
    from hilserver.units import to_si

    try:
        return to_si(text, "s")
    except ValueError as error:
        raise HilserverError(f"{option}: {error}") from None


def _circuit(
    file: Path,
    cycle: Path | None,
    duration: float | None,
    settings: RunSettings,
    out: Path,
    table: str,
    animation: bool,
) -> None:
    from hilserver.circuit.library import circuit_library
    from hilserver.cli.watching import watched_circuit
    from hilserver.simulation.cavitation import cavitation
    from hilserver.simulation.circuit_report import balance_facts, write_animations, write_run, written
    from hilserver.simulation.circuit_run import run_circuit_file, step_note

    with watched_circuit(settings.speed) as watch:
        run = run_circuit_file(file, circuit_library(file), cycle, duration, settings, watch)
    say(f"{run.name}: {run.time[-1]:g} s, {len(written(run))} values in {len(run.time)} ticks.")
    if run.paced is not None:
        say(f"Paced: {run.paced}.")
    for name, text in balance_facts(run):
        say(f"{name}: {text}.")
    if run.error is not None and run.error.deviations:
        for deviation in run.error.deviations:
            say(f"Error of {deviation}")
        say(run.error.verdict())
    unstable = None if run.error and run.error.too_long else step_note(run)
    cavitating = cavitation(run.circuit, run.series, run.output_step)
    for note in (*run.notes, *cavitating, *([unstable] if unstable else [])):
        say(f"Note: {note}")
    for path in [*write_run(run, out, table), *(write_animations(run, out) if animation else ())]:
        say(f"Written: {path}")
