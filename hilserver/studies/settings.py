"""The study file: what is run, which values are varied, by which plan, and which figures are wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from hilserver.circuit.library import Library, circuit_library
from hilserver.circuit.model import RIG, Circuit
from hilserver.components.base import Datasheet
from hilserver.errors import ConfigurationError, Problem, as_sentence, did_you_mean, problems_of, shown
from hilserver.rig.cycle import CycleSettings
from hilserver.simulation.circuit_run import DEFAULT_DURATION, is_circuit_file, read_circuit_file, read_cycle
from hilserver.studies.circuit_runs import CircuitSubject
from hilserver.studies.figures import Figure, read_figures
from hilserver.studies.quantities import Changeable, changeable, expanded, find, short, toleranced_values
from hilserver.tolerances import Tolerance, Toleranced, toleranced
from hilserver.toml import read_toml
from hilserver.units import Time, to_si

PLANS = Literal["grid", "latin_hypercube", "sobol", "morris"]


class StudySettings(Datasheet):
    """The keys of a study file."""

    description: str = Field(default="", description="free text")
    circuit: str = Field(description="circuit file, relative to the study file", examples=["circuits/lift.toml"])
    cycle: str | None = Field(default=None, description="work cycle file of its inputs, relative to the study file")
    duration: Time | None = Field(default=None, gt=0, description="of a run; default: that of the work cycle, or 10 s")
    tick: Time = Field(default="1 ms", gt=0, description="time that is divided into solver.substeps")
    plan: PLANS = Field(
        default="latin_hypercube",
        description="grid: all combinations of the levels; latin_hypercube: random, evenly over each quantity; sobol: "
        "shares of the variance (Sobol indices), samples · (quantities + 2) runs; morris: elementary effects, "
        "samples · (quantities + 1) runs",
    )
    samples: int = Field(default=256, ge=2, le=2**22, description="size of the plan; sobol: a power of 2")
    levels: int = Field(default=5, ge=2, le=1000, description="grid: number of values of each quantity")
    seed: int = Field(default=1, ge=0, description="of the plan's random numbers")
    time_limit: Time = Field(default="60 s", gt=0, description="computing time after which a run is given up")
    vary: dict[str, Any] = Field(
        default={},
        description="tolerances, in addition to those in the circuit file or instead of them, by key",
    )
    fixed: tuple[str, ...] = Field(default=(), description="quantities of the circuit file that keep their value")
    figures: dict[str, Any] = Field(description="figures of a run by name")


@dataclass(frozen=True)
class VariedValue:
    """A quantity that a study varies: short key, its value in the circuit, SI, and its tolerance."""

    key: str
    value: float
    unit: str
    tolerance: Tolerance


@dataclass(frozen=True)
class Study:
    """A study as loaded: its file, what it runs, and what it varies."""

    file: Path
    settings: StudySettings
    circuit: Circuit
    library: Library
    varied: tuple[VariedValue, ...]
    subject: CircuitSubject

    @property
    def name(self) -> str:
        """The name of its results."""
        return self.file.stem

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures of a run."""
        return self.subject.figures


def load_study(file: Path) -> Study:
    """Read a study file and the files that it names. Raises ConfigurationError with all problems."""
    raw = read_toml(file)
    try:
        settings = StudySettings.model_validate(raw)
    except ValidationError as error:
        problems = problems_of(error, raw, file=str(file), names=StudySettings.model_fields)
        raise ConfigurationError(problems) from None
    circuit_file = file.parent / settings.circuit
    if not is_circuit_file(circuit_file):
        text = f"{shown(settings.circuit)} is not a circuit file."
        raise ConfigurationError([Problem(text, "circuit", str(file))])
    library = circuit_library(circuit_file)
    circuit = read_circuit_file(circuit_file, library)
    cycle = read_cycle(file.parent / settings.cycle) if settings.cycle is not None else None
    if problems := _misfits(circuit, cycle, settings, str(file)):
        raise ConfigurationError(problems)
    varied = varied_values(circuit, settings.vary, settings.fixed, str(file))
    duration = settings.duration or (cycle.duration if cycle is not None else DEFAULT_DURATION)
    ranges = tuple((each.tolerance.lower, each.tolerance.upper) for each in varied)
    subject = CircuitSubject(
        str(circuit_file), circuit.written, library.own, cycle, duration, settings.tick,
        tuple(each.key for each in varied), ranges, (), settings.time_limit,
    )  # fmt: skip
    names = subject.prepare().names
    subject = replace(subject, figures=read_figures(settings.figures, names, duration, str(file)))
    return Study(file, settings, circuit, library, varied, subject)


def _misfits(circuit: Circuit, cycle: CycleSettings | None, settings: StudySettings, file: str) -> list[Problem]:
    found = []
    if circuit.rig_ports():
        text = f"has ports of the real machine ({RIG}{circuit.rig_ports()[0]}). A circuit that is studied alone must "
        found.append(Problem(f"{shown(settings.circuit)} {text}include its cylinder and load.", "circuit", file))
    for name in cycle.inputs if cycle is not None else ():
        if name not in circuit.inputs():
            text = f'the circuit has no input "{name}".{did_you_mean(name, circuit.inputs())}'
            found.append(Problem(text, f"cycle ({settings.cycle})", file))
    if settings.plan == "sobol" and settings.samples & (settings.samples - 1):
        near = 1 << (settings.samples - 1).bit_length()
        found.append(Problem(f"{settings.samples} is not a power of 2: use {near // 2} or {near}.", "samples", file))
    return found


def varied_values(
    circuit: Circuit, given: Mapping[str, Any], fixed: tuple[str, ...], file: str
) -> tuple[VariedValue, ...]:
    """The quantities with a tolerance: those of the circuit file, and those ``given`` by their keys.

    Raises ConfigurationError with all problems.
    """
    known, problems, found = changeable(circuit), list[Problem](), dict[str, VariedValue]()
    for path, value in toleranced_values(circuit.written):
        key = short(".".join(expanded(path)))
        found[key] = VariedValue(key, known[key].value, known[key].unit, value.tolerance)
    for name, entry in given.items():
        try:
            quantity = find(known, name)
            key = short(quantity.key)
            found[key] = VariedValue(key, quantity.value, quantity.unit, _tolerance(entry, quantity))
        except ValueError as error:
            problems.append(Problem(as_sentence(error), f"vary.{name}", file))
    for name in fixed:
        if short(name) not in found:
            problems.append(Problem(f"{shown(name)} has no tolerance.{did_you_mean(name, found)}", "fixed", file))
        found.pop(short(name), None)
    if not found and not problems:
        text = 'nothing is varied: give tolerances here or in the circuit file, such as "load.mass" = "± 5 %".'
        problems.append(Problem(text, "vary", file))
    if problems:
        raise ConfigurationError(problems)
    return tuple(found.values())


def _tolerance(entry: object, quantity: Changeable) -> Tolerance:
    """The tolerance that is given for a quantity. Raises ValueError."""
    if not isinstance(entry, Toleranced):
        if not isinstance(entry, str | Mapping):
            raise ValueError(f'{shown(entry)} is not a tolerance; write it like "± 5 %"')
        value = f"{quantity.value!r} {quantity.unit}" if quantity.unit else quantity.value
        entry = toleranced(entry, value)
    tolerance = entry.tolerance
    if bool(tolerance.unit) != bool(quantity.unit):
        raise ValueError(
            f"measured in {tolerance.unit or 'no unit'}, the value in the circuit in {quantity.unit or 'no unit'}"
        )
    if quantity.unit:
        to_si(f"1 {tolerance.unit}", quantity.unit)
    return tolerance
