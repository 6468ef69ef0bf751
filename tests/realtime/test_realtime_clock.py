"""The real-time clock: absolute deadlines, missed periods, signals."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from hilserver.realtime.clock import GridClock, RehearsingClock

pytestmark = pytest.mark.realtime


@pytest.fixture
def on_alarm() -> Iterator[Callable[[Callable[[], None], float, float], None]]:
    """Calls a function from a signal handler, first after a delay, then at an interval (s; 0: once)."""
    before = signal.getsignal(signal.SIGALRM)

    def arm(action: Callable[[], None], delay: float, interval: float) -> None:
        def handler(_number: int, _frame: FrameType | None) -> None:
            action()

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, delay, interval)

    yield arm
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("make", [GridClock, lambda period: RehearsingClock(period, lambda: None)])
def test_every_wake_is_on_the_grid_counted_from_the_start_and_not_early(make: Callable[[float], GridClock]) -> None:
    clock = make(0.001)
    before = time.monotonic_ns()
    clock.start(delay_s=0.01)
    assert clock.wait()
    start_ns = clock.deadline_ns - clock.tick * 1_000_000
    assert start_ns >= before + 10_000_000
    previous = clock.tick
    for _ in range(200):
        assert clock.wait()
        now = time.monotonic_ns()
        assert clock.deadline_ns == start_ns + clock.tick * 1_000_000
        assert clock.deadline_ns <= now
        assert 0.0 <= clock.wake_error < 0.001
        assert clock.tick == previous + 1 + clock.missed
        previous = clock.tick


def test_first_wake_is_tick_zero() -> None:
    clock = GridClock(10.0)  # so long that no busy machine can miss it
    clock.start()
    assert clock.tick == -1
    assert clock.wait()
    assert (clock.tick, clock.missed) == (0, 0)


def test_missed_periods_are_counted_and_the_grid_is_kept() -> None:
    clock = GridClock(0.005)
    clock.start()
    assert clock.wait()
    tick, deadline_ns = clock.tick, clock.deadline_ns
    time.sleep(0.018)  # 3.6 periods: the deadlines of the next 3 ticks pass, the third is honoured late
    assert clock.wait()
    assert clock.missed >= 2
    assert clock.tick == tick + clock.missed + 1
    assert clock.deadline_ns == deadline_ns + (clock.missed + 1) * 5_000_000
    assert 0.0 <= clock.wake_error <= (time.monotonic_ns() - clock.deadline_ns) * 1e-9


def test_a_signal_does_not_end_the_wait_early(on_alarm: Callable[[Callable[[], None], float, float], None]) -> None:
    interruptions: list[int] = []
    clock = GridClock(0.2)
    clock.start(delay_s=0.2)
    on_alarm(lambda: interruptions.append(1), 0.02, 0.02)
    assert clock.wait()
    assert interruptions
    assert time.monotonic_ns() >= clock.deadline_ns


def test_stop_from_a_signal_handler_ends_the_wait(on_alarm: Callable[[Callable[[], None], float, float], None]) -> None:
    clock = GridClock(60.0)
    clock.start(delay_s=60.0)
    on_alarm(clock.stop, 0.02, 0.02)
    began = time.monotonic()
    assert not clock.wait()
    assert time.monotonic() - began < 30.0
    assert clock.tick == -1
    assert not clock.wait()


def test_period_is_rounded_to_whole_nanoseconds() -> None:
    assert GridClock(0.001).period_s == 0.001
    assert GridClock(1 / 3000).period_s == 333_333e-9


@pytest.mark.parametrize("period_s", [0.0, -0.001, 1e-10])
def test_impossible_period_is_refused(period_s: float) -> None:
    with pytest.raises(ValueError, match="at least 1 ns"):
        GridClock(period_s)
