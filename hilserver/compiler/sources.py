"""What a compiled program is made from, and where it is stored."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hilserver.compiler.private import flaw, require_private

PACKAGE = Path(__file__).parents[1]
COMPILED_FROM = ("numerics", "components", "mechanics", "circuit", "tick", "compiler")
"""Packages with the functions that are compiled, and with those that compile them."""
SOURCES = (".py", ".c", ".h")
"""Endings of their names."""
LOCK = "lock"
"""Name of the file in a folder of the cache whose lock a process holds while it writes there."""
SHIPPED = PACKAGE / "compiler" / "built"
"""Folder of the program in an installed package."""


@functools.cache
def fingerprint() -> str:
    """Hash of all sources of the prebuilt program: a program is used only with the sources it was compiled from."""
    found = hashlib.sha256()
    for package in COMPILED_FROM:
        files = (path for path in (PACKAGE / package).rglob("*") if path.suffix in SOURCES)
        for path in sorted(files):
            found.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def cache_root() -> Path:
    """Folder of compiled programs: $CACHE_DIRECTORY (systemd), otherwise hilserver in $XDG_CACHE_HOME or ~/.cache."""
    if folder := os.environ.get("CACHE_DIRECTORY"):
        return Path(folder.split(":")[0])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hilserver"


def cache_folder(name: str) -> Path:
    """The folder of this name in the cache; it need not exist.

    Raises HilserverError if another user may have written into it: it will contain code that is run.
    """
    root = writable(cache_root())
    require_private(root, root / name)
    return root / name


def state_folder() -> Path:
    """Folder of what must not be lost with the cache: $STATE_DIRECTORY (systemd), otherwise in ~/.local/state."""
    if folder := os.environ.get("STATE_DIRECTORY"):
        return writable(Path(folder.split(":")[0]))
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return writable(Path(state) / "hilserver")


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; it is released when the process ends, however it ends."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / LOCK).open("w")
        except (FileNotFoundError, FileExistsError):
            if is_other_than_folder(folder):
                raise
            continue  # removed in between
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if is_same_file(file.fileno(), folder / LOCK):  # not removed while this process has waited
                yield
                return


def is_same_file(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def is_other_than_folder(path: Path) -> bool:
    """Whether there is a file, or a link, at a path."""
    try:
        return not stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def writable(root: Path) -> Path:
    """The root if it can be written to, otherwise a private folder of this user under the temporary folder."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError:
        pass
    fallback = Path(tempfile.gettempdir()) / f"hilserver-cache-{os.getuid()}"
    try:
        fallback.mkdir(mode=0o700, exist_ok=True)
        if flaw(fallback, fallback) is None:
            return fallback
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="hilserver-cache-"))  # the other one is somebody else's
