"""The messages of the MQTT protocol: commands in, answers and published topics out. Described in docs/mqtt.md.

A command's payload is one JSON object. It is read strictly: UTF-8 only, no key twice, no NaN or infinity, no unknown
key, no number where a text belongs. What is refused is refused with all problems at once, each naming its key.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from hilserver.errors import HilserverError, Problem, did_you_mean, dotted, problems_of, shown

PAYLOAD_LIMIT = 64 * 1024
"""Largest payload of a command in bytes."""

NESTING_LIMIT = 32
"""Deepest nesting of lists and objects in a command."""

ID_LIMIT = 64
"""Longest id of a command in characters."""

KEY_LIMIT = 32
"""Most keys at the top of a command; so that no payload keeps the server busy with its problems."""

PROBLEM_LIMIT = 20
"""Most problems that an answer lists."""


class Refused(HilserverError):
    """A payload that is no command. ``problems`` lists all that is wrong; ``id`` is the payload's, where readable."""

    def __init__(self, problems: Iterable[Problem], id: str | None = None) -> None:
        found = list(dict.fromkeys(_one_line(str(problem)) for problem in problems))
        more = len(found) - PROBLEM_LIMIT
        self.problems = tuple(found[:PROBLEM_LIMIT] + ([f"and {more} more problems."] if more > 0 else []))
        self.id = id
        super().__init__("; ".join(self.problems))


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:200] + " ... " + line[-95:]


# ---------------------------------------------------------------------------------------------------------------------
# answers


class Published(BaseModel):
    """A message of the server. Numbers that are not finite are written as null, since JSON has no word for them.

    A reader ignores keys that it doesn't know, so that an older client understands a newer server.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null")

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


# ---------------------------------------------------------------------------------------------------------------------
# commands


def _is_id(text: str) -> bool:
    return 0 < len(text) <= ID_LIMIT and text.isprintable()


def _checked_id(text: str) -> str:
    if not _is_id(text):
        raise ValueError(f"{shown(text)}: an id has 1 to {ID_LIMIT} printable characters; this one has {len(text)}.")
    return text


def _checked_name(text: str) -> str:
    if not (0 < len(text) <= 255 and text.isprintable()):
        raise ValueError(f"{shown(text)}: a name has 1 to 255 printable characters; this one has {len(text)}.")
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
Values = Annotated[dict[str, JsonValue], AfterValidator(_not_empty)]
FullScale = Annotated[
    float, AfterValidator(_checked_full_scale), Field(json_schema_extra={"minimum": -1, "maximum": 1})
]
Id = Annotated[str, AfterValidator(_checked_id), Field(json_schema_extra={"minLength": 1, "maxLength": ID_LIMIT})]


class Command(BaseModel):
    """A request to the server. ``name`` is the last level of its topic, ``hil/<rig>/command/<name>``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    name: ClassVar[str]

    id: Id | None = Field(default=None, description="the answer repeats it; a repeated id is not carried out again")
    expires: float | None = Field(
        default=None, description="Unix time in s on the server's system clock after which it is refused"
    )

    def answer(
        self,
        *,
        time: float,
        tick: int | None = None,
        problems: Iterable[str] = (),
        result: dict[str, JsonValue] | None = None,
    ) -> Answer:
        """The answer to this command: a refusal if there are ``problems``. ``time`` is Unix time in s."""
        found = tuple(problems)
        if found:
            return refusal(self.name, self.id, found, time, tick)
        return Answer(id=self.id, command=self.name, ok=True, result=result or {}, time=time, tick=tick)


class Arm(Command):
    """Let the server drive the real valve: SAFE to ARMED. The valve stays at null until `start`."""

    name = "arm"


class Disarm(Command):
    """Back to SAFE: the valve to its safe value."""

    name = "disarm"


class Start(Command):
    """Run the virtual circuit on the real valve: ARMED to RUNNING."""

    name = "start"


class Stop(Command):
    """End the run: RUNNING to ARMED, the valve to null within its slew limit."""

    name = "stop"


class Reset(Command):
    """Leave FAULT for SAFE, once the cause is gone."""

    name = "reset"


class Trip(Command):
    """FAULT at once, latched: valves to their safe values at their slew limit. It replaces no emergency stop."""

    name = "trip"


class SetInput(Command):
    """Set an operator input, such as the joystick."""

    name = "set_input"
    input: Name = Field(description="name of the operator input")
    value: float = Field(description="new value in the input's unit, within its range (see the description topic)")


class SetParameter(Command):
    """Change datasheet values of one component of the virtual circuit while it runs."""

    name = "set_parameter"
    component: Name = Field(description="name of the component in the circuit")
    set: Values = Field(description='new values by key, such as {"nominal_flow.flow": "60 l/min"}')


class Switch(Command):
    """Change one component of the virtual circuit while it runs: other values (`set`) or another type (`type`)."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["set"]}, {"required": ["type"]}]})
    name = "switch"
    component: Name = Field(description="name of the component in the circuit")
    set: Values | None = Field(default=None, description="new values by key; the other values stay")
    type: Name | None = Field(default=None, description="the type that takes the component's place")
    values: dict[str, JsonValue] | None = Field(
        default=None, description="all values of the new type, as in a circuit file"
    )
    start: Literal["initial", "steady"] = Field(
        default="initial",
        description="new states begin at their initial values, or where they come to rest around the kept ones",
    )

    @model_validator(mode="after")
    def _one_way(self) -> "Switch":
        if self.set is None and self.type is None:
            raise ValueError("give either set (other values of the component) or type and values (another component).")
        if self.set is not None and (self.type is not None or self.values is not None):
            raise ValueError("set can't stand beside type and values: set changes values, type replaces the component.")
        return self


class SwitchCircuit(Command):
    """Change the whole virtual circuit while it runs; states are carried over by name."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["circuit"]}, {"required": ["file"]}]})
    name = "switch_circuit"
    circuit: Values | None = Field(default=None, description="the circuit, laid out like a circuit file")
    file: Name | None = Field(default=None, description="name of a circuit file on the server")
    start: Literal["initial", "steady"] = Field(
        default="initial",
        description="new states begin at their initial values, or where they come to rest around the kept ones",
    )

    @model_validator(mode="after")
    def _one_source(self) -> "SwitchCircuit":
        if (self.circuit is None) == (self.file is None):
            raise ValueError("give either circuit (the circuit itself) or file (a circuit file on the server).")
        return self


class SelectStrategy(Command):
    """Select how the virtual flow becomes the command of a real valve."""

    name = "strategy"
    valve: Name = Field(description="name of the real valve")
    strategy: Name = Field(description="one of the valve's strategies (see the description topic)")


class Jog(Command):
    """Move a real valve by hand, within its jog limits. Needs the strategy `manual`."""

    name = "jog"
    valve: Name = Field(description="name of the real valve")
    command: FullScale = Field(description="command, fraction of full scale, -1 ... 1")


class Cycle(Command):
    """Start or stop the work cycle that moves the operator inputs."""

    name = "cycle"
    action: Literal["start", "stop"] = Field(description="start: from its beginning; stop: inputs stay as they are")


COMMANDS: Mapping[str, type[Command]] = {
    model.name: model
    for model in (
        Arm, Disarm, Start, Stop, Reset, Trip, SetInput, SetParameter, Switch, SwitchCircuit, SelectStrategy, Jog, Cycle
    )
}  # fmt: skip
"""Every command by name."""


# ---------------------------------------------------------------------------------------------------------------------
# reading a command


def read_command(name: str, payload: bytes) -> Command:
    """The command in a message on ``hil/<rig>/command/<name>``; raises Refused with all that is wrong."""
    if len(payload) > PAYLOAD_LIMIT:
        size = f"{len(payload) / 1024:.0f} KiB"
        raise _refused(f"the payload has {size}; at most {PAYLOAD_LIMIT // 1024} KiB are read.", leading_id(payload))
    value = _read_json(payload)
    id = value.get("id")
    id = id if isinstance(id, str) and _is_id(id) else None
    model = COMMANDS.get(name)
    if model is None:
        raise _refused(f"{shown(name)}: unknown command.{did_you_mean(name, COMMANDS)}", id)
    if len(value) > KEY_LIMIT:
        raise _refused(f"{len(value)} keys: no command has so many. Allowed: {', '.join(model.model_fields)}.", id)
    if flaws := list(_flaws(value, (), 0)):
        raise Refused(flaws, id)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise Refused(problems_of(error, value, names=model.model_fields), id) from None


def leading_id(payload: bytes) -> str | None:
    """The id of a payload that is not worth or not capable of reading: only if it is the object's first key."""
    match = re.match(rb'\s*\{\s*"id"\s*:\s*"([^"\\]{1,256})"', payload)
    text = match[1].decode(errors="replace") if match else ""
    return text if _is_id(text) and "\ufffd" not in text else None


def _refused(message: str, id: str | None = None) -> Refused:
    return Refused([Problem(message)], id)


def _read_json(payload: bytes) -> dict[str, object]:
    if not payload.strip():
        raise _refused("the payload is empty. A command without arguments is written {}.")
    id = leading_id(payload)
    try:
        value = json.loads(payload.decode("utf-8"), object_pairs_hook=_unique, parse_int=_number)
    except UnicodeDecodeError as error:
        byte = f"byte {error.start + 1} (0x{payload[error.start]:02x})"
        raise _refused(f"{byte} is not UTF-8: the payload must be JSON text.", id) from None
    except json.JSONDecodeError as error:
        raise _refused(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}.", id) from None
    except RecursionError:
        raise _refused(f"nested too deeply: at most {NESTING_LIMIT} levels are read.", id) from None
    except _KeyTwice as error:
        raise _refused(f"{shown(error.key)}: this key stands twice in one object; which value is meant?", id) from None
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        raise _refused(f'{kind} is not a JSON object. Write {{...}} with keys, such as {{"id": "1"}}.')
    return value


class _KeyTwice(Exception):
    def __init__(self, key: str) -> None:
        self.key = key


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise _KeyTwice(key.encode(errors="replace").decode())
    return result


def _number(text: str) -> int | float:
    return int(text) if len(text) <= 15 else float(text)  # beyond 2**53 an integer is no exact number in JSON


def _flaws(value: object, path: tuple[str | int, ...], depth: int) -> Iterator[Problem]:
    """What JSON lets pass but can't be used, with its place."""
    if depth > NESTING_LIMIT:
        yield Problem(f"nested too deeply: at most {NESTING_LIMIT} levels are read.", dotted(path[:3]) + "...")
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(f"{value} is not a finite number.", dotted(path))
    elif isinstance(value, str) and _has_surrogate(value):
        yield Problem("holds half of a character (a lone \\ud800 ... \\udfff).", dotted(path))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _flaws(item, (*path, position), depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if _has_surrogate(key):
                yield Problem("a key holds half of a character (a lone \\ud800 ... \\udfff).", dotted(path))
            else:
                yield from _flaws(item, (*path, key), depth + 1)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


# ---------------------------------------------------------------------------------------------------------------------
# published topics


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


class Figures(Published):
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
    wake_up: Figures = Field(description="from a tick's deadline to its begin, missed ticks included")
    work: Figures | None = Field(description="what a tick took in all; null before the second tick")
    parts: dict[str, Figures] = Field(description="the same by parts: read, compute, write, publish")
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


class Demand(Published):
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


class State(Published):
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
    demand: dict[str, Demand] = Field(default={}, description="how much of each real valve is asked for, by valve")
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


class Margins(Published):
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


class Topics:
    """The topics of one rig, ``hil/<rig>/...``. Raises ValueError where the rig's name can't stand in a topic."""

    def __init__(self, rig: str) -> None:
        if not rig or not rig.isprintable() or set(rig) & set("/+#"):
            raise ValueError(f"{shown(rig)} can't be a rig's name in MQTT: it must not be empty nor hold / + #.")
        self.prefix = f"hil/{rig}/"
        self.availability = self.prefix + "availability"
        self.description = self.prefix + "description"
        self.state = self.prefix + "state"
        self.circuit = self.prefix + "circuit"
        self.types = self.prefix + "types"
        self.margins = self.prefix + "margins"
        self.telemetry = self.prefix + "telemetry"
        self.event = self.prefix + "event"
        self.answer = self.prefix + "answer"
        self.commands = self.prefix + "command/+"
        self.published = tuple(self.prefix + name for name in _TOPICS)
        """Everything that the server publishes."""

    def command(self, name: str) -> str:
        """The topic of the command with this name."""
        return f"{self.prefix}command/{name}"


_TOPICS = {
    "availability": (True, '"online" or "offline" (plain text, by last will)'),
    "description": (True, "what this server is and what can be asked of it"),
    "state": (True, "how the server is: mode, fault, warnings, time, target and actual values"),
    "circuit": (True, "the virtual circuit that runs"),
    "types": (True, "the component types that a circuit may use, with ports and datasheet values"),
    "margins": (True, "whether the real valves can do what the circuit asks for, and how late they may be"),
    "telemetry": (False, "decimated samples, several per message"),
    "event": (False, "faults, switches, warnings"),
    "answer": (False, "the answer to each command"),
}


def describe(
    rig: str,
    version: str,
    *,
    channels: dict[str, ChannelInfo],
    inputs: dict[str, InputInfo],
    valves: dict[str, ValveInfo],
    command_lifetime: float | None = None,
) -> Description:
    """The description topic of a rig; commands and topics come from this module."""
    topics = Topics(rig)
    return Description(
        rig=rig,
        version=version,
        command_lifetime=command_lifetime,
        channels=channels,
        inputs=inputs,
        valves=valves,
        commands={
            name: CommandInfo(
                topic=topics.command(name), description=_first_line(model), payload_schema=model.model_json_schema()
            )
            for name, model in COMMANDS.items()
        },
        topics={
            name: TopicInfo(topic=topics.prefix + name, retained=retained, description=text)
            for name, (retained, text) in _TOPICS.items()
        },
    )


PUBLISHED: dict[str, type[Published]] = {
    "description": Description,
    "state": State,
    "circuit": CircuitStatus,
    "types": ComponentTypes,
    "margins": Margins,
    "telemetry": Telemetry,
    "event": Event,
    "answer": Answer,
}
"""Everything a server publishes, by the end of its topic."""


def schemas() -> dict[str, dict[str, Any]]:
    """JSON Schema of every message by the end of its topic: ``command/arm`` ... ``state``, ``answer``."""
    commands = {f"command/{name}": model.model_json_schema() for name, model in COMMANDS.items()}
    return commands | {name: model.model_json_schema(mode="serialization") for name, model in PUBLISHED.items()}


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_files() -> dict[str, str]:
    """The same as files: name -> text. They are kept in ``docs/schemas/``, so that no change goes unseen."""
    return {
        f"{name}.json": json.dumps({"$schema": DIALECT, **schema}, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas().items()
    }


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").splitlines()[0]
