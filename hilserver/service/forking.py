"""Child processes forked by ``hilserver run`` before it loads its own modules: they need not import the same again.

To import NumPy, Pydantic and hilserver takes each process about 0.2 s of processor time. This module imports nothing
that the real-time process does not need: what is loaded before a fork stays in its memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import NamedTuple, NoReturn

LOADED_BY_ALL = "hilserver.realtime.process"
"""Module of the real-time process. All that it imports is also needed by the simulated device and the recorder."""
USUAL_CHILDREN = (LOADED_BY_ALL, "hilserver.realtime.simulated_device", "hilserver.record.recorder")
"""Modules of the child processes of most runs."""
OF_SERVICE_MANAGER = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables by which systemd says how the supervisor, and nobody else, is to notify it."""


class Forked(NamedTuple):
    """A forked process, and the ends of the pipes to its standard input, output and error."""

    pid: int
    stdin: int
    stdout: int
    stderr: int


def fork_usual_children() -> dict[str, Forked]:
    """Fork a process of each usual module; it waits for its arguments on its standard input.

    Nothing if this process has other threads, because a fork could find their locks held.
    """
    importlib.import_module(LOADED_BY_ALL)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        return {}
    return {module: fork(module) for module in USUAL_CHILDREN}


def fork(module: str) -> Forked:
    """Fork a process that is like ``python -m module`` without arguments, but calls the module's ``main``."""
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    ours_error, theirs_error = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(module, theirs_in, theirs_out, theirs_error)
    for descriptor in (theirs_in, theirs_out, theirs_error):
        os.close(descriptor)
    return Forked(pid, ours_in, ours_out, ours_error)


def _become(module: str, *standard: int) -> NoReturn:
    """Be a process of this module, in a separate session, so that Ctrl-C reaches the supervisor only."""
    code: object = 1
    try:
        os.setsid()
        for name in OF_SERVICE_MANAGER:
            os.environ.pop(name, None)
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
        # The other children's pipes among them: they must end with the supervisor.
        os.closerange(3, 1 + max(int(file.name) for file in Path("/proc/self/fd").iterdir()))
        sys.argv, sys.stdout, sys.stderr = [module], os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        _call_itself(f"python\0-m\0{module}")
        code = importlib.import_module(module).main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    os._exit(code if isinstance(code, int) else 1 if code else 0)


def _call_itself(command: str) -> None:
    """Let ``ps`` and ``pgrep -f`` show this command line, in the memory of the one with which hilserver was started."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end in proc(5)
    text = command.encode()[: max(end - start - 1, 0)]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
    with contextlib.suppress(OSError):  # so that ``pkill hilserver`` ends the supervisor, which ends the rest
        Path("/proc/self/comm").write_text("python")
