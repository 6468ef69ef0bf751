"""The bridge's strategies: one table, from which configuration, texts, comparisons and compiled dispatch are made.

For a strategy of a new kind, the entry names a `Kind` with its functions (`hilserver.tick.bridge.kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, IntEnum

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable
from hilserver.tick.bridge.effects import Compensates, includes
from hilserver.tick.bridge.kinds import FLOW_SERVO, INVERSE, LOOK_AHEAD, MANUAL, Command, Kind, Prepare
from hilserver.tick.plan import Plan, ValveRecord
from hilserver.tick.row import ValveState, valve_state


class Needs(Enum):
    """What a strategy requires, as a text for the user."""

    NOTHING = ""
    FLOW_SENSOR = "requires the flow: the channel that measures it (flow)"
    FLOW_OR_CYLINDER = "requires the flow: a channel (flow), or a cylinder or motor at this port, whose motion gives it"


class Gains(Enum):
    """Data without which a strategy is no better than the level before it, as a text for the user."""

    ALWAYS = ""
    OVERLAP = "is no more accurate than second_order: no overlap is known"
    SUPPLY_SENSOR = "is no more accurate: the supply pressure is a fixed value"
    DELAY_OR_CYLINDER = "is no more accurate: neither a delay nor a cylinder or motor at port {port} is known"
    FLOW_OR_POSITION = "is no more accurate: without a position or speed at port {port} the flow is not observable"


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
        kind: Kind = MANUAL,
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

    manual = 0, MANUAL, Compensates.NOTHING, "manual commands, within the jog limits"
    inverse_static = (
        1,
        INVERSE,
        Compensates.NOTHING,
        "opening that passes the virtual flow at the measured pressure drop",
    )
    inverse_lag = (
        2,
        INVERSE,
        Compensates.LAG,
        "the same, with a lead that compensates the first-order lag of the real spool",
    )
    inverse_lag_leakage = (
        3,
        INVERSE,
        _DYNAMICS,
        "as inverse_lag, with the leakage of the real valve compensated",
    )
    second_order = (
        4,
        LOOK_AHEAD,
        _DYNAMICS,
        "lead for a second-order spool, from the derivatives of the virtual circuit",
    )
    null_region = (
        5,
        LOOK_AHEAD,
        _NULL_REGION,
        "as second_order, with the overlap crossed without a jump",
        Needs.NOTHING,
        Gains.OVERLAP,
    )
    supply_droop = (
        6,
        LOOK_AHEAD,
        _SUPPLY,
        "as null_region, with the supply pressure extrapolated",
        Needs.NOTHING,
        Gains.SUPPLY_SENSOR,
    )
    prediction = (
        7,
        LOOK_AHEAD,
        _PREDICTION,
        "as supply_droop, for the time at which the command takes effect: circuit and machine are predicted",
        Needs.NOTHING,
        Gains.DELAY_OR_CYLINDER,
    )
    feedback = (
        8,
        LOOK_AHEAD,
        _FEEDBACK,
        "as prediction, with feedback of the volume that the valve has not passed",
        Needs.FLOW_OR_CYLINDER,
        Gains.FLOW_OR_POSITION,
    )
    adaptive = (
        9,
        LOOK_AHEAD,
        _FEEDBACK | Compensates.PARAMETERS,
        "as feedback, with the valve's flow gain and delay tracked",
        Needs.FLOW_OR_CYLINDER,
        Gains.FLOW_OR_POSITION,
    )
    flow_servo = 10, FLOW_SERVO, Compensates.NOTHING, "PID control of the measured flow", Needs.FLOW_SENSOR


STRATEGY_NAMES = tuple(Strategy.__members__)
BRIDGING = tuple(strategy.name for strategy in Strategy if strategy.kind.follows)
"""The strategies that follow the virtual flow, from the lowest level up."""
KINDS = tuple(dict.fromkeys(strategy.kind for strategy in Strategy))

# One value per strategy, for compiled code.
_KIND = tuple(KINDS.index(strategy.kind) for strategy in Strategy)
_EFFECTS = tuple(int(strategy.compensates) for strategy in Strategy)
_FOLLOWS = tuple(strategy.kind.follows for strategy in Strategy)
_LOOKS_AHEAD = tuple(strategy.kind.looks_ahead for strategy in Strategy)
_INTEGRATES = tuple(strategy.kind.integrates for strategy in Strategy)
_NEEDS_FLOW_SENSOR = tuple(strategy.needs is Needs.FLOW_SENSOR for strategy in Strategy)


def _nothing(
    kind: int, effects: int, plan: Plan, row: Floats, work: Floats, valve: int, elapsed: float, dt: float
) -> float:
    return 0.0


def _no_memory(kind: int, q: float, command: float, b: ValveState, v: ValveRecord) -> None:
    return


def _command_of(commands: Sequence[Command]) -> Callable[..., float]:
    """A compiled function that calls the command of the kind with a number: a comparison for each of them."""
    chosen = compilable(_nothing)
    for number, command in reversed(list(enumerate(commands))):
        chosen = _either_command(number, command, chosen)
    return chosen


def _either_command(number: int, command: Command, other: Callable[..., float]) -> Callable[..., float]:
    @compilable
    def either(
        kind: int, effects: int, plan: Plan, row: Floats, work: Floats, valve: int, elapsed: float, dt: float
    ) -> float:
        if kind == number:
            return command(effects, plan, row, work, valve, elapsed, dt)
        return other(kind, effects, plan, row, work, valve, elapsed, dt)

    return either


def _prepare_of(functions: Sequence[Prepare]) -> Callable[..., None]:
    """The same for the functions that prepare."""
    chosen = compilable(_no_memory)
    for number, prepare in reversed(list(enumerate(functions))):
        chosen = _either_prepare(number, prepare, chosen)
    return chosen


def _either_prepare(number: int, prepare: Prepare, other: Callable[..., None]) -> Callable[..., None]:
    @compilable
    def either(kind: int, q: float, command: float, b: ValveState, v: ValveRecord) -> None:
        if kind == number:
            prepare(q, command, b, v)
        else:
            other(kind, q, command, b, v)

    return either


_command = _command_of([kind.command for kind in KINDS])
_prepare = _prepare_of([kind.prepare for kind in KINDS])


@compilable
def strategy_command(plan: Plan, row: Floats, work: Floats, valve: int, elapsed: float, dt: float) -> float:
    """The command that the strategy of a valve demands in this tick; see `hilserver.tick.bridge.kinds.Command`."""
    number = valve_state(plan, row, valve).strategy
    return _command(kind_of(number), effects_of(number), plan, row, work, valve, elapsed, dt)


@compilable
def prepare_strategy(number: int, q: float, command: float, b: ValveState, v: ValveRecord) -> None:
    """Set a strategy's memory so that it takes over from ``command`` without a jump (the remainder is faded out)."""
    _prepare(kind_of(number), q, command, b, v)


@compilable
def stop_winding_up(command: float, b: ValveState, v: ValveRecord) -> None:
    """Set the memory of a strategy that integrates to a command which the end of the stroke has limited."""
    if 0 <= b.strategy < len(_INTEGRATES) and _INTEGRATES[b.strategy]:
        prepare_strategy(b.strategy, b.flow_virtual, command, b, v)


@compilable
def kind_of(number: int) -> int:
    """Number of a strategy's kind in KINDS; the first one for a number that is not in the table (a row from elsewhere).

    The first one is that of `manual`.
    """
    return _KIND[number] if 0 <= number < len(_KIND) else 0


@compilable
def effects_of(number: int) -> int:
    """The effects for which a strategy compensates, as bits."""
    return _EFFECTS[number] if 0 <= number < len(_EFFECTS) else 0


@compilable
def compensates(number: int, effect: int) -> bool:
    """Whether the strategy with this number compensates for an effect."""
    return includes(effects_of(number), effect)


@compilable
def follows(number: int) -> bool:
    """Whether the strategy with this number follows the virtual flow."""
    return 0 <= number < len(_FOLLOWS) and _FOLLOWS[number]


@compilable
def looks_ahead(number: int) -> bool:
    """Whether the strategy with this number needs the circuit simulated over the next ticks."""
    return 0 <= number < len(_LOOKS_AHEAD) and _LOOKS_AHEAD[number]


@compilable
def needs_flow_sensor(number: int) -> bool:
    """Whether the strategy with this number requires a measured flow."""
    return 0 <= number < len(_NEEDS_FLOW_SENSOR) and _NEEDS_FLOW_SENSOR[number]
