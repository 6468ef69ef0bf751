"""Builds the program where it is missing, with a progress bar. Importing this module loads Numba."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hilserver.compiler.building import build
from hilserver.compiler.loading import FINGERPRINT_FILE, all_files_in, folder_in_cache, found_file
from hilserver.compiler.seal import SEAL, seal
from hilserver.compiler.sources import fingerprint, only_one


def fill(folder: Path) -> None:
    """Copy the program of the present sources into this folder, or build it there if there is none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    if (found := found_file()) is not None:
        if found.parent.resolve() != folder.resolve():
            for path in (*all_files_in(found.parent).values(), found.parent / FINGERPRINT_FILE):
                shutil.copy(path, folder)
    else:
        build_in(folder)


def build_in(folder: Path) -> None:
    """Build into this folder, and mark it as complete last."""
    console = Console(stderr=True)
    began = time.monotonic()
    for name in (FINGERPRINT_FILE, SEAL):
        (folder / name).unlink(missing_ok=True)
    parts = {name: path.with_suffix(".part") for name, path in all_files_in(folder).items()}
    columns = (TextColumn("Compiling hilserver, once for this version: {task.description:<16}"), BarColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        build(parts, lambda text, share: bar.update(task, description=text, completed=share))
    for name, path in all_files_in(folder).items():
        parts[name].replace(path)
    (folder / FINGERPRINT_FILE).write_text(fingerprint())
    console.print(f"Compiled hilserver in {time.monotonic() - began:.0f} s: {folder}")


def build_once() -> None:
    """Build into the cache, unless there is a program for the present sources; waits for a process that builds."""
    with only_one(folder_in_cache()):
        if found_file() is None:
            build_in(folder_in_cache())
            seal(folder_in_cache())
