"""A study of a circuit that includes its cylinder and load."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit.library import Library, circuit_library
from hilserver.circuit.model import RIG, Circuit, read_circuit
from hilserver.circuit.pack import pack
from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError, HilserverError, Problem, did_you_mean, shown
from hilserver.rig.cycle import CycleSettings
from hilserver.simulation.circuit_report import write_run
from hilserver.simulation.circuit_run import (
    DEFAULT_DURATION,
    CircuitRun,
    RunSettings,
    is_circuit_file,
    read_circuit_file,
    read_cycle,
    run_circuit,
)
from hilserver.studies.circuit_runs import CircuitSubject
from hilserver.studies.component_types import ComponentChoice, component_choice, with_components
from hilserver.studies.figures import Figure
from hilserver.studies.quantities import (
    Changeable,
    changeable,
    expanded,
    known_key,
    short,
    toleranced_values,
)
from hilserver.studies.subject import RepeatedRun, RunsSubject, StudyRuns
from hilserver.studies.variant_circuits import Tables, circuit_with
from hilserver.studies.varied import VariedValue, choice_of
from hilserver.tolerances import Tolerance
from hilserver.units import unit_of_value

TICK = 1e-3


@dataclass(frozen=True)
class StudiedCircuit:
    """A circuit, what drives it, and for how long, s. ``choices``: of components that were read so far."""

    file: Path
    circuit: Circuit
    library: Library
    cycle: CycleSettings | None
    duration: float
    tick: float = TICK
    about: str = ""
    choices: dict[str, ComponentChoice] = field(default_factory=dict)

    @property
    def facts(self) -> Mapping[str, str]:
        """Its files."""
        notes = {f"Choice of {key}": "; ".join(found.notes) for key, found in self.choices.items() if found.notes}
        return {"Circuit": self.about or str(self.file), **notes}

    @property
    def end(self) -> float:
        """Time at the end of a run, s."""
        return self.duration

    @cached_property
    def known(self) -> dict[str, Changeable]:
        """The values of the circuit as written."""
        return changeable(self.circuit)

    @property
    def tolerances(self) -> Iterator[tuple[str, Tolerance]]:
        """Those in its files."""
        for path, value in toleranced_values(self.circuit.written):
            yield short(".".join(expanded(path))), value.tolerance

    @cached_property
    def quantities(self) -> dict[str, str]:
        """All values of a run, with any of the components chosen from."""
        tables = [with_components(self.circuit, {key: t}) for key, found in self.choices.items() for t in found.tables]
        packed = [
            pack(read_circuit(table, self.library, str(self.file)), self.library, file=str(self.file))
            for table in (self.circuit.written, *tables)
        ]
        return {name: unit_of_value(name) for each in packed for name in each.names}

    @property
    def special(self) -> Mapping[str, Mapping[str, str]]:
        """Nothing."""
        return {}

    def find(self, key: str) -> str:
        """The key of a quantity. Raises ValueError that names similar ones."""
        return known_key(self.known, key, "the circuit")

    def usual(self, key: str) -> Mapping[str, Tolerance]:
        """Nothing has one here. Raises ValueError."""
        raise ValueError(f"{key} has no usual range: only the unknowns of a simulated rig have one")

    def choice(self, key: str, entries: Sequence[Any]) -> VariedValue:
        """A choice of component types. Raises ValueError or ConfigurationError."""
        name = short(key)
        found = component_choice(self.circuit, self.library, name, entries)
        for table in found.tables:
            read_circuit(with_components(self.circuit, {name: table}), self.library, str(self.file))
        self.choices[name] = found
        return choice_of(name, found.names, found.own)

    def default_figures(self) -> Mapping[str, Any]:
        """None: what matters is not known."""
        return {}

    def subject(self, varied: Sequence[VariedValue], figures: tuple[Figure, ...], limit: float) -> CircuitSubject:
        """What the study runs."""
        return CircuitSubject(
            str(self.file), self.circuit.written, self.library.own, self.cycle, self.duration, self.tick,
            tuple(each.key for each in varied),
            tuple((each.tolerance.lower, each.tolerance.upper) for each in varied),
            figures, limit, {each.key: self.choices[each.key].tables for each in varied if each.choices},
        )  # fmt: skip

    def step_error(self, runs: StudyRuns, figures: Sequence[Figure]) -> str:
        """The error of the integration step in the nominal run."""
        error = self.run({}, "nominal").error
        return error.verdict() if error is not None else ""

    def with_values(self, values: Mapping[str, float], chosen: Tables | None = None) -> Circuit:
        """The circuit with other values, SI, by key, and other tables of components, by name.

        Raises HilserverError if it can't have them.
        """
        return circuit_with(self.circuit, values, chosen or {}, self.library, str(self.file))

    def run(self, values: Mapping[str, float], name: str, chosen: Tables | None = None) -> CircuitRun:
        """A run with other values, as `hilserver simulate` does it. Raises HilserverError if it fails."""
        circuit, settings = self.with_values(values, chosen), RunSettings(tick=self.tick)
        return run_circuit(circuit, self.library, self.cycle, self.duration, name, str(self.file), settings)

    def repeat(
        self, varied: Sequence[VariedValue], values: Sequence[float], subject: RunsSubject, name: str, folder: Path
    ) -> RepeatedRun:
        """Run once with these values, with the usual report of a circuit run. Raises HilserverError."""
        pairs = list(zip(varied, values, strict=True))
        plain = {each.key: x for each, x in pairs if not each.choices}
        run = self.run(
            plain, name, {each.key: self.choices[each.key].tables[int(x)] for each, x in pairs if each.choices}
        )
        runs = self.subject((), subject.figures, np.inf).prepare()
        if missing := [quantity for quantity in runs.wanted if quantity not in run.series]:
            raise HilserverError(f"{self.file}: with these components there is no {missing[0]}.")
        figures = runs.figures_of(np.array([run.series[quantity] for quantity in runs.wanted]))
        return RepeatedRun(figures, tuple(write_run(run, folder)))

    def identity(self) -> str:
        """Circuit, cycle and program."""
        cycle = self.cycle.model_dump_json() if self.cycle is not None else ""
        choices = str([(key, found.tables) for key, found in self.choices.items()])
        return "\0".join(
            (json.dumps(self.circuit.source, default=str), cycle, choices, compiled_program(self.library).fingerprint)
        )


def load_circuit(
    file: Path, circuit: str, cycle: str | None, duration: float | None, tick: float | None
) -> StudiedCircuit:
    """The circuit that a study file names, relative to it. Raises ConfigurationError with all problems."""
    circuit_file = file.parent / circuit
    if not is_circuit_file(circuit_file):
        raise ConfigurationError([Problem(f"{shown(circuit)} is not a circuit file.", "circuit", str(file))])
    library = circuit_library(circuit_file)
    found = read_circuit_file(circuit_file, library)
    driven = read_cycle(file.parent / cycle) if cycle is not None else None
    problems = []
    if found.rig_ports():
        text = f"has ports of the real machine ({RIG}{found.rig_ports()[0]}). A circuit that is studied alone must "
        text += "include its cylinder and load; a circuit with its rig is studied by naming the rig file, as rig."
        problems.append(Problem(f"{shown(circuit)} {text}", "circuit", str(file)))
    for name in driven.inputs if driven is not None else ():
        if name not in found.inputs():
            text = f'the circuit has no input "{name}".{did_you_mean(name, found.inputs())}'
            problems.append(Problem(text, f"cycle ({cycle})", str(file)))
    if problems:
        raise ConfigurationError(problems)
    length = duration or (driven.duration if driven is not None else DEFAULT_DURATION)
    about = circuit + (f", work cycle {cycle}" if cycle else "")
    return StudiedCircuit(circuit_file, found, library, driven, length, tick or TICK, about)
