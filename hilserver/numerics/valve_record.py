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
def _shares(U: float, to_port: float, to_tank: float, overlap: float, gone_at: float) -> tuple[float, float, float]:
    w = opening_past_overlap(U, overlap)
    return max(w, 0.0) * to_port, min(w, 0.0) * to_tank, leakage_fade(abs(U), gone_at) * (to_port - to_tank)


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
        shares[0, k], shares[1, k], shares[2, k] = _shares(U[k], to_port[k], to_tank[k], overlap, gone_at)


@compilable
def mean_shares_of(
    way: Matrix,
    share: float,
    turn: float,
    to_port: Floats,
    to_tank: Floats,
    overlap: float,
    gone_at: float,
    mean: Matrix,
) -> None:
    """The same as means over each tick, added to ``mean``.

    Simpson's rule over both parts of each tick, on its three positions or on many along the parabola through them.

    Many where the spool is quick, since it may cross corners of the characteristic.
    """
    n = len(to_port) - 1
    for k in range(n):
        step_P, step_T = to_port[k + 1] - to_port[k], to_tank[k + 1] - to_tank[k]
        for part in range(2):
            begin, length = (0.0, share) if part == 0 else (share, 1.0 - share)
            U_0, U_1, U_2 = turn * way[k, 2 * part], turn * way[k, 2 * part + 1], turn * way[k, 2 * part + 2]
            pieces = 16 if abs(U_1 - U_0) + abs(U_2 - U_1) > FAST_SPOOL else 2
            for j in range(pieces + 1):
                s = j / pieces
                U = U_0 + s * (4.0 * U_1 - 3.0 * U_0 - U_2) + 2.0 * s * s * (U_0 - 2.0 * U_1 + U_2)
                at = begin + s * length
                weight = length / (3.0 * pieces) * (1.0 if j in (0, pieces) else (4.0 if j % 2 == 1 else 2.0))
                a, b, c = _shares(U, to_port[k] + at * step_P, to_tank[k] + at * step_T, overlap, gone_at)
                mean[0, k] += weight * a
                mean[1, k] += weight * b
                mean[2, k] += weight * c
