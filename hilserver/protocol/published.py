"""Everything that the server publishes: answers, and the messages of its topics. Described in docs/mqtt.md."""

from collections.abc import Iterable
from typing import Literal

from pydantic import AliasChoices, Field, JsonValue, computed_field
from pydantic.config import JsonDict

from hilserver.protocol.driven import (
    ActuatorDescription,
    ActuatorStatus,
    LearnedValue,
    Utilisation,
    ValveDescription,
)
from hilserver.protocol.message import Published

DEPRECATED: JsonDict = {"deprecated": True}
"""In the schema of a key that has been renamed: published under both names, for clients that know only the old one."""


class Answer(Published):
    """The answer to one command: carried out, or refused with the reason."""

    id: str | None = Field(description="the command's id; null if it had none or it could not be read")
    command: str = Field(description="the command's name")
    ok: bool = Field(description="true: carried out; false: refused, nothing was changed")
    reason: str | None = Field(default=None, description="why it was refused, in one sentence")
    problems: tuple[str, ...] = Field(default=(), description="all problems, one sentence each")
    result: dict[str, JsonValue] = Field(default={}, description="the command's result")
    tick: int | None = Field(
        default=None, description="tick at which it took effect; null if it never reached the loop"
    )
    time: float = Field(description="the server's system clock at the answer, Unix time in s")
    duplicate: bool = Field(default=False, description="true: this id was used before; the first answer, repeated")


def refusal(command: str, id: str | None, problems: Iterable[str], time: float, tick: int | None = None) -> Answer:
    """The answer to a refused command. ``problems``: the reasons, one sentence each; ``time``: Unix time in s."""
    found = tuple(problems)
    reason = found[0] if len(found) == 1 else f"{len(found)} problems: " + "; ".join(found)
    return Answer(id=id, command=command, ok=False, reason=reason, problems=found, time=time, tick=tick)


class ChannelDescription(Published):
    """A channel of the rig or of the virtual circuit."""

    unit: str = Field(description='unit of its values, "" for a plain number')
    kind: str = Field(description="origin of the channel, such as measured, virtual, command")
    description: str = Field(default="", description="description of the channel")


class InputDescription(Published):
    """An operator input and its range."""

    unit: str = Field(description='unit of its values, "" for a plain number')
    minimum: float = Field(description="smallest value accepted")
    maximum: float = Field(description="largest value accepted")
    initial: float = Field(default=0.0, description="value at rest")
    hold_to_run: float | None = Field(
        default=None, description="the value returns to rest unless it is renewed within this time, s; null: it stays"
    )
    description: str = Field(default="", description="description of the input")


class OperatorDescription(Published):
    """The link to the operator that the rig requires while it is armed or running."""

    require: Literal["broker", "client", "none"] = Field(
        default="broker",
        description="broker: the server's connection to the broker; client: also heartbeats of the client that has "
        "armed or started; none: nothing",
    )
    lost_after: float = Field(
        default=2.0, description="time without a response after which the operator counts as lost, s"
    )
    action: Literal["ramp", "trip"] = Field(default="ramp", description="what the server does then")


class CommandDescription(Published):
    """A command: its topic, its purpose, the JSON Schema of its payload."""

    topic: str = Field(description="topic to which the command is sent")
    description: str = Field(description="effect of the command")
    payload_schema: dict[str, JsonValue] = Field(description="JSON Schema of the payload")


class TopicDescription(Published):
    """A topic that the server publishes."""

    topic: str = Field(description="full name of the topic")
    retained: bool = Field(description="whether the broker keeps the latest message")
    description: str = Field(description="content of the topic")


class Description(Published):
    """Description of this server and its commands. Retained."""

    rig: str = Field(description="the rig's name")
    version: str = Field(description="version of hilserver")
    command_lifetime: float | None = Field(
        default=None, description="commands must have an id and expire within this time, s; null: neither is required"
    )
    operator: OperatorDescription = Field(default=OperatorDescription(), description="the link to the operator")
    channels: dict[str, ChannelDescription] = Field(description="every channel in telemetry and state")
    inputs: dict[str, InputDescription] = Field(description="operator inputs, for set_input")
    valves: dict[str, ValveDescription] = Field(description="real valves, for strategy and jog")
    actuators: dict[str, ActuatorDescription] = Field(
        default={}, description="actuators whose position is controlled, for strategy"
    )
    reactions: int = Field(default=0, description="number of reactions that can be armed at a time, for react")
    playouts: int = Field(default=0, description="number of playouts that can run at a time, for play")
    commands: dict[str, CommandDescription]
    topics: dict[str, TopicDescription]


Mode = Literal["STARTUP", "SAFE", "ARMED", "RUNNING", "FAULT", "SAFE_NOT_CONFIRMED"]


class DeviceStatus(Published):
    """The state of a device. Its driver counts the failures and retries automatically."""

    errors: dict[str, int] = Field(default={}, description="failures since the start of the server, by kind")
    last_error: str | None = Field(default=None, description="the latest failure, as a sentence")
    restarts: int = Field(default=0, description="number of restarts of its I/O process")


class DurationFigures(Published):
    """Statistics of durations, in s. Percentiles are accurate to 1 %."""

    count: int = Field(description="number of durations")
    min: float = Field(description="minimum")
    mean: float = Field(description="mean")
    median: float = Field(description="median")
    p99: float = Field(description="99th percentile")
    p999: float = Field(description="99.9th percentile")
    max: float = Field(description="maximum")


class LoopStatus(Published):
    """Timing of the real-time loop since the start of the server, as measured by the loop itself; in s."""

    period: float = Field(description="configured time between ticks on the clock")
    speed: float = Field(
        default=1.0,
        description="seconds of the rig per second of the clock; not 1 only where a simulated rig runs in slow or "
        "fast motion. A tick is period * speed seconds of the rig",
    )
    wake_up: DurationFigures = Field(description="from a tick's deadline to its start, missed ticks included")
    work: DurationFigures | None = Field(description="computing time of a tick; null before the second tick")
    parts: dict[str, DurationFigures] = Field(description="the same by parts: read, compute, write, publish")
    time_sync_error: float = Field(
        description="largest difference between ideal and actual simulation time since the start of the run"
    )
    minimum_step: float = Field(
        description="longest computing time of a tick: the shortest period that would have been sufficient"
    )


class RecordingStatus(Published):
    """State of the full-rate log."""

    file: str | None = Field(default=None, description="the file that is being written; null: nothing is recorded")
    rows: int = Field(default=0, description="rows in this recording, including its earlier files")
    tick: int | None = Field(default=None, description="last tick written; null: none yet")
    lost: int = Field(default=0, description="rows lost because the disk was too slow")
    gap: int = Field(default=0, description="ticks between the previous log and this one that are in no log")
    megabytes: float = Field(default=0.0, description="size of the file")
    free_megabytes: float | None = Field(default=None, description="free space on its disk; null: not known")
    buffer_left: float = Field(
        default=0.0, description="s; time for which new rows still fit into memory, if none of them reaches the log"
    )


class PlayoutStatus(Published):
    """State of a playout. Amplitudes of the response are in the SI unit of its channel."""

    state: str = Field(description="WAITING, LEARNING, CONTROLLED, FADING; then COMPLETED, DEVIATED, ENDED or ABORTED")
    cycles: int = Field(description="cycles done")
    wanted: int = Field(description="cycles after which it ends")
    frequency: float = Field(description="frequency, Hz")
    amplitude: float | None = Field(
        description="amplitude of the response in the last whole cycle; null: it was not a number"
    )
    target: float = Field(description="amplitude that is wanted")
    phase_error: float | None = Field(description="phase of the response minus that wanted, degrees; null likewise")
    drive: float = Field(description="amplitude of the input")


class ReactionStatus(Published):
    """State of a reaction that is armed, or has fired and has not been released yet."""

    text: str = Field(description="its condition and its action, such as p_A > 200 bar: stop")
    state: str = Field(
        description="ARMED: waits for RUNNING; WATCHING; RAMPING: moves its input; HOLDING: holds the valves' "
        "commands; DONE: has fired; ENDED: has ended the run, and must be released before the next start"
    )
    met: bool = Field(description="whether its condition is met now")


class TriggerStatus(Published):
    """State of a trigger of the recording."""

    text: str = Field(description="what it waits for, such as p_A > 200 bar")
    state: Literal["ARMED", "WRITING", "DONE"] = Field(
        description="ARMED: waits; WRITING: has triggered, and its window is not complete yet; DONE: triggers no more"
    )
    count: int = Field(default=0, description="how often it has triggered")
    once: bool = Field(default=False, description="whether it triggers only once")
    configured: bool = Field(default=False, description="whether it is in the rig file; else a command has armed it")
    file: str | None = Field(default=None, description="file with its last complete window; null: none yet")
    trouble: str | None = Field(default=None, description="why no more windows are recorded, such as a full disk")


class ServerState(Published):
    """State of the server. Retained, published when it changes and at a slow rate."""

    mode: Mode = Field(
        description="operating mode; SAFE_NOT_CONFIRMED: safe values are commanded, but a device does not confirm them"
    )
    fault: str | None = Field(default=None, description="reason for FAULT")
    unconfirmed: tuple[str, ...] = Field(
        default=(), description="outputs whose commands are not confirmed by their devices, with what to do"
    )
    enabled: bool | None = Field(default=None, description="whether the local enable is on; null: the rig has none")
    operator: str | None = Field(
        default=None,
        description="the client that armed or started last; null: none, or the rig requires no heartbeat",
    )
    warnings: tuple[str, ...] = Field(default=(), description="violated limits, saturation, outdated samples")
    degradations: tuple[str, ...] = Field(default=(), description="missing resources, such as real-time priority")
    tick: int = Field(description="ticks since the start of the server")
    time: float = Field(description="the server's system clock, Unix time in s: the clock of `expires`")
    missed_ticks: int = Field(default=0, description="ticks missed since the start of the server")
    telemetry_dropped: int = Field(
        default=0, description="telemetry messages dropped while the broker could not be reached"
    )
    timing: dict[str, float] = Field(
        default={}, description="wake-up delay and computing time of the latest ticks (a fraction of a second), in s"
    )
    loop: LoopStatus | None = Field(default=None, description="timing of the loop since the start")
    devices: dict[str, DeviceStatus] = Field(default={}, description="failures of the devices, by device")
    recording: RecordingStatus | None = Field(
        default=None, description="the full-rate log; null: recording is disabled"
    )
    reactions: dict[str, ReactionStatus] = Field(default={}, description="reactions that are not free, by name")
    playouts: dict[str, PlayoutStatus] = Field(default={}, description="playouts since the start, by name")
    triggers: dict[str, TriggerStatus] = Field(default={}, description="triggers of the recording, by name")
    strategies: dict[str, str] = Field(default={}, description="the strategy that drives each real valve, by valve")
    utilisation: dict[str, Utilisation] = Field(
        default={},
        validation_alias=AliasChoices("utilisation", "demand"),
        description="utilisation of each real valve, by valve",
    )
    learned: dict[str, dict[str, LearnedValue]] = Field(
        default={}, description="what adaptive bridges have learned, by valve and key of the rig file"
    )
    actuators: dict[str, ActuatorStatus] = Field(
        default={}, description="the actuators whose position is controlled, by name"
    )
    target: dict[str, float] = Field(default={}, description="setpoints of the server, by channel")
    actual: dict[str, float | None] = Field(default={}, description="measured values, by channel; null: invalid")

    @computed_field(description="deprecated name of `utilisation`", json_schema_extra=DEPRECATED)
    def demand(self) -> dict[str, Utilisation]:
        """The same as ``utilisation``."""
        return self.utilisation


class CircuitStatus(Published):
    """The active virtual circuit. Retained."""

    source: dict[str, JsonValue] = Field(description="the circuit, without parameters and sub-circuits")
    written: dict[str, JsonValue] | None = Field(
        default=None, description="the circuit as given, if it has parameters or sub-circuits; null: the same as source"
    )
    file: str | None = Field(default=None, description="file of the circuit; null: it came with a command")
    version: int = Field(description="number of this version, counted since the start of the server")
    tick: int = Field(description="tick at which it took effect")


class DatasheetPart(Published):
    """A datasheet value, or a value of a table of them."""

    description: str = Field(description="meaning of the value")
    required: bool = Field(description="whether the value is required")
    default: JsonValue = Field(default=None, description="default; null: none")
    unit: str = Field(default="", description='SI unit, "" for a plain number or what is not a number')
    example: str = Field(default="", description="how it is written")
    minimum: float | None = Field(default=None, description="smallest value, in the unit; null: not limited")
    maximum: float | None = Field(default=None, description="largest value, in the unit; null: not limited")
    choices: tuple[str, ...] = Field(default=(), description="the only values accepted; empty: any")


class DatasheetValue(DatasheetPart):
    """A datasheet value of a component type."""

    parts: dict[str, DatasheetPart] = Field(default={}, description="values of which a table consists, by key")


class TypeInfo(Published):
    """A type of component: its ports, its signals, its datasheet values."""

    description: str = Field(description="description of the type, as a sentence")
    ports: tuple[str, ...] = Field(description="hydraulic and mechanical ports, to be connected to nodes")
    inputs: tuple[str, ...] = Field(default=(), description="signals that it reads")
    outputs: tuple[str, ...] = Field(default=(), description="signals that it provides")
    values: dict[str, DatasheetValue] = Field(description="datasheet values by key")


class ComponentTypes(Published):
    """The component types that a circuit of this server may use, the rig's own included. Retained."""

    types: dict[str, TypeInfo] = Field(description="all types, by name")


class CapacityMargin(Published):
    """Whether a real valve is large enough in one direction."""

    valve: str = Field(description="name of the real valve")
    direction: str = Field(description="P to port, or port to T")
    needed: float = Field(description="flow coefficient that the virtual circuit requires, m^3/(s*sqrt(Pa))")
    real: float = Field(description="flow coefficient of the real valve, m^3/(s*sqrt(Pa))")
    same_drop: float | None = Field(description="real divided by required; null: no flow is required in this direction")
    margin: float | None = Field(description="possible flow divided by required flow, with the real supply; at least 1")
    at: str | None = Field(description="operating point at which this margin is smallest")


class SpeedMargin(Published):
    """Whether a real valve is fast enough after a step of the inputs; all in full strokes per second."""

    valve: str = Field(description="name of the real valve")
    required: float = Field(
        validation_alias=AliasChoices("required", "asked"),
        description="fastest change of the opening that the virtual circuit requires",
    )
    spool: float = Field(description="speed that the spool reaches")
    slew: float = Field(description="speed that the slew limit allows")
    margin: float | None = Field(
        description="possible speed divided by required speed, at least 1; null: none is required"
    )

    @computed_field(description="deprecated name of `required`", json_schema_extra=DEPRECATED)
    def asked(self) -> float:
        """The same as ``required``."""
        return self.required


class RateMargin(Published):
    """The rate rule: at least ten ticks per period of the highest significant frequency."""

    what: str = Field(description="part of the rig that has this frequency")
    hertz: float = Field(description="highest significant frequency, Hz")
    ticks: float = Field(description="ticks per period")


class DelayMargin(Published):
    """The delay of a strategy, and the delay at which the loop of circuit, valve and machine oscillates; in s."""

    strategy: str = Field(description="name of the strategy")
    delay: float = Field(
        validation_alias=AliasChoices("delay", "late"), description="delay of the real flow behind the virtual flow"
    )
    delay_with_tolerance: float = Field(
        validation_alias=AliasChoices("delay_with_tolerance", "late_off"),
        description="the same with sensors and valve 10 % slower than in the rig file",
    )
    critical: float | None = Field(description="delay above which the loop oscillates; null: it never oscillates")
    frequency: float = Field(description="frequency of this oscillation, Hz")
    margin: float | None = Field(
        description="critical delay divided by delay_with_tolerance, at least 2 is recommended; null: any delay is "
        "acceptable"
    )
    at: str | None = Field(description="operating point at which the critical delay is smallest")

    @computed_field(description="deprecated name of `delay`", json_schema_extra=DEPRECATED)
    def late(self) -> float:
        """The same as ``delay``."""
        return self.delay

    @computed_field(description="deprecated name of `delay_with_tolerance`", json_schema_extra=DEPRECATED)
    def late_off(self) -> float:
        """The same as ``delay_with_tolerance``."""
        return self.delay_with_tolerance


class ActuatorDelayMargin(Published):
    """The delay of the specimen's force at an actuator, and the one at which the circuit's node oscillates; in s."""

    actuator: str = Field(description="name of the actuator")
    strategy: str = Field(description="its present strategy")
    remaining: float = Field(description="delay that the strategy does not compensate")
    critical: float | None = Field(description="delay above which the node oscillates; null: any delay is acceptable")
    frequency: float | None = Field(description="frequency of this oscillation, Hz")
    margin: float | None = Field(
        description="critical delay divided by the remaining one, at least 2 is recommended; null: nothing remains"
    )


class MarginStatus(Published):
    """Whether the real valves can meet the demand of the virtual circuit, and the loop stays stable. Retained."""

    calculated: bool = Field(
        validation_alias=AliasChoices("calculated", "examined"),
        description="false: the margins of the present circuit are still being calculated; all other keys are not "
        "valid",
    )
    version: int = Field(description="version of the circuit that these margins are for")
    warnings: tuple[str, ...] = Field(default=(), description="margins that are too small, with the present strategies")
    strategies: dict[str, str] = Field(default={}, description="the present strategy of each real valve and actuator")
    supply: dict[str, float | None] = Field(
        default={}, description="real supply pressure used in the calculation, Pa, by valve; null: not known"
    )
    capacity: tuple[CapacityMargin, ...] = ()
    speed: tuple[SpeedMargin, ...] = ()
    rate: tuple[RateMargin, ...] = ()
    delay: tuple[DelayMargin, ...] = Field(
        default=(), description="delay margin of every strategy that the valves offer"
    )
    actuators: tuple[ActuatorDelayMargin, ...] = Field(
        default=(), description="delay margin of each actuator with its present strategy"
    )
    unknown: str | None = Field(default=None, description="why the delay margin is not known; null: it is")

    @computed_field(description="deprecated name of `calculated`", json_schema_extra=DEPRECATED)
    def examined(self) -> bool:
        """The same as ``calculated``."""
        return self.calculated


class Telemetry(Published):
    """Decimated samples, several per message. The full rate is in the log."""

    t0: float = Field(description="time of the first sample, Unix time in s on the server's system clock")
    dt: float = Field(description="time between two samples in s")
    channels: dict[str, tuple[float | None, ...]] = Field(description="samples by channel; null: invalid")


class Event(Published):
    """Something that happened: a fault, a switch, a warning."""

    kind: Literal["fault", "switch", "warning", "info"] = Field(description="kind of event")
    text: str = Field(description="what happened, as a sentence")
    tick: int = Field(description="tick at which it happened, counted from the start of the server")
    time: float = Field(description="the server's system clock, Unix time in s")
    details: dict[str, JsonValue] = Field(default={}, description="further details, depending on the kind")


class Events(Published):
    """The latest events of this run of the server, so that a client that comes later knows them, too. Retained."""

    events: tuple[Event, ...] = Field(description="the latest events, oldest first; none before the first one")


PUBLISHED: dict[str, type[Published]] = {
    "description": Description,
    "state": ServerState,
    "circuit": CircuitStatus,
    "types": ComponentTypes,
    "margins": MarginStatus,
    "telemetry": Telemetry,
    "event": Event,
    "events": Events,
    "answer": Answer,
}
"""All messages that a server publishes, by the last level of their topic."""
