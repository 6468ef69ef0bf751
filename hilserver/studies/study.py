"""A study is run: its variants by the plan, the nominal run, and what can be said of the figures."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, nan
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hilserver.circuit.model import Circuit
from hilserver.compiler import compiled_program
from hilserver.errors import HilserverError, as_sentence
from hilserver.numerics.arrays import Floats
from hilserver.simulation.circuit_run import CircuitRun, RunSettings, run_circuit
from hilserver.studies.circuit_runs import CircuitRuns
from hilserver.studies.execution import BATCH, Evaluated, evaluate
from hilserver.studies.figures import Figure
from hilserver.studies.plans import values_of_plan
from hilserver.studies.quantities import changeable, changed, find
from hilserver.studies.sensitivity import Sensitivity, sensitivity
from hilserver.studies.settings import Study
from hilserver.studies.subject import VariantFailedError
from hilserver.studies.table import FAILURE, StudyTable, table_schema

MAX_RUNS = 5_000_000
"""Limit of the number of runs: their values and figures are evaluated in memory."""

Progress = Callable[[int, int, float], None]
"""Is called with the number of variants done, of all, and the s that remain."""


@dataclass(frozen=True)
class StudyResult:
    """All runs of a study. ``nominal``: figures with the circuit's own values; ``wall``: s, of this call.

    ``repacked``: keys of the quantities for which the circuit is packed again in each run; ``without_effect``: those
    that change no number of the circuit; ``runs``: number of runs in this call, ``computed``: s of all processes;
    ``runs_here``: of this process.
    """

    study: Study
    file: Path
    nominal: Mapping[str, float]
    repacked: tuple[str, ...]
    without_effect: tuple[str, ...]
    step: str
    workers: int
    runs: int
    wall: float
    computed: float
    runs_here: CircuitRuns

    @cached_property
    def table(self) -> pa.Table:
        """The whole table: number, values (SI), figures (SI), and the reason where a run failed."""
        return pq.read_table(self.file)

    def column(self, name: str) -> Floats:
        """A column of numbers."""
        return np.asarray(self.table[name].to_numpy(), dtype=float)

    @cached_property
    def values(self) -> Floats:
        """The values of all variants: a row for each, a column for each quantity, SI."""
        return np.column_stack([self.column(each.key) for each in self.study.varied])

    def failures(self) -> dict[int, str]:
        """The reasons, by number of the variant."""
        reasons = self.table[FAILURE]
        failed = np.flatnonzero(np.asarray(reasons.is_valid()))
        return {int(k): reasons[int(k)].as_py() for k in failed}

    def sensitivity(self, figure: Figure) -> Sensitivity | None:
        """How a figure depends on the quantities."""
        s = self.study.settings
        return sensitivity(s.plan, self.values, self.column(figure.name), s.samples, s.seed)

    def worst(self, figure: Figure, number: int) -> list[int]:
        """Numbers of the variants with the worst values of a figure, see `is_worse_low`."""
        found = self.column(figure.name)
        order = np.argsort(found if is_worse_low(figure) else -found, kind="stable")  # NaN is last
        return [int(k) for k in order[:number] if isfinite(found[k])]

    def step_error(self, figure: Figure, number: int) -> float:
        """By how much a figure of a variant changes with half of every integration step, SI; NaN if that fails."""
        place = self.study.figures.index(figure)
        try:
            finer = self.runs_here.of_half_the_step(self.values[number])[place]
        except VariantFailedError:
            return nan
        return abs(float(finer) - float(self.column(figure.name)[number]))

    def share_within(self, figure: Figure) -> float:
        """The share of all variants whose figure is within its limits: failed ones are not."""
        found = self.column(figure.name)
        with np.errstate(invalid="ignore"):
            return float(np.mean((found <= figure.below) & (found >= figure.above)))

    def command(self, number: int) -> str:
        """The command that repeats a variant."""
        return f"hilserver study {shlex.quote(str(self.study.file))} --repeat {number}"


def is_worse_low(figure: Figure) -> bool:
    """Whether small values of a figure are the bad ones: it has a lower limit only."""
    return isfinite(figure.above) and not isfinite(figure.below)


def plan_of(study: Study) -> Floats:
    """The values of all variants, SI. Raises HilserverError if there are too many."""
    s, tolerances = study.settings, [each.tolerance for each in study.varied]
    d = len(tolerances)
    runs = s.samples * {"sobol": d + 2, "morris": d + 1}.get(s.plan, 1)
    if s.plan == "grid":
        runs = int(np.prod([len(t.steps) or s.levels for t in tolerances], dtype=float))
    if runs > MAX_RUNS:
        remedy = "fewer levels, or the plan latin_hypercube" if s.plan == "grid" else "fewer samples"
        raise HilserverError(f"{study.file}: {runs} runs are too many (at most {MAX_RUNS}): use {remedy}.")
    return values_of_plan(s.plan, tolerances, s.samples, s.levels, s.seed)


def identity_of(study: Study) -> str:
    """Differs for studies with other results: of another circuit, plan or program."""
    what = (
        study.settings.model_dump_json(),
        json.dumps(study.circuit.source, default=str),
        study.subject.cycle.model_dump_json() if study.subject.cycle is not None else "",
        str([each.tolerance for each in study.varied]),
        compiled_program(study.library).fingerprint,
    )
    return hashlib.sha256("\0".join(what).encode()).hexdigest()


def run_study(
    study: Study,
    folder: Path,
    workers: int = 1,
    resume: bool = False,
    progress: Progress = lambda done, total, remaining: None,
) -> StudyResult:
    """Run all variants; the table is written to ``folder``. Interrupted, what is done stays there for ``resume``.

    Raises HilserverError if the nominal run fails or the table can't be written.
    """
    values = plan_of(study)
    runs = prepared(study)
    nominal = nominal_run(study)
    keys, figures = [each.key for each in study.varied], [figure.name for figure in study.figures]
    table = StudyTable(folder / study.name, table_schema(keys, figures, identity_of(study)), resume)
    done_before, begun, computed = table.done, perf_counter(), 0.0
    try:
        for found in _evaluated(study, values, table.done, workers):
            table.append(values[found.first : found.first + len(found.figures)], found)
            computed += found.spent
            rate = (table.done - done_before) / (perf_counter() - begun)
            progress(table.done, len(values), (len(values) - table.done) / rate)
    except BaseException:
        table.close()
        raise
    wall, file = perf_counter() - begun, table.finish()
    own = dict(zip(figures, runs.figures_of(runs.nominal).tolist(), strict=True))
    again = tuple(key for key, in_place in zip(keys, runs.varied.in_place, strict=True) if not in_place)
    step = nominal.error.verdict() if nominal.error is not None else ""
    return StudyResult(
        study,
        file,
        own,
        again,
        runs.varied.without_effect,
        step,
        workers,
        len(values) - done_before,
        wall,
        computed,
        runs,
    )


def _evaluated(study: Study, values: Floats, first: int, workers: int) -> Iterator[Evaluated]:
    batch = max(1, min(BATCH, -(-(len(values) - first) // (4 * workers))))
    return evaluate(study.subject, values, len(study.figures), first, workers, batch)


def prepared(study: Study) -> CircuitRuns:
    """The runs of a study in this process. Raises HilserverError if the nominal run fails."""
    try:
        return study.subject.prepare()
    except VariantFailedError as error:
        raise HilserverError(f"{study.subject.file}: the run with the circuit's own values has {error}.") from error


def circuit_with(study: Study, values: Mapping[str, float]) -> Circuit:
    """The study's circuit with other values, SI, by key. Raises HilserverError if it can't have them."""
    known = changeable(study.circuit)
    try:
        quantities = [find(known, key) for key in values]
        return changed(study.circuit, quantities, list(values.values()), study.library, study.subject.file)
    except ValueError as error:
        raise HilserverError(f"{study.file}: the circuit can't have these values: {as_sentence(error)}") from error


def nominal_run(study: Study) -> CircuitRun:
    """The run with the circuit's own values, with the error of its step."""
    return run_with(study, {}, study.name)


def run_with(study: Study, values: Mapping[str, float], name: str) -> CircuitRun:
    """A run with other values, as `hilserver simulate` does it. Raises HilserverError if it fails."""
    s = study.subject
    settings = RunSettings(tick=s.tick)
    return run_circuit(circuit_with(study, values), study.library, s.cycle, s.duration, name, s.file, settings)


def values_of_variant(study: Study, number: int) -> dict[str, float]:
    """The values of a variant, SI, by key. Raises HilserverError if there is no such variant."""
    values = plan_of(study)
    if not 0 <= number < len(values):
        raise HilserverError(f"{study.file}: there is no variant {number}: they are 0 … {len(values) - 1}.")
    return dict(zip([each.key for each in study.varied], values[number].tolist(), strict=True))
