"""Notes on a recording: words of a person at a time of it, in a file beside the log.

A log is only ever appended to, and sealed with checksums; so later notes are stored beside it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from hilserver.errors import ConfigurationError, HilserverError, problems_of
from hilserver.record.format import RecordError, run_stem
from hilserver.record.header import read_header
from hilserver.toml import read_plain_toml, replace_file

NOTES_SUFFIX = ".notes.toml"
MOST_NOTES = 10_000
"""Notes on a recording."""
PATIENCE = 5.0
"""Seconds to wait for another program that changes notes of the same folder."""
ARROW = ".arrow"


class LogNote(BaseModel):
    """A note at a time of the log, s. ``written``: when, UTC, ISO 8601; ``author``: by whom; both may be empty."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    time: float
    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
    author: Annotated[str, StringConstraints(strip_whitespace=True, max_length=60)] = ""
    written: Annotated[str, StringConstraints(max_length=60)] = ""

    @property
    def line(self) -> str:
        """Text and author in a line.

        >>> LogNote(time=1.5, text=" too early ", author="Anna").line
        'too early (Anna)'
        """
        text = " ".join(self.text.split())
        return f"{text} ({self.author})" if self.author else text


class NoteFile(BaseModel):
    """The file of notes. ``recording``: when the recording was begun, as its header says; empty for other formats."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recording: str = ""
    notes: Annotated[tuple[LogNote, ...], Field(max_length=MOST_NOTES)] = ()


def notes_path(log: Path) -> Path:
    """The file of the notes on a log: one for all files of a long recording.

    >>> notes_path(Path("logs/press.csv")).as_posix()
    'logs/press.csv.notes.toml'
    """
    stem = run_stem(log, read_header(log).part) if log.suffix == ARROW else log.stem
    return log.with_name(f"{stem}{log.suffix}{NOTES_SUFFIX}")


def read_notes(log: Path) -> tuple[LogNote, ...]:
    """The notes on a log in the order of time; none if there is no file of notes.

    Raises `HilserverError` if that can't be read, or belongs to another recording.
    """
    return _read(log, notes_path(log))


def change_note(log: Path, old: LogNote | None, new: LogNote | None) -> tuple[LogNote, ...]:
    """Replace a note by another: without ``old`` it is added, without ``new`` removed. Returns all notes.

    Raises `HilserverError` if the old one is not there any more, as somebody else has changed it, if the file can't
    be read or written, or if another program has been changing notes for `PATIENCE`; nothing is changed then.
    """
    file = notes_path(log)
    with _alone(file.parent):
        notes = list(_read(log, file))
        if old is not None:
            if old not in notes:
                raise RecordError(file, "this note has been changed or removed by somebody else in the meantime.")
            notes.remove(old)
        if new is not None:
            notes.append(new)
        if len(notes) > MOST_NOTES:
            raise RecordError(file, f"has {MOST_NOTES} notes already.")
        notes.sort(key=lambda note: note.time)
        replace_file(file, _text(log, notes))
    return tuple(notes)


def as_event(note: LogNote) -> dict[str, Any]:
    """A note as an event of an exported log."""
    return {"kind": "note", **note.model_dump(exclude_defaults=True)}


def _read(log: Path, file: Path) -> tuple[LogNote, ...]:
    if not file.exists():
        return ()
    table = read_plain_toml(file)
    try:
        found = NoteFile.model_validate(table)
    except ValidationError as error:
        raise ConfigurationError(problems_of(error, table, file=str(file), names=NoteFile.model_fields)) from None
    begun = _begun(log)
    if found.recording != begun:
        raise RecordError(
            file,
            f"belongs to a recording begun at {found.recording or 'an unknown time'}, not to {log.name}, begun at "
            f"{begun or 'an unknown time'}: move it away, or correct its key recording.",
        )
    return tuple(sorted(found.notes, key=lambda note: note.time))


def _begun(log: Path) -> str:
    return read_header(log).started if log.suffix == ARROW else ""


def _text(log: Path, notes: Sequence[LogNote]) -> str:
    file = NoteFile(recording=_begun(log), notes=tuple(notes))
    written = tomlkit.dumps(file.model_dump(exclude_defaults=True))
    return f"# Notes on {log.name}; time in seconds, as in the log\n\n{written}"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other program changes notes of this folder meanwhile. The lock is on the folder: it leaves no file behind.

    Some network file systems have no locks; there, of two notes that are kept at the same moment, one may be lost.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise HilserverError(f"{folder}: can't be opened: {error.strerror}.") from error
    try:
        with suppress(OSError):
            _lock(handle, folder)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise HilserverError(
                    f"{folder}: another program is changing notes of this folder: try again."
                ) from None
            time.sleep(0.01)
        else:
            return
