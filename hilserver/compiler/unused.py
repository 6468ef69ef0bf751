"""Removes from the cache what has not been used for long, also while other processes use and fill it.

A folder's last use is the time of its seal's file. It is removed under its lock, the seal first: a process sees either
a sealed folder or none, and one that has loaded its code keeps it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from hilserver.compiler.seal import SEAL, empty
from hilserver.compiler.sources import LOCK, is_same_file

KEPT_DAYS, KEPT_NUMBER = 30.0, 100
"""A folder is kept for this number of days after its last use, if it is one of this number that were used last."""


def note_use(folder: Path) -> None:
    """Note that a folder is used now, where it can be written."""
    with contextlib.suppress(OSError):
        os.utime(folder / SEAL)


def remove_unused(
    root: Path, prefix: str, keep: Path | None = None, number: int = KEPT_NUMBER, days: float = KEPT_DAYS
) -> list[str]:
    """Remove unused folders whose names begin with ``prefix``; the names of those that are gone.

    What another process is filling, or may not be removed, stays, and so does ``keep``, whatever the clock says. A link
    is not followed.
    """
    folders = [path for path in root.glob(f"{prefix}*/") if path != keep and not path.is_symlink()]
    newest_first = sorted(folders, key=_last_use, reverse=True)
    oldest = time.time() - 86400.0 * days
    unused = [path for k, path in enumerate(newest_first) if k >= number or _last_use(path) < oldest]
    return [path.name for path in unused if _removed(path, _last_use(path))]


def _last_use(folder: Path) -> float:
    """Seconds since the epoch; of a folder without a seal, which nothing uses, when it was filled."""
    for path in (folder / SEAL, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def _removed(folder: Path, last_use: float) -> bool:
    """Remove a folder, unless it is locked or has been used in the meantime."""
    try:
        with (folder / LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_same_file(file.fileno(), folder / LOCK) or _last_use(folder) != last_use:
                return False
            (folder / SEAL).unlink(missing_ok=True)
            empty(folder)
            (folder / LOCK).unlink()
            folder.rmdir()
    except OSError:
        return False
    return True
