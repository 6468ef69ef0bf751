"""Seals what hilserver has written into the cache: a folder with programs is used only as it was sealed.

Owner and mode (private.py) keep other users out. They say nothing of files that came with the rights of this user: from
an archive, a backup or another machine, or damaged on the disk. The seal is an HMAC-SHA256 over all files of a folder,
with a key that is kept outside of the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from hilserver.compiler.sources import LOCK, only_one, state_folder
from hilserver.errors import HilserverError

SEAL, KEY = "seal", "cache.key"


@contextlib.contextmanager
def sealed(folder: Path) -> Iterator[None]:
    """Use a folder of the cache, alone: what is in it was sealed, and what is in it at the end is sealed again.

    What is not sealed, because a process was killed while it wrote, is removed first. Raises HilserverError if the
    files are not those that were sealed.
    """
    with only_one(folder):
        if is_sealed(folder):
            require_seal(folder)
            (folder / SEAL).unlink()
        else:
            empty(folder)
        yield
        seal(folder)


def fill_once(folder: Path, fill: Callable[[Path], object]) -> None:
    """Fill a folder of the cache and seal it, unless that has been done; waits for a process that is doing it.

    Unlike in `sealed`, what is sealed stays as it is, so that other processes can use it at any time. Raises
    HilserverError if the files are not those that were sealed.
    """
    with only_one(folder):
        if is_sealed(folder):
            require_seal(folder)
            return
        empty(folder)
        fill(folder)
        seal(folder)


def seal(folder: Path) -> None:
    """Seal all files that are in a folder now."""
    part = folder / f"{SEAL}.part"
    part.write_text(_mark_of(folder))
    part.replace(folder / SEAL)


def is_sealed(folder: Path) -> bool:
    """Whether a folder has a seal, right or wrong."""
    return (folder / SEAL).exists()


def require_seal(folder: Path) -> None:
    """Raise HilserverError if the files in a folder are not those that were sealed with this user's key."""
    if (found := broken(folder)) is not None:
        raise HilserverError(f"{found}. Nothing in it is used. Remove {folder}: it is filled again.")


def broken(folder: Path) -> str | None:
    """Why a seal is not right; None where it is."""
    try:
        written = (folder / SEAL).read_text(errors="replace")
        is_right = hmac.compare_digest(written.encode(), _mark_of(folder).encode())
    except FileNotFoundError:
        if is_sealed(folder):
            raise
        return None  # a process is just using it, or has just removed it
    if is_right or not is_sealed(folder):
        return None
    return (
        f"{folder}: contains machine code that hilserver has not written here, or that has changed since "
        f"(or the key in {state_folder()} is another one)"
    )


def broken_in(root: Path) -> str | None:
    """The same for all folders of a cache, and for the key itself."""
    seals = sorted(root.glob(f"*/{SEAL}"))
    try:
        return next((found for path in seals if (found := broken(path.parent)) is not None), None)
    except HilserverError as error:
        return str(error)


def mark(text: str) -> str:
    """A mark that only hilserver of this user can make for this text."""
    return hmac.new(_key(), text.encode(), hashlib.sha256).hexdigest()


def _mark_of(folder: Path) -> str:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_ours(path.relative_to(folder)))
    lines = [f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in paths]
    return mark("\n".join([folder.name, *lines]))


def _is_ours(path: Path) -> bool:
    return str(path) in (SEAL, f"{SEAL}.part", LOCK)


def empty(folder: Path) -> None:
    """Remove all that is in a folder, except for the file of its lock."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def _key() -> bytes:
    """This user's key, made at its first use. Raises HilserverError if others can read or write it."""
    path = state_folder() / KEY
    if not path.exists():
        part = path.with_name(f"{KEY}.{os.getpid()}.part")
        with contextlib.suppress(FileExistsError), os.fdopen(_new(part), "wb") as file:
            file.write(secrets.token_bytes(32))
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(part, path)
        part.unlink()
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise HilserverError(f"{path}: is not private ({stat.filemode(status.st_mode)}). Remove it.")
        return file.read()


def _new(path: Path) -> int:
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
