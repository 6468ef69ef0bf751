"""The server's clock as its clients know it, and messages that arrive late."""

from __future__ import annotations

import time

import pytest

from hilserver.protocol.server_clock import DRIFT, ServerClock

SERVER = 1.7e9
"""The server's time when the client's clock shows 0, s."""


def test_one_state_after_the_other_may_be_old() -> None:
    """A client that takes two seconds for what is sent in one: after 10 s it sees what is 5 s old."""
    clock = ServerClock()
    assert not clock.is_known
    for sent in range(6):
        clock.hear(SERVER + sent, at=2.0 * sent)
        assert clock.lateness == pytest.approx(sent, rel=3 * DRIFT)


def test_the_time_at_the_server_is_that_of_the_message_that_came_at_once() -> None:
    clock, began = ServerClock(), time.monotonic()
    for sent, late in ((0.0, 0.3), (1.0, 0.02), (2.0, 8.0)):
        clock.hear(SERVER + sent, at=began + sent + late)
    before, now, after = time.monotonic(), clock.now(), time.monotonic()
    offset = SERVER - began - 0.02
    assert before + offset - 10.0 * DRIFT <= now <= after + offset
    assert clock.lateness == pytest.approx(8.0 - 0.02, rel=3 * DRIFT)


@pytest.mark.parametrize("step", [-3600.0, -2.0, 3600.0])
def test_a_clock_that_is_set_makes_no_message_late(step: float) -> None:
    clock = ServerClock()
    clock.hear(SERVER, at=0.0)
    for k in range(1, 5):
        clock.hear(SERVER + step + k, at=float(k))
    assert clock.lateness == pytest.approx(0.0, abs=1e-2)


def test_a_clock_that_gains_makes_no_message_late() -> None:
    """By 50 s in a million, as two quartzes can, for a day."""
    clock = ServerClock()
    for k in range(0, 86400, 10):
        clock.hear(SERVER + k * (1.0 - 50e-6), at=float(k))
        assert clock.lateness < 1e-3
