"""Output that never waits: what a terminal does not take is dropped and counted, and no end waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from hilserver.cli.output import OutputQueue, QueuedStream, asking

ROOM = 1000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe that is full: its reading and its writing end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"." * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    yield reading, writing
    os.set_blocking(reading, False)
    while _read(reading):  # so that the queue's thread goes on
        pass
    os.close(reading)
    os.close(writing)


def _read(file: int) -> bytes:
    try:
        return os.read(file, 1 << 20)
    except BlockingIOError:
        return b""


def taken(queue: OutputQueue, reading: int) -> str:
    """What the queue writes, as far as it has been given."""
    found: list[bytes] = []
    ended = threading.Event()

    def read() -> None:
        os.set_blocking(reading, False)
        while not ended.is_set():
            found.append(_read(reading))
            time.sleep(0.001)
        found.append(_read(reading))

    reader = threading.Thread(target=read)
    reader.start()
    assert queue.finish(patience=60.0)
    ended.set()
    reader.join()
    return b"".join(found).decode().lstrip(".")


def test_a_full_pipe_loses_lines_but_does_not_block(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    queue = OutputQueue(ROOM)
    for number in range(500):
        queue.put(writing, f"line {number}\n".encode())
    assert not queue.finish(patience=0.05)

    lines = taken(queue, reading).splitlines()
    kept = len(lines) - 1
    assert lines[:kept] == [f"line {number}" for number in range(kept)]
    assert ROOM - 20 < sum(len(line) + 1 for line in lines[:kept]) <= ROOM
    assert lines[kept] == f"({500 - kept} lines are missing here: the terminal did not accept them.)"

    queue.put(writing, b"goes on\n")
    assert taken(queue, reading) == "goes on\n"


def test_output_without_a_reader_is_discarded() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    queue = OutputQueue()
    queue.put(writing, b"text\n")
    assert queue.finish(patience=60.0)
    os.close(writing)


def test_lines_are_kept_together() -> None:
    class Collected(OutputQueue):
        def put(self, file: int, data: bytes) -> None:
            written.append(data.decode())

    written: list[str] = []
    assert sys.__stderr__ is not None
    stream = QueuedStream(sys.__stderr__, Collected())
    print("one", "two", file=stream)
    print("three\nfour", end="", file=stream)
    assert written == ["one two\n", "three\n"]
    stream.flush()
    assert written[2:] == ["four"]
    with pytest.raises(TypeError):
        stream.write(b"bytes")  # type: ignore[arg-type]


PROGRAM = """
import sys, typer
from hilserver.cli.output import never_waiting
with never_waiting():
    typer.echo("echoed äöü")
    print("printed", file=sys.stderr)
    for _ in range(int(sys.argv[1])):
        print("x" * 70)
print("after")
"""


def test_both_streams_keep_their_order_and_arrive_before_the_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "1000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    assert done.stdout.decode().splitlines() == ["echoed äöü", "printed", *["x" * 70] * 1000, "after"]


def test_a_process_ends_while_its_output_is_blocked(pipe: tuple[int, int]) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, "100000"], stdout=pipe[1], stderr=pipe[1])
    assert process.wait(60.0) == 0


def test_a_question_appears_after_all_queued_output(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as original, os.fdopen(reading) as reader:
        queued = QueuedStream(original, OutputQueue(ROOM))
        monkeypatch.setattr(sys, "stdout", queued)
        print("three lines\n" * 3, end="")
        print("without an end: ", end="")
        with asking():
            assert sys.stdout is original
            print("a question", flush=True)
        assert isinstance(sys.stdout, QueuedStream)
        lines = [reader.readline() for _ in range(4)]
    assert lines == [*["three lines\n"] * 3, "without an end: a question\n"]
