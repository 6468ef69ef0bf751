"""A study of recorded runs: their virtual circuit with other values, driven by what was measured and commanded then."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from hilserver.circuit.library import Library, circuit_library, library_of
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.compiler import compiled_program
from hilserver.components.base import Datasheet
from hilserver.errors import ConfigurationError, HilserverError, Problem, shown
from hilserver.record.run import units_of
from hilserver.rig.rig import Rig
from hilserver.simulation.circuit_run import is_circuit_file, read_circuit_file
from hilserver.studies.component_types import ComponentChoice, component_choice, with_components
from hilserver.studies.figures import RECORDED, Figure
from hilserver.studies.quantities import Changeable, changeable, expanded, known_key, short, toleranced_values
from hilserver.studies.replay_report import write_replay
from hilserver.studies.replay_runs import FigureOfLog, ReplaySubject
from hilserver.studies.replayed_log import ReplayedLog, is_result, read_replayed
from hilserver.studies.studied_rig import step_error_text
from hilserver.studies.subject import RepeatedRun, RunsSubject, StudyRuns, VariantFailedError
from hilserver.studies.variant_circuits import circuit_with
from hilserver.studies.varied import VariedValue, choice_of
from hilserver.tolerances import Tolerance
from hilserver.units import CIRCUIT, Time, unit_of_value

HELD = (
    "Readings of all channels, what the bridge knows of the real valves, commands and inputs of the operator: "
    "the machine does not react to the changed circuit."
)


class ReplaySettings(Datasheet):
    """A log in a study file, or a part of it."""

    log: str = Field(description="log of hilserver, relative to the study file", examples=["logs/monday.arrow"])
    start: Time | None = Field(default=None, ge=0, description="time in the log at which the part begins")
    end: Time | None = Field(default=None, gt=0, description="time in the log at which it ends; default: its end")

    @model_validator(mode="after")
    def _some_time(self) -> ReplaySettings:
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError("start must be less than end")
        return self


@dataclass(frozen=True)
class StudiedReplay:
    """Logs with their rigs, and the circuit that is run with what they have recorded.

    ``file``: named in messages; ``about``: the circuit in words; ``choices``: of components that were read so far.
    """

    file: str
    logs: tuple[ReplayedLog, ...]
    rigs: tuple[Rig, ...]
    circuit: Circuit
    library: Library
    about: str
    choices: dict[str, ComponentChoice] = field(default_factory=dict)

    @property
    def facts(self) -> Mapping[str, str]:
        """Logs, circuit, and what is held."""
        notes = {f"Choice of {key}": "; ".join(found.notes) for key, found in self.choices.items() if found.notes}
        return {**dict(map(_log_fact, self.logs)), "Circuit": self.about, "Held as recorded": HELD, **notes}

    @property
    def duration(self) -> float:
        """Of all logs together, s."""
        return sum(log.duration for log in self.logs)

    @property
    def end(self) -> float:
        """The latest time in a log, s."""
        return max(float(log.time[-1]) for log in self.logs)

    @cached_property
    def known(self) -> dict[str, Changeable]:
        """The values of the circuit as written, with ``circuit.`` before their keys, as for a rig."""
        return {f"{CIRCUIT}{key}": each for key, each in changeable(self.circuit).items()}

    @property
    def tolerances(self) -> Iterator[tuple[str, Tolerance]]:
        """Those in a circuit file; a log has none."""
        for path, value in toleranced_values(self.circuit.written):
            yield f"{CIRCUIT}{short('.'.join(expanded(path)))}", value.tolerance

    @cached_property
    def quantities(self) -> dict[str, str]:
        """What all rows have: columns of the logs, and values of the circuit with any of the components chosen from."""
        units = {name: unit for rig in self.rigs for name, unit in units_of(rig).items()}
        first, *others = (rig.layout.names for rig in self.rigs)
        common = [name for name in first if is_result(name) and all(name in names for names in others)]
        tables = [
            with_components(self.circuit, {key.removeprefix(CIRCUIT): table})
            for key, choice in self.choices.items()
            for table in choice.tables
        ]
        circuits = [self.circuit, *(read_circuit(table, self.library, self.file) for table in tables)]
        packed = [self.rigs[0].pack(circuit, self.file) for circuit in circuits]
        found = {f"{CIRCUIT}{name}": unit_of_value(name) for each in packed for name in each.names}
        return {name: units.get(name, "") for name in common} | found

    @property
    def special(self) -> Mapping[str, Mapping[str, str]]:
        """What is recorded in all logs."""
        recorded = set[str].intersection(*(set(log.names) for log in self.logs))
        return {RECORDED: {name: unit for name, unit in self.quantities.items() if name in recorded}}

    def find(self, key: str) -> str:
        """The key of a quantity. Raises ValueError that names similar ones."""
        return known_key(self.known, key, "the virtual circuit")

    def usual(self, key: str) -> Mapping[str, Tolerance]:
        """Nothing has one here. Raises ValueError."""
        raise ValueError(f"{key} has no usual range: only the unknowns of a simulated rig have one")

    def choice(self, key: str, entries: Sequence[Any]) -> VariedValue:
        """A choice of component types. Raises ValueError or ConfigurationError."""
        if not key.startswith(CIRCUIT):
            raise ValueError(f"{key} is not a choice: write {CIRCUIT}NAME with the name of a component")
        name = key.removeprefix(CIRCUIT)
        found = component_choice(self.circuit, self.library, name, entries)
        for table in found.tables:
            circuit = read_circuit(with_components(self.circuit, {name: table}), self.library, self.file)
            for rig in self.rigs:
                rig.pack(circuit, self.file)
        self.choices[key] = found
        return choice_of(key, found.names, found.own)

    def default_figures(self) -> Mapping[str, Any]:
        """How far virtual flow and command of each valve deviate from the log."""
        words = {f"{what} {v}": f"valve.{v}.{column}" for v in self.rigs[0].layout.valves for what, column in _COMPARED}
        return {title: f"{RECORDED}({name})" for title, name in words.items() if name in self.special[RECORDED]}

    def subject(self, varied: Sequence[VariedValue], figures: tuple[Figure, ...], limit: float) -> ReplaySubject:
        """What the study runs: each figure of each log."""
        return ReplaySubject(
            file=self.file, table=self.circuit.written, own=self.library.own, logs=self.logs,
            wanted=tuple(each for k in range(len(self.logs)) for each in self._figures_of(k, figures)),
            varied=tuple(each.key.removeprefix(CIRCUIT) for each in varied),
            ranges=tuple((each.tolerance.lower, each.tolerance.upper) for each in varied),
            choices={each.key.removeprefix(CIRCUIT): self.choices[each.key].tables for each in varied if each.choices},
            limit=limit,
        )  # fmt: skip

    def _figures_of(self, number: int, figures: Sequence[Figure]) -> Iterator[FigureOfLog]:
        log = self.logs[number]
        recorded = log.recorded({each.quantity for each in figures if each.reduction == RECORDED})
        for each in figures:
            named = replace(each, name=f"{each.name}, {log.name}") if len(self.logs) > 1 else each
            yield FigureOfLog(number, named, recorded.get(each.quantity) if each.reduction == RECORDED else None)

    def step_error(self, runs: StudyRuns, figures: Sequence[Figure]) -> str:
        """By how much half of every step of the circuit changes the nominal figures."""
        return step_error_text(runs, figures)

    def repeat(
        self, varied: Sequence[VariedValue], values: Sequence[float], subject: RunsSubject, name: str, folder: Path
    ) -> RepeatedRun:
        """Run once with these values, with a page, and tables like the logs. Raises HilserverError."""
        assert isinstance(subject, ReplaySubject)
        pairs = [(each, each.key.removeprefix(CIRCUIT), x) for each, x in zip(varied, values, strict=True)]
        chosen = {key: self.choices[each.key].tables[int(x)] for each, key, x in pairs if each.choices}
        plain = {key: x for each, key, x in pairs if not each.choices}
        circuit = circuit_with(self.circuit, plain, chosen, self.library, self.file)
        about = {**self.facts, **{each.key: each.shown(x, 6) for each, _, x in pairs}}
        folder.mkdir(parents=True, exist_ok=True)
        try:
            runs = replace(subject, varied=(), ranges=(), choices={}).prepare()
            packed = [each.rig.pack(circuit, self.file) for each in runs.logs]
            figures, files = write_replay(runs, packed, about, name, folder)
        except VariantFailedError as error:
            raise HilserverError(f"{self.file}: with these values the run failed: {error}.") from error
        return RepeatedRun(figures, tuple(files))

    def identity(self) -> str:
        """What the logs have recorded, circuit, choices and program."""
        recorded = hashlib.sha256()
        for log in self.logs:
            for array in (log.time, log.given, log.before, *log.commands.values()):
                recorded.update(array.tobytes())
        tables = json.dumps([self.circuit.source, [log.sources for log in self.logs]], default=str)
        choices = str([(key, found.tables) for key, found in self.choices.items()])
        return "\0".join((recorded.hexdigest(), tables, choices, compiled_program(self.library).fingerprint))


_COMPARED = (("flow", "flow_virtual"), ("command", "command"))
"""Titles and columns of what is compared with the log where a study file names no figures."""


def _log_fact(log: ReplayedLog) -> tuple[str, str]:
    return f"Log {log.name}", f"{log.time[0]:.6g} … {log.time[-1]:.6g} s, {len(log.time)} ticks; {log.agreement}."


def load_replay(file: Path, logs: Sequence[ReplaySettings], circuit: str | None, trust: bool) -> StudiedReplay:
    """The logs that a study file names, relative to it, and the circuit, by default that of the logs.

    ``trust``: run the Python in the logs, also if it was not run here before. Raises ConfigurationError.
    """
    read = tuple(_read_log(file, each, trust) for each in logs)
    names = [log.name for log in read]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        text = f"two logs are called {twice[0]}, and their figures are named after them: rename or omit one."
        raise ConfigurationError([Problem(text, "replay", str(file))])
    if circuit is not None:
        return _with_circuit_file(file, circuit, read)
    if different := [log.name for log in read if log.table != read[0].table]:
        text = f"the circuit of {different[0]} is not that of {names[0]}: name one circuit file for all, as circuit."
        raise ConfigurationError([Problem(text, "replay", str(file))])
    library = _library(read)
    rigs = tuple(log.rig(library) for log in read)
    return StudiedReplay(str(read[0].file), read, rigs, read[0].circuit(rigs[0]), library, "that of the log")


def _read_log(file: Path, given: ReplaySettings, trust: bool) -> ReplayedLog:
    try:
        return read_replayed(file.parent / given.log, given.start or 0.0, given.end or np.inf, trust=trust)
    except HilserverError as error:
        raise ConfigurationError([Problem(str(error), "replay", str(file))]) from None


def _with_circuit_file(file: Path, name: str, logs: tuple[ReplayedLog, ...]) -> StudiedReplay:
    circuit_file = file.parent / name
    if not is_circuit_file(circuit_file):
        raise ConfigurationError([Problem(f"{shown(name)} is not a circuit file.", "circuit", str(file))])
    library = _library(logs, circuit_library(circuit_file))
    circuit = read_circuit_file(circuit_file, library)
    rigs = tuple(log.rig(library) for log in logs)
    for rig in rigs:
        rig.pack(circuit, str(circuit_file))
    same = all(log.table == circuit.source for log in logs)
    about = f"{name}, {'the same as that of the log' if same else 'which is not that of the log'}"
    return StudiedReplay(str(circuit_file), logs, rigs, circuit, library, about)


def _library(logs: Sequence[ReplayedLog], other: Library | None = None) -> Library:
    """The components of all logs, and of another library; a file that several have is loaded once."""
    own = [*(other.own if other is not None else ()), *(each for log in logs for each in log.own)]
    return library_of({each.text: each for each in reversed(own)}.values())
