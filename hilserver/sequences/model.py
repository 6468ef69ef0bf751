"""The file of a test sequence: steps, faults, inputs over time, expectations. TOML, or a table as CSV."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from hilserver.components.base import Datasheet
from hilserver.errors import ConfigurationError, Problem, did_you_mean, problems_of, shown
from hilserver.protocol.commands import BeginPlayout, Command, React, SetInput
from hilserver.protocol.parsing import PayloadError, read_command
from hilserver.rig.cycle import CycleInput, CycleSettings
from hilserver.rig.file_kinds import kind_of
from hilserver.rig.plan import cycle_objects
from hilserver.sequences.table import read_csv
from hilserver.tick.codes import Mode
from hilserver.tick.work_cycle import cycle_value
from hilserver.toml import read_toml
from hilserver.units import AnyDifference, AnyQuantity, Time

SEND = "send"


class Timing(Datasheet):
    """The time of a step or fault."""

    at: Time = Field(ge=0, description="time from the start of the sequence")
    name: str = Field(default="", description="title, by which `after` of an expectation refers to it")


class Fault(Timing):
    """An injected fault; in simulation only."""

    fault: Literal["silent", "stuck", "reads", "jammed", "unplugged", "missed", "healed"] = Field(
        description="silent: the sensor delivers no samples; stuck: it always delivers the present one; reads: it "
        "always delivers `raw`; jammed: the actuator keeps its position; unplugged: the device delivers no samples, "
        "its actuators keep their positions; missed: `ticks` of the loop are missed; healed: the fault of the sensor, "
        "of the actuator or of the whole device is cleared"
    )
    device: str | None = Field(default=None, description="the simulated device; default: the only one")
    sensor: str | None = Field(default=None, description="its sensor; for silent, stuck, reads, healed")
    actuator: str | None = Field(default=None, description="its actuator; for jammed, healed")
    raw: float | None = Field(default=None, description="for reads: the raw reading, such as 0 V for a broken wire")
    ticks: int | None = Field(default=None, gt=0, description="for missed: number of ticks")

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Fault:
        needed = {"silent": ["sensor"], "stuck": ["sensor"], "reads": ["sensor", "raw"], "jammed": ["actuator"]}
        needed |= {"unplugged": [], "missed": ["ticks"], "healed": []}
        allowed = {"device", *needed[self.fault]} if self.fault != "missed" else {"ticks"}
        if self.fault == "healed":
            allowed.add("actuator" if self.sensor is None else "sensor")
        for key in ("device", "sensor", "actuator", "raw", "ticks"):
            given = getattr(self, key) is not None
            if given and key not in allowed:
                raise ValueError(f"{key} is not used with {self.fault}: remove it.")
            if not given and key in needed[self.fault]:
                raise ValueError(f"{self.fault} requires {key}.")
        return self


class Expectation(Datasheet):
    """The expected band of a channel, to be reached within ``delay`` after ``at``, and to be kept until ``until``."""

    name: str = Field(default="", description="title in the report")
    channel: str = Field(
        min_length=1, description="as in telemetry: p_A, valve.main.command, circuit.supply.p, mode, ..."
    )
    at: Time = Field(
        default="0 s", examples=["2 s"], description="start time; from the start of the sequence, or `after` a step"
    )
    after: str = Field(
        default="", description="name of a step, reaction or playout: `at` and `until` count from when it takes effect"
    )
    delay: Time = Field(default="0 s", ge=0, examples=["0.3 s"], description="time allowed to reach the band")
    until: Time | None = Field(
        default=None, examples=["3 s"], description="time until which it must stay within the band; default: the end"
    )
    value: AnyQuantity | None = Field(default=None, description='expected value; for `mode` a name, such as "SAFE"')
    tolerance: AnyDifference | None = Field(
        default=None, description="permitted deviation from the value in both directions; default 0"
    )
    min: AnyQuantity | None = Field(default=None, description="smallest value allowed")
    max: AnyQuantity | None = Field(default=None, description="largest value allowed")

    @model_validator(mode="before")
    @classmethod
    def _mode_by_name(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("channel") != "mode" or "value" not in values:
            return values
        if values["value"] not in Mode.__members__:
            raise ValueError(
                f"{shown(values['value'])} is not a mode.{did_you_mean(str(values['value']), Mode.__members__)}"
            )
        return {**values, "value": Mode[values["value"]]}

    @model_validator(mode="after")
    def _is_a_band(self) -> Expectation:
        if (self.value is None) == (self.min is None and self.max is None):
            raise ValueError("give either value (and tolerance), or min or max or both.")
        if self.tolerance is not None and self.value is None:
            raise ValueError("tolerance requires value, which is missing.")
        units = {quantity.unit for quantity in (self.value, self.tolerance, self.min, self.max) if quantity is not None}
        if len(units) > 1:
            raise ValueError(f"value, tolerance, min and max have different units: {', '.join(sorted(units))}.")
        if not self.lower <= self.upper:
            raise ValueError("min is above max, or the tolerance is negative.")
        if self.until is not None and self.until < self.at + self.delay:
            raise ValueError("until is before at + delay: no time is left to check the channel.")
        return self

    @property
    def unit(self) -> str:
        """SI unit of the band."""
        return next(quantity.unit for quantity in (self.value, self.min, self.max) if quantity is not None)

    @property
    def lower(self) -> float:
        """Smallest value allowed, SI; -inf: any."""
        if self.value is not None:
            return self.value.value - (self.tolerance.value if self.tolerance else 0.0)
        return self.min.value if self.min is not None else float("-inf")

    @property
    def upper(self) -> float:
        """Largest value allowed, SI; inf: any."""
        if self.value is not None:
            return self.value.value + (self.tolerance.value if self.tolerance else 0.0)
        return self.max.value if self.max is not None else float("inf")


class SequenceFile(Datasheet):
    """A test sequence: commands and faults over time, and the expected behaviour of the rig."""

    description: str = Field(default="", description="free text")
    rig: str = Field(
        default="", description="rig file for a run in simulation, relative to this file; --rig selects another one"
    )
    length: Time | None = Field(
        default=None, gt=0, description="duration; default: until the last step, fault, input value or expectation"
    )
    step: tuple[dict[str, Any], ...] = Field(default=(), description="commands")
    fault: tuple[Fault, ...] = Field(default=(), description="injected faults")
    inputs: dict[str, CycleInput] = Field(default={}, description="operator inputs over time, as in a work cycle")
    input_period: Time = Field(default="20 ms", gt=0, description="period at which values of an input are sent")
    expect: tuple[Expectation, ...] = Field(default=(), description="expectations")


class StepTiming(Timing):
    """The keys of a step that are not the command's own."""

    refused: bool = Field(default=False, description="true: the command must be refused")


@dataclass(frozen=True)
class Step:
    """A command at a time. ``refused``: it must be refused."""

    at: float
    name: str
    command: Command
    refused: bool

    @cached_property
    def title(self) -> str:
        """Its title in a report."""
        given = self.command.model_dump(exclude_unset=True, mode="json")
        return " ".join([self.command.name, *(f"{key}={json.dumps(value)}" for key, value in given.items())])


@dataclass(frozen=True)
class InputValue:
    """The next value of an operator input. ``until``: when the one after it is due, s."""

    at: float
    command: SetInput
    until: float


Action = Step | Fault | InputValue


@dataclass(frozen=True)
class Sequence:
    """A test sequence, validated."""

    file: Path
    settings: SequenceFile
    steps: tuple[Step, ...]

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """All actions in order of time; of simultaneous actions, steps come first."""
        found: list[Action] = [*self.steps, *self.settings.fault, *_input_values(self.settings)]
        return tuple(sorted(found, key=lambda action: action.at))

    @property
    def length(self) -> float:
        """Its duration, s."""
        if self.settings.length is not None:
            return self.settings.length
        after = {step.name: step.at for step in self.steps if step.name}
        ends = [*(step.at for step in self.steps), *(fault.at for fault in self.settings.fault)]
        ends += [entry.duration for entry in self.settings.inputs.values()]
        for e in self.settings.expect:
            ends.append(after.get(e.after, 0.0) + (e.until if e.until is not None else e.at + e.delay))
        return max(ends, default=0.0)

    @property
    def reactions(self) -> set[str]:
        """The names of the reactions that it arms, and of the playouts that it begins."""
        return {name for name in map(_named_by, self.steps) if name}

    @property
    def rig_file(self) -> Path | None:
        """The rig file given in it."""
        return Path(os.path.normpath(self.file.parent / self.settings.rig)) if self.settings.rig else None


def _input_values(settings: SequenceFile) -> Iterator[InputValue]:
    """The values of each input where they change, at most one per period, and each of its points."""
    inputs, period = settings.inputs, settings.input_period
    if not inputs:
        return
    names = list(inputs)
    table = cycle_objects(CycleSettings(inputs=inputs), names)
    for number, (name, entry) in enumerate(inputs.items()):
        points = [at for at, _ in entry.points or ()]
        start = points[0] if points else 0.0
        grid = start + period * np.arange(np.ceil((entry.duration - start) / period) + 1.0)
        last: float | None = None
        for at in sorted({*points, *(float(t) for t in grid if t < entry.duration), entry.duration}):
            value = cycle_value(table, number, at, 0.0)
            if value != last:
                yield InputValue(at, SetInput(input=name, value=value), at + period)
                last = value


def _named_by(step: Step) -> str:
    """The name of the reaction or playout that a step begins."""
    command = step.command
    if isinstance(command, React):
        return command.reaction
    return command.playout if isinstance(command, BeginPlayout) else ""


def load_sequence(path: Path) -> Sequence:
    """Read a test sequence. Raises ConfigurationError with all problems found."""
    source = read_csv(path) if path.suffix.lower() == ".csv" else read_toml(path)
    file = str(path)
    problems: list[Problem] = []
    settings = None
    try:
        settings = SequenceFile.model_validate(source)
    except ValidationError as error:
        if (kind := kind_of(source)) in ("rig", "circuit"):
            raise ConfigurationError([Problem(f"is a {kind} file, not a test sequence", "", file)]) from None
        problems += problems_of(error, source, file=file, names=SequenceFile.model_fields)
    steps, tables = list[Step](), source.get("step", ())
    length = settings.length if settings is not None else None
    for number, table in enumerate(tables if isinstance(tables, list | tuple) else ()):
        if not isinstance(table, Mapping):  # reported with the settings
            continue
        try:
            steps.append(_step(table))
            problems += _after_the_end(f"step[{number}]", steps[-1].at, length, file)
        except ConfigurationError as error:
            where = f"step[{number}]"
            problems += [Problem(p.message, f"{where}.{p.key}" if p.key else where, file) for p in error.problems]
    if settings is None:
        raise ConfigurationError(problems)
    reactions = [each for each in map(_named_by, steps) if each]
    names = [*(step.name for step in steps), *(f.name for f in settings.fault), *dict.fromkeys(reactions)]
    problems += _unknown_steps(settings, names, file)
    for number, fault in enumerate(settings.fault):
        problems += _after_the_end(f"fault[{number}]", fault.at, length, file)
    for number, expected in enumerate(settings.expect):
        if not expected.after:
            problems += _after_the_end(f"expect[{number}]", expected.at, length, file)
            problems += _after_the_end(f"expect[{number}]", expected.until or 0.0, length, file, "until")
    if not problems and not settings.expect and not any(step.refused for step in steps):
        problems.append(Problem("no expectation: a test without expectations can't fail.", "expect", file))
    if problems:
        raise ConfigurationError(problems)
    return Sequence(path, settings, tuple(sorted(steps, key=lambda step: step.at)))


def _after_the_end(key: str, at: float, length: float | None, file: str, part: str = "at") -> Iterator[Problem]:
    """An entry at a time that the sequence does not reach."""
    if length is not None and at > length:
        yield Problem(f"{at:g} s is after the end of the sequence: length is {length:g} s.", f"{key}.{part}", file)


def _step(table: Mapping[str, Any]) -> Step:
    own = {key: table[key] for key in StepTiming.model_fields if key in table}
    payload = {key: value for key, value in table.items() if key not in StepTiming.model_fields and key != SEND}
    problems: list[Problem] = []
    timing = command = None
    try:
        timing = StepTiming.model_validate(own)
    except ValidationError as error:
        problems += problems_of(error, own, names=StepTiming.model_fields)
    if not isinstance(table.get(SEND), str):
        problems.append(Problem('missing: give the command, such as send = "arm".', SEND))
    else:
        try:
            command = read_command(table[SEND], json.dumps(payload).encode())
        except PayloadError as error:
            problems += [Problem(text) for text in error.problems]
    if timing is None or command is None or problems:
        raise ConfigurationError(problems)
    return Step(timing.at, timing.name, command, timing.refused)


def _unknown_steps(settings: SequenceFile, names: Iterable[str], file: str) -> list[Problem]:
    known = [name for name in names if name]
    found = [
        Problem(f"two steps or reactions are named {name}.", "step", file)
        for name in sorted(set(known))
        if known.count(name) > 1
    ]
    for number, expectation in enumerate(settings.expect):
        if expectation.after and expectation.after not in known:
            hint = did_you_mean(expectation.after, known)
            text = f"{shown(expectation.after)} is not the name of a step, reaction or playout.{hint}"
            found.append(Problem(text, f"expect[{number}].after", file))
    return found
