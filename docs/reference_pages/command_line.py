"""The reference page of the command line, from the program itself."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from reference_pages.markdown import cell, fence, table
from reference_pages.places import ROOT


def commands_page() -> str:
    """Reference of the command line, from the program itself."""
    from typer.main import get_command

    program: Any = get_command(importlib.import_module("hilserver.cli").program())
    parts = ["# Commands", f"{program.help}", "`hilserver COMMAND --help` prints the same in the terminal."]
    for name, command in program.commands.items():
        if hasattr(command, "commands"):
            parts += [f"## `hilserver {name}`", command.help]
            for inner, subcommand in command.commands.items():
                parts += [f"### `hilserver {name} {inner}`", command_text(f"{name} {inner}", subcommand)]
        else:
            parts += [f"## `hilserver {name}`", command_text(name, command)]
    parts += [
        "## Exit codes",
        *EXIT_CODES,
        "## Environment",
        "The variables of a service are set by systemd.",
        table(("variable", "meaning"), ENVIRONMENT),
    ]
    targets = re.findall(r"^([a-z-]+):.*?## (.*)$", (ROOT / "Makefile").read_text(), re.M)
    parts += [
        "## make",
        "These targets work in a checkout; `.venv` is set up first where it is needed.",
    ]
    parts += [table(("target", "effect"), [(f"`make {target}`", cell(text)) for target, text in targets])]
    return "\n\n".join(parts) + "\n"


FINDINGS = {
    "bench": "with `--tolerance`, something takes longer than before",
    "calibrate": "nothing was stored, because you declined",
    "check": "with `--strict` and without `--run`: there are notes",
    "channels": "with `--once`, a device does not answer",
    "demo": "as `hilserver run`",
    "deploy": "with `--status`: the rig is not running there",
    "doctor": "the rig can run, but less well than it could; 2: it cannot run on this computer with these settings",
    "identify": "with `--apply`: there is nothing that can be merged",
    "log": "`log check` found damage",
    "replay": "values differ by more than the tolerance",
    "run": "the loop died; after Ctrl-C or SIGTERM the exit code is 0",
    "safe": "the safe values could not be written to a device",
    "size": "none of the valves is sufficient",
    "status": "the server is offline",
    "test": "an expectation was not met",
}
"""Command -> meaning of its exit code 1."""
EXIT_CODES = (
    "0: done. 2: the request cannot be carried out, and standard error states why: a wrong option, a configuration "
    "with errors, a command that the server refused, no server. 1: the command did its work and found something, or "
    "a request for confirmation was declined:",
    "\n".join(f"- `hilserver {command}`: {meaning}" for command, meaning in FINDINGS.items()),
)
ENVIRONMENT = (
    ("`HILSERVER_BROKER`", "the broker, for commands to a running server: like their option `--broker`"),
    ("`XDG_CACHE_HOME`", "compiled programs are stored in its folder `hilserver/`; default: `~/.cache`"),
    (
        "`XDG_STATE_HOME`",
        "the key with which they are sealed is in its folder `hilserver/`; default: `~/.local/state`",
    ),
    ("`XDG_RUNTIME_DIR`", "running servers register in its folder `hilserver/`, where commands find them"),
    ("`PATH`", "search path for mosquitto, besides `/usr/sbin`"),
    ("`COMP_WORDS`, `_TYPER_COMPLETE_ARGS`, `_HILSERVER_COMPLETE`", "set by the shell when it completes a command"),
    ("`OPENBLAS_NUM_THREADS`", "threads of the linear algebra of NumPy and SciPy; default: 1, which is faster here"),
    ("`PYDANTIC_DISABLE_PLUGINS`", "whether Pydantic loads no plug-ins; default: 1 (none), which starts faster"),
    ("`NICEGUI_STORAGE_PATH`", "folder of the panel's framework; the panel stores nothing there"),
    ("`CACHE_DIRECTORY`", "of a service: compiled programs"),
    ("`STATE_DIRECTORY`", "of a service: the key with which they are sealed"),
    ("`LOGS_DIRECTORY`", "of a service: recordings, unless the rig file names a folder"),
    ("`RUNTIME_DIRECTORY`", "of a service: registration of running servers"),
    (
        "`HILSERVER_CIRCUIT_CODE`, `HILSERVER_CPU_LEVEL`",
        "`off`: runs without a clock use no [code compiled for a "
        "circuit](../real-time.md#code-for-one-circuit-alone); the level "
        "of the processor whose program is used, such as `x86-64-v2`; both for comparisons",
    ),
    (
        "`HILSERVER_REHEARSAL`",
        "`off`: servers [rehearse](../real-time.md#the-rehearsal) no ticks, whatever their rig files say; for many "
        "servers on one computer",
    ),
    ("`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`", "of a service: notification of systemd"),
    ("`JOURNAL_STREAM`", "of a service: messages are printed without a time, because the journal adds it"),
)


def command_text(name: str, command: Any) -> str:
    """Usage, what it does, arguments and options of one command."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join(f"{p.name.upper()}..." if p.nargs == -1 else p.name.upper() for p in arguments)
    text = re.sub(r"(?m)^\s+", "", inspect.cleandoc(command.help or "").replace("\n\n", "\0")).replace("\0", "\n\n")
    rows = [(f"`{p.name.upper()}`", cell(p.help or ""), "**required**" if p.required else "–") for p in arguments]
    for option in command.params:
        if option not in arguments:
            names = ", ".join(f"`{word}`" for word in (*option.opts, *option.secondary_opts))
            none = option.default is None or option.default is False
            also = f"; or in `{option.envvar}`" if option.envvar else ""
            rows.append((names, cell(option.help or "") + also, "–" if none else f"`{option.default}`"))
    return "\n\n".join(
        [fence("text", f"hilserver {name} [OPTIONS] {usage}".strip()), text, table(("", "meaning", "default"), rows)]
    )
