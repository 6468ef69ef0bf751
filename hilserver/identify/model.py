r"""Model of a real valve for identification: from recorded commands to its flow.

The command u of a tick passes a play of half width h/2 (hysteresis, scaled so that full command is full stroke), is
shifted by the null offset U_0, held for a tick and delayed (by any time, not only whole ticks). A first- or
second-order spool follows it, calculated exactly:

.. math:: U_{in} = \frac{\mathrm{play}(u)}{1 - h/2} + U_0, \qquad \ddot U = \omega^2 (U_{in} - U) - 2 d\,\omega\,\dot U

The flow has the characteristic of the bridge (:mod:`hilserver.tick.valve`), as a sum of three shares that are linear in
C_PA, C_AT and the leakage coefficient.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, pi
from typing import NamedTuple

import numpy as np

from hilserver.compiler import standard_program
from hilserver.numerics.arrays import Floats
from hilserver.rig.flow_signal import FlowSignal
from hilserver.rig.valves import spool_matrix


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

    def as_linear(self, curve: FlowSignal) -> Spool:
        """The openings of a linear valve with the same flow."""
        return self if curve.is_linear else Spool(curve.linear_opening(self.way), self.share)


def follow(command: Floats, dt: float, motion: SpoolMotion, null: float, hysteresis: float) -> Spool:
    """The spool under commands that are held for ``dt`` s each, at rest at the first one."""
    late = floor(motion.delay / dt)
    share = motion.delay / dt - late
    before, after = motion.matrix(0.5 * share * dt), motion.matrix(0.5 * (1.0 - share) * dt)
    program, target, way = standard_program(), np.empty(len(command)), np.empty((len(command), 5))
    program.through_play(np.ascontiguousarray(command), 0.5 * hysteresis, null, target)
    program.spool_way(target, late, before, after, way)
    return Spool(way, share)


def shares_now(U: Floats, to_port: Floats, to_tank: Floats, overlap: float, gone_at: float) -> Floats:
    """Flow with the spool at ``U`` per unit of C_PA, C_AT and leakage coefficient, sqrt(Pa): float64[3, len(U)].

    ``to_port``, ``to_tank``: the orifice law of the drops p_S - p and p - p_T. For the port at the valve's other edges
    reverse the sign of ``U``.
    """
    shares = np.empty((3, len(U)))
    arrays = (np.ascontiguousarray(array) for array in (U, to_port, to_tank))
    standard_program().shares_of(*arrays, overlap, gone_at, shares)
    return shares


def mean_openings(spool: Spool, turn: float, overlap: float, gone_at: float) -> Floats:
    """Means of the openings over each tick except the last: float64[3, 2, ticks - 1]. ``turn``: -1 at the other edges.

    The edges of C_PA, C_AT (not positive) and the leakage, each weighted by what is left of the tick, and by what has
    passed of it.
    """
    mean = np.zeros((6, len(spool.way) - 1))
    standard_program().mean_openings_of(*spool, turn, overlap, gone_at, mean)
    return mean.reshape(3, 2, -1)


def mean_shares(openings: Floats, to_port: Floats, to_tank: Floats) -> Floats:
    """The same as `shares_now`, as means over each tick except the last: float64[3, ticks - 1].

    The orifice laws change linearly from tick to tick: they count at both ends of a tick, each with its weight.
    """
    laws = (to_port, to_tank, to_port - to_tank)
    return np.array([begin * law[:-1] + end * law[1:] for (begin, end), law in zip(openings, laws, strict=True)])
