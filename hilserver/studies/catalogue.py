"""Real valves to choose from: datasheet values of a catalogue file, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import acos, pi, sqrt
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from hilserver.components.base import Datasheet
from hilserver.components.shared.edges import Leakage, NominalFlow
from hilserver.errors import ConfigurationError, Problem, did_you_mean, problems_of, shown
from hilserver.tolerances import Toleranced, toleranced
from hilserver.toml import read_toml
from hilserver.units import Frequency, Number, Time

DAMPING = 0.8
"""Damping ratio of a spool whose datasheet states none: the default of valves in rig files."""
FLOW_TOLERANCE = "± 10 %"
"""Of a nominal flow without a stated one: that of usual datasheets (test method: ISO 10770-1)."""


class CatalogueValve(Datasheet):
    """A valve of a catalogue."""

    description: str = Field(default="", description="free text")
    source: str = Field(min_length=1, description="where the values are stated: a text, or a name in [sources]")
    nominal_flow: NominalFlow = Field(description="datasheet flow at full command")
    f90: Frequency | None = Field(default=None, gt=0, description="-90° frequency of the Bode plot")
    step_time: Time | None = Field(
        default=None, gt=0, description="without a Bode plot: time in which a step reaches 100 %"
    )
    damping: Number = Field(default=DAMPING, gt=0, le=5, description="damping ratio of the spool")
    leakage: Leakage | None = Field(default=None, description="datasheet leakage at null")
    overlap: Number = Field(default=0.0, ge=0, lt=0.5, description="spool travel before an edge opens")

    @model_validator(mode="after")
    def _one_speed(self) -> CatalogueValve:
        if (self.f90 is None) == (self.step_time is None):
            raise ValueError("give f90, or step_time if the datasheet has no Bode plot")
        if self.step_time is not None and self.damping >= 1.0:
            raise ValueError("step_time: with a damping of 1 or more, a step never reaches 100 %; give f90")
        return self

    def frequency(self) -> float:
        r"""The -90° frequency, Hz; from ``step_time`` t, the time in which a second-order spool first reaches 100 %,

        .. math:: f_{90} = \frac{\pi - \arccos d}{2\pi\,t\,\sqrt{1 - d^2}}

        Source: Ogata, Modern Control Engineering, rise time of an underdamped system.
        """
        if self.f90 is not None:
            return self.f90
        assert self.step_time is not None
        return (pi - acos(self.damping)) / (2.0 * pi * self.step_time * sqrt(1.0 - self.damping**2))


class CatalogueFile(Datasheet):
    """A list of real valves."""

    description: str = Field(default="", description="free text")
    sources: dict[str, str] = Field(default={}, description="sources of the values, by a short name")
    valves: dict[str, CatalogueValve] = Field(min_length=1, description="valves by name")


@dataclass(frozen=True)
class Candidate:
    """A valve of a catalogue: its values, the source, and what files of rig and drive say of it.

    ``tolerated``: whether the tolerance of its flow is the usual one, not its datasheet's.
    """

    name: str
    valve: CatalogueValve
    source: str
    written: Mapping[str, Any]
    tolerated: bool

    @property
    def extremes(self) -> tuple[dict[str, Any], ...]:
        """``written`` of the smallest and slowest valve within its tolerances, and of the smallest and fastest."""
        nominal = {**self.written["nominal_flow"], "flow": _end(self.written["nominal_flow"]["flow"], "lower")}
        ends = dict.fromkeys(_end(self.written["f90"], end) for end in ("lower", "upper"))
        return tuple({**self.written, "nominal_flow": nominal, "f90": f90} for f90 in ends)


def load_catalogue(file: Path) -> tuple[Candidate, ...]:
    """The valves of a catalogue file, the smallest first. Raises ConfigurationError with all problems."""
    raw = read_toml(file)
    try:
        catalogue = CatalogueFile.model_validate(raw)
    except ValidationError as error:
        raise ConfigurationError(problems_of(error, raw, file=str(file), names=CatalogueFile.model_fields)) from None
    found, problems = list[Candidate](), list[Problem]()
    for name, valve in catalogue.valves.items():
        source = catalogue.sources.get(valve.source, valve.source)
        if " " not in source:  # a name, not a text
            text = f"{shown(source)} is not in [sources].{did_you_mean(source, catalogue.sources)}"
            problems.append(Problem(text, f"valves.{name}.source", str(file)))
        found.append(_candidate(name, valve, source, raw["valves"][name]))
    if problems:
        raise ConfigurationError(problems)
    return tuple(sorted(found, key=lambda each: each.valve.nominal_flow.coefficient()))


def _candidate(name: str, valve: CatalogueValve, source: str, raw: Mapping[str, Any]) -> Candidate:
    flow = raw["nominal_flow"]["flow"]
    tolerated = not isinstance(flow, Toleranced)
    nominal = {**raw["nominal_flow"], "flow": toleranced(f"{flow} {FLOW_TOLERANCE}") if tolerated else flow}
    f90 = raw["f90"] if valve.f90 is not None else f"{valve.frequency()!r} Hz"
    written = {"nominal_flow": nominal, "f90": f90, "damping": valve.damping, "overlap": valve.overlap}
    if valve.leakage is not None:
        written["leakage"] = raw["leakage"]
    return Candidate(name, valve, source, written, tolerated)


def _end(value: Any, end: str) -> Any:
    """The lower or upper end of a tolerance."""
    if not isinstance(value, Toleranced):
        return value
    return f"{getattr(value.tolerance, end)!r} {value.tolerance.unit}"
