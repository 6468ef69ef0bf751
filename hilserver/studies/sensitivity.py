r"""How much of a figure's variation is due to which quantity.

- Plan ``sobol``: Sobol indices, shares of the variance: of a quantity alone (first order), and with all its
  interactions (total), by the estimators of Saltelli et al. and of Jansen, with intervals from resampling.
- Plan ``morris``: mean absolute elementary effect, and the standard deviation of the effects, in the figure's unit
  over the whole range of the quantity.
- Other plans: Spearman's rank correlation.

Sources: Saltelli et al., Comput. Phys. Commun. 181 (2010) 259; Jansen, Comput. Phys. Commun. 117 (1999) 35; Morris,
Technometrics 33 (1991) 161; computed by SALib and SciPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from hilserver.numerics.arrays import Floats
from hilserver.studies.plans import MORRIS_LEVELS, salib, shares_of_plan, unit_problem

RESAMPLES, CONFIDENCE = 200, 0.95
FEWEST = 8
"""Samples without a failed run below which no sensitivity is given."""


@dataclass(frozen=True)
class Sensitivity:
    """The sensitivity of a figure: two numbers for each quantity, each with the half width of its 95 % interval.

    ``heads``: what the numbers are; ``dropped``: samples that were left out, because a run of them failed.
    """

    heads: tuple[str, str]
    first: Floats
    first_interval: Floats
    second: Floats
    second_interval: Floats
    dropped: int = 0


def sensitivity(
    plan: str, values: Floats, figure: Floats, samples: int, seed: int, unordered: Sequence[bool] = ()
) -> Sensitivity | None:
    """The sensitivity of a figure to each quantity; None if the figure does not vary, or too many runs failed.

    ``values``: of all variants, a row for each, in the order of the plan; ``unordered``: those that have no ranks.
    """
    quantities = values.shape[1]
    group = {"sobol": quantities + 2, "morris": quantities + 1}.get(plan, 1)
    grouped = figure.reshape(-1, group)
    good = np.isfinite(grouped).all(axis=1)
    kept, dropped = grouped[good].ravel(), int((~good).sum())
    if good.sum() < FEWEST or np.ptp(kept) <= 1e-12 * np.abs(kept).max():
        return None
    if plan == "sobol":
        found = salib().analyze.sobol.analyze(
            unit_problem(quantities), kept, calc_second_order=False, num_resamples=RESAMPLES,
            conf_level=CONFIDENCE, seed=seed,
        )  # fmt: skip
        first, interval, total, of_total = (np.asarray(found[name]) for name in ("S1", "S1_conf", "ST", "ST_conf"))
        return Sensitivity(("first order", "total"), first, interval, total, of_total, dropped)
    if plan == "morris":
        rows = shares_of_plan(plan, quantities, samples, seed).reshape(-1, group, quantities)[good]
        found = salib().analyze.morris.analyze(
            unit_problem(quantities), rows.reshape(-1, quantities), kept, num_levels=MORRIS_LEVELS,
            num_resamples=RESAMPLES, conf_level=CONFIDENCE, seed=seed,
        )  # fmt: skip
        mean, interval, deviation = (np.ma.filled(found[n], np.nan) for n in ("mu_star", "mu_star_conf", "sigma"))
        return Sensitivity(
            ("mean effect", "deviation"), mean, interval, deviation, np.full(quantities, np.nan), dropped
        )
    nothing = np.full(quantities, np.nan)
    rank = np.array([_rank_correlation(values[good, k], kept) for k in range(quantities)])
    rank[[k for k, is_unordered in enumerate(unordered) if is_unordered]] = np.nan
    return Sensitivity(("rank correlation", ""), rank, nothing, nothing, nothing, dropped)


def _rank_correlation(values: Floats, figure: Floats) -> float:
    return float(spearmanr(values, figure).statistic) if np.ptp(values) > 0.0 else np.nan
