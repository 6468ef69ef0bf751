"""Rigs packed for the runner, and the runner itself, as the build has made it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hilserver.compiler.loading import RUNNER
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.runner.pack import write_rig

ROOT = Path(__file__).parents[2]


def rig_named(rig: Rig, name: str) -> Rig:
    """The same rig under a name of the test's own."""
    return replace(rig, settings=rig.settings.model_copy(update={"name": f"{name}_{os.getpid()}"}))


def demo(name: str = "runner_demo") -> Rig:
    """The demo's rig."""
    return rig_named(load_rig(ROOT / "config/rigs/demo.toml"), name)


class Packed:
    """A rig in a folder, and what the runner does with it."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self.folder = rig, folder
        write_rig(rig, folder)

    def command(self, *options: object) -> list[str]:
        return [str(self.folder / RUNNER), str(self.folder), *map(str, options)]

    def run(self, *options: object) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(self.command(*options), capture_output=True, text=True, timeout=60)

    def done(self, *options: object) -> dict[str, Any]:
        """Run it to its end, without an error; the last line that it prints."""
        done = self.run(*options)
        assert done.returncode == 0, done.stderr
        return last_line(done.stdout)

    def refusal(self, *options: object) -> str:
        """Run it to its end, which is an error; the message."""
        done = self.run(*options)
        assert done.returncode in (1, 2), (done.returncode, done.stderr)
        assert done.stderr.startswith("hilserver-runner: ")
        return done.stderr

    @contextlib.contextmanager
    def running(self, *options: object) -> Iterator[subprocess.Popen[str]]:
        """The rig runs in real time."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(self.command(*options), stdout=pipe, stderr=pipe, text=True)
        try:
            for _ in range(500):
                if process.poll() is not None or self.run("--status").returncode == 0:
                    break
                time.sleep(0.01)
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=30)


def last_line(text: str) -> dict[str, Any]:
    """The last line of an output, which is a JSON object."""
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found
