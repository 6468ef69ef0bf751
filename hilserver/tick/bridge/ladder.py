"""The bridge's strategies: one table, from which configuration, texts, ladder and comparisons are made.

A strategy's number is what the row, the log and the compiled dispatch know it by (`strategies.strategy_command`,
`compensation.compensated`): a new one is added at the end of its range there.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class Needs(Enum):
    """What a strategy requires, as a text for the user."""

    NOTHING = ""
    FLOW_SENSOR = "requires the flow: the channel that measures it (flow)"
    FLOW_OR_CYLINDER = "requires the flow: a channel (flow), or a cylinder at this port, whose motion gives it"


class Gains(Enum):
    """Without which a strategy is no better than the level before it, as a text for the user."""

    ALWAYS = ""
    OVERLAP = "gains nothing over second_order: no overlap is known"
    SUPPLY_SENSOR = "gains nothing: the supply pressure is a fixed value"
    DELAY_OR_CYLINDER = "gains nothing: neither a delay nor a cylinder at port {port} is known"
    FLOW_OR_POSITION = "gains nothing: without a position at port {port} the flow is not observable"


class Strategy(IntEnum):
    """The levels of compensation, each with all that the one before has; also manual, and the flow servo.

    Per member: number, what it does, what it needs, and without which it is no better than the level before it.
    """

    text: str
    needs: Needs
    gains: Gains

    def __new__(
        cls, number: int, text: str = "", needs: Needs = Needs.NOTHING, gains: Gains = Gains.ALWAYS
    ) -> Strategy:
        """A member of the table."""
        member = int.__new__(cls, number)
        member._value_, member.text, member.needs, member.gains = number, text, needs, gains
        return member

    manual = 0, "commands by hand, within the jog limits"
    inverse_static = 1, "opening that passes the virtual flow at the measured pressure drop"
    inverse_lag = 2, "the same, with a lead that compensates the first-order lag of the real spool"
    inverse_lag_leakage = 3, "as inverse_lag, with the leakage of the real valve compensated"
    second_order = 4, "lead for a second-order spool, from the derivatives of the virtual circuit"
    null_region = 5, "as second_order, with the overlap crossed without a jump", Needs.NOTHING, Gains.OVERLAP
    supply_droop = 6, "as null_region, with the supply pressure extrapolated", Needs.NOTHING, Gains.SUPPLY_SENSOR
    prediction = (
        7,
        "as supply_droop, for the time at which the command takes effect: circuit and machine are predicted",
        Needs.NOTHING,
        Gains.DELAY_OR_CYLINDER,
    )
    feedback = (
        8,
        "as prediction, with the volume that did not flow added to the command",
        Needs.FLOW_OR_CYLINDER,
        Gains.FLOW_OR_POSITION,
    )
    adaptive = (
        9,
        "as feedback, with the valve's flow gain and delay tracked",
        Needs.FLOW_OR_CYLINDER,
        Gains.FLOW_OR_POSITION,
    )
    flow_servo = 10, "PID control of the measured flow", Needs.FLOW_SENSOR


STRATEGY_NAMES = tuple(Strategy.__members__)
BRIDGING = tuple(name for name in STRATEGY_NAMES if name != Strategy.manual.name)
"""The strategies that follow the virtual flow, from the lowest level on."""
