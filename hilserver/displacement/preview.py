r"""Preview control: gains for the motion of a node as the look-ahead of the circuit foresees it.

If the position y of the node is known in advance, the regulator of :mod:`hilserver.displacement.design` becomes

.. math:: u_k = u_{k-1} - K z_k + \sum_j f_j\,y_{k+j}

(Tomizuka, J. Dyn. Sys. Meas. Control 97 (1975) 320). The look-ahead calculates position and velocity at `POINTS` times
up to its ``horizon``; between these times y is a cubic, and after the last one the node keeps its velocity. So the sum
becomes one over these positions and velocities, with gains that are calculated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import numpy as np

from hilserver.displacement.actuator import ActuatorModel
from hilserver.displacement.design import Followed, Tuning, deviating, quadratic, regulator_of
from hilserver.numerics.arrays import Floats, Matrix
from hilserver.tick.hybrid.memory import POINTS
from hilserver.tick.node_ahead import CALLS

LEADS = 3.0
"""Horizon, in times by which the command has to be ahead of the position: 2 leave errors of 0.5 to 3 % at 20 Hz with a
lag of 10 to 13 ms, 3 and 4 leave 0.2 to 0.3 %, and constant acceleration alone 30 to 70 %."""
LONGEST = 0.25
"""s; longest horizon."""


def horizon_of(gains: Floats, dt: float) -> float:
    """The time, s, over which a motion has to be foreseen; ``gains``: the first ones are for position and velocity.

    From one point to the next, it has a multiple of `CALLS` ticks, so that steps of the look-ahead contain whole ticks.
    """
    leads = min(LEADS * float(gains[1] / gains[0]), LONGEST)
    between = dt * CALLS
    return max(ceil(leads / ((POINTS - 1) * between) - 0.1), 1) * (POINTS - 1) * between


def preview_for(
    followed: Followed,
    actuator: ActuatorModel,
    spread: Mapping[str, float],
    dt: float,
    tuning: Tuning,
    horizon: float,
) -> tuple[Floats, Matrix, Matrix]:
    """Gains for the positions, m, then for the velocities, m/s; with their derivatives, as those of the regulator.

    ``followed`` is a motion by its position and velocity, which no force influences. Raises HilserverError if there is
    no stable regulator.
    """
    return quadratic(
        lambda theta: _gains(followed, deviating(actuator, spread, theta), dt, tuning, horizon), len(spread)
    )


def _gains(followed: Followed, actuator: ActuatorModel, dt: float, tuning: Tuning, horizon: float) -> Floats:
    regulator, interval = regulator_of(followed, actuator, dt, tuning), horizon / (POINTS - 1)
    position, velocity = np.zeros(POINTS), np.zeros(POINTS)
    beyond, moment = -float(regulator.gains[0]), -float(regulator.gains[1])
    for tick, gain in enumerate(regulator.preview(round(horizon / dt)) / tuning.error, start=1):
        k = min(int(tick * dt / interval), POINTS - 2)
        s = tick * dt / interval - k
        position[k] += gain * (1.0 - s * s * (3.0 - 2.0 * s))
        position[k + 1] += gain * s * s * (3.0 - 2.0 * s)
        velocity[k] += gain * interval * s * (1.0 - s) * (1.0 - s)
        velocity[k + 1] -= gain * interval * s * s * (1.0 - s)
        beyond, moment = beyond - gain, moment - gain * tick * dt
    position[-1] += beyond
    velocity[-1] += moment - beyond * horizon
    return np.concatenate([position, velocity])
