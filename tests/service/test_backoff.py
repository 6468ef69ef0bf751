"""The delays before something that ended is started again: doubled up to a limit, until a run was stable."""

from __future__ import annotations

from hilserver.service.backoff import Backoff


def test_delays_are_doubled_until_a_run_was_stable() -> None:
    backoff = Backoff(first=0.1, longest=1.0, stable_after=5.0)
    assert backoff.delay == 0.1
    assert [backoff.ended(4.9) for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert backoff.ended(5.0) == 0.1
    assert backoff.ended() == 0.2
    backoff.reset()
    assert backoff.delay == 0.1


def test_the_first_start_can_follow_at_once() -> None:
    backoff = Backoff(first=0.2, longest=1.0, stable_after=2.0, failures=0)
    assert backoff.delay == 0.0
    assert [backoff.ended() for _ in range(4)] == [0.2, 0.4, 0.8, 1.0]
    assert backoff.ended(2.0) == 0.0


def test_no_number_of_failures_is_too_large() -> None:
    assert Backoff(first=1.0, longest=60.0, stable_after=60.0, failures=10**6).delay == 60.0
