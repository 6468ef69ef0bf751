"""Plans: which variants are run, as shares of the distributions of the varied quantities."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from scipy.stats import qmc

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.studies.distributions import levels, over_range, quantiles
from hilserver.tolerances import Tolerance

MORRIS_LEVELS = 4
"""Levels of each quantity in a plan of Morris: usual, with jumps of two thirds of the range."""


def shares_of_plan(plan: str, quantities: int, samples: int, seed: int) -> Floats:
    """The plan as shares 0 … 1 of the distributions, a row for each variant. Raises HilserverError."""
    if plan == "latin_hypercube":
        return np.asarray(qmc.LatinHypercube(quantities, rng=seed).random(samples))
    library = salib()
    problem = unit_problem(quantities)
    if plan == "sobol":
        return np.asarray(library.sample.sobol.sample(problem, samples, calc_second_order=False, seed=seed))
    return np.asarray(library.sample.morris.sample(problem, samples, num_levels=MORRIS_LEVELS, seed=seed))


def values_of_plan(
    plan: str, tolerances: Sequence[Tolerance], samples: int, number_of_levels: int, seed: int
) -> Floats:
    """The values, SI, of all variants: a row for each, a column for each quantity."""
    if plan == "grid":
        return np.array(list(product(*(levels(each, number_of_levels) for each in tolerances))))
    shares, value_at = shares_of_plan(plan, len(tolerances), samples, seed), quantiles
    if plan == "morris":  # its effects are those of jumps over the range
        value_at = over_range
    return np.column_stack([value_at(each, shares[:, k]) for k, each in enumerate(tolerances)])


def unit_problem(quantities: int) -> dict[str, Any]:
    """The quantities as SALib describes them, as shares."""
    names = [str(k) for k in range(quantities)]
    return {"num_vars": quantities, "names": names, "bounds": [[0.0, 1.0]] * quantities}


def salib() -> Any:
    """The library of plans and sensitivities. Raises HilserverError where it isn't installed."""
    try:
        import SALib.analyze.sobol
        import SALib.sample.morris
        import SALib.sample.sobol
    except ImportError as error:
        text = "The plans sobol and morris need SALib: pip install 'hilserver[studies]'. The others do without it."
        raise HilserverError(text) from error
    return SALib
