"""The numbers that stand for modes, faults, commands, results, actions and saturations, with their texts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag

ABSURD = 1e12
"""A larger value, in SI units, is none of a circuit or machine: 1e12 Pa are 10 million bar."""


class Mode(IntEnum):
    """The state of the server; FAULT is latched until it is reset.

    SAFE means that the devices have confirmed the safe values of all monitored outputs.
    """

    STARTUP = 0
    SAFE = 1
    ARMED = 2
    RUNNING = 3
    FAULT = 4
    SAFE_NOT_CONFIRMED = 5


class Explained(IntEnum):
    """Numbers, each with a text for the user."""

    text: str

    def __new__(cls, number: int, text: str = "") -> Explained:
        """A member: its number and its text."""
        member = int.__new__(cls, number)
        member._value_, member.text = number, text
        return member


class FaultCode(Explained):
    """Cause of a trip; limit i of the plan is ``FIRST_LIMIT_FAULT + i``."""

    NONE = 0, ""
    MISSED = 1, "more ticks in a row were missed than loop.max_missed allows"
    DIVERGED = 2, "the virtual circuit diverged (a value too large or not finite); it was reset to its initial values"
    SUPERVISOR = 3, "the supervisor's heartbeat stopped"
    DEVICE = 4, "a device could not be read or written"
    OPERATOR = 5, "tripped by the operator (command trip)"
    BRIDGE = 6, "a bridge demanded a command that is not a finite number"
    ENABLE = 7, "the local enable was switched off"
    REACTION = 8, "tripped by a reaction"


FIRST_LIMIT_FAULT = 100
"""Fault of the plan's first limit; those of the others follow it."""


class CommandKind(IntEnum):
    """The kinds of commands to the loop."""

    NOTHING = 0
    ARM = 1
    DISARM = 2
    START = 3
    STOP = 4
    RESET = 5
    SET_INPUT = 6
    STRATEGY = 7
    JOG = 8
    CYCLE = 9
    SWAP = 10
    TRIP = 11
    REACT_WHEN = 12
    REACT_THEN = 13
    RELEASE = 14
    PLAY_TARGET = 15
    PLAY_DRIVE = 16
    PLAY = 17
    PLAY_END = 18
    CODE = 19


class ResultCode(Explained):
    """The result of a command."""

    DONE = 0, ""
    WRONG_MODE = 1, "not possible in this mode"
    LIMIT_ACTIVE = 2, "a violated limit would end it immediately; remove the cause first"
    NOT_MANUAL = 3, "the bridge strategy is not manual"
    UNKNOWN_COMMAND = 4, "unknown command"
    CAUSE_PERSISTS = 5, "the cause of the fault still exists; remove it first"
    BAD_VALUE = 6, "there is no such input, valve, strategy or cycle, or the value is not a finite number"
    NOT_ENABLED = 7, "the local enable is off: switch it on at the rig first"
    NOT_CONFIRMED = 8, "a device does not confirm its safe values: see the warnings in the state"
    NO_SUPPLY = 9, "the supply pressure of a valve is missing: switch the supply on first"
    REACTION_ENDED = 10, "a reaction has ended the last run: find out why, then release it (command release)"


class Action(IntEnum):
    """The actions of a violated limit, by severity."""

    NONE = 0
    WARN = 1
    HOLD = 2
    RAMP = 3
    TRIP = 4


class Reacting(IntEnum):
    """What a reaction does."""

    SET = 1
    HOLD = 2
    STOP = 3
    TRIP = 4


class ReactionState(IntEnum):
    """The state of a reaction. ARMED: not in RUNNING yet; DONE: has fired, and does so only once; ENDED: has ended the
    run, and must be released."""

    FREE = 0
    ARMED = 1
    WATCHING = 2
    RAMPING = 3
    HOLDING = 4
    DONE = 5
    ENDED = 6


class PlayoutState(IntEnum):
    """The state of a playout. WAITING: for the next cycle; LEARNING: not within its tolerance yet; FADING: to its mean.

    COMPLETED: all cycles are done; DEVIATED: the response was out of tolerance; ENDED: by a command; ABORTED: by the
    end of the run, by the circuit's switch, or because its input was set otherwise.
    """

    FREE = 0
    WAITING = 1
    LEARNING = 2
    CONTROLLED = 3
    FADING = 4
    COMPLETED = 5
    DEVIATED = 6
    ENDED = 7
    ABORTED = 8


class Watched(IntEnum):
    """The quantity that a limit monitors: of a channel, or the age of the confirmed command of an output.

    JUMPS to SUPPLY: implausible readings of a channel. FOLLOWING: the error of an actuator.
    """

    VALUE = 0
    AGE = 1
    RATE = 2
    CONFIRMATION = 3
    JUMPS = 4
    STUCK = 5
    FROZEN = 6
    ESTIMATE = 7
    SUPPLY = 8
    FOLLOWING = 9


class When(IntEnum):
    """When an output that is not a valve is on."""

    ARMED = 0
    RUNNING = 1
    HEALTHY = 2
    HEARTBEAT = 3


class Shape(IntEnum):
    """How a work cycle's value moves to its next point."""

    LINEAR = 0
    SMOOTH = 1
    JUMP = 2
    SINE = 3


class Characteristic(IntEnum):
    """Kinds of a channel's curve: a polynomial's coefficients (rising powers) or a table of points."""

    POLYNOMIAL = 0
    TABLE = 1


class Saturation(IntFlag):
    """Why a valve's command differs from that required by the virtual flow; and faults of its spool and loop."""

    text: str

    def __new__(cls, number: int, text: str = "") -> Saturation:
        """A member: its bit and its text."""
        member = int.__new__(cls, number)
        member._value_, member.text = number, text
        return member

    CAPACITY = 1, "the real valve is too small for the virtual flow at this pressure drop"
    NO_DROP = 2, "almost no drop in the direction of the virtual flow: not achievable, the command fades to null"
    RANGE = 4, "command limited to its range"
    SLEW = 8, "command limited by its slew limit"
    NEAR_END = 16, "command limited near the end of the stroke"
    OSCILLATION = 32, "the loop of circuit, bridge and machine oscillates"
    SPOOL_FAULT = 64, "the spool does not follow its command"


class Unseen(Explained):
    """Why the volume that a valve has passed is not known."""

    NOT = 0, "it is known"
    END_OF_RANGE = 1, "a sensor of the machine is at an end of its range"
    SOFT_OIL = 2, "the pressure is so low that free air makes the oil soft"
    VOID = 3, "there is a void: the motion of piston or motor does not show the flow"


class Learning(Explained):
    """What the values that an adaptive bridge tracks do at present."""

    OFF = 0, "off"
    TRACKED = 1, "tracked"
    NOT_EXCITED = 2, "held: the valve moves too little to learn from"
    NOT_ACHIEVABLE = 3, "held: the virtual flow is not achievable"
    OSCILLATION = 4, "forgotten: the loop oscillates"
    END_OF_RANGE = 5, f"held: {Unseen.END_OF_RANGE.text}"
    SOFT_OIL = 6, f"held: {Unseen.SOFT_OIL.text}"
    VOID = 7, f"held: {Unseen.VOID.text}"


def fault_text(number: int, limits: Sequence[str]) -> str:
    """The cause of a trip, of a rig with these limits; empty without a fault."""
    if 0 <= (place := number - FIRST_LIMIT_FAULT) < len(limits):
        return f"limit {limits[place]}"
    return FaultCode(number).text if number in FaultCode._value2member_map_ else f"fault {number}"
