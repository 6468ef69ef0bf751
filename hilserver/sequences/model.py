"""The file of a test sequence: steps, faults, inputs over time, expectations. TOML, or a table as CSV."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from hilserver.components.base import Datasheet
from hilserver.errors import ConfigurationError, Problem, did_you_mean, problems_of, shown
from hilserver.protocol.commands import Command
from hilserver.protocol.parsing import PayloadError, read_command
from hilserver.rig.cycle import CycleInput
from hilserver.sequences.table import read_csv
from hilserver.tick.codes import Mode
from hilserver.toml import read_toml
from hilserver.units import AnyDifference, AnyQuantity, Time

SEND = "send"


class Timing(Datasheet):
    """When something is done."""

    at: Time = Field(ge=0, description="time from the begin of the sequence")
    name: str = Field(default="", description="so that an expectation can be timed from here")


class Fault(Timing):
    """Something that fails. In a simulation only: nobody breaks the sensors of a real rig by a file."""

    fault: Literal["silent", "stuck", "reads", "jammed", "unplugged", "missed", "healed"] = Field(
        description="silent: the sensor gives no samples; stuck: always the present one; reads: always `raw`; "
        "jammed: the actuator stays where it is; unplugged: the device gives no samples, its actuators stay; "
        "missed: `ticks` of the loop are missed; healed: sensor, actuator or the whole device as it was"
    )
    device: str | None = Field(default=None, description="the simulated device; default: the only one")
    sensor: str | None = Field(default=None, description="its sensor; for silent, stuck, reads, healed")
    actuator: str | None = Field(default=None, description="its actuator; for jammed, healed")
    raw: float | None = Field(default=None, description="for reads: the raw reading, such as 0 V for a broken wire")
    ticks: int | None = Field(default=None, gt=0, description="for missed: how many")

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
                raise ValueError(f"{self.fault} takes no {key}.")
            if not given and key in needed[self.fault]:
                raise ValueError(f"{self.fault} needs {key}.")
        return self


class Expectation(Datasheet):
    """What a channel must do: be within a band from a time on, at the latest after ``delay``, until a time."""

    name: str = Field(default="", description="what it is called in the report")
    channel: str = Field(
        min_length=1, description="as in telemetry: p_A, valve.main.command, circuit.supply.p, mode, ..."
    )
    at: Time = Field(default="0 s", description="from when on; from the begin of the sequence, or `after` a step")
    after: str = Field(default="", description="name of the step from whose effect on `at` and `until` are counted")
    delay: Time = Field(default="0 s", ge=0, description="time that it may take to get there")
    until: Time | None = Field(default=None, description="until when it must stay there; default: to the end")
    value: AnyQuantity | None = Field(default=None, description='the value expected; for `mode` a name, such as "SAFE"')
    tolerance: AnyDifference | None = Field(default=None, description="of the value, to both sides; default 0")
    min: AnyQuantity | None = Field(default=None, description="smallest value allowed")
    max: AnyQuantity | None = Field(default=None, description="largest value allowed")

    @model_validator(mode="before")
    @classmethod
    def _mode_by_name(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("channel") != "mode" or "value" not in values:
            return values
        if values["value"] not in Mode.__members__:
            raise ValueError(
                f"{shown(values['value'])} is no mode.{did_you_mean(str(values['value']), Mode.__members__)}"
            )
        return {**values, "value": Mode[values["value"]]}

    @model_validator(mode="after")
    def _is_a_band(self) -> Expectation:
        if (self.value is None) == (self.min is None and self.max is None):
            raise ValueError("give either value (and tolerance), or min or max or both.")
        if self.tolerance is not None and self.value is None:
            raise ValueError("tolerance is that of value, which is missing.")
        units = {quantity.unit for quantity in (self.value, self.tolerance, self.min, self.max) if quantity is not None}
        if len(units) > 1:
            raise ValueError(f"different units: {', '.join(sorted(units))}.")
        if not self.lower <= self.upper:
            raise ValueError("min is above max, or the tolerance is negative.")
        if self.until is not None and self.until < self.at + self.delay:
            raise ValueError("until is before at + delay: no time is left in which it is looked at.")
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
    """A test sequence: what is done to a rig over time, and what is expected of it."""

    description: str = Field(default="", description="free text")
    rig: str = Field(default="", description="rig file for a run in simulation, beside this file; --rig names another")
    length: Time | None = Field(default=None, gt=0, description="default: until the last that is done or expected")
    step: tuple[dict[str, Any], ...] = Field(default=(), description="commands")
    fault: tuple[Fault, ...] = Field(default=(), description="what fails")
    inputs: dict[str, CycleInput] = Field(default={}, description="operator inputs over time, as in a work cycle")
    input_period: Time = Field(default="20 ms", gt=0, description="time between two values that are sent for an input")
    expect: tuple[Expectation, ...] = Field(default=(), description="what is expected")


class StepTiming(Timing):
    """The keys of a step that are not the command's own."""

    refused: bool = Field(default=False, description="true: the command must be refused")


@dataclass(frozen=True)
class Step:
    """A command at a time. ``refused``: it must be."""

    at: float
    name: str
    command: Command
    refused: bool

    @property
    def title(self) -> str:
        """What it is, in a report."""
        told = self.command.model_dump(exclude_unset=True, mode="json")
        return " ".join([self.command.name, *(f"{key}={json.dumps(value)}" for key, value in told.items())])


@dataclass(frozen=True)
class Sequence:
    """A test sequence, validated."""

    file: Path
    settings: SequenceFile
    steps: tuple[Step, ...]

    @property
    def length(self) -> float:
        """How long it lasts, s."""
        if self.settings.length is not None:
            return self.settings.length
        after = {step.name: step.at for step in self.steps if step.name}
        ends = [*(step.at for step in self.steps), *(fault.at for fault in self.settings.fault)]
        ends += [entry.duration for entry in self.settings.inputs.values()]
        for e in self.settings.expect:
            ends.append(after.get(e.after, 0.0) + (e.until if e.until is not None else e.at + e.delay))
        return max(ends, default=0.0)

    @property
    def rig_file(self) -> Path | None:
        """The rig file that it names."""
        return Path(os.path.normpath(self.file.parent / self.settings.rig)) if self.settings.rig else None


def load_sequence(path: Path) -> Sequence:
    """Read a test sequence. Raises ConfigurationError with all that is wrong."""
    source = read_csv(path) if path.suffix.lower() == ".csv" else read_toml(path)
    file = str(path)
    problems: list[Problem] = []
    try:
        settings = SequenceFile.model_validate(source)
    except ValidationError as error:
        names = SequenceFile.model_fields
        raise ConfigurationError(problems_of(error, source, file=file, names=names)) from None
    steps = []
    for number, table in enumerate(settings.step):
        try:
            steps.append(_step(table))
        except ConfigurationError as error:
            where = f"step[{number}]"
            problems += [Problem(p.message, f"{where}.{p.key}" if p.key else where, file) for p in error.problems]
    problems += _unknown_steps(settings, [*(step.name for step in steps), *(f.name for f in settings.fault)], file)
    if not problems and not settings.expect and not any(step.refused for step in steps):
        problems.append(Problem("nothing is expected: a test without an expectation can't fail.", "expect", file))
    if problems:
        raise ConfigurationError(problems)
    return Sequence(path, settings, tuple(sorted(steps, key=lambda step: step.at)))


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
        problems.append(Problem('missing: which command is it? Such as send = "arm".', SEND))
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
    found = [Problem(f"two are called {name}.", "step", file) for name in sorted(set(known)) if known.count(name) > 1]
    for number, expectation in enumerate(settings.expect):
        if expectation.after and expectation.after not in known:
            text = f"{shown(expectation.after)} is no step's name.{did_you_mean(expectation.after, known)}"
            found.append(Problem(text, f"expect[{number}].after", file))
    return found
