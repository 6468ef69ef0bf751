"""The worst case of a figure within the tolerances, by global optimisation (differential evolution of SciPy).

Source: Storn and Price, J. Global Optim. 11 (1997) 341.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from scipy.optimize import differential_evolution

from hilserver.errors import HilserverError, did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.studies.figures import Figure
from hilserver.studies.settings import Study
from hilserver.studies.study import is_worse_low, prepared
from hilserver.studies.subject import VariantFailedError

POPULATION, GENERATIONS = 8, 40
"""Candidates per quantity in a generation, and maximum number of generations."""
CONVERGED = 1e-3
"""Spread of the figure over a generation, as a fraction of its mean, at which the search ends."""


@dataclass(frozen=True)
class WorstCase:
    """The worst value of a figure that was found, SI, with the values that lead to it, SI by key.

    ``nominal``: with the circuit's own values; ``at_limits``: quantities that are at an end of their tolerance;
    ``failures``: number of candidates that failed, by reason; ``converged``: whether the search came to an end.
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

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        settings = (f"{each.key}={each.written(self.values[each.key])}" for each in self.study.varied)
        values = " ".join(f"--set {shlex.quote(setting)}" for setting in settings)
        return f"hilserver study {shlex.quote(str(self.study.file))} {values}"


def worst_case(study: Study, name: str) -> WorstCase:
    """Search the worst value of a figure: the largest, or the smallest if it has a lower limit only.

    Raises HilserverError if there is no such figure, or if all candidates fail.
    """
    figures = {figure.name: k for k, figure in enumerate(study.figures)}
    if name not in figures:
        raise HilserverError(f"{study.file}: {name} is not a figure of the study.{did_you_mean(name, figures)}")
    place, figure = figures[name], study.figures[figures[name]]
    sign, runs, failures = (1.0 if is_worse_low(figure) else -1.0), prepared(study), dict[str, int]()
    tolerances = [each.tolerance for each in study.varied]

    def values_at(candidate: Floats) -> Floats:
        return np.array([t.steps[int(x)] if t.steps else x for t, x in zip(tolerances, candidate, strict=True)])

    def cost(candidate: Floats) -> float:
        try:
            found = float(runs(values_at(candidate))[place])
        except VariantFailedError as error:
            failures[str(error)] = failures.get(str(error), 0) + 1
            return inf
        return sign * found if isfinite(found) else inf

    found = differential_evolution(
        cost,
        [(0.0, len(t.steps) - 1.0) if t.steps else (t.lower, t.upper) for t in tolerances],
        integrality=[bool(t.steps) for t in tolerances],
        popsize=POPULATION,
        maxiter=GENERATIONS,
        tol=CONVERGED,
        rng=study.settings.seed,
        init="sobol",
        polish=False,
    )
    if not isfinite(found.fun):
        raise HilserverError(f"{study.file}: no candidate has the figure {name}: {next(iter(failures), 'it is NaN')}.")
    values = values_at(found.x)
    nominal = float(runs.nominal[place])
    keyed = {each.key: float(x) for each, x in zip(study.varied, values, strict=True)}
    ends = tuple(
        each.key
        for each, x in zip(study.varied, values, strict=True)
        if not each.choices
        and min(x - each.tolerance.lower, each.tolerance.upper - x)
        < 0.01 * (each.tolerance.upper - each.tolerance.lower)
    )
    return WorstCase(
        study, figure, sign * float(found.fun), nominal, keyed, ends, int(found.nfev), failures, bool(found.success)
    )
