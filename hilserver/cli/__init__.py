"""The command ``hilserver``: one module per command, no logic in them.

Only the module of the command that is called is imported, and the modules import heavy libraries (Numba, pyarrow,
matplotlib) inside their functions: ``hilserver send stop`` and ``hilserver --help`` have to be fast.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Annotated

import typer

from hilserver.cli.prose import say
from hilserver.errors import ConfigurationError, HilserverError, with_lines

COMMANDS = (
    *("demo", "new", "check", "components", "channels", "calibrate", "simulate", "study", "size", "fidelity"),
    *("rths", "identify", "learned", "fit", "replicate"),
    *("run", "safe", "status", "switch", "send", "panel", "view", "edit"),
    *("replay", "test", "plotjuggler", "report", "export", "log"),
    *("experiment", "bench", "latency", "doctor", "pack", "deploy"),
)
"""All commands, in the order of the help."""
ELSEWHERE = {"send": ("switch", "send"), "test": ("test", "run_sequences")}
"""Module and function of the commands that are not in a function of their name in the module of their name."""
COMPLETING = "_HILSERVER_COMPLETE"
"""Variable of the environment in which the shell asks for completions."""

GARBAGE = 50_000
"""Number of new objects after which Python looks for garbage in the youngest of them; usually 700."""


def program(only: str | None = None) -> typer.Typer:
    """The command line; only with this one of its commands, if there is one of that name: the others take time."""
    app = typer.Typer(
        name="hilserver",
        help="Virtual hydraulics on a real servo valve: hardware in the loop for hydraulic test rigs.",
        no_args_is_help=True,
        add_completion=only not in COMMANDS or COMPLETING in os.environ,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in (only,) if only in COMMANDS else COMMANDS:
        module, function = ELSEWHERE.get(name, (name, name))
        command = getattr(importlib.import_module(f"hilserver.cli.{module}"), function)
        if isinstance(command, typer.Typer):
            for each in command.registered_commands:
                each.help = _unwrapped(each.help or inspect.getdoc(each.callback))
            app.add_typer(command, name=name)
        else:
            app.command(name, help=_unwrapped(inspect.getdoc(command)))(command)
    return app


def _unwrapped(text: str | None) -> str:
    """Paragraphs in one line each: the terminal wraps them where it ends."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text or "")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"hilserver {version('hilserver')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Virtual hydraulics on a real servo valve: hardware in the loop for hydraulic test rigs."""


def main() -> None:
    """Run the command line. User errors are printed to standard error: exit code 2, no traceback."""
    # The modules imported at the start leave no garbage; searching them for it would take a tenth of the time.
    gc.set_threshold(GARBAGE)
    # Matrices are small here: threads of NumPy's and SciPy's BLAS only wait for each other, at full load.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Pydantic would look for plug-ins of its own in every installed package, in each process.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    try:
        with no_interrupt_lost():
            program(_called())()
    except ConfigurationError as error:
        problems = with_lines(error.problems)
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        fail("\n".join(map(str, [*problems, f"{count}. Nothing was changed."])))
    except HilserverError as error:
        fail(str(error))
    finally:
        gc.freeze()  # nor at the end: the memory is released anyway


def _called() -> str | None:
    """The command that is called, or whose options the shell asks for to complete a line."""
    words = sys.argv
    if COMPLETING in os.environ:  # in the shell's words: bash; zsh and fish
        words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()
    return next(iter(words[1:]), None)


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
    if sys.stderr.isatty():
        from hilserver.cli.tables import new_console

        say(text, new_console(stderr=True))
    else:  # without Rich, which takes a moment to load
        print(text, file=sys.stderr)
    sys.exit(2)
