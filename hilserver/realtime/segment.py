"""A segment of shared memory: a memory-mapped file that belongs to the process that created it.

Its contents require that stores become visible, and loads are made, in program order. x86-64 guarantees that (Intel SDM
vol. 3, chapter "Memory Ordering"; also for the string operations of memcpy relative to stores before and after them).
ARM does not, so other machines are refused. An aligned int64 is stored and loaded as a whole.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
from pathlib import Path
from typing import Self

from hilserver.errors import HilserverError

LINE = 64
"""Bytes of a cache line: counters written by different processes don't share one."""

_MAGIC = int.from_bytes(b"hilserve", "little")
_VERSION = 2


class SharedMemoryError(HilserverError):
    """Shared memory that can't be created or attached; names the file and the process that holds it, if any."""


def segment_path(name: str, directory: Path = Path("/dev/shm")) -> Path:
    """The file of the segment of the rig `name`."""
    return directory / f"hilserver-{name}"


class Segment:
    """A memory-mapped file that lives as long as its owner, the process that created it.

    `buffer` is the usable memory, `shape` up to four numbers that tell an attaching process how it is laid out.
    Ownership is a kernel lock on the file, which is released when the owner ends, however it ends. (A process that the
    owner forks without exec holds the lock too, as long as it lives.)
    """

    _HEADER = 64
    _MAGIC_AT, _VERSION_AT, _SIZE_AT, _OWNER_AT, _SHAPE_AT = range(5)

    def __init__(self, path: Path, memory: mmap.mmap, status: os.stat_result, *, owned: bool) -> None:
        whole = memoryview(memory)
        self.path = path
        self.buffer = whole[self._HEADER :]
        self._header = whole[: self._HEADER].cast("q")
        self._status = status
        self._owned = owned

    @classmethod
    def create(cls, path: str | Path, size: int, shape: tuple[int, ...] = ()) -> Self:
        """A zeroed segment of `size` usable bytes, mode 0600; replaces the one of an owner that died.

        Raises SharedMemoryError if its owner lives, if the file is something else, or if there is no room.
        """
        _require_x86_64()
        path, total = Path(path), cls._HEADER + size
        handle = _claim(path)
        try:
            os.posix_fallocate(handle, 0, total)  # a full /dev/shm is an error here, not a crash at the first write
            segment = cls(path, _mapped(handle, total), os.fstat(handle), owned=True)
        except OSError as error:
            path.unlink()
            raise SharedMemoryError(f"{path}: {total / 1e6:.1f} MB of shared memory: {error.strerror}.") from error
        finally:
            os.close(handle)  # the mapping keeps the file, and the lock, open
        header = segment._header
        for at, number in enumerate(shape, cls._SHAPE_AT):
            header[at] = number
        header[cls._OWNER_AT] = os.getpid()
        header[cls._SIZE_AT] = total
        header[cls._VERSION_AT] = _VERSION
        header[cls._MAGIC_AT] = _MAGIC  # last: the segment is ready
        return segment

    @classmethod
    def attach(cls, path: str | Path) -> Self:
        """Map an existing segment, even if its owner has died.

        Raises SharedMemoryError if there is none, or it is not one, or of another version.
        """
        _require_x86_64()
        path = Path(path)
        handle = _open(path)
        try:
            status = os.fstat(handle)
            if status.st_size < cls._HEADER:
                raise SharedMemoryError(f"{path}: not (yet) a shared memory of hilserver: {status.st_size} bytes.")
            segment = cls(path, _mapped(handle, status.st_size), status, owned=False)
        finally:
            os.close(handle)
        header = segment._header
        if header[cls._MAGIC_AT] != _MAGIC:
            raise SharedMemoryError(f"{path}: not (yet) a shared memory of hilserver.")
        if header[cls._VERSION_AT] != _VERSION:
            raise SharedMemoryError(
                f"{path}: layout version {header[cls._VERSION_AT]}, this hilserver has {_VERSION}."
                " Restart all its processes."
            )
        if header[cls._SIZE_AT] != status.st_size:
            raise SharedMemoryError(f"{path}: {status.st_size} bytes, its header states {header[cls._SIZE_AT]}.")
        return segment

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The numbers given at creation, filled up with zeros."""
        a, b, c, d = self._header[self._SHAPE_AT :]
        return a, b, c, d

    @property
    def owner_pid(self) -> int:
        """The process that created the segment."""
        return self._header[self._OWNER_AT]

    def close(self) -> None:
        """Remove the file, if this process created it.

        Views stay valid: the memory goes with the last of them, in whichever process.
        """
        if self._owned and _is_file(self.path, self._status):
            self.path.unlink()
        self._owned = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def lines(size: int) -> int:
    """Bytes: ``size`` rounded up to whole cache lines."""
    return -(-size // LINE) * LINE


def _require_x86_64() -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        raise SharedMemoryError(
            f"Shared memory of hilserver relies on the store order of x86-64; this machine is {platform.machine()}."
        )


def _mapped(handle: int, size: int) -> mmap.mmap:
    return mmap.mmap(handle, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)  # populated: no page fault in the loop


def _is_file(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), status)
    except FileNotFoundError:
        return False


def _claim(path: Path) -> int:
    """An open, empty file at `path`, locked by this process.

    Only the holder of the lock on the file that is *now* at `path` may remove it, so that two processes can't both take
    over a stale file.
    """
    while True:
        handle = _open(path, os.O_CREAT)
        claimed = False
        try:
            _lock(path, handle)
            status = os.fstat(handle)
            if not _is_file(path, status):
                continue  # another process has removed it since we opened it
            claimed = status.st_size == 0
            if claimed:
                os.fchmod(handle, 0o600)
                return handle
            path.unlink()  # its owner is dead; processes still attached keep their memory
        finally:
            if not claimed:
                os.close(handle)


def _open(path: Path, flags: int = 0) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600)
    except FileNotFoundError as error:
        missing = "no such folder." if flags & os.O_CREAT else "no such shared memory. Is hilserver running?"
        raise SharedMemoryError(f"{path}: {missing}") from error
    except OSError as error:
        raise SharedMemoryError(f"{path}: {error.strerror}.") from error


def _lock(path: Path, handle: int) -> None:
    if _number(handle, Segment._MAGIC_AT) not in (0, _MAGIC):  # 0: not ready, or its creator died before it was
        raise SharedMemoryError(f"{path}: exists and is not a shared memory of hilserver. Move it away.")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = _number(handle, Segment._OWNER_AT) or "(just starting)"
        raise SharedMemoryError(f"{path}: in use by process {owner}. Is hilserver running already?") from error


def _number(handle: int, at: int) -> int:
    return int.from_bytes(os.pread(handle, 8, 8 * at), "little")
