"""Runs a study: its variants according to the plan, the nominal run, and the evaluation of the figures."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, nan
from pathlib import Path
from time import perf_counter, time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.report.studies import StudyState, write_state
from hilserver.studies.cluster import Cluster
from hilserver.studies.execution import BATCH, Evaluated, evaluate, patience_with
from hilserver.studies.figures import MARGIN, PASSED, Figure
from hilserver.studies.own_calls import ending_own_calls
from hilserver.studies.plans import values_of_plan
from hilserver.studies.sensitivity import Sensitivity, sensitivity
from hilserver.studies.settings import Study
from hilserver.studies.subject import RepeatedRun, StudyRuns, VariantFailedError, reason_of
from hilserver.studies.table import ENDED, FAILURE, StudyTable, table_schema
from hilserver.studies.varied import VariedValue
from hilserver.tolerances import Tolerance

MAX_RUNS = 5_000_000
"""Limit of the number of runs: their values and figures are evaluated in memory."""

STATED = 1.0
"""s from one statement of a running study in its file to the next."""
Progress = Callable[[int, int, float], None]
"""Is called with the number of variants done, of all, and the s that remain."""


@dataclass(frozen=True)
class StudyResult:
    """All runs of a study. ``nominal``: figures with the circuit's own values; ``wall``: s, of this call.

    ``step``: the error of the integration step in the nominal run; ``runs``: number of runs in this call,
    ``computed``: s of all processes; ``runs_here``: of this process.
    """

    study: Study
    file: Path
    nominal: Mapping[str, float]
    step: str
    workers: int
    runs: int
    wall: float
    computed: float
    runs_here: StudyRuns

    @cached_property
    def table(self) -> pa.Table:
        """The whole table: number, values (SI), figures (SI), and the reason where a run failed."""
        return pq.read_table(self.file)

    def column(self, name: str) -> Floats:
        """A column of numbers."""
        return np.asarray(self.table[name].to_numpy(), dtype=float)

    @cached_property
    def values(self) -> Floats:
        """The values of all variants: a row for each, a column for each quantity, SI; of choices, their numbers."""
        return plan_of(self.study)

    def failures(self) -> dict[int, str]:
        """The reasons, by number of the variant."""
        return self._texts(FAILURE)

    def ends(self) -> dict[int, str]:
        """Why runs ended early that have figures nevertheless, by number of the variant."""
        return self._texts(ENDED) if self.runs_here.nominal_end is not None else {}

    def _texts(self, name: str) -> dict[int, str]:
        texts = self.table[name]
        stated = np.flatnonzero(np.asarray(texts.is_valid()))
        return {int(k): texts[int(k)].as_py() for k in stated}

    def sensitivity(self, figure: Figure) -> Sensitivity | None:
        """How a figure depends on the quantities."""
        s = self.study.settings
        if figure.name not in self._sensitivities:  # resampling takes seconds
            unordered = tuple(len(each.choices) > 2 for each in self.study.varied)
            ranges = np.array([each.tolerance.upper - each.tolerance.lower for each in self.study.varied])
            found = sensitivity(s.plan, self.values, self.column(figure.name), ranges, s.seed, unordered)
            self._sensitivities[figure.name] = found
        return self._sensitivities[figure.name]

    def worst(self, figure: Figure, number: int) -> list[int]:
        """Numbers of the variants with the worst values of a figure, see `is_worse_low`."""
        found = self.column(figure.name)
        order = np.argsort(found if is_worse_low(figure) else -found, kind="stable")  # NaN is last
        return [int(k) for k in order[:number] if isfinite(found[k])]

    def step_error(self, figure: Figure, number: int) -> float:
        """By how much a figure of a variant changes with half of every integration step, SI; NaN if that fails."""
        if number not in self._finer:
            try:
                self._finer[number] = self.runs_here.of_half_the_step(self.values[number])
            except VariantFailedError:
                self._finer[number] = np.full(len(self.study.figures), nan)
        finer = self._finer[number][self.study.figures.index(figure)]
        return abs(float(finer) - float(self.column(figure.name)[number]))

    @cached_property
    def _sensitivities(self) -> dict[str, Sensitivity | None]:
        """By name of the figure, as far as they were needed."""
        return {}

    @cached_property
    def _finer(self) -> dict[int, Floats]:
        """Figures with half of every integration step, by number of the variant, as far as they were needed."""
        return {}

    def share_within(self, figure: Figure) -> float:
        """The share of all variants whose figure is within its limits: failed ones are not."""
        found = self.column(figure.name)
        with np.errstate(invalid="ignore"):
            return float(np.mean((found <= figure.below) & (found >= figure.above)))

    def command(self, number: int) -> str:
        """The command that repeats a variant."""
        return f"hilserver study {shlex.quote(str(self.study.file))} --repeat {number}"


def is_worse_low(figure: Figure) -> bool:
    """Whether small values of a figure are the bad ones: it has a lower limit only, or is a verdict or a margin."""
    return figure.reduction in (PASSED, MARGIN) or (isfinite(figure.above) and not isfinite(figure.below))


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
        str([(each.key, each.tolerance, each.choices) for each in study.varied]),
        study.studied.identity(),
    )
    return hashlib.sha256("\0".join(what).encode()).hexdigest()


def run_study(
    study: Study,
    folder: Path,
    workers: int = 0,
    resume: bool = False,
    progress: Progress = lambda done, total, remaining: None,
    cluster: Cluster | None = None,
) -> StudyResult:
    """Run all variants; the table is written to ``folder``. Interrupted, what is done stays there for ``resume``.

    ``cluster``: its workers compute, otherwise ``workers`` processes beside this one, and with 0 this one, which waits
    for a run that hangs. Raises HilserverError if the nominal run fails, the table can't be written, or the cluster is
    lost.
    """
    values, runs = plan_of(study), prepared(study)
    step, figures = study.studied.step_error(runs, study.figures), [figure.name for figure in study.figures]
    choices = [each.choices for each in study.varied]
    schema = table_schema(study.varied, study.figures, identity_of(study), runs.nominal_end is not None)
    table = StudyTable(folder / study.name, schema, resume)
    stated = _Stated(study, table, len(values))
    done_before, begun, computed = table.done, perf_counter(), 0.0
    workers = workers if cluster is None else cluster.workers
    try:
        stated.write()
        for found in _evaluated(study, values, table.done, workers, cluster):
            table.append(values[found.first : found.first + len(found.figures)], found, choices)
            computed += found.spent
            rate = (table.done - done_before) / (perf_counter() - begun)
            remaining = (len(values) - table.done) / rate
            stated.now_and_then(remaining)
            progress(table.done, len(values), remaining)
    except BaseException:
        with suppress(HilserverError):
            stated.write()
        table.close()
        raise
    wall, file = perf_counter() - begun, table.finish()
    stated.write(finished=True)
    nominal = dict(zip(figures, runs.nominal.tolist(), strict=True))
    return StudyResult(study, file, nominal, step, workers, len(values) - done_before, wall, computed, runs)


class _Stated:
    """What a study states of itself while it runs, for the panel: in a file beside its table."""

    def __init__(self, study: Study, table: StudyTable, runs: int) -> None:
        self._study, self._table, self._runs = study, table, runs
        self._began, self._last = time(), perf_counter()

    def write(self, remaining: float | None = None, finished: bool = False) -> None:
        """Raises HilserverError if it can't be written."""
        state = StudyState(
            description=self._study.settings.description,
            runs=self._runs,
            done=self._table.done,
            failed=self._table.failed,
            began=self._began,
            written=time(),
            remaining=remaining,
            finished=finished,
        )
        write_state(self._table.stem, state)
        self._last = perf_counter()

    def now_and_then(self, remaining: float) -> None:
        """Once a second: writing it for each task would take longer than a short run."""
        if perf_counter() - self._last > STATED:
            self.write(remaining)


def _evaluated(study: Study, values: Floats, first: int, workers: int, cluster: Cluster | None) -> Iterator[Evaluated]:
    batch, figures = max(1, min(BATCH, -(-(len(values) - first) // (4 * max(workers, 1))))), len(study.figures)
    patience = patience_with(study.settings.time_limit)
    if cluster is not None:
        return cluster.evaluate(study.subject, values, figures, first, batch, patience)
    return evaluate(study.subject, values, figures, first, workers, batch, patience)


@ending_own_calls()
def prepared(study: Study) -> StudyRuns:
    """The runs of a study in this process. Raises HilserverError if the nominal run fails."""
    try:
        return study.subject.prepare()
    except VariantFailedError as error:
        raise HilserverError(f"{study.subject.file}: the run with the values of the file failed: {error}.") from error


@ending_own_calls()
def repeat(study: Study, values: Mapping[str, float], name: str, folder: Path) -> RepeatedRun:
    """Run once with other values, SI, by key, and write a report of the run. Raises HilserverError if it fails."""
    known = {each.key: each for each in study.varied}
    varied = [known.get(key) or plain_value(study, key) for key in values]
    try:
        return study.studied.repeat(varied, list(values.values()), study.subject, name, folder)
    except HilserverError:
        raise
    except Exception as error:  # of a component of the user's
        raise HilserverError(f"{study.subject.file}: with these values the run failed: {reason_of(error)}.") from error


def plain_value(study: Study, key: str) -> VariedValue:
    """A quantity that the study does not vary. Raises ValueError that names similar ones."""
    found = study.studied.find(key)
    quantity = study.studied.known[found]
    x = quantity.value
    return VariedValue(found, x, quantity.unit, Tolerance(x, x, x, quantity.unit))


def values_of_variant(study: Study, number: int) -> dict[str, float]:
    """The values of a variant, SI, by key. Raises HilserverError if there is no such variant."""
    values = plan_of(study)
    if not 0 <= number < len(values):
        raise HilserverError(f"{study.file}: there is no variant {number}: they are 0 … {len(values) - 1}.")
    return dict(zip([each.key for each in study.varied], values[number].tolist(), strict=True))
