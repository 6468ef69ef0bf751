"""Shared memory that another user has put in place, or may write to: it is neither used nor taken over."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_harness import Server

from hilserver.realtime.segment import Segment, SharedMemoryError, segment_path

NOBODY, SOMEBODY = 65534, 61234
ROOT = Path(__file__).parents[2]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def path() -> Iterator[Path]:
    """In the real folder, which all users can reach."""
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


@as_root
def test_a_server_does_not_start_on_another_user_s_memory(tmp_path: Path) -> None:
    server = Server(tmp_path)
    path = segment_path(server.name)
    path.touch()
    os.chown(path, SOMEBODY, -1)
    server.launch()
    try:
        assert server.wait_exit() == 2
        assert f"{path}: belongs to user {SOMEBODY}" in server.stderr
        assert "give the rig another name" in server.stderr
    finally:
        server.close()
        path.unlink()


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
