"""The bridge's strategies: one table."""

from __future__ import annotations

from enum import IntEnum


class Strategy(IntEnum):
    """The ladder of compensation, each rung with all that the one before has; and manual, and the flow servo."""

    manual = 0
    inverse_static = 1
    inverse_lag = 2
    inverse_lag_leakage = 3
    second_order = 4
    null_region = 5
    supply_droop = 6
    prediction = 7
    feedback = 8
    adaptive = 9
    flow_servo = 10


STRATEGY_NAMES = tuple(Strategy.__members__)
