"""How long STOP takes: from a click in a browser, or from the shell, to the tick in which the valve begins to close."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Page

from hilserver.tick.codes import Mode

LOOKS = 20
"""Readings of the page's clock of which the quickest counts."""
RAMP, NULL = 300, 1e-3
"""Ticks within which the command must have come to null, and its size there."""
WATCH = "window.clicked = []; addEventListener('pointerdown', (e) => window.clicked.push(e.timeStamp), true)"
"""Keeps when the browser has received each press, in ms of the page's clock; to run before the page's own scripts."""


@dataclass(frozen=True)
class PageClock:
    """The page's clock (performance.now) against that of the log (CLOCK_REALTIME), s; right to ± ``uncertain``.

    Both count with the same hardware clock of one machine: what differs is where they begin.
    """

    offset: float
    uncertain: float

    @classmethod
    def of(cls, page: Page) -> PageClock:
        """The page's clock is read between two readings of the other one: the closest pair tells most."""
        found = []
        for _ in range(LOOKS):
            before = time.time()
            now = page.evaluate("performance.now()") / 1e3
            after = time.time()
            found.append(cls(0.5 * (before + after) - now, 0.5 * (after - before)))
        return min(found, key=lambda clock: clock.uncertain)

    def presses(self, page: Page) -> list[float]:
        """The times of all presses since `WATCH`, in s since 1970."""
        return [self.offset + each / 1e3 for each in page.evaluate("window.clicked")]


def closing_ticks(mode: NDArray[Any], command: NDArray[Any]) -> list[int]:
    """The rows of a log in which a running rig stops: mode ARMED for the first time after RUNNING.

    In this tick the ramp to null begins. Raises ValueError where the valve's command does not go to null from there on.
    """
    command = np.abs(command)
    found = [int(k) + 1 for k in np.flatnonzero((mode[:-1] == Mode.RUNNING) & (mode[1:] == Mode.ARMED))]
    for k in found:
        before, *after = (float(each) for each in command[k - 1 : k + RAMP])
        if not (after[0] < before and max(after) <= before and min(after) < NULL):
            text = f"row {k}: the rig stops, and the valve does not go to null from {before:g}"
            raise ValueError(f"{text}: {after[:3]} …, {after[-1]:g}")
    return found


def delays(pressed: list[float], stopped: list[float]) -> list[float]:
    """The time from each press to the stop after it, s; both since 1970. Raises ValueError unless they take turns."""
    if len(pressed) != len(stopped):
        raise ValueError(f"{len(pressed)} presses, {len(stopped)} stops")
    for press, stop, next_press in zip(pressed, stopped, [*pressed[1:], float("inf")], strict=True):
        if not press < stop < next_press:
            raise ValueError(f"a stop at {stop:.4f} s is not between its press at {press:.4f} s and the next one")
    return [stop - press for press, stop in zip(pressed, stopped, strict=True)]
