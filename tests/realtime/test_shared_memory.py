"""Shared memory between real processes: whole rows and commands only, whoever is killed whenever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from shared_memory_bench import WIDTH, Start, create, kill, line, numbered, starting, wait_until

from hilserver.realtime.queues import RECORD_WIDTH, MailboxFull
from hilserver.realtime.segment_folder import segment_path
from hilserver.realtime.shared import LoopMemory
from hilserver.tick.row import MESSAGE_CELLS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return segment_path("test", tmp_path)


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    with starting(path) as start:
        yield start


# ---------------------------------------------------------------------------------------------------------------- ring

PUBLISH_NUMBERED_ROWS = f"""
ring = LoopMemory.attach(path).ring
row = np.empty({WIDTH})
while True:
    row[:] = ring.published
    ring.publish(row)
"""


def test_ring_is_read_in_order_and_in_batches(path: Path) -> None:
    out = np.full((5, WIDTH), np.nan)
    with create(path, ring_rows=8) as memory:
        ring = memory.ring
        assert ring.latest(out[0]) == -1
        assert ring.read(0, out) == (0, 0, 0)
        assert [ring.publish(numbered(n)) for n in range(6)] == list(range(6))
        assert ring.read(0, out) == (5, 5, 0)
        np.testing.assert_array_equal(out[:, 0], [0, 1, 2, 3, 4])
        for n in range(6, 10):
            ring.publish(numbered(n))
        assert ring.read(5, out) == (5, 10, 0)  # across the end of the ring
        np.testing.assert_array_equal(out[:, -1], [5, 6, 7, 8, 9])
        assert ring.read(10, out) == (0, 10, 0)
        assert ring.latest(out[0]) == 9
        np.testing.assert_array_equal(out[0], numbered(9))


def test_ring_counts_the_rows_that_a_slow_reader_lost(path: Path) -> None:
    out = np.empty((100, WIDTH))
    with create(path, ring_rows=8) as memory:
        for n in range(20):
            memory.ring.publish(numbered(n))
        assert memory.ring.read(2, out) == (7, 20, 11)  # 8 rows, less the slot the writer may be filling
        np.testing.assert_array_equal(out[:7, 0], np.arange(13, 20))


@pytest.mark.parametrize("cursor", [-1, 1])
def test_ring_refuses_a_cursor_outside_of_the_run(path: Path, cursor: int) -> None:
    with create(path) as memory, pytest.raises(ValueError, match=f"cursor {cursor} of a ring with 0 rows"):
        memory.ring.read(cursor, np.empty((1, WIDTH)))


def test_ring_never_yields_a_torn_row(path: Path, start: Start) -> None:
    batch, newest = np.empty((8, WIDTH)), np.empty(WIDTH)
    with create(path, ring_rows=3) as memory:
        ring, cursor, rows, lost = memory.ring, 0, 0, 0
        start(PUBLISH_NUMBERED_ROWS)
        wait_until(lambda: ring.published > 0)
        end = time.monotonic() + 1.5
        while (now := time.monotonic()) < end or (not lost and now < end + 30.0):
            count, following, gone = ring.read(cursor, batch)
            expected = np.arange(cursor + gone, following, dtype=float)
            assert following == cursor + gone + count
            np.testing.assert_array_equal(batch[:count], np.broadcast_to(expected[:, None], (count, WIDTH)))
            cursor, rows, lost = following, rows + count, lost + gone
            sequence = ring.latest(newest)
            np.testing.assert_array_equal(newest, numbered(sequence))
    assert rows > 0
    assert lost > 0, "the writer never came round: the test has shown nothing"


def test_writer_killed_in_the_middle_of_a_row_leaves_no_trace(path: Path, start: Start) -> None:
    dies_halfway = f"""
        class Deadly:
            def __float__(self):
                os.kill(os.getpid(), signal.SIGKILL)

        ring = LoopMemory.attach(path).ring
        row = np.full({WIDTH}, -1.0).astype(object)
        row[{WIDTH // 2}] = Deadly()
        ring.publish(row)
    """
    out = np.empty((8, WIDTH))
    with create(path, ring_rows=4) as memory:
        for n in range(6):
            memory.ring.publish(numbered(n))
        assert start(dies_halfway).wait(30) == -signal.SIGKILL
        assert -1.0 in np.frombuffer(memory.segment.buffer), "the writer died before it touched the row"
        assert memory.ring.read(0, out) == (3, 6, 3)
        np.testing.assert_array_equal(out[:3], [numbered(n) for n in (3, 4, 5)])
        assert memory.ring.latest(out[0]) == 5
        np.testing.assert_array_equal(out[0], numbered(5))

        resumed = start(PUBLISH_NUMBERED_ROWS)  # goes on with the next number
        wait_until(lambda: memory.ring.published > 10)
        kill(resumed)
        last = memory.ring.latest(out[0])
        assert last == memory.ring.published - 1
        np.testing.assert_array_equal(out[0], numbered(last))


# ------------------------------------------------------------------------------------------------------------- mailbox

POST_NUMBERED_COMMANDS = """
mailbox = LoopMemory.attach(path).mailbox
while True:
    n = mailbox.posted
    try:
        mailbox.post(np.full(8, float(n)), np.full(n % 512, n, np.int64))
    except MailboxFull:
        pass
"""


def check_numbered(sequence: int, record: np.ndarray, payload: np.ndarray) -> None:
    np.testing.assert_array_equal(record, np.full(8, float(sequence)))
    np.testing.assert_array_equal(payload.view(np.int64), np.full(sequence % 512, sequence))


def test_a_record_holds_a_command_of_the_tick() -> None:
    """The processes of the devices load nothing of the tick."""
    assert RECORD_WIDTH == MESSAGE_CELLS


def test_commands_are_taken_in_order_one_at_a_time(path: Path) -> None:
    with create(path) as memory:
        mailbox = memory.mailbox
        assert mailbox.take() is None
        packed = np.linspace(0.0, 1.0, 77)
        assert mailbox.post(np.arange(8.0), packed) == 0
        assert mailbox.post([9.0] * 8) == 1
        first = mailbox.take()
        assert first is not None
        assert first.sequence == 0
        np.testing.assert_array_equal(first.record, np.arange(8.0))
        np.testing.assert_array_equal(first.payload.view(np.float64), packed)
        assert first.payload.view(np.float64).flags.aligned
        second = mailbox.take()
        assert second is not None
        assert (second.sequence, len(second.payload)) == (1, 0)
        assert mailbox.take() is None


def test_full_mailbox_refuses_and_loses_nothing(path: Path) -> None:
    with create(path, mailbox_slots=4) as memory:
        mailbox = memory.mailbox
        for n in range(4):
            mailbox.post(np.full(8, float(n)))
        with pytest.raises(MailboxFull, match="last 4 commands"):
            mailbox.post(np.full(8, 4.0))
        held = mailbox.take()
        with pytest.raises(MailboxFull):  # command 0 may still be in use
            mailbox.post(np.full(8, 4.0))
        assert held is not None
        np.testing.assert_array_equal(held.record, np.zeros(8))
        mailbox.take()
        assert mailbox.post(np.full(8, 4.0)) == 4
        rest = [message.sequence for message in iter(mailbox.take, None)]
        assert rest == [2, 3, 4]


def test_observer_reads_a_command_until_it_is_overwritten(path: Path) -> None:
    with create(path, mailbox_slots=4) as memory:
        observer = LoopMemory.attach(path).mailbox
        for n in range(6):
            memory.mailbox.post(np.full(8, float(n)), np.full(3, n, np.uint8))
            memory.mailbox.take()
        assert [n for n in range(-2, 9) if observer.peek(n)] == [3, 4, 5]  # 4 slots, less the one that may be changing
        copy = observer.peek(3)
        for n in range(6, 10):
            memory.mailbox.take()
            memory.mailbox.post(np.full(8, float(n)), np.full(3, n, np.uint8))
        assert observer.peek(3) is None
        assert copy is not None
        np.testing.assert_array_equal(copy.record, np.full(8, 3.0))
        np.testing.assert_array_equal(copy.payload, [3, 3, 3])


def test_commands_are_kept_for_longer_than_they_may_wait(path: Path) -> None:
    """A recorder that comes late finds what an operator did meanwhile; of payloads, which every third has, the last."""

    def payload(n: int) -> npt.NDArray[np.uint8]:
        return np.full(5 if n % 3 == 0 else 0, n % 256, np.uint8)

    with create(path, mailbox_slots=1000) as memory:
        mailbox, observer = memory.mailbox, LoopMemory.attach(path).mailbox
        for n in range(1200):
            mailbox.post(np.full(8, float(n)), payload(n))
            if n >= 50:  # the taker is always 50 behind
                taken = mailbox.take()
                assert taken is not None
                np.testing.assert_array_equal(taken.payload, payload(n - 50))
        found = [message for n in range(1200) if (message := observer.peek(n))]
        for message in found:
            np.testing.assert_array_equal(message.record, np.full(8, float(message.sequence)))
            np.testing.assert_array_equal(message.payload, payload(message.sequence))
        without = [message.sequence for message in found if message.sequence % 3]
        assert without == [n for n in range(201, 1200) if n % 3]
        assert [message.sequence for message in found if message.sequence % 3 == 0] == [*range(1200 - 3 * 63, 1200, 3)]
        for _ in range(13):  # the one that was taken last may still be in use
            mailbox.post(np.zeros(8))
        with pytest.raises(MailboxFull, match="last 64 commands"):
            mailbox.post(np.zeros(8))


def test_a_command_that_does_not_fit_is_refused(path: Path) -> None:
    with create(path, payload_bytes=100) as memory:
        with pytest.raises(ValueError, match="payload of 101 bytes: the mailbox has room for 100"):
            memory.mailbox.post(np.zeros(8), bytes(101))
        with pytest.raises(ValueError, match=r"record of shape \(7,\)"):
            memory.mailbox.post(np.zeros(7))
        assert memory.mailbox.posted == 0
        assert memory.mailbox.post(np.zeros(8), bytes(100)) == 0


def test_commands_stay_whole_and_complete_while_posters_are_killed(path: Path, start: Start) -> None:
    with create(path, mailbox_slots=3) as memory:
        observer, taken, peeked = LoopMemory.attach(path).mailbox, 0, 0
        for _ in range(3):
            poster = start(POST_NUMBERED_COMMANDS)
            goal = taken + 300
            while taken < goal:
                assert poster.poll() is None
                message = memory.mailbox.take()
                if message is not None:
                    assert message.sequence == taken
                    check_numbered(message.sequence, message.record, message.payload)
                    taken += 1
                copy = observer.peek(observer.posted - 1)
                if copy is not None:
                    check_numbered(copy.sequence, copy.record, copy.payload)
                    peeked += 1
            kill(poster)
        assert peeked > 0


def test_command_at_which_the_taker_was_killed_is_taken_again(path: Path, start: Start) -> None:
    with create(path) as memory:
        for n in range(3):
            memory.mailbox.post(np.full(8, float(n)))
        dies = "mailbox = LoopMemory.attach(path).mailbox; mailbox.take(); mailbox.take(); os.kill(os.getpid(), 9)"
        assert start(dies).wait(30) == -signal.SIGKILL
        successor = start("m = LoopMemory.attach(path).mailbox; print(*(x.sequence for x in iter(m.take, None)))")
        assert line(successor) == "1 2"


# ---------------------------------------------------------------------------------------------------- heartbeat, info


def test_heartbeat_ages_from_the_last_beat_of_a_killed_process(path: Path, start: Start) -> None:
    with create(path) as memory:
        heart = memory.supervisor_heartbeat
        assert heart.age() == float("inf")
        began = time.monotonic()
        beating = start(
            """
            memory = LoopMemory.attach(path)
            while True:
                memory.supervisor_heartbeat.beat()
                time.sleep(0.001)
            """
        )
        wait_until(lambda: heart.beats > 5)
        assert 0.0 <= heart.age() <= time.monotonic() - began
        kill(beating)
        beats, age = heart.beats, heart.age()
        time.sleep(0.05)
        assert heart.beats == beats
        assert heart.age() >= age + 0.05
        assert memory.loop_heartbeat.beats == 0


def test_loop_states_its_process_and_receives_stop_requests(path: Path, start: Start) -> None:
    with create(path) as memory:
        loop = start(
            """
            memory = LoopMemory.attach(path)
            memory.info.loop_pid = os.getpid()
            while not memory.info.stop_requested:
                time.sleep(0.001)
            print(memory.owner_pid)
            """
        )
        wait_until(lambda: memory.info.loop_pid == loop.pid)
        memory.info.stop_requested = True
        assert line(loop) == str(os.getpid())
        assert loop.wait(30) == 0
