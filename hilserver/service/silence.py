"""Time for which a partner has been silent."""

from __future__ import annotations

import time

LOOK = 0.05
"""Seconds between two checks."""


class SilenceTimer:
    """Time since the last message, s, of a partner whose messages are counted.

    Each check counts for a limited time only: after a pause of the whole machine, the other processes need a moment,
    too.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._signs = -1
        self._looked = time.monotonic()

    def update(self, signs: int) -> float:
        """Update with the present number of messages; returns the time since the last one, s."""
        now = time.monotonic()
        step, self._looked = min(now - self._looked, 2 * LOOK), now
        self.seconds = 0.0 if signs != self._signs else self.seconds + step
        self._signs = signs
        return self.seconds


class CountedSilence:
    """Time since the last heartbeat of a process, s: the number of checks since then, ``look`` seconds apart.

    A pause of the whole machine counts as a single check: after it, the other processes need a moment, too.
    """

    def __init__(self, look: float) -> None:
        self._look = look
        self._beats = -1
        self._looks = 0

    def update(self, beats: int) -> float:
        """Update with the present number of heartbeats; returns the time since the last one, s."""
        self._looks = self._looks + 1 if beats == self._beats else 0
        self._beats = beats
        return self._looks * self._look
