"""A valve over a whole record: position of its spool and shares of its flow (see `hilserver.identify`)."""

from __future__ import annotations

from hilserver.numerics.arrays import Floats, Matrix
from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.numerics.spool import within_play
from hilserver.numerics.valve import leakage_fade, opening_past_overlap

FAST_SPOOL = 2e-3
"""Fraction of the stroke in a tick (or the part before or after a new command) from which a spool counts as quick."""


@compilable
def _openings(U: float, overlap: float, gone_at: float) -> tuple[float, float, float]:
    """Opening to the port, that to the tank (not positive), and the fraction of the leakage."""
    w = opening_past_overlap(U, overlap)
    return max(w, 0.0), min(w, 0.0), leakage_fade(abs(U), gone_at)


@compilable
def through_play(command: Floats, half: float, null: float, target: Floats) -> None:
    """The commands behind a play of half width ``half``, shifted by ``null``, into ``target``."""
    last = command[0]
    for k in range(len(command)):
        last = within_play(last, command[k], half)
        target[k] = clip(last / (1.0 - half) + null, -1.0, 1.0)


@compilable
def spool_way(target: Floats, late: int, before: Floats, after: Floats, way: Matrix) -> None:
    """The way of a spool (see `hilserver.identify.model.Spool`), exact for held commands; it stops at its ends."""
    n = len(target)
    U, speed = target[0], 0.0
    for k in range(n):
        way[k, 0] = U
        for part in range(2):
            goal = target[min(max(k - late - 1 + part, 0), n - 1)]
            m = before if part == 0 else after
            for half in range(2):
                away = U - goal
                U = goal + m[0] * away + m[1] * speed
                speed = m[2] * away + m[3] * speed
                if abs(U) > 1.0:
                    U, speed = clip(U, -1.0, 1.0), 0.0
                way[k, 1 + 2 * part + half] = U


@compilable
def shares_of(U: Floats, to_port: Floats, to_tank: Floats, overlap: float, gone_at: float, shares: Matrix) -> None:
    """The shares of the flow at each position, one line of ``shares`` each."""
    for k in range(len(U)):
        to_P, to_T, fade = _openings(U[k], overlap, gone_at)
        shares[0, k], shares[1, k], shares[2, k] = (
            to_P * to_port[k],
            to_T * to_tank[k],
            fade * (to_port[k] - to_tank[k]),
        )


@compilable
def mean_openings_of(way: Matrix, share: float, turn: float, overlap: float, gone_at: float, mean: Matrix) -> None:
    """The openings as means over each tick, added to ``mean``, float64[6, ticks].

    Each is weighted by the part of the tick that is left, and in the next line by that which has passed.

    Simpson's rule over both parts of each tick, on its three positions or on many along the parabola through them.
    Many where the spool is quick, since it may cross corners of the characteristic.
    """
    for k in range(mean.shape[1]):
        for part in range(2):
            begin, length = (0.0, share) if part == 0 else (share, 1.0 - share)
            U_0, U_1, U_2 = turn * way[k, 2 * part], turn * way[k, 2 * part + 1], turn * way[k, 2 * part + 2]
            pieces, width = (16, 1.0 / 16.0) if abs(U_1 - U_0) + abs(U_2 - U_1) > FAST_SPOOL else (2, 0.5)
            slope, bend = 4.0 * U_1 - 3.0 * U_0 - U_2, 2.0 * (U_0 - 2.0 * U_1 + U_2)
            for j in range(pieces + 1):
                s = j * width
                weight = length * width / 3.0 * (1.0 if j in (0, pieces) else (4.0 if j % 2 == 1 else 2.0))
                passed = weight * (begin + s * length)
                left = weight - passed
                to_port, to_tank, fade = _openings(U_0 + s * (slope + s * bend), overlap, gone_at)
                mean[0, k] += left * to_port
                mean[1, k] += passed * to_port
                mean[2, k] += left * to_tank
                mean[3, k] += passed * to_tank
                mean[4, k] += left * fade
                mean[5, k] += passed * fade
