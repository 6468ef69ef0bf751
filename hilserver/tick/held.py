"""draft"""

from __future__ import annotations

from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.cylinder import chamber_A, chamber_B, is_known
from hilserver.tick.plan import CylinderRecord
from hilserver.tick.row import CylinderState

SLOW_TIME = 0.01
SMALLEST = 5e5
MEMORY = 10.0
FREE, HELD = 0.2, 0.3
STIFFEST = 0.75


@compilable
def note_stiffness(k: CylinderState, m: CylinderRecord, elapsed: float) -> None:
    """X."""
    if m.sensor_x < 0 or not is_known(k):
        return
    oil = m.area_A**2 / chamber_A(k.x, k.p_A, m) + m.area_B**2 / chamber_B(k.x, k.p_B, m)
    slowly, unit = elapsed / (SLOW_TIME + elapsed), SMALLEST * m.area_A / oil
    k.slow_x += (k.x - k.slow_x) * slowly
    k.slow_F += (k.F - k.slow_F) * slowly
    by_oil = (k.F - k.slow_F) / (oil * unit)
    both = by_oil + (k.x - k.slow_x) / unit
    k.yielded += both * both
    k.held += both * by_oil
    if k.yielded > MEMORY:
        k.held *= MEMORY / k.yielded
        k.yielded = MEMORY
    share = k.held / (1.0 + k.yielded)
    share = clip(share, 0.0, STIFFEST) * clip((share - FREE) / (HELD - FREE), 0.0, 1.0)
    k.stiffness = oil * share / (1.0 - share)
