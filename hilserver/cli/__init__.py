"""The command ``hilserver``: one module per command, no logic in them.

The modules import heavy libraries (Numba, pyarrow, matplotlib) inside their functions, so that ``hilserver --help`` is
fast.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from typing import Annotated

import typer

from hilserver.cli import (
    bench,
    calibrate,
    channels,
    check,
    components,
    demo,
    doctor,
    experiment,
    export,
    fidelity,
    identify,
    latency,
    log,
    new,
    panel,
    plotjuggler,
    replay,
    report,
    rths,
    run,
    safe,
    simulate,
    status,
    switch,
    test,
)
from hilserver.errors import ConfigurationError, HilserverError

app = typer.Typer(
    name="hilserver",
    help="Virtual hydraulics on a real servo valve: hardware in the loop for hydraulic test rigs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hilserver {version('hilserver')}")
        raise typer.Exit


app.command("demo")(demo.demo)
app.command("new")(new.new)
app.command("check")(check.check)
app.command("components")(components.components)
app.command("channels")(channels.channels)
app.command("calibrate")(calibrate.calibrate)
app.command("simulate")(simulate.simulate)
app.command("fidelity")(fidelity.fidelity)
app.command("rths")(rths.rths)
app.command("identify")(identify.identify)
app.command("run")(run.run)
app.command("safe")(safe.safe)
app.command("status")(status.status)
app.command("switch")(switch.switch)
app.command("send")(switch.send)
app.command("panel")(panel.panel)
app.command("replay")(replay.replay)
app.command("test")(test.run_sequences)
app.command("plotjuggler")(plotjuggler.plotjuggler)
app.command("report")(report.report)
app.command("export")(export.export)
app.add_typer(log.log, name="log")
app.add_typer(experiment.experiment, name="experiment")
app.command("bench")(bench.bench)
app.command("latency")(latency.latency)
app.command("doctor")(doctor.doctor)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Virtual hydraulics on a real servo valve: hardware in the loop for hydraulic test rigs."""


def main() -> None:
    """Run the command line. User errors are printed to standard error: exit code 2, no traceback."""
    # Matrices are small here: threads of NumPy's and SciPy's BLAS only wait for each other, at full load.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        with no_interrupt_lost():
            app()
    except ConfigurationError as error:
        count = len(error.problems)
        fail(f"{error}\n{count} problem{'s' if count != 1 else ''}. Nothing was changed.")
    except HilserverError as error:
        fail(str(error))


@contextlib.contextmanager
def no_interrupt_lost() -> Iterator[None]:
    """Send Ctrl-C again, a moment later, if it arrives in a Python callback called from C, where it would be lost.

    The library that loads compiled code uses such callbacks.
    """
    usual = sys.unraisablehook

    def resend(lost: sys.UnraisableHookArgs) -> None:
        if lost.exc_type is KeyboardInterrupt:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            usual(lost)

    sys.unraisablehook = resend
    try:
        yield
    finally:
        sys.unraisablehook = usual


def fail(text: str) -> None:
    """Exit with code 2 and a message to the user."""
    print(text, file=sys.stderr)
    sys.exit(2)
