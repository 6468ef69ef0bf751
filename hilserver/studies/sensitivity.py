r"""How much of a figure's variation is due to which quantity.

- Plan ``sobol``: Sobol indices, shares of the variance: of a quantity alone (first order), and with all its
  interactions (total), by the estimators of Saltelli et al. and of Jansen, with intervals from resampling.
- Plan ``morris``: mean absolute elementary effect, and the standard deviation of the effects, in the figure's unit
  over the whole range of the quantity.
- Other plans: Spearman's rank correlation.

Sources: Saltelli et al., Comput. Phys. Commun. 181 (2010) 259; Jansen, Comput. Phys. Commun. 117 (1999) 35; Morris,
Technometrics 33 (1991) 161. SALib calculates the Sobol indices; its effects of a plan of Morris are those of equal
jumps only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from hilserver.numerics.arrays import Floats
from hilserver.studies.plans import salib, unit_problem

RESAMPLES, CONFIDENCE = 200, 0.95
NORMAL_QUANTILE = 1.96
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
    plan: str, values: Floats, figure: Floats, ranges: Floats, seed: int, unordered: Sequence[bool] = ()
) -> Sensitivity | None:
    """The sensitivity of a figure to each quantity; None if the figure does not vary, or too many runs failed.

    ``values``: of all variants, a row for each, in the order of the plan; ``ranges``: largest minus smallest value that
    each quantity may have; ``unordered``: those that have no ranks.
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
        effects = elementary_effects(values.reshape(-1, group, quantities)[good] / ranges, grouped[good])
        size = np.abs(effects)
        interval = NORMAL_QUANTILE * size.std(axis=0, ddof=1) / np.sqrt(len(size))
        return Sensitivity(
            ("mean effect", "deviation"), size.mean(axis=0), interval, effects.std(axis=0, ddof=1),
            np.full(quantities, np.nan), dropped
        )  # fmt: skip
    nothing = np.full(quantities, np.nan)
    rank = np.array([_rank_correlation(values[good, k], kept) for k in range(quantities)])
    rank[[k for k, is_unordered in enumerate(unordered) if is_unordered]] = np.nan
    return Sensitivity(("rank correlation", ""), rank, nothing, nothing, nothing, dropped)


def elementary_effects(places: Floats, figure: Floats) -> Floats:
    """The change of a figure for a jump over the whole range of each quantity: float64[paths, quantities].

    ``places``: on paths of which each step changes one quantity, as a fraction of its range, float64[paths, quantities
    + 1, quantities]. Jumps may differ: steps of a catalogue are not evenly spaced.
    """
    jumps = np.diff(places, axis=1)
    changed = np.abs(jumps).argmax(axis=2)
    jump = np.take_along_axis(jumps, changed[:, :, None], axis=2)[:, :, 0]
    effects = np.empty_like(jump)
    np.put_along_axis(effects, changed, np.diff(figure, axis=1) / jump, axis=1)
    return effects


def _rank_correlation(values: Floats, figure: Floats) -> float:
    return float(spearmanr(values, figure).statistic) if np.ptp(values) > 0.0 else np.nan
