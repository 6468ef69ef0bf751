"""Where the server of a chaos run lives: its terminal, the disk of its logs, and what others have in shared memory."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import termios
import threading
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from service_harness import Server, complaints, eventually
from warm_start import start

from hilserver.realtime.segment_folder import segment_path

SOMEBODY = 61234
"""Number of a user who has nothing to do with the test."""
IS_ROOT = os.geteuid() == 0
"""Only root can mount a disk, and give files away."""


class Terminal:
    """A terminal; what is written to it goes to a file, as long as it is read."""

    def __init__(self, file: Path) -> None:
        self._master, self.end = pty.openpty()
        tty.setraw(self.end)
        self._reads = threading.Event()
        self._reads.set()
        self._thread = threading.Thread(target=self._copy, args=(file,), daemon=True)
        self._thread.start()

    def _copy(self, file: Path) -> None:
        with file.open("wb", buffering=0) as out, contextlib.suppress(OSError):  # when nobody has it any more
            while text := os.read(self._master, 65536):
                out.write(text)
                self._reads.wait()

    def stop(self) -> None:
        """As Ctrl-S does."""
        termios.tcflow(self.end, termios.TCOOFF)

    def stop_reading(self) -> None:
        """As a hung connection does."""
        self._reads.clear()

    def go_on(self) -> None:
        """Take output again."""
        if self.end >= 0:
            termios.tcflow(self.end, termios.TCOON)
        self._reads.set()

    def close(self) -> None:
        """Take what is left."""
        self.go_on()
        os.close(self.end)
        self.end = -1
        self._thread.join(10.0)
        os.close(self._master)


class Disk:
    """A folder of logs on a disk of its own, which can be taken away; without root's rights it is always there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.inside = folder, folder.with_name("disk")
        for each in (self.folder, self.inside):
            each.mkdir(exist_ok=True)
        self._mounted = False

    def mount(self) -> None:
        if IS_ROOT and not self._mounted:
            subprocess.run(("mount", "--bind", str(self.inside), str(self.folder)), check=True)
            self._mounted = True

    def unmount(self) -> None:
        """Even while files on it are open."""
        if self._mounted:
            subprocess.run(("umount", "--lazy", str(self.folder)), check=True)
            self._mounted = False

    @contextlib.contextmanager
    def all_files(self) -> Iterator[tuple[Path, ...]]:
        """The folders in which all that was ever written can be found."""
        was_mounted = self._mounted
        self.unmount()
        yield self.folder, self.inside
        if was_mounted:
            self.mount()


class ChaosServer(Server):
    """A server with a terminal; the memory of one that was killed is left to the next one."""

    terminal: Terminal

    def launch(self) -> None:
        self.terminal = Terminal(self.errors)
        (self.notes / f"{self.name}.json").unlink(missing_ok=True)
        own = {"XDG_RUNTIME_DIR": str(self.folder), "PYTHONPATH": self.path}
        end, environment = self.terminal.end, {**os.environ, **own, **self.environment}
        self.process = start(("run", "--verbose", self.rig), stdout=end, stderr=end, environment=environment)
        self.pids = {"supervisor": self.process.pid}

    def __enter__(self) -> Self:
        self.launch()
        try:
            eventually((self.notes / f"{self.name}.json").exists)
        except AssertionError as error:
            self.close()
            raise AssertionError(f"the server did not start: {self.stderr}") from error
        self.read_note()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        if error[:1] in ((), (None,)):
            assert complaints(self.stderr, self.defects) == []

    def close(self) -> None:
        super().close()
        if self.terminal.end >= 0:
            self.terminal.close()

    @property
    def stderr(self) -> str:
        return self.errors.read_text(errors="replace") if self.errors.exists() else ""


@contextlib.contextmanager
def squatted(name: str) -> Iterator[None]:
    """Another user has shared memory of this name, open to everybody, all the time."""
    folder = segment_path(name).parent.with_name(f"hilserver-squatted-{os.getpid()}")
    if IS_ROOT:
        folder.mkdir()
        for path in (folder, folder / name, folder / f"{name}-rig"):
            path.touch()
            path.chmod(0o777)
            os.chown(path, SOMEBODY, -1)
    try:
        yield
    finally:
        for path in (*folder.glob("*"), *segment_path(name).parent.glob(f"{name}*")):
            path.unlink()
        if folder.exists():
            folder.rmdir()
