"""Commands of hilserver in processes that need not start Python and import hilserver first: copies of one that has.

That takes ``hilserver run`` a second of processor time, and the tests start more than a hundred of them. A process
of the tests has one *parent* for them, which has imported what `run` imports, has one thread, and forks; and another
one for the commands that serve a page.

What a command started here does not test: the start of the interpreter, the installed script, the order of the
imports, and what modules read of their surroundings while they are imported. Therefore a command is really started if
the variables that count then (`AT_IMPORT`: a library that stands for a driver's) are not those of the parent, if its
own folders on PYTHONPATH have a module that would be imported in place of one that the parent has, and where the test
says so (``really``). Everything else is its own: environment, folder, arguments, standard files, more modules on
PYTHONPATH, and the end of the interpreter with its exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

MAIN = "from hilserver.cli import main; main()"
COMMAND = (sys.executable, "-c", MAIN)
"""The command ``hilserver``; its arguments follow."""
AT_IMPORT = ("PYTHON", "LD_", "OPENBLAS_", "OMP_", "PYDANTIC_", "NUMBA_", "LANG", "LC_", "TZ")
"""Beginnings of the names of variables that the interpreter and libraries read when they are loaded."""
PAGES = ("panel", "view", "edit")
"""Commands that serve a page, and import much more than others."""
IMPORTED = (
    "concurrent.futures.thread",
    "hilserver.cli.run",
    "hilserver.realtime.process",
    "hilserver.realtime.simulated_device",
    "hilserver.record.recorder",
    "hilserver.service.margin_monitor",
    "hilserver.service.supervisor",
    "hilserver.client",
    "numpy.random",
)
IMPORTED_BY_PAGES = ("hilserver.editor.window", "hilserver.panel.web", "hilserver.viewer.page")
BY_THE_INTERPRETER = ("sitecustomize", "usercustomize")
"""Modules that it imports when it starts, if there are any."""
INITIAL = dict(os.environ)
"""The environment before any test has changed it."""
FORK_SAFE = "jemalloc_bg_thd"
"""A thread of pyarrow's memory allocator, which takes care of forks itself (pthread_atfork)."""
LONGEST = 1 << 20
PATIENCE = 5.0
"""Seconds for the orderly end of commands that a test which was killed has left behind."""


class Command:
    """A running command, as `subprocess.Popen` shows it, as far as tests use it."""

    def __init__(self, parent: _Parent, pid: int, stdout: IO[str] | None) -> None:
        self._parent = parent
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._ended = os.pidfd_open(pid)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal."""
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            os.close(self._ended)
            self.returncode = self._parent.ask({"ended": self.pid})
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # until then the number is its own
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[object],
    *,
    stdout: int | IO[Any] = subprocess.DEVNULL,
    stderr: int | IO[Any] = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    really: bool = False,
) -> Command | subprocess.Popen[str]:
    """Start ``hilserver arguments``; ``stdout`` may be `subprocess.PIPE`. It has no input."""
    words, own = [str(word) for word in arguments], dict(os.environ if environment is None else environment)
    more, pages = _more_folders(own), words[0] in PAGES
    others = _at_import(own) != _at_import(INITIAL)
    if really or others or more is None or not _parent(pages=pages).is_as_started(more):
        files: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr}
        return subprocess.Popen((*COMMAND, *words), cwd=folder, env=own, text=True, **files)
    request = {"arguments": words, "environment": own, "folder": str(folder or Path.cwd()), "path": more}
    with contextlib.ExitStack() as opened:
        null, reading = opened.enter_context(Path(os.devnull).open("r+b")), None
        named: dict[Any, IO[Any]] = {subprocess.DEVNULL: null}
        if stdout == subprocess.PIPE:
            ours, theirs = os.pipe()
            reading, named[subprocess.PIPE] = os.fdopen(ours), opened.enter_context(os.fdopen(theirs, "wb"))
        standard = [named.get(file, file) for file in (null, stdout, stderr)]
        numbers = [file if isinstance(file, int) else file.fileno() for file in standard]
        parent = _parent(pages=pages)
        return Command(parent, parent.ask(request, numbers), reading)


def _at_import(environment: Mapping[str, str]) -> dict[str, str]:
    counts = (name for name in environment if name.startswith(AT_IMPORT) and name != "PYTHONPATH")
    return {name: environment[name] for name in counts if environment[name]}


def _more_folders(environment: Mapping[str, str]) -> list[str] | None:
    """The folders on its PYTHONPATH before those of the parent; None if they are not just more."""
    given, initial = (variables.get("PYTHONPATH", "") for variables in (environment, INITIAL))
    more = [folder for folder in given.removesuffix(initial).split(os.pathsep) if folder]
    return more if given.endswith(initial) and all(map(os.path.isabs, more)) else None


class _Parent:
    """The process that has everything imported, and the way to it."""

    def __init__(self, *, pages: bool) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        code = f"from warm_start import fork_commands; fork_commands({theirs.fileno()}, pages={pages}); {MAIN}"
        # NiceGUI looks whether pytest runs, and would behave otherwise than for users
        environment = {name: value for name, value in INITIAL.items() if not name.startswith("PYTEST")}
        environment["PYTHONPATH"] = os.pathsep.join((str(Path(__file__).parent), INITIAL.get("PYTHONPATH", "")))
        if pages:  # as these commands do before they import NiceGUI
            environment["NICEGUI_STORAGE_PATH"] = tempfile.gettempdir()
        self._process = subprocess.Popen(
            (sys.executable, "-c", code), stdin=subprocess.DEVNULL, env=environment, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        self._channel = ours
        self._one_at_a_time = threading.Lock()
        atexit.register(self.end)

    def ask(self, request: Mapping[str, Any], files: Sequence[int] = ()) -> int:
        with self._one_at_a_time:
            socket.send_fds(self._channel, [json.dumps(request).encode()], list(files))
            return int(self._channel.recv(LONGEST))

    def is_as_started(self, more: list[str]) -> bool:
        """Whether with these folders on the path a process would have imported the same modules."""
        return not more or bool(self.ask({"hides nothing": more}))

    def end(self) -> None:
        self._channel.close()
        self._process.wait()


_parents: dict[bool, _Parent] = {}
_making = threading.Lock()


def _parent(*, pages: bool) -> _Parent:
    """The one of this process for these commands."""
    with _making:
        if pages not in _parents:
            _parents[pages] = _Parent(pages=pages)
        return _parents[pages]


# --- in the parent ---------------------------------------------------------------------------------------------------


def fork_commands(channel: int, *, pages: bool) -> None:
    """Fork a command for each request; returns only in these, which then call `hilserver.cli.main`.

    Ends with the process that asks, even if that is killed, and then ends what it has left behind.
    """
    sys.path.remove(str(Path(__file__).parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests and the commands
    for module in (*IMPORTED, *(IMPORTED_BY_PAGES if pages else ())):
        importlib.import_module(module)
    _read_a_rig()
    threads = {task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
    assert threads <= {"python", FORK_SAFE}, "a fork could find the locks of other threads held"
    gc.collect()
    gc.freeze()
    children: set[int] = set()
    asked = socket.socket(fileno=channel)
    while True:
        text, files, _, _ = socket.recv_fds(asked, LONGEST, 3)
        if not text:
            break
        request = json.loads(text)
        if (pid := request.get("ended")) is not None:
            children.remove(pid)
            answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        elif (more := request.get("hides nothing")) is not None:
            answer = int(not any(map(_hides_a_module, more)))
        else:
            if (answer := os.fork()) == 0:
                asked.close()
                return _become(request, files)
            children.add(answer)
        for file in files:
            os.close(file)
        asked.send(str(answer).encode())
    _end_all(children)
    os._exit(0)


def _hides_a_module(folder: str) -> bool:
    """Whether a folder has a module with the name of one that was imported from elsewhere."""
    for path in Path(folder).iterdir() if Path(folder).is_dir() else ():
        name = path.name.partition(".")[0]
        file = getattr(sys.modules.get(name), "__file__", None) or folder
        if name in BY_THE_INTERPRETER or not Path(file).is_relative_to(folder):
            return True
    return False


def _read_a_rig() -> None:
    """Read the rig of most tests, so that what a process keeps of the rigs that it has read is there in all."""
    from hilserver.circuit.catalogue import component_types
    from hilserver.compiler.programs import standard_program
    from hilserver.protocol.description import describe
    from hilserver.rig.build import load_rig
    from hilserver.tick.columns import unit_of_column

    demo = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"
    text = re.sub("^rate = .*", 'rate = "250 Hz"', demo.read_text(), flags=re.M)
    rig = load_rig(demo, texts={demo: text})
    unit_of_column("")
    component_types(rig.library)
    describe(rig.settings.name, "", channels={}, inputs={}, valves={})
    standard_program.cache_clear()  # each command looks itself where its program is


def _become(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Be as if started with these arguments, environment, folder and standard files."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 1 + max(int(entry.name) for entry in Path("/proc/self/fd").iterdir()))
    sys.stdin = os.fdopen(0, closefd=False)  # as the interpreter opens them
    sys.stdout = os.fdopen(1, "w", buffering=1 if os.isatty(1) else -1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[1:1] = request["path"]  # after the one of the command
    sys.argv = ["-c", *request["arguments"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_all(children: set[int]) -> None:
    """End these child processes, in good order if they can."""
    for number, patience in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, PATIENCE)):
        deadline = time.monotonic() + patience
        for pid in children:
            os.kill(pid, number)
        while children and time.monotonic() < deadline:
            children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
            time.sleep(0.01)
