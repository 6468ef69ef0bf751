"""Delays before something that has ended or failed is started again."""

from __future__ import annotations


class Backoff:
    """Seconds to wait: ``first`` after one failure, twice as long after each further one, at most ``longest``.

    Failures are counted in a row. After a run of ``stable_after`` seconds or more the count is ``failures`` again, as
    at the beginning; with 0, the next start follows at once.
    """

    def __init__(self, first: float, longest: float, stable_after: float, failures: int = 1) -> None:
        self.stable_after = stable_after
        self._first, self._longest = first, longest
        self._failures = self._at_first = failures

    @property
    def delay(self) -> float:
        """Seconds to wait before the next start."""
        doublings = min(self._failures, 100) - 1
        return min(self._first * 2.0**doublings, self._longest) if doublings >= 0 else 0.0

    def reset(self) -> None:
        """Begin anew."""
        self._failures = self._at_first

    def ended(self, seconds: float = 0.0) -> float:
        """Note the end of a run of so many seconds, or a start that has failed (0); returns the delay."""
        if seconds >= self.stable_after:
            self.reset()
        else:
            self._failures += 1
        return self.delay
