"""The strokes of a mechanism's actuators, as the circuit sees them: states of their own, integrated like the flows.

The position of an actuator follows from the mechanism's state, whose integration is not exact, and whose drift is
corrected between steps. If that position were used for the piston, its chambers would displace oil that has not
flowed. A node therefore has a stroke that is the integral of its speed, to within rounding, with any method; the speed
at the node follows the mechanism: v = v_m + (x_m - x)/T. As x_m' = v_m, the difference x_m - x decays with the time
constant T whatever the mechanism does.
"""

from __future__ import annotations

from hilserver.mechanics.columns import NODES
from hilserver.numerics.arrays import Floats, Indices

NODE_ENTRIES = 3
"""Entries in ix of an actuator: index of its stroke in z; of its sum of efforts in d; of its speed in z."""
FOLLOWING = 0.01
"""s; time constant T. The difference is some ten steps' error of the method."""
STRAY = 1e-3
"""m or rad: a stroke that is further away has not drifted (a switch, a start from other values), and is set."""


def move_node(ix: Indices, z: Floats, d: Floats, m: int, k: int, x: float, v: float) -> None:
    """Speed and derivative of the stroke of actuator ``k``, for the mechanism's position ``x`` and speed ``v``."""
    row = m + NODES + NODE_ENTRIES * k
    stroke, speed = ix[row], ix[row + 2]
    if not abs(x - z[stroke]) < STRAY:
        z[stroke] = x
    z[speed] = v + (x - z[stroke]) / FOLLOWING
    d[stroke] = z[speed]
