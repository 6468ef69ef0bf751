"""The server's clock as its clients know it, and how late its messages arrive."""

from __future__ import annotations

import math
import time

DRIFT = 1e-3
"""Seconds per second by which one of the two clocks may gain on the other."""


class ServerClock:
    """Follows the times in the states that the server publishes.

    No message arrives before it was sent, so the smallest difference to the client's own clock is that of a message
    that arrived at once. What another one has in addition is its lateness. A client that is slower than its messages
    takes older and older ones, although one arrives after the other.
    """

    def __init__(self) -> None:
        self.lateness = 0.0
        """By how much the newest state was late, s."""
        self._offset, self._sent, self._at = math.inf, -math.inf, 0.0

    @property
    def is_known(self) -> bool:
        """Whether there was a state at all."""
        return self._offset < math.inf

    def hear(self, sent: float, at: float | None = None) -> None:
        """Take the time of a state, Unix time in s; ``at``: the client's monotonic clock, default: now."""
        at = time.monotonic() if at is None else at
        if sent < self._sent:  # the server's clock was set back
            self._offset = math.inf
        self._offset = min(self._offset + DRIFT * (at - self._at), at - sent)
        self.lateness = at - sent - self._offset
        self._sent, self._at = sent, at

    def now(self) -> float:
        """The time at the server, Unix time in s. Needs a state (`is_known`)."""
        return time.monotonic() - self._offset
