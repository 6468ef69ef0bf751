"""Everything that the server publishes: answers, and the messages of its topics. Described in docs/mqtt.md."""

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class Published(BaseModel):
    """A message of the server. Numbers that are not finite are written as null, since JSON has no word for them.

    A reader ignores keys that it doesn't know, so that an older client understands a newer server.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null", defer_build=True)

    def payload(self) -> bytes:
        """The message as JSON in UTF-8."""
        return self.model_dump_json().encode()


class Answer(Published):
    """What became of one command: carried out, or refused with the reason."""

    id: str | None = Field(description="the command's id, null where it had none or it could not be read")
    command: str = Field(description="the command's name")
    ok: bool = Field(description="true: carried out; false: refused, nothing was changed")
    reason: str | None = Field(default=None, description="why it was refused, in one sentence")
    problems: tuple[str, ...] = Field(default=(), description="all that is wrong, one sentence each")
    result: dict[str, JsonValue] = Field(default={}, description="what the command brought about")
    tick: int | None = Field(default=None, description="tick at which it took effect; null where it never got there")
    time: float = Field(description="the server's system clock when it answered, Unix time in s")
    duplicate: bool = Field(default=False, description="true: this id came before; its first answer, repeated")


def refusal(command: str, id: str | None, problems: Iterable[str], time: float, tick: int | None = None) -> Answer:
    """The answer to a command that is not carried out: ``problems`` are its sentences, ``time`` is Unix time in s."""
    found = tuple(problems)
    reason = found[0] if len(found) == 1 else f"{len(found)} problems: " + "; ".join(found)
    return Answer(id=id, command=command, ok=False, reason=reason, problems=found, time=time, tick=tick)


class ChannelInfo(Published):
    """A channel of the rig or of the virtual circuit."""

    unit: str = Field(description='unit of its values, "" for a plain number')
    kind: str = Field(description="where it comes from, such as measured, virtual, command")
    description: str = Field(default="", description="in words")


class InputInfo(Published):
    """An operator input and its range."""

    unit: str = Field(description='unit of its values, "" for a plain number')
    minimum: float = Field(description="lowest value that is taken")
    maximum: float = Field(description="highest value that is taken")
    description: str = Field(default="", description="in words")


class ValveInfo(Published):
    """A real valve and the strategies that can drive it."""

    strategies: tuple[str, ...] = Field(description="what the command strategy may select")
    jog_limit: float = Field(default=0.0, description="largest command of jog, fraction of full scale")
    description: str = Field(default="", description="in words")


class CommandInfo(Published):
    """A command: what it does, and the JSON Schema of its payload."""

    topic: str = Field(description="where it is sent to")
    description: str = Field(description="what it does")
    payload_schema: dict[str, JsonValue] = Field(description="JSON Schema of its payload")


class TopicInfo(Published):
    """A topic that the server publishes."""

    topic: str = Field(description="its whole name")
    retained: bool = Field(description="whether the broker keeps the latest one")
    description: str = Field(description="what is published there")


class Description(Published):
    """What this server is and what can be asked of it. Retained."""

    rig: str = Field(description="the rig's name")
    version: str = Field(description="version of hilserver")
    command_lifetime: float | None = Field(
        default=None, description="commands must have an id and expire within so many s; null: they need not"
    )
    channels: dict[str, ChannelInfo] = Field(description="every channel in telemetry and state")
    inputs: dict[str, InputInfo] = Field(description="operator inputs, for set_input")
    valves: dict[str, ValveInfo] = Field(description="real valves, for strategy and jog")
    commands: dict[str, CommandInfo]
    topics: dict[str, TopicInfo]


Mode = Literal["STARTUP", "SAFE", "ARMED", "RUNNING", "FAULT"]


class DeviceStatus(Published):
    """How a device is. Its failures are counted by its driver, which tries again by itself."""

    errors: dict[str, int] = Field(default={}, description="failures since the start of the server, by kind")
    last_error: str | None = Field(default=None, description="the latest failure, in one sentence")
    restarts: int = Field(default=0, description="how often its I/O process was started again")


class DurationFigures(Published):
    """What many durations come to; all in s. Percentiles are right to 1 %."""

    count: int = Field(description="how many there were")
    min: float = Field(description="the shortest")
    mean: float = Field(description="their mean")
    median: float = Field(description="half of them were no longer")
    p99: float = Field(description="99 % were no longer")
    p999: float = Field(description="99.9 % were no longer")
    max: float = Field(description="the longest")


class LoopStatus(Published):
    """How punctual the real-time loop has been since the server's start, by its own account; times in s."""

    period: float = Field(description="time from tick to tick as configured")
    wake_up: DurationFigures = Field(description="from a tick's deadline to its begin, missed ticks included")
    work: DurationFigures | None = Field(description="what a tick took in all; null before the second tick")
    parts: dict[str, DurationFigures] = Field(description="the same by parts: read, compute, write, publish")
    time_sync_error: float = Field(
        description="largest difference of ideal and actual simulation time, counted from the run's start"
    )
    minimum_step: float = Field(description="the largest work of a tick: a shorter period would have been too short")


class RecordingStatus(Published):
    """How the full-rate log is."""

    file: str | None = Field(default=None, description="the file that is being written; null: nothing is recorded")
    rows: int = Field(default=0, description="rows of this recording, its earlier files included")
    tick: int | None = Field(default=None, description="the last tick that was written; null: none yet")
    lost: int = Field(default=0, description="rows that it lacks because the disk was too slow")
    gap: int = Field(
        default=0, description="ticks before its first one that are in no log, where it follows another one"
    )
    megabytes: float = Field(default=0.0, description="size of the file")
    free_megabytes: float | None = Field(default=None, description="room on its disk; null: not known")


class Utilisation(Published):
    """What the virtual circuit asks of a real valve: the largest since the last state, as shares of all that it can."""

    flow_to_port: float | None = Field(
        default=0.0,
        description="flow into the port, of what passes at full command; null: nothing can, for want of a drop",
    )
    flow_to_tank: float | None = Field(default=0.0, description="the same of the flow from the port to the tank")
    speed_to_port: float = Field(
        default=0.0, description="speed of the opening towards P to port, of what spool and slew limit allow"
    )
    speed_to_tank: float = Field(default=0.0, description="the same towards port to tank")


class ServerState(Published):
    """How the server is. Retained, published when it changes and at a slow rate."""

    mode: Mode = Field(description="what the server may do with the valves")
    fault: str | None = Field(default=None, description="the reason of FAULT")
    enabled: bool | None = Field(default=None, description="whether the local enable is on; null: the rig has none")
    warnings: tuple[str, ...] = Field(default=(), description="limits that warn, saturation, old samples")
    degradations: tuple[str, ...] = Field(default=(), description="what could not be had, such as real-time priority")
    tick: int = Field(description="ticks since the start of the server")
    time: float = Field(description="the server's system clock, Unix time in s: the clock of `expires`")
    missed_ticks: int = Field(default=0, description="ticks missed since the start of the server")
    telemetry_dropped: int = Field(default=0, description="telemetry messages dropped while the broker was away")
    timing: dict[str, float] = Field(
        default={}, description="wake-up and work of the loop's latest ticks (a fraction of a second), in s"
    )
    loop: LoopStatus | None = Field(default=None, description="how punctual the loop has been since the start")
    devices: dict[str, DeviceStatus] = Field(default={}, description="failures of the devices, by device")
    recording: RecordingStatus | None = Field(default=None, description="the log; null: recording is switched off")
    strategies: dict[str, str] = Field(default={}, description="the strategy that drives each real valve, by valve")
    demand: dict[str, Utilisation] = Field(default={}, description="how much of each real valve is asked for, by valve")
    target: dict[str, float] = Field(default={}, description="what the server asks for, by channel")
    actual: dict[str, float | None] = Field(default={}, description="what is measured, by channel; null: not valid")


class CircuitStatus(Published):
    """The virtual circuit that runs. Retained."""

    source: dict[str, JsonValue] = Field(description="the circuit as it was given")
    file: str | None = Field(default=None, description="the file that it came from; null: it came in a command")
    version: int = Field(description="counts the switches since the start of the server")
    tick: int = Field(description="tick at which it became active")


class DatasheetValue(Published):
    """A value that a component of a type is given."""

    description: str = Field(description="what it is")
    required: bool = Field(description="whether it must be given")
    default: JsonValue = Field(default=None, description="what it is where it is not given; null: nothing")


class TypeInfo(Published):
    """A type of component: its ports, its signals, its datasheet values."""

    description: str = Field(description="what it is, in a sentence")
    ports: tuple[str, ...] = Field(description="hydraulic and mechanical ports, which are connected to nodes")
    inputs: tuple[str, ...] = Field(default=(), description="signals that it reads")
    outputs: tuple[str, ...] = Field(default=(), description="signals that it gives")
    values: dict[str, DatasheetValue] = Field(description="datasheet values by key")


class ComponentTypes(Published):
    """The component types that a circuit of this server may use, the rig's own included. Retained."""

    types: dict[str, TypeInfo] = Field(description="every type by its name")


class CapacityMargin(Published):
    """Whether a real valve is large enough in one direction."""

    valve: str = Field(description="name of the real valve")
    direction: str = Field(description="P to port, or port to T")
    needed: float = Field(description="flow coefficient of the virtual circuit, m^3/(s*sqrt(Pa))")
    real: float = Field(description="flow coefficient of the real valve, m^3/(s*sqrt(Pa))")
    same_drop: float | None = Field(description="real by needed; null: nothing is asked for in this direction")
    margin: float | None = Field(description="flow that passes by flow asked for, with the real supply; at least 1")
    at: str | None = Field(description="where that margin is smallest")


class SpeedMargin(Published):
    """Whether a real valve is fast enough after a step of the inputs; all in full strokes per second."""

    valve: str = Field(description="name of the real valve")
    asked: float = Field(description="fastest change of the opening that the virtual circuit asks for")
    spool: float = Field(description="what the spool reaches")
    slew: float = Field(description="what the slew limit allows")
    margin: float | None = Field(description="possible by asked, at least 1; null: nothing is asked for")


class SignificantFrequency(Published):
    """The rate rule: a tick must come at least ten times in a period."""

    what: str = Field(description="of what it is the frequency")
    hertz: float = Field(description="its highest significant frequency")
    ticks: float = Field(description="ticks per period")


class DelayMargin(Published):
    """How late a strategy may be until the loop of circuit, valve and machine swings; times in s."""

    strategy: str = Field(description="name of the strategy")
    late: float = Field(description="time by which the real flow follows the virtual one")
    late_off: float = Field(description="the same with sensors and valve 10 % slower than the rig file says")
    critical: float | None = Field(description="lateness from which on it swings; null: it never does")
    frequency: float = Field(description="frequency of that swing, Hz")
    margin: float | None = Field(description="critical by late_off, at least 2 is wanted; null: any delay will do")
    at: str | None = Field(description="operating point at which it is smallest")


class MarginStatus(Published):
    """Whether the real valves can do what the virtual circuit asks for, and the loop stays stable. Retained."""

    examined: bool = Field(
        description="false: the present circuit is still being examined; what else stands here is void"
    )
    version: int = Field(description="version of the circuit that was examined")
    warnings: tuple[str, ...] = Field(default=(), description="what is too small, with the present strategies")
    strategies: dict[str, str] = Field(default={}, description="the present strategy of each real valve")
    supply: dict[str, float | None] = Field(
        default={}, description="real supply pressure that this is reckoned with, Pa, by valve; null: not known"
    )
    capacity: tuple[CapacityMargin, ...] = ()
    speed: tuple[SpeedMargin, ...] = ()
    rate: tuple[SignificantFrequency, ...] = ()
    delay: tuple[DelayMargin, ...] = Field(default=(), description="of every strategy that the valves offer")
    unknown: str | None = Field(default=None, description="why nothing is known of the delay margin, if so")


class Telemetry(Published):
    """Decimated samples, several per message. The full rate is in the log."""

    t0: float = Field(description="time of the first sample, Unix time in s on the server's system clock")
    dt: float = Field(description="time between two samples in s")
    channels: dict[str, tuple[float | None, ...]] = Field(description="samples by channel; null: no valid value")


class Event(Published):
    """Something that happened: a fault, a switch, a warning."""

    kind: Literal["fault", "switch", "warning", "info"] = Field(description="what sort of thing")
    text: str = Field(description="what happened, in one sentence")
    tick: int = Field(description="when it happened, in ticks since the start of the server")
    time: float = Field(description="the server's system clock, Unix time in s")
    details: dict[str, JsonValue] = Field(default={}, description="more of it, by kind")


PUBLISHED: dict[str, type[Published]] = {
    "description": Description,
    "state": ServerState,
    "circuit": CircuitStatus,
    "types": ComponentTypes,
    "margins": MarginStatus,
    "telemetry": Telemetry,
    "event": Event,
    "answer": Answer,
}
"""Everything a server publishes, by the end of its topic."""
