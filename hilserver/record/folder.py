"""The logs in a folder: their names, the recordings, and which of them may be deleted."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from hilserver.record.cuts import FOLDER as CUTS
from hilserver.record.format import LogHeader, RecordError, run_stem
from hilserver.record.header import read_header, recording_number
from hilserver.record.notes import NOTES_SUFFIX
from hilserver.record.reader import ends_whole
from hilserver.record.writer import is_being_written
from hilserver.rig.recording_settings import KeepSettings

SUFFIX = ".arrow"


def new_log(folder: Path, rig: str, now: datetime) -> Path:
    """The path of a new log: ``<UTC>_<rig>.arrow``, with a number after the time if that name is taken.

    >>> new_log(Path("no such folder"), "lab", datetime(2026, 11, 21, 1, 17, 45)).name
    '2026-11-21T01-17-45_lab.arrow'
    """
    stamp = f"{now:%Y-%m-%dT%H-%M-%S}"
    number, free = 1, folder / f"{stamp}_{rig}{SUFFIX}"
    while free.exists():
        number += 1
        free = folder / f"{stamp}-{number}_{rig}{SUFFIX}"
    return free


@dataclass(frozen=True)
class LogFile:
    """A file of a rig's recordings; ``run`` is the common start of the names of all files of its recording, ``number``
    counts the recordings (`LogHeader`)."""

    path: Path
    run: str
    number: int
    part: int
    size: int
    modified: float


def files_of(folder: Path, rig: str) -> list[LogFile]:
    """The files of a rig's recordings, which are known by their names, the oldest first.

    Their order is that of the recordings' numbers, because a name shows the time of a clock that may be set back.
    Recordings without a number, of older versions or with damaged headers, have their place by the time of their last
    write, and among one another by their names.
    """
    name = re.compile(rf"(\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d)(-\d+)?_{re.escape(rig)}(\.\d{{3,}})?{re.escape(SUFFIX)}")
    named: dict[str, list[tuple[tuple[str, int, int], Path]]] = {}
    for path in folder.glob(f"*{SUFFIX}"):
        if match := name.fullmatch(path.name):
            stamp, again, part = match[1], int((match[2] or "-1")[1:]), int((match[3] or ".0")[1:])
            named.setdefault(run_stem(path, part), []).append(((stamp, again, part), path))
    runs: list[tuple[tuple[str, int, int], list[LogFile]]] = []
    for run, files in named.items():
        number, found = _number(path for _, path in sorted(files)), []
        for place, path in sorted(files):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                found.append(LogFile(path, run, number, place[-1], status.st_size, status.st_mtime))
        if found:
            runs.append((min(files)[0], found))
    return [file for files in _in_order(runs) for file in files]


def _in_order(runs: Sequence[tuple[tuple[str, int, int], list[LogFile]]]) -> list[list[LogFile]]:
    """Recordings in the order in which they were begun; each with what its name says of its time."""
    numbered = sorted((files for _, files in runs if files[0].number), key=lambda files: files[0].number)
    others = [files for _, files in sorted(runs, key=lambda run: run[0]) if not files[0].number]
    placed: list[tuple[int, int, list[LogFile]]] = [(place, 1, files) for place, files in enumerate(numbered)]
    for files in others:
        newer = (place for place, each in enumerate(numbered) if each[-1].modified > files[-1].modified)
        placed.append((next(newer, len(numbered)), 0, files))
    return [files for _, _, files in sorted(placed, key=lambda entry: entry[:2])]


def _number(files: Iterable[Path]) -> int:
    """The number of a recording: that of the first of its files that can be read; 0 if none can."""
    for path in files:
        with contextlib.suppress(RecordError):
            return recording_number(path)
    return 0


def next_number(folder: Path, rig: str) -> int:
    """The number of a new recording of the rig: one more than the largest in the folder."""
    return max((file.number for file in files_of(folder, rig)), default=0) + 1


def superfluous(files: Sequence[LogFile], keep: KeepSettings, now: float, running: Path | None) -> list[LogFile]:
    """The files that exceed what is to be kept: the oldest ones, and none that is newer than one that stays.

    ``files`` as `files_of` gives them, ``now`` in Unix time. ``running`` is the file that is being written: all files
    of its recording stay, or it alone, as ``keep`` says.
    """
    recording = next((file.run for file in files if file.path == running), None)
    rest, size = len(files), sum(file.size for file in files)
    for place, file in enumerate(files):
        stays = file.run == recording if keep.running else file.path == running
        is_old = keep.age is not None and now - file.modified > keep.age
        is_large = keep.gigabytes is not None and size > keep.gigabytes * 1e9
        is_many = keep.files is not None and rest > keep.files
        if stays or not (is_old or is_large or is_many):
            return list(files[:place])
        rest, size = rest - 1, size - file.size
    return list(files)


def remove_files(files: Sequence[LogFile], unwanted: Sequence[LogFile]) -> list[LogFile]:
    """Remove the ``unwanted`` of these files in their order, and with the last file of a recording its notes.

    Returns the removed ones: it stops at a file that is being written, by the recorder of a server that was killed.
    """
    gone: list[LogFile] = []
    left = Counter(file.run for file in files)
    for file in unwanted:
        if is_being_written(file.path):
            break
        file.path.unlink()
        gone.append(file)
        left[file.run] -= 1
        if not left[file.run]:
            file.path.with_name(f"{file.run}{SUFFIX}{NOTES_SUFFIX}").unlink(missing_ok=True)
    return gone


@dataclass(frozen=True)
class StoredRecording:
    """A recording in a folder: its files, the header of the first, and its state or why it can't be read.

    ``cuts`` are the triggered recordings that were taken from it (`hilserver.record.cuts`).
    """

    files: tuple[Path, ...]
    size: int
    modified: float
    header: LogHeader | None
    state: str
    cuts: tuple[StoredRecording, ...] = ()

    @property
    def trigger(self) -> str:
        """The name of the trigger of a cut; empty for any other recording."""
        return str(self.header.extra.get("cut", {}).get("trigger", "")) if self.header else ""

    def name_in(self, folder: Path) -> str:
        """Its name in a folder: that of its first file, with that of the folder of the cuts in front of a cut's."""
        return self.files[0].relative_to(folder).as_posix()


def recordings(folder: Path) -> list[StoredRecording]:
    """The recordings in a folder, by name, each with its cuts. Only headers and ends are read; `check_log` reads all.

    Cuts of recordings that are no longer there come first. Raises `RecordError` if the folder can't be read.
    """
    if not folder.is_dir():
        raise RecordError(folder, "is not a folder.")
    found, cuts = _recordings(folder), _recordings(folder / CUTS)
    places = {path.name: place for place, recorded in enumerate(found) for path in recorded.files}
    lone: list[StoredRecording] = []
    taken: list[list[StoredRecording]] = [[] for _ in found]
    for cut in cuts:
        place = places.get(cut.header.previous) if cut.header else None
        (lone if place is None else taken[place]).append(cut)
    return [*lone, *(replace(recorded, cuts=tuple(own)) for recorded, own in zip(found, taken, strict=True))]


def _recordings(folder: Path) -> list[StoredRecording]:
    """The recordings in this folder alone, by name; none if there is no such folder."""
    runs: dict[str, list[tuple[int, Path, LogHeader | str]]] = {}
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            header = read_header(path)
            runs.setdefault(run_stem(path, header.part), []).append((header.part, path, header))
        except RecordError as error:
            runs.setdefault(path.stem, []).append((0, path, error.reason))
    found = []
    for name in sorted(runs):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile, as a server removes its oldest files
            found.append(_recorded(sorted(runs[name], key=lambda file: file[0])))
    return found


def _recorded(files: Sequence[tuple[int, Path, LogHeader | str]]) -> StoredRecording:
    paths = tuple(path for _, path, _ in files)
    status = [path.stat() for path in paths]
    header, last = files[0][2], paths[-1]
    if isinstance(header, str):
        state = header
    elif is_being_written(last):
        state = "being written"
    elif not ends_whole(last):
        state = "no end mark"
    else:
        state = "ended"
    known = None if isinstance(header, str) else header
    return StoredRecording(paths, sum(s.st_size for s in status), max(s.st_mtime for s in status), known, state)
