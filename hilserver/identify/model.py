r"""Model of a real valve for identification: from recorded commands to its flow.

The command u of a tick passes a play of half width h/2 (hysteresis, scaled so that full command is full stroke), is
shifted by the null offset U_0, held for a tick and delayed (by any time, not only whole ticks). A first- or
second-order spool follows it, calculated exactly:

.. math:: U_{in} = \frac{\mathrm{play}(u)}{1 - h/2} + U_0, \qquad \ddot U = \omega^2 (U_{in} - U) - 2 d\,\omega\,\dot U

The flow has the characteristic of the bridge (:mod:`hilserver.tick.valve`), as a sum of three shares that are linear in
C_PA, C_AT and the leakage coefficient.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from math import floor, pi
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import register_jitable

from hilserver.numerics.arrays import Floats
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.shape import clip
from hilserver.numerics.spool import within_play
from hilserver.numerics.valve import leakage_fade, opening_past_overlap
from hilserver.rig.valves import spool_matrix

QUICK = 2e-3
"""Share of the stroke in a tick (or the part before or after a new command) from which a spool counts as quick."""


class SpoolMotion(NamedTuple):
    """Dynamics of a spool: ``frequency``, Hz, is f90 with ``damping``, f45 where ``damping`` is 0; ``delay`` in s."""

    frequency: float
    damping: float
    delay: float

    def matrix(self, h: float) -> Floats:
        """Transition matrix over ``h`` s of the spool's distance from a held command and of its speed, row by row."""
        omega = 2.0 * pi * self.frequency
        if self.damping == 0.0:
            return np.array(spool_matrix(1.0 / omega, 0.0, 0.0, h))
        return np.array(spool_matrix(0.0, omega, self.damping, h))


def lag_of(frequency: float, damping: float) -> float:
    """Lag of a spool in slow movements, s. ``frequency``: f90; f45 where ``damping`` is 0."""
    return damping / (pi * frequency) if damping > 0.0 else 1.0 / (2.0 * pi * frequency)


def delay_of(values: Mapping[str, float]) -> float:
    """The delay: the lag minus that of the spool. (Their sum is known far better than either.)"""
    return values["lag"] - lag_of(values["frequency"], values.get("damping", 0.0))


class Spool(NamedTuple):
    """Position of a spool, tick by tick; a new command arrives after the ``share`` of a tick.

    ``way``, float64[ticks, 5]: at the beginning of the tick, in the middle and at the end of the part before the new
    command, in the middle and at the end of the part after it.
    """

    way: Floats
    share: float


def follow(command: Floats, dt: float, motion: SpoolMotion, null: float, hysteresis: float) -> Spool:
    """The spool under commands that are held for ``dt`` s each, at rest at the first one."""
    late = floor(motion.delay / dt)
    share = motion.delay / dt - late
    before, after = motion.matrix(0.5 * share * dt), motion.matrix(0.5 * (1.0 - share) * dt)
    target = compiled().through_play(command, 0.5 * hysteresis, null)
    return Spool(compiled().spool_way(target, late, before, after), share)


def shares_now(U: Floats, to_port: Floats, to_tank: Floats, overlap: float, gone_at: float) -> Floats:
    """Flow with the spool at ``U`` per unit of C_PA, C_AT and leakage coefficient, sqrt(Pa): float64[3, len(U)].

    ``to_port``, ``to_tank``: the orifice law of the drops p_S - p and p - p_T. For the port at the valve's other edges
    reverse the sign of ``U``.
    """
    shares: Floats = compiled().shares_of(U, to_port, to_tank, overlap, gone_at)
    return shares


def mean_shares(spool: Spool, turn: float, to_port: Floats, to_tank: Floats, overlap: float, gone_at: float) -> Floats:
    """The same as means over each tick except the last: float64[3, ticks - 1]. ``turn``: -1 at the other edges.

    The pressure drops change linearly from tick to tick.
    """
    shares: Floats = compiled().mean_shares_of(*spool, turn, to_port, to_tank, overlap, gone_at)
    return shares


def orifice_law(drop: Floats, p_tr: float) -> Floats:
    """The orifice law of many drops, sqrt(Pa)."""
    return np.array([root_of_drop(dp, p_tr) for dp in drop.tolist()])


# --- compiled at their first use --------------------------------------------------------------------------------------


class Kernels(NamedTuple):
    """The functions below, compiled."""

    through_play: Any
    spool_way: Any
    shares_of: Any
    mean_shares_of: Any


@functools.cache
def compiled() -> Kernels:
    """The functions below, compiled."""
    jit: Any = numba.njit(error_model="numpy")
    return Kernels(jit(_through_play), jit(_spool_way), jit(_shares_of), jit(_mean_shares_of))


@register_jitable
def _shares(U: float, to_port: float, to_tank: float, overlap: float, gone_at: float) -> tuple[float, float, float]:
    w = opening_past_overlap(U, overlap)
    return max(w, 0.0) * to_port, min(w, 0.0) * to_tank, leakage_fade(abs(U), gone_at) * (to_port - to_tank)


def _through_play(command: Floats, half: float, null: float) -> Floats:
    target = np.empty(len(command))
    last = command[0]
    for k in range(len(command)):
        last = within_play(last, command[k], half)
        target[k] = clip(last / (1.0 - half) + null, -1.0, 1.0)
    return target


def _spool_way(target: Floats, late: int, before: Floats, after: Floats) -> Floats:
    """Exact for held commands; the spool stops at the ends of its stroke."""
    n = len(target)
    way = np.empty((n, 5))
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
    return way


def _shares_of(U: Floats, to_port: Floats, to_tank: Floats, overlap: float, gone_at: float) -> Floats:
    shares = np.empty((3, len(U)))
    for k in range(len(U)):
        shares[0, k], shares[1, k], shares[2, k] = _shares(U[k], to_port[k], to_tank[k], overlap, gone_at)
    return shares


def _mean_shares_of(
    way: Floats, share: float, turn: float, to_port: Floats, to_tank: Floats, overlap: float, gone_at: float
) -> Floats:
    """Simpson's rule over both parts of each tick, on its three positions or on many along the parabola through them.

    Many where the spool is quick, since it may cross corners of the characteristic.
    """
    n = len(to_port) - 1
    mean = np.zeros((3, n))
    for k in range(n):
        step_P, step_T = to_port[k + 1] - to_port[k], to_tank[k + 1] - to_tank[k]
        for part in range(2):
            begin, length = (0.0, share) if part == 0 else (share, 1.0 - share)
            U_0, U_1, U_2 = turn * way[k, 2 * part], turn * way[k, 2 * part + 1], turn * way[k, 2 * part + 2]
            pieces = 16 if abs(U_1 - U_0) + abs(U_2 - U_1) > QUICK else 2
            for j in range(pieces + 1):
                s = j / pieces
                U = U_0 + s * (4.0 * U_1 - 3.0 * U_0 - U_2) + 2.0 * s * s * (U_0 - 2.0 * U_1 + U_2)
                at = begin + s * length
                weight = length / (3.0 * pieces) * (1.0 if j in (0, pieces) else (4.0 if j % 2 == 1 else 2.0))
                a, b, c = _shares(U, to_port[k] + at * step_P, to_tank[k] + at * step_T, overlap, gone_at)
                mean[0, k] += weight * a
                mean[1, k] += weight * b
                mean[2, k] += weight * c
    return mean
