"""The place of the shared memory of a user's rigs: a private folder in /dev/shm, which nobody else can deny them.

/dev/shm belongs to all users, so that any name in it can be taken by another one. A folder is therefore recognised by
its owner, not by its name; and where a name is taken, the next one is used.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from hilserver.errors import HilserverError

SHARED = Path("/dev/shm")


def segment_path(name: str, shared: Path = SHARED) -> Path:
    """The file of the segment ``name`` of this user; its folder is made where there is none yet."""
    return _own_folder(shared) / name


def find_segment(name: str, shared: Path = SHARED) -> Path:
    """The same, for attaching: root also finds those of other users (a rig's service)."""
    own = segment_path(name, shared)
    if own.exists() or os.geteuid() != 0:
        return own
    return next(iter(_of_others(name, shared)), own)


def other_users(name: str, shared: Path = SHARED) -> list[str]:
    """Who else has a segment of this name, as far as can be seen."""
    return [user_name(path.lstat().st_uid) for path in _of_others(name, shared)]


def user_name(number: int) -> str:
    """A user in words."""
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


def _own_folder(shared: Path) -> Path:
    """This user's folder. Its mode lets others see whether they run the same rig, and nothing else."""
    for path in _folders(shared):
        if _is_own(path):
            return path
    for number in itertools.count():
        path = shared / (f"hilserver-{os.geteuid()}" + (f".{number}" if number else ""))
        try:
            path.mkdir(mode=0o711)
        except FileExistsError:
            if not _is_own(path):
                continue
        except OSError as error:
            raise HilserverError(f"{path}: {error.strerror}.") from error
        return path
    raise AssertionError("unreachable")


def _folders(shared: Path) -> list[Path]:
    return sorted(shared.glob("hilserver-*"))


def _of_others(name: str, shared: Path) -> Iterator[Path]:
    for folder in _folders(shared):
        with contextlib.suppress(OSError):  # gone meanwhile, or not a folder that others may look into
            if not _is_own(folder) and stat.S_ISREG((folder / name).lstat().st_mode):
                yield folder / name


def _is_own(path: Path) -> bool:
    """Whether it is a folder (not a link to one) of this user, in which nobody else can put anything."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
