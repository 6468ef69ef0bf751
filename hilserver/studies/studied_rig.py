"""A study of a simulated rig with its bridge."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError, HilserverError, Problem
from hilserver.fidelity.comparison import Comparison
from hilserver.fidelity.report import write_simulation
from hilserver.fidelity.results import followed_by
from hilserver.fidelity.strategies import simulate, usable, with_cycle
from hilserver.fidelity.vary import strategy_for
from hilserver.numerics.arrays import Floats
from hilserver.record.run import units_of
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.studies.component_types import ComponentChoice, component_choice
from hilserver.studies.figures import FIDELITY, MARGIN, SATURATED, Figure
from hilserver.studies.quantities import known_key
from hilserver.studies.rig_runs import STRATEGY, RigSubject, margin_names, plant_key
from hilserver.studies.subject import RepeatedRun, RunsSubject, StudyRuns, VariantFailedError
from hilserver.studies.sweep_figures import SweepSettings, swept_quantities
from hilserver.studies.unknown_values import UNKNOWN, choice_of_unknown, usual_values
from hilserver.studies.varied import VariedValue, choice_of
from hilserver.studies.varied_rig import CIRCUIT, RigQuantity, RigValues
from hilserver.tolerances import Tolerance
from hilserver.toml import read_toml
from hilserver.units import unit_of_value


@dataclass(frozen=True)
class StudiedRig:
    """A rig, whose work cycle is run. ``strategy``: of all valves; empty: those of the rig file.

    ``sweep``: the table of the work cycle that is swept for figures over frequency; None: nothing can be.
    """

    values: RigValues
    strategy: str
    about: str
    choices: dict[str, ComponentChoice] = field(default_factory=dict)
    strategies: list[str] = field(default_factory=list)
    sweep: Mapping[str, Any] | None = None

    @property
    def rig(self) -> Rig:
        """As in its files."""
        return self.values.rig

    @property
    def facts(self) -> Mapping[str, str]:
        """Its file and strategy."""
        notes = {f"Choice of {key}": "; ".join(found.notes) for key, found in self.choices.items() if found.notes}
        chosen = self.strategy or "as in the rig file"
        return {"Rig": self.about, "Strategy": ", ".join(self.strategies) or chosen, **notes}

    @property
    def duration(self) -> float:
        """Of the work cycle, s."""
        assert self.rig.cycle is not None
        return self.rig.cycle.duration

    @property
    def end(self) -> float:
        """Time at the end of a run, s."""
        return self.duration

    @property
    def known(self) -> Mapping[str, RigQuantity]:
        """Values of machine, drive, virtual circuit, sensors and actuators; what the bridge is told; unknowns."""
        return self.values.known

    @property
    def tolerances(self) -> Iterable[tuple[str, Tolerance]]:
        """Those in the files."""
        return self.values.tolerances

    @cached_property
    def quantities(self) -> dict[str, str]:
        """Columns of the log, values of the virtual circuit, and true values of the simulated machine and its drive."""
        rig, device = self.rig, self.values.device
        units = units_of(rig)
        found = {name: units.get(name, "") for name in rig.layout.names}
        found |= {f"{CIRCUIT}.{name}": unit_of_value(name) for name in self._circuit_names()}
        plant = Comparison.of(rig).plant.names
        return found | {plant_key(rig, device, name): unit_of_value(name) for name in plant}

    def _circuit_names(self) -> dict[str, None]:
        """Of the virtual circuit, with any of the components chosen from."""
        circuits = [self.rig.circuit]
        for key, found in self.choices.items():
            if key.startswith(f"{CIRCUIT}."):
                circuits += [self.values.changed({}, {key: table}).circuit for table in found.tables]
        return dict.fromkeys(name for circuit in circuits for name in self.rig.pack(circuit).names)

    @property
    def special(self) -> Mapping[str, Mapping[str, str]]:
        """What is compared with the reference simulation, the valves, and the margins."""
        quantities = Comparison.of(self.rig).quantities()
        compared, followed = dict.fromkeys((each.name for each in quantities), ""), followed_by(quantities)
        valves = self.rig.settings.valves
        return {
            FIDELITY: compared,
            SATURATED: dict.fromkeys(valves, ""),
            MARGIN: dict.fromkeys(margin_names(valves), ""),
            **swept_quantities((each.name for each in followed), self.sweep),
        }

    def find(self, key: str) -> str:
        """The key of a quantity. Raises ValueError that names similar ones."""
        return known_key(self.known, key, "the simulated rig")

    def usual(self, key: str) -> Mapping[str, Tolerance]:
        """The usual ranges of unknowns, by key. Raises ValueError that names similar ones."""
        return {each.key: each.tolerance for each in usual_values(self.known, key)}

    def choice(self, key: str, entries: Sequence[Any]) -> VariedValue:
        """A choice of strategies or component types, or of an unknown. Raises ValueError or ConfigurationError."""
        if key.startswith(f"{UNKNOWN}."):
            return choice_of_unknown(self.known, key, entries)
        if key == STRATEGY:
            for entry in entries:
                try:
                    usable(self.rig, [entry], by_user=True)
                except HilserverError as error:
                    raise ValueError(str(error).removeprefix(f"{self.rig.file}: ")) from None
            self.strategies[:] = entries
            return choice_of(STRATEGY, entries, self.strategy)
        part, _, name = key.partition(".")
        if part not in self.values.circuits:
            known = (STRATEGY, *(f"{each}.NAME" for each in (*self.values.circuits, UNKNOWN)))
            raise ValueError(f"{key} is not a choice: it is one of {', '.join(known)}")
        found = component_choice(self.values.circuits[part], self.rig.library, name, entries)
        for table in found.tables:
            self.values.changed({}, {key: table})
        self.choices[key] = found
        return choice_of(key, found.names, found.own)

    def default_figures(self) -> Mapping[str, Any]:
        """The fidelity of each quantity."""
        return {name: f"{FIDELITY}({name})" for name in self.special[FIDELITY]}

    def subject(self, varied: Sequence[VariedValue], figures: tuple[Figure, ...], limit: float) -> RigSubject:
        """What the study runs."""
        return RigSubject(**self._given(varied, figures, limit))

    def _given(self, varied: Sequence[VariedValue], figures: tuple[Figure, ...], limit: float) -> dict[str, Any]:
        choices = {
            each.key: self.choices[each.key].tables if each.key in self.choices else each.choices
            for each in varied
            if each.choices
        }
        return {
            "file": str(self.rig.file),
            "sources": self.rig.sources,
            "written": self.values.written,
            "own": self.rig.library.own,
            "varied": tuple(each.key for each in varied),
            "strategy": self.strategy,
            "figures": figures,
            "limit": limit,
            "choices": choices,
            "sweep": self.sweep,
        }

    def step_error(self, runs: StudyRuns, figures: Sequence[Figure]) -> str:
        """By how much half of every step changes the nominal figures."""
        return step_error_text(runs, figures)

    def repeat(
        self, varied: Sequence[VariedValue], values: Sequence[float], subject: RunsSubject, name: str, folder: Path
    ) -> RepeatedRun:
        """Run once with these values, with the report of `hilserver simulate` for a rig. Raises HilserverError."""
        rig, strategy, figures = self._one_run(varied, values, subject)
        return RepeatedRun(figures, tuple(write_simulation(replace(simulate(rig, [strategy]), rig=name), folder)))

    def _one_run(
        self, varied: Sequence[VariedValue], values: Sequence[float], subject: RunsSubject
    ) -> tuple[Rig, str, Floats]:
        """The rig with these values, its strategy, and the figures of a run. Raises HilserverError if it fails."""
        try:
            runs = self.subject(varied, subject.figures, np.inf).prepare()
            return *runs.rig_of(values), runs(np.array(values))
        except VariantFailedError as error:
            raise HilserverError(f"{self.rig.file}: with these values the run failed: {error}.") from error

    def identity(self) -> str:
        """Files, strategy, choices and program."""
        choices = str([(key, found.tables) for key, found in self.choices.items()])
        sources = json.dumps([self.rig.sources, self.values.written], default=str)
        return "\0".join((sources, self.strategy, choices, compiled_program(self.rig.library).fingerprint))


def step_error_text(runs: StudyRuns, figures: Sequence[Figure]) -> str:
    """By how much halving every integration step changes the nominal figures."""
    try:
        half = runs.of_half_the_step()
        changes = np.abs(np.subtract(half, runs.nominal, where=half != runs.nominal, out=np.zeros_like(half)))
    except VariantFailedError as error:
        return f"With half of every integration step, the nominal run fails: {error}."
    known = [f"{f.name} {f.shown(x)}" for f, x in zip(figures, changes.tolist(), strict=True) if np.isfinite(x)]
    return f"Halving every integration step changes the nominal figures by: {', '.join(known)}."


def load_studied_rig(
    file: Path, name: str, cycle: str | None, strategy: str | None, sweep: SweepSettings | None
) -> StudiedRig:
    """The rig that a study file names, relative to it. Raises ConfigurationError with all problems."""
    rig = load_rig(file.parent / name)
    if cycle is not None:
        rig = with_cycle(rig, read_toml(file.parent / cycle))
    if rig.cycle is None:
        text = "the rig file names no work cycle: give one here."
        raise ConfigurationError([Problem(text, "cycle", str(file))])
    values = values_of(rig, file)
    try:
        chosen = strategy_for(rig, strategy)
    except HilserverError as error:
        text = str(error).removeprefix(f"{rig.file}: ").replace("give --strategy", "give strategy in the study file")
        raise ConfigurationError([Problem(text, "strategy", str(file))]) from None
    about = name + (f", work cycle {cycle}" if cycle else "")
    return StudiedRig(values, chosen, about, sweep=_sweep(rig, sweep, file))


def _sweep(rig: Rig, given: SweepSettings | None, file: Path) -> Mapping[str, Any] | None:
    """The sweep that is given, or that of `hilserver fidelity` where the rig can have it. Raises ConfigurationError."""
    try:
        return (given or SweepSettings()).cycle(rig)
    except HilserverError as error:
        if given is None:
            return None
        text = str(error).removeprefix(f"{rig.file}: ").replace("--", "")
        raise ConfigurationError([Problem(text, "sweep", str(file))]) from None


def values_of(rig: Rig, file: Path) -> RigValues:
    """The values of a rig. Raises ConfigurationError if it has no simulated device."""
    try:
        return RigValues(rig)
    except HilserverError as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError([Problem(str(error).removeprefix(f"{rig.file}: "), "rig", str(file))]) from None
