"""The studies whose results are in a folder: what each has last stated of itself, and whether it still runs.

A study keeps a small file beside its results (``NAME.study.json``), and holds a lock on its unfinished table while it
runs: the lock is released however its process ends.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict, ValidationError

from hilserver.errors import HilserverError

STATE, UNFINISHED, TABLE, PAGE = ".study.json", ".part.arrows", ".parquet", ".html"
"""Endings of the files of a study: what it states, its table while it runs and afterwards, and its page."""
LONGEST = 100_000
"""Bytes of such a statement that are read."""


class StudyState(BaseModel):
    """What a study states of itself: runs of the plan, ``done``, ``failed``; begin of the call and of this statement.

    ``began``, ``written``: Unix time, s; ``remaining``: s, None before the first runs are done.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    description: str
    runs: int
    done: int
    failed: int
    began: float
    written: float
    remaining: float | None = None
    finished: bool = False


@dataclass(frozen=True)
class StoredStudy:
    """A study in a folder: its name and what it has stated last; None if that can't be read.

    ``page``, ``table``: of this study, as far as they are written; ``is_running``: a process is at work on it.
    """

    name: str
    state: StudyState | None
    is_running: bool
    page: Path | None
    table: Path | None


def state_file(stem: Path) -> Path:
    """The file in which the study with these results states where it is."""
    return stem.with_name(f"{stem.name}{STATE}")


def write_state(stem: Path, state: StudyState) -> None:
    """Write it so that a reader finds the old or the new one. Raises HilserverError."""
    file = state_file(stem)
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_text(state.model_dump_json(indent=1) + "\n", encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise HilserverError(f"{file}: can't be written: {error.strerror or error}.") from error


def lock(file: BinaryIO) -> bool:
    """Take the lock of an open file for this process; False if another one has it."""
    return _locked(file, fcntl.LOCK_EX)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file; not if there is no such file."""
    try:
        with path.open("rb") as file:
            return not _locked(file, fcntl.LOCK_SH)
    except OSError:  # there is none, or its file system has no locks
        return False


def _locked(file: BinaryIO, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def studies_in(folder: Path) -> list[StoredStudy]:
    """The studies whose results are in a folder, the latest first; none if there is no such folder.

    Raises HilserverError if the folder can't be read.
    """
    try:
        found = list(_studies(folder)) if folder.is_dir() else []
    except OSError as error:
        raise HilserverError(f"{folder}: can't be read: {error.strerror or error}.") from error
    return sorted(found, key=lambda each: (each.state.written if each.state else 0.0, each.name), reverse=True)


def _studies(folder: Path) -> Iterator[StoredStudy]:
    for file in folder.iterdir():
        if not file.name.endswith(STATE) or not file.is_file():
            continue
        name, state = file.name.removesuffix(STATE), _read(file)
        is_running = is_locked(folder / f"{name}{UNFINISHED}")
        ended = state is not None and state.finished and not is_running
        files = {end: folder / f"{name}{end}" for end in (PAGE, TABLE)}
        own = {end: path for end, path in files.items() if ended and _is_of(path, state)}
        yield StoredStudy(name, state, is_running, own.get(PAGE), own.get(TABLE))


def _read(file: Path) -> StudyState | None:
    try:
        with file.open("rb") as source:
            return StudyState.model_validate_json(source.read(LONGEST))
    except (OSError, ValidationError):
        return None


def _is_of(path: Path, state: StudyState | None) -> bool:
    """Whether a file was written by the study that states this: not one of an earlier study of the same name."""
    return state is not None and path.is_file() and path.stat().st_mtime >= state.began - 1.0
