"""``hilserver demo``: the main job on an embedded broker and the simulated rig, in real time."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilserver.cli.output import never_waiting
from hilserver.cli.run import Speed

if TYPE_CHECKING:
    from pydantic import JsonValue
    from rich.table import Table

    from hilserver.protocol.commands import Command
    from hilserver.protocol.published import ServerState
    from hilserver.rig.rig import Rig
    from hilserver.service.supervisor import ServerRun


@dataclass(frozen=True)
class DemoStep:
    """A command of the demo. ``at``: s of the rig after the start."""

    at: float
    text: str
    command: Command


def _names() -> list[str]:
    from hilserver.cli.examples import ready_examples

    return list(ready_examples())


@never_waiting()
def demo(
    name: Annotated[
        str, typer.Argument(help="example to run; --list names them", autocompletion=_names, show_default=True)
    ] = "demo",
    rig: Annotated[Path | None, typer.Option(help="another rig file")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder of the report")] = Path("reports"),
    panel: Annotated[bool, typer.Option(help="also serve the panel; its address is printed")] = True,
    speed: Speed = 1.0,
    listed: Annotated[bool, typer.Option("--list", help="only list the examples")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="keep running until Ctrl-C, to operate it in the panel")] = False,
) -> None:
    """Run the demo: a virtual pump, relief valve and 4/3 valve move a simulated machine through its servo valve.

    Runs in real time at 1 kHz (--speed 0.1: in slow motion); relief valve and directional valve are switched live over
    MQTT. Records a log and writes a report on the run with plots, circuit and timing. Ctrl-C ends it cleanly.

    With the name of another example, such as lift or boom (frame: an actuator that follows a virtual structure), that
    rig runs in the same way. An example that is a circuit of its own, such as lowering, is simulated over its work
    cycle, not in real time, and written to a report.
    """
    import logging

    from hilserver.cli.examples import ready_example
    from hilserver.compiler import is_compiled
    from hilserver.rig.build import load_rig
    from hilserver.rig.rig import at_speed

    if listed:
        print_list()
        raise typer.Exit
    if rig is None:
        chosen = ready_example(name)
        if chosen.cycle is not None:
            from hilserver.cli.simulate import simulate

            return simulate(chosen.file, output, cycle=chosen.cycle)
        rig = chosen.file
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(message)s")
    loaded = at_speed(load_rig(rig), speed)
    if not is_compiled(loaded.library):
        typer.echo("The first start of this version compiles it, which takes about a minute.")
    raise typer.Exit(asyncio.run(show(loaded, output, panel, stay)))


def print_list() -> None:
    """Print the examples, with what they are."""
    from hilserver.cli.examples import ready_examples
    from hilserver.cli.tables import TerminalTable, new_console

    table = TerminalTable("name", "runs", "what", title="Examples", title_justify="left")
    for name, found in ready_examples().items():
        table.add_row(name, "in real time" if found.cycle is None else "simulated", found.description)
    new_console().print(table)


async def show(rig: Rig, output: Path, panel: bool, stay: bool) -> int:
    """Run the rig and play the demo on it; returns the exit code of the run."""
    began = time.monotonic()

    from hilserver.service.supervisor import Supervisor

    supervisor = Supervisor(rig)
    task = asyncio.create_task(supervisor.run())
    ready = asyncio.create_task(supervisor.until_it_can_be_armed())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if not task.done():
        run = ready.result()
        typer.echo(f"Ready after {time.monotonic() - began:.1f} s. MQTT broker: {run.address}")
        async with contextlib.AsyncExitStack() as stack:
            if panel:
                await show_panel(run, stack)
            playing = asyncio.create_task(play(run))
            await asyncio.wait({task, playing}, return_when=asyncio.FIRST_COMPLETED)
            if stay and not task.done():
                typer.echo("It keeps running for you to operate it: arm, start, click a component. Ctrl-C ends it.")
                await asyncio.wait({task})
            supervisor.stop()
            playing.cancel()
    code = await task
    if supervisor.log_file is not None:
        await asyncio.to_thread(report, supervisor.log_file, output, rig.file)
    return code


async def show_panel(run: ServerRun, stack: contextlib.AsyncExitStack) -> None:
    """Start the panel next to the demo and print its address."""
    from hilserver.panel.app import panel_process

    url = await stack.enter_async_context(panel_process(run.rig.settings.name, run.address))
    typer.echo(f"Panel in the browser: {url}" if url else "No panel: pip install 'hilserver[panel]'")


def script(rig: Rig) -> list[DemoStep]:
    """The commands of the demo; of the switches, those of components that the rig's circuit has."""
    from hilserver.protocol.commands import Arm, Cycle, Start, Stop, Switch

    lower: dict[str, JsonValue] = {"opening_pressure": "100 bar"}
    smaller: dict[str, JsonValue] = {"nominal_flow.flow": "25 l/min", "f45": "15 Hz"}
    weaker: dict[str, JsonValue] = {"nominal_flow.flow": "9 l/min", "f45": "20 Hz"}
    armed, begins, moves, ends = _texts(rig)
    steps = [
        DemoStep(0.2, f"arm: {armed}", Arm()),
        DemoStep(0.4, f"start: {begins}", Start()),
        DemoStep(0.6, f"work cycle starts{moves}", Cycle(action="start")),
        DemoStep(2.0, "relief valve: 150 bar -> 100 bar", Switch(component="relief", set=lower)),
        DemoStep(2.4, "4/3 valve: 12 l/min, 40 Hz -> 9 l/min, 20 Hz", Switch(component="valve", set=weaker)),
        DemoStep(5.0, "4/3 valve: 40 l/min, 30 Hz -> 25 l/min, 15 Hz", Switch(component="main_valve", set=smaller)),
        DemoStep(9.0, f"stop: {ends}", Stop()),
    ]
    known = {placed.name for placed in rig.circuit.placed}
    return [step for step in steps if not isinstance(step.command, Switch) or step.command.component in known]


def _texts(rig: Rig) -> tuple[str, str, str, str]:
    """What valve or actuator does when it is armed and started, during the work cycle, and at the stop."""
    if not rig.settings.valves:
        stays, returns = "the actuator stays at its safe displacement", "the actuator returns to its safe displacement"
        return stays, "the actuator approaches its node and follows it", "", returns
    moves = "lift, hold, lower" if rig.settings.cylinders else "forwards, stop, backwards"
    return "the valve stays at null", "the bridge drives the valve", f": {moves}", "ramp to null"


LENGTH = 9.6


async def play(run: ServerRun) -> None:
    """Send the script's commands over MQTT at their times and keep the live table up to date."""
    from rich.console import Console
    from rich.live import Live

    from hilserver.client import request

    console = Console()
    rig, steps, done = run.rig, script(run.rig), []
    began, speed = time.monotonic(), rig.speed
    live = sys.stdout.isatty()
    with Live(console=console, refresh_per_second=10, transient=not live, auto_refresh=live) as view:
        while (elapsed := (time.monotonic() - began) * speed) < LENGTH:
            while steps and elapsed >= steps[0].at:
                step = steps.pop(0)
                answer = await request(run.address, rig.settings.name, step.command)
                result = f"tick {answer.tick}" if answer.ok else f"refused: {answer.reason}"
                if "prepared_ms" in answer.result:
                    result += f", active after {answer.result['active_ms']:.0f} ms"
                done.append(f"{elapsed:5.1f} s  {step.text}  ({result})")
                if not live:
                    console.print(done[-1])
            row = run.telemetry.latest()
            if row is not None and live:
                view.update(live_table(run.telemetry.state(row, 0), rig, done, elapsed / LENGTH))
            await asyncio.sleep(0.1 / max(speed, 1.0))


Shown = tuple[tuple[str, float | None, str], ...]
"""Names, values and SI units."""


def _of_valve(state: ServerState, rig: Rig) -> tuple[Shown, Shown]:
    """Of machine and bridge: the first valve."""
    values, targets, valve = state.actual, state.target, next(iter(rig.settings.valves), "")
    machine = (
        ("p_A", values.get("p_A"), "Pa"),
        ("p_B", values.get("p_B"), "Pa"),
        ("p_S", values.get("p_S"), "Pa"),
        ("position", values.get("x"), "m"),
        ("joystick", targets.get("input.joystick"), ""),
    )
    bridge = (
        ("virtual flow", targets.get(f"valve.{valve}.flow"), "m^3/s"),
        ("real flow", values.get(f"valve.{valve}.flow"), "m^3/s"),
        ("command", values.get(f"valve.{valve}.command"), ""),
    )
    return machine, bridge


def _of_actuator(state: ServerState, rig: Rig) -> tuple[Shown, Shown]:
    """Of machine and bridge: the first actuator, and the first input."""
    found, name = next(iter(state.actuators.values())), next(iter(rig.settings.inputs), "")
    machine = (
        ("measured", found.measured, "m"),
        ("estimated", found.estimate, "m"),
        ("force", found.force, "N"),
        ("force on the circuit", found.reaction, "N"),
        (name.replace("_", " "), state.target.get(f"input.{name}"), ""),
    )
    return machine, (
        ("virtual position", found.position, "m"),
        ("error", found.error, "m"),
        ("command", found.command, "m"),
    )


def live_table(state: ServerState, rig: Rig, done: list[str], progress: float) -> Table:
    """The state of the rig, of its first valve, or of its first actuator."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    from hilserver.cli.status import display

    def shown(value: float | None, unit: str) -> str:
        return "-" if value is None else " ".join(display(value, unit))

    table = Table(title=f"hilserver {rig.settings.name}    {state.mode}", min_width=78)
    for heading in ("machine", "", "bridge", ""):
        table.add_column(heading, justify="right" if not heading else "left", min_width=16)
    machine, bridge = (_of_valve if rig.settings.valves else _of_actuator)(state, rig)
    loop = (
        ("work per tick", f"{state.timing.get('work_median', 0) * 1e6:.0f} µs of {1e6 / rig.clock_rate:.0f}"),
        ("missed ticks", str(state.missed_ticks)),
    )
    right = [*((name, shown(value, unit)) for name, value, unit in bridge), *loop]
    for (name, value, unit), (other, text) in zip(machine, right, strict=True):
        table.add_row(name, shown(value, unit), other, text)
    table.add_section()
    for text in [*done[-6:], *[""] * (6 - len(done))]:
        table.add_row(text, "", "", "")
    outer = Table.grid()
    outer.add_row(table)
    outer.add_row(ProgressBar(total=1.0, completed=min(progress, 1.0), width=78))
    return outer


def report(log: Path, folder: Path, rig: Path) -> None:
    """Print the results, and write the report on the run."""
    from hilserver.record.summary import summarise
    from hilserver.report.run_report import write_run_report
    from hilserver.units import L_MIN

    summary = summarise(log)
    typer.echo("")
    typer.echo(
        f"{summary.duration:.1f} s, {summary.ticks} ticks recorded, {summary.missed} missed, "
        f"{summary.switches} live switches"
    )
    for valve in summary.valves:
        deviation = "the flow is not measured"
        if not math.isnan(valve.nrmse):
            deviation = (
                f"measured against virtual flow: NRMSE {100 * valve.nrmse:.2f} %, "
                f"maximum deviation {valve.largest / L_MIN:.2f} l/min of {valve.flow_range / L_MIN:.0f} l/min"
            )
        typer.echo(f"valve {valve.valve}: {deviation}; saturated {100 * valve.saturated:.1f} % of the time")
    for name, actuator in summary.actuators.items():
        typer.echo(
            f"actuator {name}: measured minus virtual displacement {1e3 * actuator.rms:.3f} mm RMS, at most "
            f"{1e3 * actuator.largest:.3f} mm of {1e3 * actuator.span:.1f} mm; at a limit "
            f"{100 * actuator.share_limited:.1f} % of the time"
        )
    typer.echo(
        f"work per tick {summary.work_median * 1e6:.0f} µs (median), {summary.work_p99 * 1e6:.0f} µs (99 %); "
        f"wake-up delay {summary.wake_median * 1e6:.1f} µs (median), {summary.wake_p99 * 1e6:.0f} µs (99 %)"
    )
    typer.echo(f"report: {write_run_report(log, folder)}")
    typer.echo(f"log:    {log}")
    typer.echo(f"next:   hilserver replay {log}    hilserver simulate {rig}")
