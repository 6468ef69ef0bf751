"""The piston on its stop: no motion is left, only the compressibility of a chamber.

There virtual valve, real valve and chamber form a pressure loop. Its time constant is the chamber's capacitance by the
change of flow with pressure, often less than a millisecond: quicker than any real valve, so with all of the bridge's
gain and lead it swings between the ends of the command. But the pressure only has to arrive, and nothing moves
meanwhile: a part of the opening does, without lead and without volume feedback.

Compiled into the tick.
"""

from __future__ import annotations

from numba.extending import register_jitable

from hilserver.tick.plan import CylinderRecord, ValveRecord
from hilserver.tick.row import CylinderState, ValveState

AT_THE_STOP = 0.003
"""Share of the stroke that counts as its end: sensors of position have an offset."""
AWAY_TIME = 0.01
"""s, filter of the virtual flow that leads off the stop; noise has no lasting direction."""
LEAVING, ARRIVING = 0.01, 0.1
"""Shares of the nominal flow: more than this off the stop is leaving it, more than that towards it still arriving."""
PIN_TIME, FREE_TIME = 0.05, 3e-3
"""s in which the bridge gives its gain up on the stop, and has it back when the piston is to leave."""
PINNED_GAIN = 0.1
"""Share of the opening that is commanded on the stop."""


@register_jitable
def note_end_stop(b: ValveState, v: ValveRecord, k: CylinderState, m: CylinderRecord, elapsed: float) -> None:
    """Follow how much the piston counts as held at its end stop (0 … 1), from its position and the virtual flow."""
    outward = -b.flow_virtual if v.is_B else b.flow_virtual
    low, high = k.x < AT_THE_STOP * m.stroke, k.x > (1.0 - AT_THE_STOP) * m.stroke
    away = (outward if low else 0.0) - (outward if high else 0.0)
    b.flow_off_end_stop += (away - b.flow_off_end_stop) * elapsed / (AWAY_TIME + elapsed)
    is_pinned = (low or high) and -ARRIVING * v.Q_nominal < b.flow_off_end_stop < LEAVING * v.Q_nominal
    share, time = (1.0, PIN_TIME) if is_pinned else (0.0, FREE_TIME)
    b.end_stop_share += (share - b.end_stop_share) * elapsed / (time + elapsed)


@register_jitable
def gain_at_end_stop(b: ValveState) -> float:
    """Share of the opening that is commanded: 1 but on the stop."""
    return float(1.0 - (1.0 - PINNED_GAIN) * b.end_stop_share)
