"""What of a fragment is not merged because a spool does not move as the model describes, and why.

A spool that lags more in fast movements than in slow ones still ends where the command sends it: the means over many
movements show its flows, null and overlap, and the machine, as those of any other spool. What describes its motion is
between that of slow movements and that of fast ones. A spool that is always at its highest speed is nowhere long
enough: the flows are then those on its way, and only the sensors remain.
"""

from __future__ import annotations

from dataclasses import replace

from hilserver.identify.findings import IdentifiedValue
from hilserver.identify.identification import Identified

MOTION = ("f90", "f45", "damping", "hysteresis")
"""Keys of a valve that describe how its spool moves. The delay is not among them: with the motion that the rig file
states, it gives the lag of the recorded movements. Hysteresis is: a fit makes up with it for a lag that varies.
"""
OF_SENSORS = ("noise", "tare")
"""Keys of a channel that are found without any model of a valve."""
BY_FLOWS = ("nominal_flow", "nominal_flow_to_tank", "overlap", "leakage", "gone_at", "null", "case_leakage")
"""Keys of a valve or actuator that follow from flows."""
WIDER = 2.0
"""Factor to their standard deviations beside a spool that lags more in fast movements: the errors on simulated rigs
were 1.3 (flows, null) to 2 (leakage past the piston) times as large as stated, root mean square.
"""
VARYING = "a mean of slow and fast movements"
ALWAYS_LATE = "the spool seems to be at its highest speed all the time"
OF_VARYING = (
    "The spool lags more in fast movements than in slow ones. Either its speed is limited: then enter its slew, and "
    "identify again. Or its frequency depends on the amplitude: then no value describes its motion, and that of the "
    "rig file remains, with the delay that suits the recorded movements."
)
OF_ALWAYS_LATE = (
    "The spool is far later than stated in all movements, as if it were at its highest speed all the time: enter its "
    "slew, and identify again. Until then, none of its values is merged, nor what depends on it."
)
"""Advice beside the values of such a valve."""


def advice(found: Identified) -> str:
    """What to do about a spool that does not move as the model describes; empty if it does."""
    if found.is_always_late:
        return OF_ALWAYS_LATE
    return OF_VARYING if found.is_speed_limited else ""


def reason_of_valve(found: Identified, key: str) -> str:
    """Why this key of a valve is not merged; empty if it is."""
    if found.is_always_late:
        return ALWAYS_LATE
    return VARYING if found.is_speed_limited and key in MOTION else ""


def widened(value: IdentifiedValue) -> IdentifiedValue:
    """A value beside a spool that lags more in fast movements, with the standard deviation that it then has."""
    if value.key not in BY_FLOWS:
        return value
    estimate = value.estimate
    return replace(value, estimate=replace(estimate, deviation=WIDER * estimate.deviation))
