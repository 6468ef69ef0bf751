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
import stat
from pathlib import Path
from typing import Self

from hilserver.errors import HilserverError
from hilserver.realtime.segment_folder import user_name

LINE = 64
"""Bytes of a cache line: counters written by different processes don't share one."""

UNMAP_EVERY = 1.0
"""Seconds after which a process that reads at leisure unmaps what it has read."""

_MAGIC = int.from_bytes(b"hilserve", "little")
_VERSION = 3
_NOT_OURS = "{}: exists and is not a shared memory of hilserver. Move it away."


class SharedMemoryError(HilserverError):
    """Shared memory that can't be created or attached; names the file and the process that holds it, if any."""


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
        self._memory = memory
        self._status = status
        self._owned = owned

    @classmethod
    def create(cls, path: str | Path, size: int, shape: tuple[int, ...] = ()) -> Self:
        """A zeroed segment of `size` usable bytes, mode 0600; replaces the one of an owner that died.

        Raises SharedMemoryError if its owner lives, if the file is another user's or something else, or if there is no
        room.
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

        Raises SharedMemoryError if the file does not exist or is no segment, if its version is another one, if it
        belongs to another user (root may attach to any), or if others can access it.
        """
        _require_x86_64()
        path = Path(path)
        try:
            handle = _open(path)
        except FileNotFoundError as error:
            raise SharedMemoryError(f"{path}: no such shared memory. Is hilserver running?") from error
        try:
            status = os.fstat(handle)
            _require_private(path, status)
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

    def unmap(self) -> None:
        """Drop the segment from the resident memory of this process: its contents stay, and are mapped where needed.

        For a process that reads at leisure. All that it ever read would count as its memory otherwise.
        """
        self._memory.madvise(mmap.MADV_DONTNEED)

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
            f"Shared memory of hilserver relies on the store order of x86-64; this computer is {platform.machine()}."
        )


def _mapped(handle: int, size: int) -> mmap.mmap:
    return mmap.mmap(handle, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)  # populated: no page fault in the loop


def _is_file(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), status)
    except FileNotFoundError:
        return False


def _claim(path: Path) -> int:
    """A new file at `path`, locked by this process; it takes the place of one that a dead owner has left behind."""
    while (handle := _created(path)) is None:
        _remove_stale(path)
    return handle


def _created(path: Path) -> int | None:
    """A new file at `path`, locked by this process; None if there is a file already.

    It is this process that creates it: nobody else can have put it there and kept it open.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return None
    except FileNotFoundError as error:
        raise SharedMemoryError(f"{path}: no such folder.") from error
    except OSError as error:
        raise SharedMemoryError(f"{path}: {error.strerror}.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lost = True
    else:
        lost = not _is_file(path, os.fstat(handle))
    if lost:  # another process of this user has taken it for one that was left behind, before it was locked
        os.close(handle)
        return None
    return handle


def _remove_stale(path: Path) -> None:
    """Remove the file of an owner that died; processes still attached keep their memory.

    Only the holder of the lock on the file that is *now* at `path` may remove it, so that two processes can't both take
    over a stale file.
    """
    try:
        handle = _open(path)
    except FileNotFoundError:  # another process has removed it
        return
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid():
            raise SharedMemoryError(
                f"{path}: belongs to {user_name(status.st_uid)}, who runs a rig of this name, or has put it there to "
                "prevent or take over this one. Remove it, or give the rig another name."
            )
        if not stat.S_ISREG(status.st_mode):
            raise SharedMemoryError(_NOT_OURS.format(path))
        _lock(path, handle)
        if _is_file(path, status):
            path.unlink()
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    """Open an existing file; other failures than FileNotFoundError are SharedMemoryErrors."""
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SharedMemoryError(f"{path}: {error.strerror}.") from error


def _require_private(path: Path, status: os.stat_result) -> None:
    """Refuse a file that somebody else has made or may write to: its contents would be theirs."""
    if status.st_uid != os.geteuid() and os.geteuid() != 0:
        raise SharedMemoryError(f"{path}: belongs to {user_name(status.st_uid)}, not to {user_name(os.geteuid())}.")
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
        raise SharedMemoryError(f"{path}: other users may access it ({stat.filemode(status.st_mode)}). Remove it.")


def _lock(path: Path, handle: int) -> None:
    if _number(handle, Segment._MAGIC_AT) not in (0, _MAGIC):  # 0: not ready, or its creator died before it was
        raise SharedMemoryError(_NOT_OURS.format(path))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = _number(handle, Segment._OWNER_AT) or "(just starting)"
        raise SharedMemoryError(f"{path}: in use by process {owner}. Is hilserver running already?") from error


def _number(handle: int, at: int) -> int:
    return int.from_bytes(os.pread(handle, 8, 8 * at), "little")
