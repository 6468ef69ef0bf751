"""From a valve's command to its spool: switching, delay, backlash, limited speed."""

from __future__ import annotations

from typing import Any

from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip

PLACES = 16
"""Changes of the command that a delay line holds at most; see :func:`through_delay`."""
LINE_SIZE = 1 + 2 * PLACES
EMPTY = -1.0
"""Initial value of a delay line that has seen no command yet."""
LANDING = 0.1
"""Fraction of its travel over which an on/off spool comes to rest; before, it moves at constant speed."""
ARRIVED = 0.95
"""Fraction of its travel after which an on/off spool counts as switched."""
FOLLOWS = 1e-3
"""Time constant, s, of the state of a spool without lag where no step sets it: in the analysis of operating points."""
_SAME_TIME = 1e-7  # s; times are sums of many steps


@compilable
def switched(u: float, last: float, least: float, detent: float) -> float:
    """Switching state for a command: 1 above 0.5, ``least`` (0 or -1) below -0.5; otherwise 0 (spring) or the last
    state.

    >>> [switched(u, 1.0, -1.0, 0.0) for u in (0.9, 0.4, -0.6)], [switched(u, 1.0, 0.0, 1.0) for u in (0.4, -0.6)]
    ([1.0, 0.0, -1.0], [1.0, 0.0])
    """
    if u > 0.5:
        return 1.0
    if u < -0.5:
        return least
    return last if detent > 0.0 else 0.0


@compilable
def last_command(line: Any, delayed: float) -> float:
    """The command that entered a delay line last; ``delayed`` is the one that left it last."""
    values, start = line
    n = int(values[start])
    return float(values[start + PLACES + n]) if n > 0 else delayed


@compilable
def through_delay(line: Any, t: float, u: float, delay_out: float, delay_in: float, delayed: float) -> float:
    """The command as it leaves a pure delay at the time t, where u enters it; ``line`` is changed in place.

    ``delay_out`` holds for a change away from 0 (or as far to its other side), ``delay_in`` for one towards 0; both in
    seconds. ``line`` is a pair (array, start) of LINE_SIZE values: the number of pending changes, and for each its
    time and its command. The delay is exact for changes that are at least a fifteenth of it apart; faster ones are
    sampled at that interval. A change that would overtake others cancels them (a short pulse does not move a valve
    that is slow to switch on). A new line passes its first command on immediately: earlier ones are not known.

    >>> import numpy as np
    >>> line = (np.zeros(LINE_SIZE), 0)
    >>> [through_delay(line, 0.01 * k, 1.0 if k < 2 else 0.5, 0.03, 0.02, 0.0) for k in range(5)]
    [0.0, 0.0, 0.0, 1.0, 0.5]
    """
    values, start = line
    n = int(values[start])
    if n < 0:
        values[start] = 0.0
        return u
    last = last_command(line, delayed)
    due = t + (delay_out if abs(u) >= abs(last) else delay_in)
    gap = max(delay_out, delay_in) / (PLACES - 1)
    if u != last:
        while n > 0 and values[start + n] >= due:
            n -= 1
        if n == 0 or (n < PLACES and due - values[start + n] >= gap - _SAME_TIME):
            n += 1
            values[start + n] = due
            values[start + PLACES + n] = u
    gone = 0
    while gone < n and values[start + gone + 1] <= t + _SAME_TIME:
        gone += 1
        delayed = values[start + PLACES + gone]
    n -= gone
    for k in range(start + 1, start + 1 + n):
        values[k] = values[k + gone]
        values[k + PLACES] = values[k + PLACES + gone]
    values[start] = n
    return float(delayed)


@compilable
def within_play(last: float, u: float, play: float) -> float:
    """Output of the play operator (backlash): it keeps its value until u moves it, ``play`` behind.

    A loop u = 0 … 1 … 0 is 2·play wide. Source: Brokate & Sprekels, Hysteresis and Phase Transitions, 1996, ch. 2.

    >>> within_play(0.0, 0.5, 0.05), within_play(0.45, 0.42, 0.05), within_play(0.45, 0.3, 0.05)
    (0.45, 0.45, 0.35)
    """
    return clip(last, u - play, u + play)


@compilable
def spool_target(moved: float, half_loop: float, U_0: float, least: float) -> float:
    """Where a spool is to go for a command behind its play: full command is full stroke, whatever the play takes of it.

    >>> [spool_target(moved, 0.05, 0.01, -1.0) for moved in (0.0, 0.475, 0.95)]
    [0.01, 0.51, 1.0]
    """
    return clip(moved / (1.0 - half_loop) + U_0, least, 1.0)


@compilable
def lagging(U: float, target: float, tau_out: float, tau_in: float, rate_out: float, rate_in: float) -> float:
    """Speed of a first-order spool, 1/s: (target - U)/tau, limited to the rate; ``out``: away from 0, ``in``: to 0.

    >>> [lagging(U, target, 0.1, 0.2, 9.0, 4.0) for U, target in ((0.0, 0.5), (0.5, 0.0), (0.0, -1.0), (-1.0, 0.0))]
    [5.0, -2.5, -9.0, 4.0]
    """
    error = target - U
    if error * U >= 0.0:
        return clip(error / tau_out, -rate_out, rate_out)
    return clip(error / tau_in, -rate_in, rate_in)
