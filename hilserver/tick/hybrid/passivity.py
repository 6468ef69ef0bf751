"""Whether a specimen takes up energy by its measured force. One that seems to supply energy has a force that is late.

By least squares with forgetting, with stiffness and damping unknown. A delay of the force looks like a damping that is
smaller by stiffness times delay. As long as the damping is positive, it may be what is wrong with the description; a
specimen that is not driven has no negative one. Observing the passivity of what is measured: Hannaford & Ryu, IEEE
Trans. Robot. Autom. 18 (2002) 1.
"""

from __future__ import annotations

from math import isfinite, sqrt

from hilserver.numerics.compilable import compilable
from hilserver.tick.hybrid.displacement import (
    CERTAIN,
    VELOCITY,
    DisplacementBridge,
    DisplacementMemory,
    seen_rate,
)
from hilserver.tick.plan import ActuatorRecord
from hilserver.tick.row import ActuatorState

PASSIVITY_TIME = 1.0
"""s of motion over which it is examined whether a specimen takes up energy."""
SEPARATE = 0.5
"""Least share of the motion that is independent in displacement and velocity, so that it tells their forces apart."""


@compilable
def examine_passivity(
    a: ActuatorRecord, b: ActuatorState, bridge: DisplacementBridge, memory: DisplacementMemory, force: float,
    elapsed: float,
) -> None:  # fmt: skip
    """Note in ``force_is_late`` that the damping of the specimen is surely negative, by the ``force`` measured last."""
    h, before_x, before_v, before_F = memory.estimate, b.then_x, b.then_v, b.then_F
    b.then_x = memory.displacements[memory.displacements.shape[0] - 1]
    b.then_v, b.then_F = seen_rate(bridge, h, 0, b.late_command), force
    x, v = 0.5 * (before_x + b.then_x), 0.5 * (before_v + b.then_v)
    F = 0.5 * (before_F + force) - a.stiffness * x - a.mass * (b.then_v - before_v) / elapsed
    if not isfinite(F) or abs(h[VELOCITY]) <= bridge.slow:
        return
    share = elapsed / (PASSIVITY_TIME + elapsed)
    b.mean_xx += (x * x - b.mean_xx) * share
    b.mean_xv += (x * v - b.mean_xv) * share
    b.mean_vv += (v * v - b.mean_vv) * share
    b.mean_Fx += (F * x - b.mean_Fx) * share
    b.mean_Fv += (F * v - b.mean_Fv) * share
    independent = b.mean_xx * b.mean_vv - b.mean_xv * b.mean_xv
    damping = b.mean_Fv * b.mean_xx - b.mean_Fx * b.mean_xv  # times this
    noise = bridge.variance[1] + a.stiffness * a.stiffness * bridge.variance[0]
    separate = independent > SEPARATE * b.mean_xx * b.mean_vv
    if separate and abs(damping) > CERTAIN * sqrt(0.5 * share * noise * b.mean_xx * independent):
        b.force_is_late = 1 if damping < 0.0 else 0


@compilable
def forget_passivity(b: ActuatorState) -> None:
    """Begin again."""
    b.mean_xx = b.mean_xv = b.mean_vv = b.mean_Fx = b.mean_Fv = 0.0
    b.force_is_late = 0
