"""The worst case of a figure within the tolerances, by global optimisation (differential evolution of SciPy).

Source: Storn and Price, J. Global Optim. 11 (1997) 341.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path

import numpy as np
from scipy.optimize import differential_evolution

from hilserver.errors import HilserverError, did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.studies.cluster import Cluster
from hilserver.studies.execution import Run, evaluating, patience_with
from hilserver.studies.figures import Figure
from hilserver.studies.settings import Study
from hilserver.studies.study import identity_of, is_worse_low, prepared
from hilserver.studies.table import StudyTable, table_schema

POPULATION, GENERATIONS = 8, 40
"""Candidates per quantity in a generation, and maximum number of generations."""
CONVERGED = 1e-3
"""Spread of the figure over a generation, as a fraction of its mean change from the nominal run, at which the search
ends."""


@dataclass(frozen=True)
class WorstCase:
    """The worst value of a figure that was found, SI, with the values that lead to it, SI by key.

    ``nominal``: with the circuit's own values; ``at_limits``: quantities that are at an end of their tolerance;
    ``failures``: number of candidates that failed, by reason; ``converged``: whether the search came to an end.
    ``table``: file with all candidates; ``ended``: how many of them ended early and have figures nevertheless;
    ``worst_ended``: why the worst one did, empty if it did not.
    """

    study: Study
    figure: Figure
    worst: float
    nominal: float
    values: dict[str, float]
    at_limits: tuple[str, ...]
    runs: int
    failures: dict[str, int]
    converged: bool
    table: Path
    ended: int = 0
    worst_ended: str = ""

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        settings = (f"{each.key}={each.written(self.values[each.key])}" for each in self.study.varied)
        values = " ".join(f"--set {shlex.quote(setting)}" for setting in settings)
        return f"hilserver study {shlex.quote(str(self.study.file))} {values}"


def worst_case(
    study: Study,
    name: str,
    folder: Path,
    workers: int = 0,
    progress: Callable[[int], None] = lambda runs: None,
    cluster: Cluster | None = None,
) -> WorstCase:
    """Search the worst value of a figure: the largest, or the smallest if it has a lower limit only.

    All candidates are written to a table in ``folder``, in their order, which does not depend on who computes them: see
    `run_study`. ``progress`` is called with the number of runs done. Raises HilserverError if there is no such figure,
    if all candidates fail, if the table can't be written, or if the cluster is lost.
    """
    figures = {figure.name: k for k, figure in enumerate(study.figures)}
    if name not in figures:
        raise HilserverError(f"{study.file}: {name} is not a figure of the study.{did_you_mean(name, figures)}")
    place, figure = figures[name], study.figures[figures[name]]
    runs, tolerances = prepared(study), [each.tolerance for each in study.varied]
    schema = table_schema(study.varied, study.figures, identity_of(study), runs.nominal_end is not None)
    table = StudyTable(folder / f"{study.name}-worst-{_in_file_name(name)}", schema, resume=False)
    workers = workers if cluster is None else cluster.workers
    with table, _evaluating(study, workers, cluster) as run:
        nominal = float(runs.nominal[place])
        search = _Search(study, run, table, place, nominal if isfinite(nominal) else 0.0, workers, progress)
        found = differential_evolution(
            search,
            [(0.0, len(t.steps) - 1.0) if t.steps else (t.lower, t.upper) for t in tolerances],
            integrality=[bool(t.steps) for t in tolerances],
            popsize=POPULATION,
            maxiter=GENERATIONS,
            tol=CONVERGED,
            rng=study.settings.seed,
            init="sobol",
            polish=False,
            updating="deferred",
            vectorized=True,
        )
    failures = search.failures
    if not isfinite(found.fun):
        reason = next(iter(failures), "its value is not a finite number")
        raise HilserverError(f"{study.file}: {name} could not be calculated for any candidate: {reason}.")
    values = search.values(found.x)
    keyed = {each.key: float(x) for each, x in zip(study.varied, values, strict=True)}
    return WorstCase(
        study,
        figure,
        search.sign * search.least,
        nominal,
        keyed,
        tuple(_at_limits(study, values)),
        table.done,
        failures,
        bool(found.success),
        table.parquet,
        search.ended,
        search.least_ended,
    )


def _in_file_name(name: str) -> str:
    """The name of a figure as a part of a file name.

    >>> _in_file_name("peak"), _in_file_name("p_A, bar/s")
    ('peak', 'p_A-bar-s')
    """
    return re.sub(r"[^\w.+-]+", "-", name)


def _evaluating(study: Study, workers: int, cluster: Cluster | None) -> AbstractContextManager[Run]:
    """What computes the candidates."""
    patience, figures = patience_with(study.settings.time_limit), len(study.figures)
    if cluster is not None:
        return cluster.evaluating(study.subject, figures, patience)
    return evaluating(study.subject, figures, workers, patience)


def _at_limits(study: Study, values: Floats) -> Iterator[str]:
    """Keys of quantities that are at an end of their tolerance."""
    for each, x in zip(study.varied, values, strict=True):
        low, high = each.tolerance.lower, each.tolerance.upper
        if not each.choices and min(x - low, high - x) < 0.01 * (high - low):
            yield each.key


@dataclass
class _Search:
    """What the search calls with a generation: the candidates are computed, and entered into the table.

    ``place``: of the figure; ``zero``: its value with a cost of 0, so that the search ends by its change, not by
    its size; ``failures``: number of candidates that failed so far, by reason; ``least``: the worst figure so far, with
    the sign of a cost; ``ended``: number of candidates that ended early, ``least_ended``: why the worst one did.
    """

    study: Study
    run: Run
    table: StudyTable
    place: int
    zero: float
    workers: int
    progress: Callable[[int], None]
    failures: dict[str, int] = field(default_factory=dict)
    least: float = inf
    ended: int = 0
    least_ended: str = ""

    @property
    def sign(self) -> float:
        """Of the figure as a cost."""
        return 1.0 if is_worse_low(self.study.figures[self.place]) else -1.0

    def values(self, candidates: Floats) -> Floats:
        """The values of candidates, the last axis: of steps, the search has their numbers."""
        found = np.array(candidates, dtype=float)
        for k, each in enumerate(self.study.varied):
            if steps := each.tolerance.steps:
                found[..., k] = np.asarray(steps)[found[..., k].astype(int)]
        return found

    def __call__(self, candidates: Floats) -> Floats:
        """The costs of a generation; a column for each candidate."""
        values, figures, ends = self.values(candidates.T), list[Floats](), dict[int, str]()
        first, choices = self.table.done, [each.choices for each in self.study.varied]
        for found in self.run(values, 0, -(-len(values) // max(self.workers, 1))):
            here = slice(found.first, found.first + len(found.figures))
            for reason in found.failures.values():
                self.failures[reason] = self.failures.get(reason, 0) + 1
            self.table.append(values[here], found.moved(first), choices)
            figures.append(found.figures[:, self.place])
            ends |= found.ended
            self.progress(self.table.done)
        signed = self.sign * np.concatenate(figures)
        costs = np.where(np.isfinite(signed), signed, inf)
        self.ended += len(ends)
        if (least := float(costs.min())) < self.least:
            self.least, self.least_ended = least, ends.get(int(costs.argmin()), "")
        return costs - self.sign * self.zero
