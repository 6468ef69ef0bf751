"""The commands that a server takes, each with its payload. Described in docs/mqtt.md."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from hilserver.errors import shown
from hilserver.protocol.published import Answer, Mode, refusal

ID_LIMIT = 64
"""Longest id of a command in characters."""
FILE_WORD = "[A-Za-z_][A-Za-z0-9_-]{0,39}"
"""Names that become a part of the name of a file."""


def is_id(text: str) -> bool:
    """Whether a text can be the id of a command."""
    return 0 < len(text) <= ID_LIMIT and text.isprintable()


def _checked_id(text: str) -> str:
    if not is_id(text):
        raise ValueError(f"{shown(text)}: an id has 1 to {ID_LIMIT} printable characters; this one has {len(text)}.")
    return text


def _checked_name(text: str) -> str:
    if not (0 < len(text) <= 255 and text.isprintable()):
        raise ValueError(f"{shown(text)}: a name has 1 to 255 printable characters; this one has {len(text)}.")
    return text


def _checked_word(text: str) -> str:
    if re.fullmatch(FILE_WORD, text) is None:
        raise ValueError(f"{shown(text)}: up to 40 letters, digits, _ and -, the first of them a letter or _.")
    return text


def _checked_full_scale(value: float) -> float:
    if not -1.0 <= value <= 1.0:
        raise ValueError(f"{value:g} is out of range: must be -1 ... 1 (fraction of full scale).")
    return value


def _not_empty(values: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if not values:
        raise ValueError('empty: give at least one value, such as {"opening_pressure": "120 bar"}.')
    return values


Name = Annotated[str, AfterValidator(_checked_name)]
FileWord = Annotated[str, AfterValidator(_checked_word), Field(json_schema_extra={"pattern": f"^{FILE_WORD}$"})]
Values = Annotated[dict[str, JsonValue], AfterValidator(_not_empty)]
FullScale = Annotated[
    float, AfterValidator(_checked_full_scale), Field(json_schema_extra={"minimum": -1, "maximum": 1})
]
Id = Annotated[str, AfterValidator(_checked_id), Field(json_schema_extra={"minLength": 1, "maxLength": ID_LIMIT})]


class Command(BaseModel):
    """A request to the server. ``name`` is the last level of its topic, ``hil/<rig>/command/<name>``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)
    name: ClassVar[str]
    patience: ClassVar[float] = 5.0
    """s for which a client waits for the answer by default."""

    id: Id | None = Field(
        default=None, description="repeated in the answer; a command with a known id is not carried out again"
    )
    expires: float | None = Field(
        default=None, description="Unix time in s on the server's system clock, after which it is refused"
    )

    def answer(
        self,
        *,
        time: float,
        tick: int | None = None,
        problems: Iterable[str] = (),
        result: dict[str, JsonValue] | None = None,
    ) -> Answer:
        """The answer to this command: a refusal where there are ``problems``. ``time``: Unix time in s."""
        found = tuple(problems)
        if found:
            return refusal(self.name, self.id, found, time, tick)
        return Answer(id=self.id, command=self.name, ok=True, result=result or {}, time=time, tick=tick)


class _ByOperator(Command):
    """A command whose sender becomes the operator, whose link the rig may require."""

    name = ""

    client: Id | None = Field(
        default=None, description="the sender's name in its heartbeats, where the rig requires them (see description)"
    )


class Arm(_ByOperator):
    """Allow the server to drive the real valve: SAFE to ARMED. The valve stays at null until `start`.

    The server first simulates the rig, unless it has already done so.
    """

    name = "arm"
    patience = 20.0


class Disarm(Command):
    """Back to SAFE: the valve to its safe value."""

    name = "disarm"


class Start(_ByOperator):
    """Run the virtual circuit on the real valve: ARMED to RUNNING."""

    name = "start"


class Stop(Command):
    """End the run: RUNNING to ARMED, valves to null within their slew limit, actuators to their safe displacement."""

    name = "stop"


class Reset(Command):
    """Leave FAULT for SAFE, once the cause is gone."""

    name = "reset"


class Trip(Command):
    """Latched FAULT at once: valves to their safe values at their slew limit. Does not replace an emergency stop."""

    name = "trip"


class SetInput(Command):
    """Set an operator input, such as the joystick."""

    name = "set_input"
    input: Name = Field(description="name of the operator input")
    value: float = Field(description="new value in the input's unit, within its range (see the description topic)")


class _OfCircuit(Command):
    """A command that changes the virtual circuit."""

    name = ""

    version: int | None = Field(
        default=None,
        ge=1,
        description="version of the circuit that the change was made for (see the circuit topic); refused if another "
        "one is active",
    )


class SetParameter(_OfCircuit):
    """Change datasheet values of one component of the virtual circuit while it runs."""

    name = "set_parameter"
    component: Name = Field(description="name of the component in the circuit")
    set: Values = Field(description='new values by key, such as {"nominal_flow.flow": "60 l/min"}')


class Switch(_OfCircuit):
    """Change one component of the virtual circuit while it runs: new values (`set`) or a new type (`type`)."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["set"]}, {"required": ["type"]}]})
    name = "switch"
    component: Name = Field(description="name of the component in the circuit")
    set: Values | None = Field(default=None, description="new values by key; all others are kept")
    type: Name | None = Field(default=None, description="component type that replaces the present one")
    values: dict[str, JsonValue] | None = Field(
        default=None, description="all values of the new type, as in a circuit file"
    )
    start: Literal["initial", "steady"] = Field(
        default="initial",
        description="new states start at their initial values, or at equilibrium with the states carried over",
    )

    @model_validator(mode="after")
    def _one_way(self) -> "Switch":
        if self.set is None and self.type is None:
            raise ValueError("give either set (other values of the component) or type and values (another component).")
        if self.set is not None and (self.type is not None or self.values is not None):
            raise ValueError("set and type exclude each other: set changes values, type replaces the component.")
        return self


class SwitchCircuit(_OfCircuit):
    """Replace the whole virtual circuit while it runs; states are carried over by name."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["circuit"]}, {"required": ["file"]}]})
    name = "switch_circuit"
    circuit: Values | None = Field(default=None, description="the circuit, laid out like a circuit file")
    file: Name | None = Field(default=None, description="name of a circuit file on the server")
    start: Literal["initial", "steady"] = Field(
        default="initial",
        description="new states start at their initial values, or at equilibrium with the states carried over",
    )

    @model_validator(mode="after")
    def _one_source(self) -> "SwitchCircuit":
        if (self.circuit is None) == (self.file is None):
            raise ValueError("give either circuit (the circuit itself) or file (a circuit file on the server).")
        return self


class _OfDriven(Command):
    """A command for one real valve, or for one actuator whose position is controlled."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["valve"]}, {"required": ["actuator"]}]})
    valve: Name | None = Field(default=None, description="name of the real valve")
    actuator: Name | None = Field(default=None, description="or of the actuator whose position is controlled")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.valve is None) == (self.actuator is None):
            raise ValueError("give either valve or actuator: the name of what the command is for.")
        return self


class SelectStrategy(_OfDriven):
    """Select the strategy that turns the virtual flow or position into the command of a real valve or actuator."""

    name = "strategy"
    strategy: Name = Field(description="one of its strategies (see the description topic)")


class Jog(_OfDriven):
    """Move a real valve or an actuator manually, within its jog limits. Requires the strategy `manual`."""

    name = "jog"
    command: FullScale = Field(
        description="command of a valve, fraction of full scale, or velocity of an actuator, fraction of its jog "
        "speed; -1 ... 1"
    )


class Cycle(Command):
    """Start or stop the work cycle that moves the operator inputs."""

    name = "cycle"
    action: Literal["start", "stop"] = Field(
        description="start: from the beginning; stop: the inputs keep their values"
    )


class React(Command):
    """Arm a reaction: where the condition `when` is met, the loop acts in the same tick. It ends with the run.

    It acts in RUNNING only, and replaces an armed one of the same name.
    """

    name = "react"
    reaction: Name = Field(description="name of the reaction, in events and in the log")
    when: Name = Field(
        description="condition: a channel as in telemetry, > or <, and a value with its unit, such as p_A > 200 bar"
    )
    then: Literal["set", "hold", "stop", "trip"] = Field(
        description="set: set or ramp an `input`; hold: keep the valves' commands until the condition ends; stop: "
        "RUNNING to ARMED; trip: FAULT. After stop, `release` it before the next start"
    )
    input: Name | None = Field(default=None, description="set: name of the operator input")
    value: float | None = Field(default=None, description="set: its new value, within its range")
    ramp: Name | None = Field(default=None, description="set: time in which it moves there, such as 0.5 s; default: 0")
    hold: Name | None = Field(default=None, description="time for which the condition must hold, such as 20 ms")
    hysteresis: Name | None = Field(
        default=None, description="distance from the level, such as 5 bar, at which a condition that was met ends"
    )
    edge: bool = Field(default=False, description="true: the condition must not hold at first, and then be met")
    repeat: bool = Field(
        default=False, description="set, hold: true: it fires again whenever the condition is met again"
    )

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> "React":
        for key in ("input", "value", "ramp"):
            given = getattr(self, key) is not None
            if given and self.then != "set":
                raise ValueError(f"{key} is not used with {self.then}: remove it.")
            if not given and self.then == "set" and key != "ramp":
                raise ValueError(f"set requires {key}.")
        return self


ENDING = ("stop", "trip")
"""Actions of a reaction that end the run, and with it the other reactions."""


class Release(Command):
    """Disarm a reaction, or all. One that has stopped the run no longer prevents the next start."""

    name = "release"
    reaction: Name | None = Field(default=None, description="name of the reaction; default: all")


class BeginPlayout(Command):
    """Play a sine on an operator input, and control its amplitude and phase to the response of a channel.

    The sine is that of the tick's number: two playouts of the same frequency have the same phase reference. It ends
    after its cycles, or when the amplitude of the response deviates by more than its tolerance; the input then goes to
    `mean` within a cycle.
    """

    name = "play"
    playout: Name = Field(description="name of the playout, in events, in the state and in the log")
    input: Name = Field(description="name of the operator input that is moved")
    channel: Name = Field(description="channel whose response is controlled, as in telemetry")
    amplitude: Name = Field(description="amplitude of the response that is wanted, such as 10 bar")
    frequency: Name = Field(description="frequency, such as 2 Hz; the period is rounded to whole ticks")
    cycles: int = Field(ge=1, le=10**12, description="number of cycles, after which it ends")
    counted: int = Field(default=0, ge=0, description="cycles of them that were done before: a test that is continued")
    phase: float = Field(default=0.0, description="phase of the response that is wanted, degrees")
    mean: float = Field(default=0.0, description="mean of the input")
    drive: float = Field(default=0.05, gt=0, description="amplitude of the input at first")
    limit: float | None = Field(
        default=None, gt=0, description="largest amplitude of the input; default: as far as its range allows"
    )
    gain: float = Field(default=0.5, ge=0, lt=2, description="share of the error that is corrected at a time; 0: none")
    tolerance: float = Field(
        default=0.1, gt=0, description="largest deviation of the response's amplitude, as a fraction of that wanted"
    )
    block: int = Field(default=4, ge=2, le=1_000_000, description="cycles from one correction to the next")
    centre: Name | None = Field(default=None, description="mean of the response that is held, such as 300 mm")
    centre_per: Name | None = Field(
        default=None, description="with centre: deviation of the mean for which the input's mean is moved by 1"
    )

    @model_validator(mode="after")
    def _both_or_none(self) -> "BeginPlayout":
        if (self.centre is None) != (self.centre_per is None):
            raise ValueError("centre and centre_per: give both or neither.")
        return self


class EndPlayout(Command):
    """End a playout, or all: the input goes to its mean within a cycle."""

    name = "end_playout"
    playout: Name | None = Field(default=None, description="name of the playout; default: all")


class ArmTrigger(Command):
    """Arm a trigger of the recording: the window of the log around it is kept in a file of its own.

    It is evaluated by the recorder, not by the loop. It replaces one of the same name that a command has armed.
    """

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["when"]}, {"required": ["mode"]}, {"required": ["event"]}]}
    )
    name = "trigger"
    trigger: FileWord = Field(description="name of the trigger, in the name of the file, in the state and in events")
    when: Name | None = Field(
        default=None,
        description="a signal crosses a level: a channel, input.<input>, valve.<valve>.<column>, "
        "actuator.<actuator>.<column> or circuit.<value>, then > (rising) or < (falling), and a value with its unit, "
        "such as p_A > 200 bar",
    )
    hysteresis: Name | None = Field(
        default=None, description="when: how far the signal must return, such as 5 bar, before it can cross again"
    )
    either: bool = Field(default=False, description="when: true: crossings in the other direction count, too")
    mode: Mode | None = Field(default=None, description="this mode begins")
    event: Literal["switch", "reaction", "missed", "limit"] | None = Field(
        default=None,
        description="switch: another circuit; reaction: one fires; missed: ticks are missed; limit: one is violated",
    )
    before: Name = Field(default="1 s", description="length of the window before the trigger, at most 30 s")
    after: Name = Field(default="2 s", description="length of the window after the trigger")
    repeat: bool = Field(default=False, description="true: every occurrence triggers; false: only the next one")

    @model_validator(mode="after")
    def _one_cause(self) -> "ArmTrigger":
        if sum(cause is not None for cause in (self.when, self.mode, self.event)) != 1:
            raise ValueError("give exactly one of when, mode and event.")
        return self


class EndTrigger(Command):
    """Disarm a trigger that a command has armed, or all of them. A window that has begun is completed."""

    name = "end_trigger"
    trigger: FileWord | None = Field(default=None, description="name of the trigger; default: all")


COMMANDS: Mapping[str, type[Command]] = {
    model.name: model
    for model in (
        Arm, Disarm, Start, Stop, Reset, Trip, SetInput, SetParameter, Switch, SwitchCircuit, SelectStrategy, Jog,
        Cycle, React, Release, BeginPlayout, EndPlayout, ArmTrigger, EndTrigger,
    )
}  # fmt: skip
"""Every command by name."""

TriggerCommand = ArmTrigger | EndTrigger
"""The commands for the recorder."""
CircuitCommand = SetParameter | Switch | SwitchCircuit
"""The commands that change the virtual circuit."""
