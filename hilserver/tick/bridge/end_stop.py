"""The piston at its end stop: it no longer moves, and only the compressibility of a chamber remains.

There, virtual valve, real valve and chamber form a pressure loop. Its time constant is the chamber's capacitance
divided by the slope of flow over pressure, often less than a millisecond and so faster than any real valve: with the
bridge's full gain and lead, the command would oscillate between its limits. Since only the pressure has to reach its
value and nothing moves, a fraction of the flow is sufficient, without lead and without volume feedback. (Of the flow,
not of the command: a fraction of that would stay within the overlap, where the valve's leakage fills the chamber.)

Compiled into the tick.
"""

from __future__ import annotations

from hilserver.numerics.compilable import compilable
from hilserver.tick.plan import CylinderRecord, ValveRecord
from hilserver.tick.row import CylinderState, ValveState

AT_THE_STOP = 0.003
"""Fraction of the stroke that counts as its end, because position sensors have an offset."""
FLOW_FILTER_TIME = 0.01
"""s: filter of the virtual flow that moves the piston off the stop; noise averages out."""
LEAVING, ARRIVING = 0.01, 0.1
"""Fractions of the nominal flow: above the first, the piston leaves the stop; above the second, it still approaches."""
REDUCTION_TIME, RECOVERY_TIME = 0.05, 3e-3
"""s: times in which the bridge reduces its gain at the stop, and restores it when the piston is to leave."""
END_STOP_GAIN = 0.1
"""Fraction of the virtual flow that is asked of the valve at the stop."""


@compilable
def note_end_stop(b: ValveState, v: ValveRecord, k: CylinderState, m: CylinderRecord, elapsed: float) -> None:
    """Update the degree to which the piston counts as held at its end stop (0 … 1), from position and virtual flow."""
    if m.stroke == 0.0:  # a motor
        return
    outward = -b.flow_virtual if v.is_B else b.flow_virtual
    low, high = k.x < AT_THE_STOP * m.stroke, k.x > (1.0 - AT_THE_STOP) * m.stroke
    away = (outward if low else 0.0) - (outward if high else 0.0)
    b.flow_off_end_stop += (away - b.flow_off_end_stop) * elapsed / (FLOW_FILTER_TIME + elapsed)
    is_held = (low or high) and -ARRIVING * v.Q_nominal < b.flow_off_end_stop < LEAVING * v.Q_nominal
    share, time = (1.0, REDUCTION_TIME) if is_held else (0.0, RECOVERY_TIME)
    b.end_stop_share += (share - b.end_stop_share) * elapsed / (time + elapsed)


@compilable
def gain_at_end_stop(b: ValveState) -> float:
    """Fraction of the virtual flow that is asked of the valve: 1 except at the stop."""
    return float(1.0 - (1.0 - END_STOP_GAIN) * b.end_stop_share)
