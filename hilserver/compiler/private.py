"""Whether machine code in a folder is safe to run: nobody but its user and root may have written it.

Whoever can write into the cache runs programs as the user of hilserver. Root can do that anyway.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from hilserver.errors import HilserverError

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH


def require_private(root: Path, folder: Path) -> None:
    """Raise HilserverError if another user may have written into this folder of the cache, or be able to."""
    if (found := flaw(root, folder)) is not None:
        raise HilserverError(
            f"{found}. The cache contains machine code: nothing in it is used. Remove {root}, or choose another folder "
            "with XDG_CACHE_HOME (in a systemd unit: CacheDirectory)."
        )


def flaw(root: Path, folder: Path) -> str | None:
    """Why the cache below ``root`` is not safe to use, as far as this folder is concerned; None if it is.

    ``folder``: in the cache, or the cache itself; with everything in it. It need not exist.
    """
    for parent in root.absolute().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"{root}: everybody can replace this folder, because {parent} is {stat.filemode(mode)}"
    enclosed = not root.stat().st_mode & OTHERS_ENTER  # then the modes of what is in it do not matter
    for path in dict.fromkeys((root, *_contents(folder))):
        try:
            status = path.lstat()
        except FileNotFoundError:  # a file of a process that is just writing, which has been renamed since
            continue
        if status.st_uid not in (os.geteuid(), 0):
            return f"{path}: belongs to another user (number {status.st_uid})"
        if stat.S_ISLNK(status.st_mode):
            return f"{path}: is a link"
        if status.st_mode & OTHERS_WRITE and (path == root or not enclosed):
            return f"{path}: other users can write to it ({stat.filemode(status.st_mode)})"
    return None


def _contents(folder: Path) -> Iterator[Path]:
    """A folder and all that is in it, as far as it exists."""
    if not folder.is_symlink() and not folder.exists():
        return
    yield folder
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(place, name)
