"""Stopping commands arrive over two connections; what holds whichever copy comes first, late or never."""

import asyncio
import time
from collections.abc import Coroutine, Iterable
from itertools import permutations

import pytest

from hilserver.protocol.commands import Command
from hilserver.protocol.published import Answer
from hilserver.protocol.stopping import STOPPING
from hilserver.service.inbox import (
    BURST,
    COPY_TIMEOUT,
    PRIORITY_TIMEOUT,
    WAITING_LIMIT,
    Arrival,
    Commands,
    Inbox,
    Reply,
)


class Bench:
    """An inbox, what it has had carried out, and its answers."""

    def __init__(self, commands: Commands | None = None) -> None:
        self.executed: list[str] = []
        self.answers: list[Answer] = []
        self.reports: list[str] = []
        self.inbox = Inbox("lab", commands or self, self._answer)
        self.inbox.report = self.reports.append

    async def execute(self, command: Command) -> Answer:
        self.executed.append(command.name)
        await asyncio.sleep(0)
        return command.answer(time=time.time())

    def _answer(self, answer: Answer, reply: Reply | None) -> None:
        self.answers.append(answer)

    def arrive(self, *messages: str) -> None:
        """``"stop"``: over the common connection; ``"stop!"``: its copy over the priority connection."""
        for message in messages:
            self.inbox.accept(Arrival(message.rstrip("!"), b"{}", False, None, message.endswith("!")))

    def refused(self) -> list[str]:
        return [answer.command for answer in self.answers if not answer.ok]


def run(bench: Bench, work: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        working = asyncio.create_task(bench.inbox.work())
        try:
            async with asyncio.timeout(120):
                await work
        finally:
            working.cancel()
            await asyncio.wait([working])

    asyncio.run(bounded())


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def orders(stops: int) -> Iterable[tuple[str, ...]]:
    """All orders in which the copies of several equal stopping commands can arrive."""
    return sorted(set(permutations(["stop"] * stops + ["stop!"] * stops)))


@pytest.mark.parametrize("order", [*orders(1), *orders(2), *orders(3)], ids=" ".join)
def test_each_stop_is_carried_out_once_and_no_later_than_its_first_copy(order: tuple[str, ...]) -> None:
    bench = Bench()

    async def work() -> None:
        for number, message in enumerate(order, 1):
            bench.arrive(message)
            await settle()
            arrived = order[:number]
            assert len(bench.executed) == max(arrived.count("stop"), arrived.count("stop!"))

    run(bench, work())


@pytest.mark.parametrize("stop", STOPPING)
def test_commands_sent_before_a_stop_are_refused_after_it(stop: str) -> None:
    bench = Bench()

    async def work() -> None:
        bench.arrive(f"{stop}!", "reset", "arm", "start")  # these three stood in a queue before the second copy
        await settle()
        assert bench.executed == [stop]
        assert bench.refused() == ["reset", "arm", "start"]
        bench.arrive(stop, "start")  # and this was sent after it
        await settle()
        assert bench.executed == [stop, "start"]

    run(bench, work())


def test_a_dropped_copy_blocks_other_commands_for_a_limited_time() -> None:
    bench = Bench()

    async def work() -> None:
        bench.arrive("stop!", "start")
        bench.inbox._ahead_since -= COPY_TIMEOUT
        bench.arrive("start")
        await settle()
        assert bench.executed == ["stop", "start"]
        assert bench.refused() == ["start"]
        bench.arrive("trip!", "trip", "stop", "stop!")  # counted anew
        await settle()
        assert bench.executed == ["stop", "start", "trip", "stop"]

    run(bench, work())


def test_a_lost_copy_on_the_priority_connection_blocks_no_later_command() -> None:
    bench = Bench()

    async def work() -> None:
        bench.arrive("trip")
        await settle()
        bench.inbox._ahead_since -= PRIORITY_TIMEOUT
        bench.arrive("trip!")
        await settle()
        assert bench.executed == ["trip", "trip"]
        bench.arrive("trip")
        await settle()
        assert bench.executed == ["trip", "trip"]

    run(bench, work())


def test_a_flood_of_stops_is_reported_once() -> None:
    bench = Bench()

    async def work() -> None:
        for _ in range(2000):
            bench.inbox.accept(Arrival("stop", b"now!", True, None, True))
        await settle()
        assert len(bench.reports) == 1
        assert "stop: carried out although its payload is not valid: not JSON" in bench.reports[0]
        assert bench.executed == ["stop"]

    run(bench, work())


def test_the_strongest_stop_goes_first_and_equal_ones_are_merged() -> None:
    bench = Bench()

    async def work() -> None:
        bench.arrive(*["stop!"] * 1000, "disarm!", "trip!")
        await settle()
        assert bench.executed == ["trip", "disarm", "stop"]
        assert len(bench.answers) == 2 + WAITING_LIMIT

    run(bench, work())


def test_a_flood_is_discarded_unread_counted_and_reported() -> None:
    bench = Bench()

    async def work() -> None:
        bench.arrive(*["arm"] * 1500, *["x/y"] * 1700)
        await settle()
        assert BURST <= len(bench.answers) < 1500
        while not bench.reports:  # noqa: ASYNC110 - a report is a plain call
            await asyncio.sleep(0.01)
        count = 3200 - len(bench.answers)
        assert bench.reports == [
            f"{count} commands were discarded unread: at most 300 per second are taken. Most of them were (unknown). "
            "The broker's log shows which client sends them."
        ]
        bench.arrive("trip!")
        await settle()
        assert bench.executed[-1] == "trip"

    run(bench, work())


class FailsOnce:
    """Carries out commands, with a defect in the first."""

    def __init__(self) -> None:
        self.failed = False

    async def execute(self, command: Command) -> Answer:
        if not self.failed:
            self.failed = True
            raise KeyError("relief")
        return command.answer(time=0.0)


def test_a_defect_is_an_answer_and_the_next_stop_is_carried_out() -> None:
    bench = Bench(FailsOnce())

    async def work() -> None:
        bench.arrive("stop!")
        await settle()
        assert bench.answers[0].reason == "internal error in hilserver: KeyError: 'relief'. Please report it."
        bench.arrive("stop", "stop!")
        await settle()
        assert bench.answers[1].ok

    run(bench, work())
