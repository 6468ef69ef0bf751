"""Triggers of the recording: what makes the recorder keep a window of the log in a file of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from hilserver.components.base import Datasheet
from hilserver.errors import Problem, did_you_mean
from hilserver.rig.conditions import condition
from hilserver.rig.references import ChannelKind, Text, subtables
from hilserver.tick.codes import Mode
from hilserver.tick.columns import is_whole, unit_of_column
from hilserver.tick.row import ActuatorState, ValveState
from hilserver.units import CIRCUIT, AnyDifference, Time

if TYPE_CHECKING:
    from hilserver.rig.settings import RigSettings

MOST_ROWS = 60_000
"""Ticks before a trigger that the recorder can keep: some 100 MB."""
MODES = tuple(mode.name for mode in Mode)
if TYPE_CHECKING:
    ModeName = str
else:
    ModeName = Literal[MODES]
EventName = Literal["switch", "reaction", "missed", "limit"]


def _checked(text: str) -> str:
    condition(text)
    return text


class TriggerSettings(Datasheet):
    """A trigger of the recording: a signal crosses a level, a mode begins, or an event happens."""

    when: Annotated[Text, AfterValidator(_checked)] | None = Field(
        default=None,
        examples=["p_A > 200 bar"],
        description="a channel, input, valve.<valve>.<column>, actuator.<actuator>.<column> or circuit.<value> crosses "
        "the level in this direction",
    )
    hysteresis: AnyDifference | None = Field(
        default=None, examples=["5 bar"], description="when: how far it must return before it can cross the level again"
    )
    either: bool = Field(default=False, description="when: true: crossings in the other direction count, too")
    mode: ModeName | None = Field(default=None, examples=["FAULT"], description="this mode begins")
    event: EventName | None = Field(
        default=None,
        description="switch: another circuit; reaction: one fires; missed: ticks are missed; limit: one is violated",
    )
    before: Time = Field(default="1 s", ge=0, le=30, examples=["1 s"], description="length of the window before it")
    after: Time = Field(default="2 s", ge=0, le=3600, examples=["2 s"], description="length of the window after it")

    @model_validator(mode="after")
    def _one_cause(self) -> TriggerSettings:
        if sum(cause is not None for cause in (self.when, self.mode, self.event)) != 1:
            raise ValueError("give exactly one of when, mode and event")
        if self.hysteresis is not None and self.when is None:
            raise ValueError("hysteresis can only be used together with when")
        if self.either and self.when is None:
            raise ValueError("either can only be used together with when")
        if self.when is not None and self.hysteresis is not None:
            if self.hysteresis.unit != condition(self.when).level.unit:
                raise ValueError("hysteresis must be in the unit of the level")
            if self.hysteresis.value < 0.0:
                raise ValueError("hysteresis must not be below 0")
        return self


def signal_columns(settings: RigSettings) -> dict[str, str]:
    """The quantities of the row by the names that conditions use: channels, inputs, values of valves and actuators."""
    return _columns(settings.channels, settings.inputs, settings.valves, settings.actuators)


def _columns(
    channels: Iterable[str], inputs: Iterable[str], valves: Iterable[str], actuators: Iterable[str]
) -> dict[str, str]:
    columns = {name: f"channel.{name}" for name in channels}
    names = [f"input.{name}" for name in inputs]
    names += [f"valve.{valve}.{field}" for valve in valves for field in ValveState.names()]
    names += [f"actuator.{actuator}.{field}" for actuator in actuators for field in ActuatorState.names()]
    return {**columns, **{name: name for name in names if not is_whole(name)}}


def signal_unit(settings: RigSettings, name: str, column: str) -> str:
    """The SI unit of such a quantity."""
    channel = settings.channels.get(column.removeprefix("channel.") if column.startswith("channel.") else name)
    return channel.unit if channel is not None else unit_of_column(column)


def signal_zero(settings: RigSettings, name: str) -> float:
    """What must be subtracted from a level of this quantity: the zero of its channel above gauge."""
    channel = settings.channels.get(name)
    return channel.zero if channel is not None else 0.0


def too_long_before(settings: RigSettings, triggers: Mapping[str, TriggerSettings]) -> Iterator[Problem]:
    """Windows that begin before what is kept in memory."""
    longest = MOST_ROWS / settings.loop.rate
    for name, trigger in triggers.items():
        if trigger.before > longest:
            text = f"{trigger.before:g} s are more than {MOST_ROWS} ticks, which are kept in memory: at most "
            yield Problem(f"{text}{longest:g} s.", f"recording.triggers.{name}.before")


def unknown_signals(source: Mapping[str, Any], channels: Mapping[str, ChannelKind]) -> Iterator[Problem]:
    """Conditions about what the rig does not have, or in another unit. (A circuit may be switched later.)

    ``source``: the table of a rig file, which need not be valid; ``channels``: those that are.
    """
    tables = (source.get(key) for key in ("channels", "inputs", "valves", "actuators"))
    known = _columns(*(table if isinstance(table, Mapping) else () for table in tables))
    for name, trigger in subtables(source, "recording", "triggers").items():
        key = f"recording.triggers.{name}.when"
        try:
            wanted = condition(str(trigger.get("when")))
        except ValueError:  # reported when the settings are validated
            continue
        if wanted.signal.startswith(CIRCUIT):
            continue
        if (column := known.get(wanted.signal)) is None:
            yield Problem(f'"{wanted.signal}" is not a channel.' + did_you_mean(wanted.signal, known), key)
        elif wanted.signal in channels or not column.startswith("channel."):
            channel = channels.get(wanted.signal)
            try:
                wanted.require_unit(channel.unit if channel is not None else unit_of_column(column))
            except ValueError as error:
                yield Problem(str(error), key)
