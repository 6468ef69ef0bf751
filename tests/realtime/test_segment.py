"""The segment of shared memory: who owns it, who may attach, what is refused."""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from shared_memory_bench import WIDTH, Start, create, kill, line, numbered, starting

from hilserver.realtime.queues import Ring
from hilserver.realtime.segment import Segment, SharedMemoryError
from hilserver.realtime.segment_folder import segment_path
from hilserver.realtime.shared import Heartbeat, LoopMemory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return segment_path("test", tmp_path)


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    with starting(path) as start:
        yield start


HOLD = "memory = LoopMemory.create(path, row_width=4, ring_rows=9); print('created', flush=True); sys.stdin.read()"


def test_parts_fit_in_a_segment_of_their_own(path: Path) -> None:
    size = Ring.nbytes(3, 5)
    with Segment.create(path, size + Heartbeat.nbytes(), shape=(3, 5)) as segment:
        Ring(segment.buffer[:size], 3, 5).publish(numbered(7, 3))
        Heartbeat(segment.buffer[size:]).beat()
        other = Segment.attach(path)
        width, rows, *_ = other.shape
        out = np.empty(3)
        assert Ring(other.buffer[:size], width, rows).latest(out) == 0
        np.testing.assert_array_equal(out, numbered(7, 3))
        assert Heartbeat(other.buffer[size:]).beats == 1


def test_unmapped_memory_keeps_its_contents_and_does_not_count_as_resident(path: Path) -> None:
    def resident() -> int:
        """KiB of files, shared memory among them, that the kernel counts for this process."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("RssShmem", "RssFile")))

    rows, width = 1000, 2048
    with Segment.create(path, Ring.nbytes(width, rows)) as segment:
        ring, out = Ring(segment.buffer, width, rows), np.empty((rows, width))
        for k in range(rows - 1):
            ring.publish(np.full(width, float(k)))
        before = resident()
        segment.unmap()
        assert before - resident() > 0.9 * 8 * rows * width / 1024
        assert ring.read(0, out) == (rows - 1, rows - 1, 0)
        assert (out[: rows - 1] == np.arange(rows - 1.0)[:, None]).all()
        assert ring.publish(out[0]) == rows - 1


def test_segment_is_for_its_user_only_and_goes_with_its_owner(path: Path) -> None:
    path.touch()
    path.chmod(0o666)
    memory = create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    LoopMemory.attach(path).close()
    assert path.exists()
    memory.close()
    assert not path.exists()
    memory.close()
    with create(path):  # the name is free again
        memory.close()  # and no longer ours to remove
        assert path.exists()


def test_segment_of_a_living_owner_is_refused_by_name_of_its_process(path: Path, start: Start) -> None:
    owner = start(HOLD)
    assert line(owner) == "created"
    with pytest.raises(SharedMemoryError, match=f"in use by process {owner.pid}"):
        create(path)
    assert LoopMemory.attach(path).ring.width == 4


def test_segment_of_a_killed_owner_is_replaced_and_stays_readable_to_those_attached(path: Path, start: Start) -> None:
    owner = start(HOLD)
    assert line(owner) == "created"
    witness = LoopMemory.attach(path)
    witness.ring.publish(numbered(5, 4))
    kill(owner)
    assert LoopMemory.attach(path).ring.published == 1  # still there for a recorder that starts late
    with create(path) as memory:
        assert memory.ring.published == 0
        assert memory.owner_pid == os.getpid()
        assert LoopMemory.attach(path).ring.width == WIDTH
        out = np.empty(4)
        assert witness.ring.latest(out) == 0
        np.testing.assert_array_equal(out, numbered(5, 4))


def test_exactly_one_process_takes_over_a_stale_segment(path: Path, start: Start) -> None:
    owner = start(HOLD)
    assert line(owner) == "created"
    kill(owner)
    contend = """
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            memory = LoopMemory.create(path, row_width=4, ring_rows=9)
        except SharedMemoryError as error:
            print(error, flush=True)
        else:
            print("won", flush=True)
        sys.stdin.read()
    """
    contenders = [start(contend) for _ in range(5)]
    assert {line(contender) for contender in contenders} == {"ready"}
    for contender in contenders:
        assert contender.stdin is not None
        contender.stdin.write("go\n")
        contender.stdin.flush()
    answers = [line(contender) for contender in contenders]
    assert answers.count("won") == 1, answers
    assert sum("in use by process" in answer for answer in answers) == 4, answers
    winner = contenders[answers.index("won")]
    assert LoopMemory.attach(path).owner_pid == winner.pid


def test_a_segment_taken_over_before_the_lock_is_left_to_its_new_owner(
    path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = start(HOLD)
    assert line(owner) == "created"
    kill(owner)
    rivals: list[LoopMemory] = []
    flock = fcntl.flock

    def rival_first(handle: int, operation: int) -> None:
        monkeypatch.undo()
        rivals.append(create(path))
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", rival_first)
    with pytest.raises(SharedMemoryError, match=f"in use by process {os.getpid()}"):
        create(path)
    rivals[0].info.loop_pid = 77
    assert LoopMemory.attach(path).info.loop_pid == 77
    rivals[0].close()


def test_creator_killed_before_the_segment_was_ready_is_no_obstacle(path: Path) -> None:
    path.touch(0o600)
    path.write_bytes(bytes(1000))
    with pytest.raises(SharedMemoryError, match=r"not \(yet\) a shared memory"):
        LoopMemory.attach(path)
    with create(path):
        assert LoopMemory.attach(path).ring.width == WIDTH


def test_a_foreign_file_is_not_touched(path: Path) -> None:
    path.write_text("my only copy of the measurements")
    with pytest.raises(SharedMemoryError, match="is not a shared memory of hilserver"):
        create(path)
    assert path.read_text() == "my only copy of the measurements"


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    path.symlink_to(target)
    with pytest.raises(SharedMemoryError, match=str(path)):
        create(path)
    assert not target.exists()


def test_missing_segment_and_missing_folder_are_named(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SharedMemoryError, match=f"{path}: no such shared memory"):
        LoopMemory.attach(path)
    with pytest.raises(SharedMemoryError, match="no such folder"):
        create(tmp_path / "missing" / "segment")


@pytest.mark.parametrize(
    ("at", "number", "message"),
    [
        (0, 1, "not .* a shared memory"),
        (1, 99, "layout version 99"),
        (2, 5, "its header states 5"),
        (4, 0, "not the shared memory of a loop"),
        (4, WIDTH + 1, "its layout needs"),
    ],
)
def test_attach_checks_magic_version_size_and_layout(path: Path, at: int, number: int, message: str) -> None:
    with create(path):
        with path.open("r+b") as file:
            file.seek(8 * at)
            file.write(number.to_bytes(8, "little"))
        with pytest.raises(SharedMemoryError, match=message):
            LoopMemory.attach(path)


def test_attach_refuses_a_file_cut_short(path: Path) -> None:
    with create(path):
        length = path.stat().st_size
        os.truncate(path, length - 4096)
        with pytest.raises(SharedMemoryError, match=f"its header states {length}"):
            LoopMemory.attach(path)
        os.truncate(path, 10)
        with pytest.raises(SharedMemoryError, match="10 bytes"):
            LoopMemory.attach(path)


def test_all_memory_is_reserved_at_creation(path: Path) -> None:
    with create(path, ring_rows=1000):
        status = path.stat()
        assert 512 * status.st_blocks >= status.st_size  # no holes, whose first write fails on a full file system


def test_insufficient_memory_is_an_error_at_creation_and_leaves_no_file(path: Path, start: Start) -> None:
    cramped = start(
        """
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        try:
            LoopMemory.create(path, row_width=1000, ring_rows=1000)
        except SharedMemoryError as error:
            print(error)
        """
    )
    assert "MB of shared memory: " in line(cramped)
    assert not path.exists()


@pytest.mark.parametrize("changes", [{"ring_rows": 1}, {"row_width": 0}, {"mailbox_slots": 1}, {"payload_bytes": -1}])
def test_impossible_sizes_are_refused(path: Path, changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="needs at least"):
        create(path, **changes)
    assert not path.exists()


def test_machines_with_another_store_order_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(SharedMemoryError, match="x86-64; this computer is aarch64"):
        create(path)
    with pytest.raises(SharedMemoryError, match="aarch64"):
        LoopMemory.attach(path)
