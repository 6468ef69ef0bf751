"""Shared memory that another user has put in place, or may write to: it is neither used nor taken over."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_harness import Server

from hilserver.realtime.segment import Segment, SharedMemoryError
from hilserver.realtime.segment_folder import find_segment, segment_path

NOBODY, SOMEBODY = 65534, 61234
ROOT = Path(__file__).parents[2]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def path() -> Iterator[Path]:
    """In the real place."""
    path = segment_path(f"foreign-{os.getpid()}")
    yield path
    path.unlink(missing_ok=True)


def test_a_segment_opened_beforehand_by_another_user_is_not_used(path: Path) -> None:
    """An empty file in its place, kept open: whoever put it there must not share the memory."""
    kept = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    with Segment.create(path, 100):
        assert os.fstat(kept).st_ino != path.stat().st_ino
        assert os.fstat(kept).st_size == 0
        assert path.stat().st_mode & 0o777 == 0o600
    os.close(kept)


@as_root
@pytest.mark.parametrize("content", [b"", b"\0" * 4096])
def test_another_user_s_file_in_its_place_is_refused_by_name(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    path.chmod(0o666)
    os.chown(path, SOMEBODY, -1)
    with pytest.raises(SharedMemoryError, match=rf"{path}: belongs to user {SOMEBODY}, who runs a rig of this name"):
        Segment.create(path, 100)
    assert path.read_bytes() == content


@pytest.fixture
def shared() -> Iterator[Path]:
    """As /dev/shm: everybody may put something there, and remove only what is theirs."""
    folder = Path("/dev/shm") / f"test-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def as_user(number: int, code: str) -> str:
    """What a program prints that another user runs."""
    imports = """
import os
import shutil
from pathlib import Path
from hilserver.realtime.segment import Segment
from hilserver.realtime.segment_folder import find_segment, other_users, segment_path
"""
    lines = (imports, f"os.setuid({number})", code)
    command = (sys.executable, "-c", "\n".join(lines))
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()


def folder_of(user: int, shared: Path) -> Path:
    code = f"""
from hilserver.realtime.segment import Segment
from hilserver.realtime.segment_folder import find_segment, segment_path
with Segment.create(segment_path("demo", Path("{shared}")), 100) as made:
    print(made.path.parent)
"""
    return Path(as_user(user, code))


SQUATTED = {
    "folder": "path.mkdir()",
    "open folder": "path.mkdir(); path.chmod(0o777); (path / 'demo').touch(); (path / 'demo').chmod(0o666)",
    "file": "path.touch()",
    "link": "path.symlink_to('/tmp')",
    "pipe": "os.mkfifo(path)",
}


@as_root
@pytest.mark.parametrize("what", SQUATTED)
def test_no_other_user_can_prevent_or_share_a_user_s_memory(what: str, shared: Path) -> None:
    """Whatever names are taken before: the memory is in a folder of the user's own, the same for all their programs."""
    names = [f"hilserver-{SOMEBODY}", *(f"hilserver-{SOMEBODY}.{k}" for k in range(1, 4))]
    as_user(NOBODY, f"for name in {names}:\n path = Path('{shared}') / name\n {SQUATTED[what]}")
    mine = folder_of(SOMEBODY, shared)
    assert mine.name not in names
    assert (mine.stat().st_uid, mine.stat().st_mode & 0o022) == (SOMEBODY, 0)
    as_user(NOBODY, f"path = Path('{shared}') / '{names[0]}'\npath.rename(path.with_name('gone'))")
    assert folder_of(SOMEBODY, shared) == mine, "found again where the name has become free"
    assert folder_of(NOBODY, shared) != mine


@as_root
def test_root_finds_the_memory_of_a_service_and_others_only_that_there_is_one(shared: Path) -> None:
    folder = folder_of(SOMEBODY, shared)
    (folder / "demo").touch()
    os.chown(folder / "demo", SOMEBODY, -1)
    assert find_segment("demo", shared) == folder / "demo"
    look = "print({}('demo', Path('{}')))"
    assert as_user(NOBODY, look.format("find_segment", shared)) != str(folder / "demo")
    assert as_user(NOBODY, look.format("other_users", shared)) == f"['user {SOMEBODY}']"
    assert as_user(SOMEBODY, look.format("other_users", shared)) == "[]"


@as_root
@pytest.mark.realtime
def test_a_server_starts_beside_another_user_s_memory_of_its_name_and_says_so(tmp_path: Path) -> None:
    squatted = Path("/dev/shm") / f"hilserver-squatted-{os.getpid()}"
    squatted.mkdir()
    server = Server(tmp_path)
    try:
        (squatted / server.name).touch()
        for path in (squatted, squatted / server.name):
            os.chown(path, SOMEBODY, -1)
        with server:
            assert server.segments[0].parent != squatted
            assert f"user {SOMEBODY} also has the shared memory of a rig {server.name}" in server.stderr
    finally:
        shutil.rmtree(squatted)


@as_root
def test_a_segment_of_another_user_is_not_attached(path: Path) -> None:
    """One that its owner has opened to all; its memory would be under the owner's control."""
    with Segment.create(path, 100):
        path.chmod(0o666)
        os.chown(path, SOMEBODY, -1)
        code = f"""
import os
from hilserver.realtime.segment import Segment
os.setuid({NOBODY})
Segment.attach("{path}")
"""
        child = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, cwd=ROOT)
    assert re.search(rf"SharedMemoryError: {path}: belongs to user {SOMEBODY}, not to user nobody", child.stderr)


@pytest.mark.parametrize("mode", [0o660, 0o606, 0o640])
def test_a_segment_that_others_can_open_is_refused(mode: int, path: Path) -> None:
    with Segment.create(path, 100):
        path.chmod(mode)
        with pytest.raises(SharedMemoryError, match="other users may access it"):
            Segment.attach(path)


def test_links_and_pipes_are_refused(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.write_bytes(b"")
    path.symlink_to(target)
    with pytest.raises(SharedMemoryError, match=str(path)):
        Segment.create(path, 100)
    path.unlink()
    os.mkfifo(path, 0o600)
    for way in (Segment.attach, lambda path: Segment.create(path, 100)):
        with pytest.raises(SharedMemoryError, match=str(path)):
            way(path)
    assert target.read_bytes() == b""
