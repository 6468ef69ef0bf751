r"""Whether the piston presses against something stiff, and how stiff it is: learned from force and position.

A press that meets its workpiece hardly moves, and what little it moves raises the force. If the estimator took this
force as one that does not depend on the position, as that of a free mass, it would find a speed that is too high, and
the look-ahead would let the piston yield: prediction lags behind the real pressures, and the loop oscillates.

A change of the force F moves the piston by :math:`\Delta x`, and shortens the columns of oil by :math:`\Delta F/K`,

.. math:: K = A_A^2/C_A + A_B^2/C_B

What the oil takes up, as a fraction of both, is 0 for a piston that moves freely, 1/2 in front of a spring as stiff as
the oil, and 1 for a piston that stands. It is the least-squares solution of the recent movements, whereby standing
still (0) counts as much as one movement by `SMALLEST`. What is recent is not a matter of time: a movement replaces as
much of the earlier ones as it is larger, so that nothing is forgotten at rest, and everything within a tick of free
motion.

A load lighter than the rig file states, which oscillates on the oil, looks like a spring in F. But the force of the
pressures is then opposed to the movement, and a contact that opposes it does not count.

A contact is no stiffer than it is loaded: its stiffness vanishes with the force that has been built up since the piston
last moved freely, and there is none where friction alone could hold the piston. ``k`` is the cylinder's block of the
row, ``m`` its line of the plan. Compiled into the tick.
"""

from __future__ import annotations

from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip
from hilserver.tick.cylinder import chamber_A, chamber_B, is_known
from hilserver.tick.plan import CylinderRecord
from hilserver.tick.row import CylinderState

SLOW_TIME = 0.01
"""s: filter from whose output movements are counted."""
SMALLEST = 5e5
"""Pa, on the piston's area: change of the force that counts as a movement. Smaller ones are noise and friction."""
FRICTION = 1e6
"""Pa, on the piston's area: load up to which it may be friction that holds the piston, until it suddenly does not."""
MEMORY = 10.0
"""Sum of squared movements, in units of the smallest one, that is remembered."""
FREE, HELD = 0.2, 0.3
"""Fractions that the oil takes up, below which the piston counts as free and above which as held. Friction and mass
that the rig file does not state look like soft springs."""
LARGEST = 0.75
"""Fraction above which nothing is distinguished: three times as stiff as the oil."""
FASTEST = 1.0
"""Radians per tick: a contact with which the mass would oscillate faster, against oil and contact, counts as softer.
With the stiffer one, the filter would be unstable if its sensors are late: from 1.2 on if they are 2.4 ms late."""


@compilable
def note_stiffness(k: CylinderState, m: CylinderRecord, elapsed: float, dt: float) -> None:
    """Update the stiffness by this tick's estimate. Without a position sensor, and of a motor, it stays 0.

    ``elapsed``: time since the last tick, s; ``dt``: duration of a tick.
    """
    if m.sensor_x < 0 or m.stroke == 0.0 or not is_known(k):
        return
    oil = m.area_A**2 / chamber_A(k.x, k.p_A, m) + m.area_B**2 / chamber_B(k.x, k.p_B, m)
    smallest, slowly = SMALLEST * m.area_A, elapsed / (SLOW_TIME + elapsed)
    k.slow_x += (k.x - k.slow_x) * slowly
    k.slow_F += (k.F - k.slow_F) * slowly
    pressed = m.area_A * k.p_A - m.area_B * k.p_B
    k.slow_pressed += (pressed - k.slow_pressed) * slowly
    in_oil, by_piston = (k.F - k.slow_F) / smallest, (k.x - k.slow_x) * oil / smallest
    moved, taken_up = k.moved + (in_oil + by_piston) ** 2, k.taken_up + (in_oil + by_piston) * in_oil
    together = k.together + by_piston * (pressed - k.slow_pressed) / smallest
    keep = min(MEMORY / moved, 1.0) if moved > 0.0 else 1.0
    k.moved, k.taken_up, k.together = keep * moved, keep * taken_up, keep * together
    share = clip(k.taken_up / (1.0 + k.moved), 0.0, LARGEST)
    if share < 0.5 * FREE:
        k.free_F = k.slow_F
    loaded = clip((abs(k.F - k.free_F) - FRICTION * m.area_A) / smallest, 0.0, 1.0)
    loaded *= clip(1.0 + k.together, 0.0, 1.0)
    stiffness = loaded * clip((share - FREE) / (HELD - FREE), 0.0, 1.0) * oil * share / (1.0 - share)
    k.stiffness = min(stiffness, max(m.mass * (FASTEST / dt) ** 2 - oil, 0.0))
