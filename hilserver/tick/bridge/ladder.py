"""The bridge's strategies: one table, from which configuration, texts, comparisons and compiled dispatch are made.

A strategy that compensates for a different selection of effects is one more entry. A strategy of a new kind is an
entry, a member of `Kind`, and a function that `hilserver.tick.demand.strategy_command` calls for that kind.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from hilserver.numerics.compilable import compilable


class Kind(IntEnum):
    """The part of the bridge that computes the command."""

    MANUAL = 0
    """Jog commands."""
    INVERSE = 1
    """The inverse-orifice transform of this tick's virtual flow."""
    LOOK_AHEAD = 2
    """The inverse-orifice transform over the next ticks' virtual flow."""
    FLOW_SERVO = 3
    """PID control of the measured flow."""


class Compensates(IntEnum):
    """The effects for which a strategy may compensate, as bits. (Compiled code knows IntEnum, not IntFlag.)"""

    NOTHING = 0
    LAG = 1
    LEAKAGE = 2
    OVERLAP = 4
    SUPPLY_DROOP = 8
    DELAY = 16
    VOLUME_ERROR = 32
    PARAMETERS = 64


class Needs(Enum):
    """What a strategy requires, as a text for the user."""

    NOTHING = ""
    FLOW_SENSOR = "requires the flow: the channel that measures it (flow)"
    FLOW_OR_CYLINDER = "requires the flow: a channel (flow), or a cylinder at this port, whose motion gives it"


class Gains(Enum):
    """Data without which a strategy is no better than the level before it, as a text for the user."""

    ALWAYS = ""
    OVERLAP = "gains nothing over second_order: no overlap is known"
    SUPPLY_SENSOR = "gains nothing: the supply pressure is a fixed value"
    DELAY_OR_CYLINDER = "gains nothing: neither a delay nor a cylinder at port {port} is known"
    FLOW_OR_POSITION = "gains nothing: without a position at port {port} the flow is not observable"


_DYNAMICS = Compensates.LAG | Compensates.LEAKAGE
_NULL_REGION = _DYNAMICS | Compensates.OVERLAP
_SUPPLY = _NULL_REGION | Compensates.SUPPLY_DROOP
_PREDICTION = _SUPPLY | Compensates.DELAY
_FEEDBACK = _PREDICTION | Compensates.VOLUME_ERROR


class Strategy(IntEnum):
    """The levels of compensation, each including the one before it; also `manual` and the flow servo.

    Each member has: its number in row and log, its kind, the effects for which it compensates, its description, its
    requirements, and the data without which it is no better than the level before it.
    """

    kind: Kind
    compensates: int
    text: str
    needs: Needs
    gains: Gains

    def __new__(
        cls,
        number: int,
        kind: Kind = Kind.MANUAL,
        compensates: int = Compensates.NOTHING,
        text: str = "",
        needs: Needs = Needs.NOTHING,
        gains: Gains = Gains.ALWAYS,
    ) -> Strategy:
        """A member of the table."""
        member = int.__new__(cls, number)
        member._value_, member.kind, member.compensates, member.text = number, kind, compensates, text
        member.needs, member.gains = needs, gains
        return member

    manual = 0, Kind.MANUAL, Compensates.NOTHING, "manual commands, within the jog limits"
    inverse_static = (
        1,
        Kind.INVERSE,
        Compensates.NOTHING,
        "opening that passes the virtual flow at the measured pressure drop",
    )
    inverse_lag = (
        2,
        Kind.INVERSE,
        Compensates.LAG,
        "the same, with a lead that compensates the first-order lag of the real spool",
    )
    inverse_lag_leakage = (
        3,
        Kind.INVERSE,
        _DYNAMICS,
        "as inverse_lag, with the leakage of the real valve compensated",
    )
    second_order = (
        4,
        Kind.LOOK_AHEAD,
        _DYNAMICS,
        "lead for a second-order spool, from the derivatives of the virtual circuit",
    )
    null_region = (
        5,
        Kind.LOOK_AHEAD,
        _NULL_REGION,
        "as second_order, with the overlap crossed without a jump",
        Needs.NOTHING,
        Gains.OVERLAP,
    )
    supply_droop = (
        6,
        Kind.LOOK_AHEAD,
        _SUPPLY,
        "as null_region, with the supply pressure extrapolated",
        Needs.NOTHING,
        Gains.SUPPLY_SENSOR,
    )
    prediction = (
        7,
        Kind.LOOK_AHEAD,
        _PREDICTION,
        "as supply_droop, for the time at which the command takes effect: circuit and machine are predicted",
        Needs.NOTHING,
        Gains.DELAY_OR_CYLINDER,
    )
    feedback = (
        8,
        Kind.LOOK_AHEAD,
        _FEEDBACK,
        "as prediction, with the volume that did not flow added to the command",
        Needs.FLOW_OR_CYLINDER,
        Gains.FLOW_OR_POSITION,
    )
    adaptive = (
        9,
        Kind.LOOK_AHEAD,
        _FEEDBACK | Compensates.PARAMETERS,
        "as feedback, with the valve's flow gain and delay tracked",
        Needs.FLOW_OR_CYLINDER,
        Gains.FLOW_OR_POSITION,
    )
    flow_servo = 10, Kind.FLOW_SERVO, Compensates.NOTHING, "PID control of the measured flow", Needs.FLOW_SENSOR


STRATEGY_NAMES = tuple(Strategy.__members__)
BRIDGING = tuple(strategy.name for strategy in Strategy if strategy.kind is not Kind.MANUAL)
"""The strategies that follow the virtual flow, from the lowest level up."""
KINDS = tuple(int(strategy.kind) for strategy in Strategy)
COMPENSATIONS = tuple(int(strategy.compensates) for strategy in Strategy)
NEED_FLOW_SENSOR = tuple(strategy.needs is Needs.FLOW_SENSOR for strategy in Strategy)


@compilable
def kind_of(number: int) -> int:
    """Kind of the strategy with this number; MANUAL for a number that is not in the table (in a row from elsewhere)."""
    return KINDS[number] if 0 <= number < len(KINDS) else KINDS[0]


@compilable
def compensates(number: int, effect: int) -> bool:
    """Whether the strategy with this number compensates for an effect."""
    return 0 <= number < len(COMPENSATIONS) and COMPENSATIONS[number] & effect != 0


@compilable
def needs_flow_sensor(number: int) -> bool:
    """Whether the strategy with this number requires a measured flow."""
    return 0 <= number < len(NEED_FLOW_SENSOR) and NEED_FLOW_SENSOR[number]
