"""Flow over the opening of an identified valve, and whether it is proportional to it.

The model has one flow coefficient per edge for all openings. A valve with a progressive characteristic, or with two
gains, deviates from it with one sign over wide ranges of the opening: the mean deviation in each range shows it, since
noise and dynamics cancel in the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d
from scipy.optimize import nnls

from hilserver.identify.experiment import Experiment
from hilserver.identify.model import SpoolMotion, follow, mean_openings, mean_shares, shares_now
from hilserver.identify.parameters import Values
from hilserver.numerics.arrays import Floats
from hilserver.rig.flow_signal import FlowSignal
from hilserver.rig.settings import ValveSettings
from hilserver.tick.flow_signal import BENDS

RANGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
"""Ends of the ranges of the opening, fractions of the stroke: beyond overlap and leakage, which have their own law."""
PARTS, MIN_PARTS, MIN_SAMPLES = 24, 5, 20
"""Parts of the recording whose means are compared; how many must show a range, each by how many samples."""
SIGNIFICANT = 4.0
"""Standard deviations."""
NARROW = 0.02
"""Width of the ranges from whose mean flows a curve is made, of the stroke."""
SLOW, SETTLED = 0.5, 0.02
"""Speed of the spool in full strokes per second below which the flow belongs to its position, if it has been that slow
for this time, s: a real spool arrives later than that of the rig file.
"""
CLOSED = 0.01
"""Flow that counts as none, as a fraction of the largest one."""
WORTH_A_BEND = 0.6
"""Share of the sum of squares that may be left with one bend more in a curve."""
OVERLAPS = 91
"""Number of overlaps with which the curve of the rig file is compared."""
OTHER_SHAPE = 0.03
"""Deviation from the curve of the rig file from which another one is suggested, of the flow at the largest opening."""
PERHAPS_OTHER, NOTABLE = 0.05, 0.5
"""The same from which another one is named as a possible cause, though the fitted model has nearly made up for it; if
its mean deviation in any range is more than this fraction of the usual one. Of simulated rigs with proportional flow,
also with slow spools, hardly any deviates as much by either measure.
"""
USUAL = 0.01
"""Mean deviation from the model that is tolerated, as a fraction of the nominal flow: several times the largest one of
simulated rigs that have all unknown properties, and valves with flow in proportion to the opening.
"""


@dataclass(frozen=True)
class FlowOverOpening:
    """The flow into a port, tick by tick: measured, modelled, and modelled with an infinitely fast spool.

    ``spool``: position, positive for flow into this port; ``at_nominal``: factor to the flow at the nominal drop over
    the open edge.
    """

    label: str
    spool: Floats
    measured: Floats
    model: Floats
    instant: Floats
    at_nominal: Floats
    used: NDArray[np.bool_]


def flows_of(e: Experiment, values: Values) -> list[FlowOverOpening]:
    """Of a valve with these values of its parameters; none if it is known by its spool alone."""
    if "C_PA" not in values:
        return []
    edges = values["overlap"], values["gone_at"]
    way, measured = e.way(values), e.measured(values)
    instant = follow(e.command, e.dt, SpoolMotion(1e6, 0.0, 0.0), values["null"], values["hysteresis"])
    flows = []
    for c, now, signal in zip(e.chambers, measured.chambers, e.signals, strict=False):
        laws = now.law_port, now.law_tank
        spool = c.turn * 0.5 * (way.way[1:, 0] + way.way[:-1, 0])
        openings = (mean_openings(each.as_linear(e.curve), c.turn, *edges) for each in (way, instant))
        C = e.coefficients(values, c.turn)
        model, at_once = (C @ mean_shares(each, *laws) for each in openings)
        read = c.into(e.dt * model, now, values) / e.dt
        to_nominal = _to_nominal(e.settings, np.where(spool > 0.0, laws[0][:-1], laws[1][:-1]))
        flows.append(FlowOverOpening(f"port {c.port}", spool, read, model, at_once, to_nominal, signal.used))
    if e.flow is not None:
        spool, openings = way.way[:, 0], (each.as_linear(e.curve).way[:, 0] for each in (way, instant))
        read = (e.flow.measured - values.get("flow_zero", 0.0)) / values.get("flow_gain", 1.0)
        C = e.coefficients(values, 1.0)
        model, at_once = (C @ shares_now(each, *measured.flow_laws, *edges) for each in openings)
        to_nominal = _to_nominal(e.settings, np.where(spool > 0.0, *measured.flow_laws))
        flows.append(FlowOverOpening(e.flow.channel, spool, read, model, at_once, to_nominal, e.flow.used))
    return flows


def _to_nominal(v: ValveSettings, law: Floats) -> Floats:
    """Factor from the flow at a drop to that at the nominal drop; NaN where there is hardly any drop."""
    enough = law > sqrt(v.transition_pressure)
    return np.where(enough, sqrt(v.nominal_flow.edge_drop()) / np.where(enough, law, 1.0), np.nan)


class Disproportion(NamedTuple):
    """Mean deviation of the flow from the model in a range of the opening, with its standard deviation.

    ``label``: of the flow; ``way``: 1 into the port, -1 out of it. Both figures as fractions of the nominal flow.
    """

    label: str
    way: float
    low: float
    high: float
    mean: float
    deviation: float

    @property
    def is_significant(self) -> bool:
        """Whether the flow is not proportional to the opening."""
        return abs(self.mean) > USUAL + SIGNIFICANT * self.deviation

    @property
    def is_notable(self) -> bool:
        """Whether it is not, if the settled flows say so, too."""
        return abs(self.mean) > NOTABLE * USUAL + SIGNIFICANT * self.deviation


def largest_disproportion(e: Experiment, values: Values) -> Disproportion | None:
    """The most significant one of all ranges, with fitted values; None if the recording shows none of them."""
    nominal = e.settings.nominal_flow.flow
    known = [each for flow in flows_of(e, values) for each in _disproportions(flow, nominal)]
    return max(known, key=lambda each: abs(each.mean) - SIGNIFICANT * each.deviation, default=None)


def suggested_curve(e: Experiment, values: Values) -> list[tuple[float, float]]:
    """The measured flow-signal curve where the flow is not as the rig file describes it; otherwise empty.

    ``values``: with which the model of the rig file fits best. Also empty where another curve would not help: the two
    directions differ, or the flow depends on something else.
    """
    worst = largest_disproportion(e, values)
    settled = settled_curve(e, values) if worst is not None and worst.is_significant else None
    return settled.curve if settled is not None and settled.differs > OTHER_SHAPE else []


class SettledCurve(NamedTuple):
    """The measured flow-signal curve, and how much its shape differs from that of the rig file with any overlap.

    ``differs``: as a fraction of the flow at the largest ``opening`` of the recording.
    """

    curve: list[tuple[float, float]]
    differs: float
    opening: float


def settled_curve(e: Experiment, values: Values) -> SettledCurve | None:
    """Of a valve with these values of its parameters; None if the recording shows none that rises everywhere.

    It depends neither on the motion of the spool nor on a fit.
    """
    if "C_PA" not in values or not (curve := measured_curve(e)):
        return None
    try:
        measured = FlowSignal.of(curve)
    except ValueError:  # it does not rise everywhere
        return None
    opening = np.linspace(0.0, e.largest_opening(values), 50)
    shape = np.maximum(measured.linear_opening(opening) - measured.overlap, 0.0)
    if shape[-1] <= 0.0:  # the recording does not leave the overlap
        return None
    overlaps = [max(values["overlap"], 0.0), *np.linspace(0.0, 0.9 * opening[-1], OVERLAPS)]  # another one is no curve
    known = [np.maximum(e.curve.linear_opening(opening) - overlap, 0.0) for overlap in overlaps]
    differs = [np.abs(shape / shape[-1] - each / each[-1]).max() for each in known if each[-1] > 0.0]
    return SettledCurve(curve, float(min(differs, default=0.0)), float(opening[-1]))


def _disproportions(flow: FlowOverOpening, nominal: float) -> Iterator[Disproportion]:
    """Of all ranges that enough parts of the recording show."""
    usable = flow.used & np.isfinite(flow.at_nominal)
    off = np.where(usable, (flow.measured - flow.model) * np.nan_to_num(flow.at_nominal), 0.0) / nominal
    part = np.arange(len(off)) * PARTS // len(off)
    for way in (1.0, -1.0):
        for low, high in pairwise(RANGES):
            here = usable & (way * flow.spool > low) & (way * flow.spool <= high)
            count = np.bincount(part[here], minlength=PARTS)
            if np.count_nonzero(enough := count >= MIN_SAMPLES) < MIN_PARTS:
                continue
            means = np.bincount(part[here], off[here], PARTS)[enough] / count[enough]
            deviation = float(np.std(means, ddof=1)) / sqrt(len(means))
            yield Disproportion(flow.label, way, low, high, way * float(np.mean(means)), deviation)


def measured_curve(e: Experiment) -> list[tuple[float, float]]:
    """The flow-signal curve that the mean flows suggest: spool position, and flow at the nominal drop, m³/s.

    Straight lines by weighted least squares, with bends as long as they fit clearly better. Beyond the largest opening
    of the recording, the last line goes on to full stroke. Empty if the recording shows too little.
    """
    means = _mean_flows(e)
    if len(means.at) < 2 * BENDS:
        return []
    lines = _Lines.through(means, ())
    while len(lines.bends) < BENDS:
        better = lines.with_another_bend(means)
        if better.cost > WORTH_A_BEND * lines.cost:
            break
        lines = better
    at, flow = [0.0, *lines.bends, means.at[-1]], lines.heights
    full = flow[-1] + (1.0 - float(at[-1])) * (flow[-1] - flow[-2]) / float(at[-1] - at[-2])
    points = [*zip(map(float, at[:-1]), flow[:-1], strict=True), (1.0, full)]
    closed = max(k for k, (_, height) in enumerate(points) if height <= CLOSED * flow[-1])
    return [(points[closed][0], 0.0), *points[closed + 1 :]]


class _Means(NamedTuple):
    """Openings, the mean flows around them at the nominal drop, m³/s, and their weights."""

    at: Floats
    flow: Floats
    weight: Floats


class _Lines(NamedTuple):
    """Straight lines that rise from 0, with the heights at their ends, and their weighted sum of squares."""

    bends: tuple[float, ...]
    heights: tuple[float, ...]
    cost: float

    @classmethod
    def through(cls, means: _Means, bends: tuple[float, ...]) -> _Lines:
        """Those with these bends that are nearest to the means: each line adds what is not negative."""
        ends = [0.0, *bends, means.at[-1]]
        hats = np.array([np.interp(means.at, ends, unit) for unit in np.eye(len(ends))])
        steps = np.cumsum(hats[:0:-1], axis=0)[::-1]
        added, rest = nnls((steps * means.weight).T, means.flow * means.weight)
        return cls(bends, (0.0, *np.cumsum(added).tolist()), float(rest) ** 2)

    def with_another_bend(self, means: _Means) -> _Lines:
        """The best ones with a bend more: where it helps most, then each bend moved to where it does."""
        found = self._with(means, self.bends)
        for _ in range(2):
            for bend in found.bends:
                found = found._with(means, tuple(other for other in found.bends if other != bend))
        return found

    def _with(self, means: _Means, others: tuple[float, ...]) -> _Lines:
        """The best ones with these bends and one more; these lines where there is no place for it."""
        free = [float(at) for at in means.at[1:-1] if at > 0.0 and all(abs(at - other) > NARROW for other in others)]
        tried = (self.through(means, tuple(sorted((*others, at)))) for at in free)
        return min(tried, key=lambda lines: lines.cost, default=self)


def _mean_flows(e: Experiment) -> _Means:
    """In both directions, after the spool has settled.

    With the oil and the sensors of the rig file: those of a fit make up for what the model of the valve lacks.
    """
    total, count = np.zeros(round(1.0 / NARROW) + 1), np.zeros(round(1.0 / NARROW) + 1)
    stated = {name: p.start for name, p in e.parameters(True).items()}
    before = round(SETTLED / e.dt)
    is_settled = maximum_filter1d(e.spool_speed(stated), before + 1, origin=before // 2) < SLOW
    for each in flows_of(e, stated):
        usable = each.used & np.isfinite(each.at_nominal) & is_settled[: len(each.spool)]
        place = np.minimum((np.abs(each.spool[usable]) / NARROW).round().astype(np.int64), len(total) - 1)
        flow = (np.sign(each.spool) * each.measured * each.at_nominal)[usable]
        total += np.bincount(place, flow, len(total))
        count += np.bincount(place, minlength=len(total))
    known = count >= PARTS * MIN_SAMPLES / 4
    at = NARROW * np.flatnonzero(known)
    return _Means(np.asarray(at, dtype=np.float64), total[known] / count[known], np.sqrt(count[known]))
