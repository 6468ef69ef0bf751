"""The study file: what is run, which values are varied, by which plan, and which figures are wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from hilserver.components.base import Datasheet
from hilserver.errors import ConfigurationError, Problem, as_sentence, collected, did_you_mean, problems_of, shown
from hilserver.studies.component_types import read_entries
from hilserver.studies.figures import Figure, read_figures
from hilserver.studies.own_calls import ending_own_calls
from hilserver.studies.studied_circuit import load_circuit
from hilserver.studies.studied_replay import ReplaySettings, load_replay
from hilserver.studies.studied_rig import load_studied_rig
from hilserver.studies.studied_sequence import load_studied_sequence
from hilserver.studies.subject import KnownQuantity, RunsSubject, Studied
from hilserver.studies.sweep_figures import SweepSettings
from hilserver.studies.varied import VariedValue
from hilserver.tolerances import Tolerance, Toleranced, toleranced
from hilserver.toml import read_toml
from hilserver.units import Time, shown_value, to_si, value_and_unit

PLANS = Literal["grid", "latin_hypercube", "sobol", "morris"]

USUAL = "usual"
"""In place of a tolerance: the usual range of an unknown."""


def _logs(given: Any) -> Any:
    """A name stands for a log, and a log for a list of one."""
    entries = given if isinstance(given, list | tuple) else [given]
    return [{"log": each} if isinstance(each, str) else each for each in entries]


class StudySettings(Datasheet):
    """The keys of a study file."""

    description: str = Field(default="", description="free text")
    circuit: str | None = Field(
        default=None,
        description="circuit file that is studied, relative to the study file; one of circuit, rig, sequence and "
        "replay is given; with replay: the circuit that is run instead of that of the logs",
        examples=["circuits/lift.toml"],
    )
    rig: str | None = Field(
        default=None,
        description="rig file with a simulated device: its work cycle is run with the bridge; with sequence: the rig "
        "that it runs on, default: the one that it names",
    )
    sequence: str | None = Field(default=None, description="test sequence that is run on a simulated rig")
    replay: Annotated[tuple[ReplaySettings, ...], BeforeValidator(_logs)] = Field(
        default=(),
        description="log of a rig, or a list of logs: their virtual circuit is run with what was recorded. Each is "
        "given by its file name, relative to the study file, or by a table with this name and the part that is used",
        examples=["logs/monday.arrow", [{"log": "logs/monday.arrow", "end": "20 s"}]],
    )
    cycle: str | None = Field(
        default=None, description="work cycle file, relative to the study file; default for a rig: its own"
    )
    duration: Time | None = Field(
        default=None, gt=0, description="circuit: of a run; default: that of the work cycle, or 10 s"
    )
    tick: Time | None = Field(
        default=None, gt=0, description="circuit: time that is divided into solver.substeps; default: 1 ms"
    )
    strategy: str | None = Field(
        default=None, description="rig: bridge strategy of all valves; default: that of the rig file"
    )
    plan: PLANS = Field(
        default="latin_hypercube",
        description="grid: all combinations of the levels; latin_hypercube: random, evenly over each quantity; sobol: "
        "shares of the variance (Sobol indices), samples · (quantities + 2) runs; morris: elementary effects, "
        "samples · (quantities + 1) runs",
    )
    samples: int = Field(default=256, ge=2, le=2**22, description="size of the plan; sobol: a power of 2")
    levels: int = Field(default=5, ge=2, le=1000, description="grid: number of values of each quantity")
    seed: int = Field(default=1, ge=0, description="of the plan's random numbers")
    time_limit: Time = Field(default="60 s", gt=0, description="computing time after which a run is aborted")
    vary: dict[str, Any] = Field(
        default={},
        description="tolerances, in addition to those in the files or instead of them, by key; lists to choose from; "
        'for unknowns of a rig also "usual"',
    )
    fixed: tuple[str, ...] = Field(
        default=(), description="quantities with a tolerance that keep their value, or the beginning of their keys"
    )
    sweep: SweepSettings | None = Field(
        default=None,
        description="rig: the sines of the figures over frequency; default: those of hilserver fidelity",
    )
    figures: dict[str, Any] = Field(
        default={}, description="figures of a run by name; default for a test sequence: its verdicts"
    )

    @model_validator(mode="after")
    def _one_subject(self) -> StudySettings:
        given = [key for key in ("circuit", "rig", "sequence", "replay") if getattr(self, key)]
        if given not in (["circuit"], ["rig"], ["sequence"], ["rig", "sequence"], ["replay"], ["circuit", "replay"]):
            raise ValueError(
                "give what is studied: circuit, or rig, or sequence (with or without rig), or replay (with or without "
                "circuit)"
            )
        if wrong := [key for key in _NOT_OF[given[-1]] if getattr(self, key) is not None]:
            raise ValueError(f"{wrong[0]} can't be given when a {given[-1]} is studied")
        return self


_NOT_OF = {
    "circuit": ("strategy", "sweep"),
    "rig": ("duration", "tick"),
    "sequence": ("duration", "tick", "cycle", "sweep"),
    "replay": ("duration", "tick", "cycle", "strategy", "sweep"),
}
"""Keys without a meaning for what is studied."""


@dataclass(frozen=True)
class Study:
    """A study as loaded: its file, what it runs, and what it varies."""

    file: Path
    settings: StudySettings
    studied: Studied
    varied: tuple[VariedValue, ...]
    subject: RunsSubject

    @property
    def name(self) -> str:
        """The name of its results."""
        return self.file.stem

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures of a run."""
        return self.subject.figures

    @property
    def duration(self) -> float:
        """Of a run, s."""
        return self.studied.duration


@ending_own_calls()
def load_study(file: Path, *, trust: bool = False) -> Study:
    """Read a study file and the files that it names. Raises ConfigurationError with all problems.

    ``trust``: run the Python that a log contains, also if it was not run here before.
    """
    raw = read_toml(file)
    try:
        settings = StudySettings.model_validate(raw)
    except ValidationError as error:
        raise ConfigurationError(problems_of(error, raw, file=str(file), names=StudySettings.model_fields)) from None
    problems: list[Problem] = []
    if settings.plan == "sobol" and settings.samples & (settings.samples - 1):
        near = 1 << (settings.samples - 1).bit_length()
        text = f"{settings.samples} is not a power of 2: use {near // 2} or {near}."
        problems.append(Problem(text, "samples", str(file)))
    studied, varied, figures = None, tuple[VariedValue, ...](), tuple[Figure, ...]()
    with collected(problems):
        studied = _studied(settings, file, trust)
    if studied is None:
        raise ConfigurationError(problems)
    with collected(problems):
        varied = varied_values(studied, settings.vary, settings.fixed, str(file))
    if settings.plan == "morris" and (chosen := [each.key for each in varied if each.choices]):
        text = f"morris requires ordered values, but {chosen[0]} is a choice: use grid, sobol or latin_hypercube."
        problems.append(Problem(text, "plan", str(file)))
    with collected(problems):
        raw_figures = settings.figures or studied.default_figures()
        figures = read_figures(raw_figures, studied.quantities, studied.end, str(file), studied.special)
    for name in {figure.name for figure in figures} & {each.key for each in varied}:
        text = f"{name} is varied, and has a column of the table already: give the figure another name."
        problems.append(Problem(text, f"figures.{name}", str(file)))
    if problems:
        raise ConfigurationError(problems)
    return Study(file, settings, studied, varied, studied.subject(varied, figures, settings.time_limit))


def _studied(s: StudySettings, file: Path, trust: bool) -> Studied:
    if s.replay:
        return load_replay(file, s.replay, s.circuit, trust)
    if s.circuit is not None:
        return load_circuit(file, s.circuit, s.cycle, s.duration, s.tick)
    if s.sequence is not None:
        return load_studied_sequence(file, s.sequence, s.rig, s.strategy)
    assert s.rig is not None
    return load_studied_rig(file, s.rig, s.cycle, s.strategy, s.sweep)


def varied_values(
    studied: Studied, given: Mapping[str, Any], fixed: tuple[str, ...], file: str
) -> tuple[VariedValue, ...]:
    """The quantities with a tolerance: those of the studied files, and those ``given`` by their keys; and choices.

    Raises ConfigurationError with all problems.
    """
    problems, found, written = list[Problem](), dict[str, VariedValue](), dict[str, str]()
    for key, tolerance in studied.tolerances:
        found[key] = VariedValue(key, studied.known[key].value, studied.known[key].unit, tolerance)
    for name, entry in sorted(given.items(), key=lambda item: item[1] != USUAL):  # what is written for one value counts
        try:
            values = {each.key: each for each in _varied(studied, name, entry)}
            if entry != USUAL:
                if twice := [written[key] for key in values if key in written]:
                    raise ValueError(f"is the same as {twice[0]}: give one of them")
                written |= dict.fromkeys(values, name)
            found |= values
        except ConfigurationError as error:
            problems += [Problem(f"{each.key}: {each.message}", f"vary.{name}", file) for each in error.problems]
        except ValueError as error:
            problems.append(Problem(as_sentence(error), f"vary.{name}", file))
    for name in fixed:
        key = name.removeprefix("components.")
        gone = [each for each in found if each == key or each.startswith(f"{key}.")]
        if not gone:
            problems.append(Problem(f"{shown(name)} has no tolerance.{did_you_mean(name, found)}", "fixed", file))
        found = {each: value for each, value in found.items() if each not in gone}
    if not found and not problems:
        text = 'nothing is varied: give tolerances here or in the files studied, such as "load.mass" = "± 5 %".'
        problems.append(Problem(text, "vary", file))
    if problems:
        raise ConfigurationError(problems)
    return tuple(found.values())


def _varied(studied: Studied, name: str, entry: object) -> list[VariedValue]:
    """What an entry of ``vary`` varies. Raises ValueError or ConfigurationError."""
    if isinstance(entry, list | tuple):
        return [studied.choice(name, read_entries(entry))]
    if entry == USUAL:
        tolerances = studied.usual(name)
    else:
        key = studied.find(name)
        tolerances = {key: _tolerance(entry, studied.known[key])}
    return [VariedValue(key, studied.known[key].value, studied.known[key].unit, t) for key, t in tolerances.items()]


def _tolerance(entry: object, quantity: KnownQuantity) -> Tolerance:
    """The tolerance that is given for a quantity. Raises ValueError."""
    if not isinstance(entry, Toleranced):
        if not isinstance(entry, str | Mapping):
            raise ValueError(f'{shown(entry)} is not a tolerance; write it like "± 5 %"')
        x = quantity.value if isfinite(quantity.value) else _middle(entry)
        entry = toleranced(entry, f"{x!r} {quantity.unit}" if quantity.unit else x)
    tolerance = entry.tolerance
    if bool(tolerance.unit) != bool(quantity.unit):
        raise ValueError(
            f"measured in {tolerance.unit or 'no unit'}, the value in the file in {quantity.unit or 'no unit'}"
        )
    if quantity.unit:
        to_si(f"1 {tolerance.unit}", quantity.unit)
    if isfinite(x := quantity.value) and not tolerance.steps and not tolerance.lower <= x <= tolerance.upper:
        own, low, high = (shown_value(each, quantity.unit) for each in (x, tolerance.lower, tolerance.upper))
        raise ValueError(
            f"the file has {own}, which is outside this tolerance, {low} … {high}: no run would be like the nominal "
            "one. Change the value in the file, or the tolerance"
        )
    return tolerance


def _middle(entry: str | Mapping[str, Any]) -> float:
    """The middle of a range that is given, SI, for what the files don't have. Raises ValueError."""
    if isinstance(entry, str) or not ({"from", "to"} <= entry.keys() or "steps" in entry):
        raise ValueError(f'the files have no such value: give a range {{ from, to }}, or "{USUAL}"')
    ends = entry["steps"] if "steps" in entry else (entry["from"], entry["to"])
    values = [value_and_unit(each)[0] for each in ends]
    return 0.5 * (min(values) + max(values))
