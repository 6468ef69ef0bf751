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

from hilserver.identify.fit import Values
from hilserver.identify.identification import Identified
from hilserver.identify.model import SpoolMotion, follow, mean_openings, mean_shares, shares_now
from hilserver.numerics.arrays import Floats
from hilserver.rig.settings import ValveSettings

RANGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
"""Ends of the ranges of the opening, fractions of the stroke: beyond overlap and leakage, which have their own law."""
PARTS, MIN_PARTS, MIN_SAMPLES = 24, 5, 20
"""Parts of the recording whose means are compared; how many must show a range, each by how many samples."""
SIGNIFICANT = 4.0
"""Standard deviations."""
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


def flows_of(found: Identified, values: Values) -> list[FlowOverOpening]:
    """Of a valve with these values of its parameters; none if it is known by its spool alone."""
    e = found.experiment
    if "C_PA" not in values:
        return []
    C = e.C_PA * np.array([values["C_PA"], values["C_AT"], values["leakage"]])
    edges = values["overlap"], values["gone_at"]
    way, measured = e.way(values), e.measured(values)
    instant = follow(e.command, e.dt, SpoolMotion(1e6, 0.0, 0.0), values["null"], values["hysteresis"])
    flows = []
    for c, now, signal in zip(e.chambers, measured.chambers, e.signals, strict=False):
        laws = now.law_port, now.law_tank
        spool = c.turn * 0.5 * (way.way[1:, 0] + way.way[:-1, 0])
        openings = (mean_openings(each.as_linear(e.curve), c.turn, *edges) for each in (way, instant))
        model, at_once = (C @ mean_shares(each, *laws) for each in openings)
        read = c.into(e.dt * model, now, values) / e.dt
        to_nominal = _to_nominal(e.settings, np.where(spool > 0.0, laws[0][:-1], laws[1][:-1]))
        flows.append(FlowOverOpening(f"port {c.port}", spool, read, model, at_once, to_nominal, signal.used))
    if e.flow is not None:
        spool, openings = way.way[:, 0], (each.as_linear(e.curve).way[:, 0] for each in (way, instant))
        read = (e.flow.measured - values.get("flow_zero", 0.0)) / values.get("flow_gain", 1.0)
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


def largest_disproportion(found: Identified) -> Disproportion | None:
    """The most significant one of all ranges; None if the recording shows none of them."""
    known = [each for flow in flows_of(found, found.fitted) for each in _disproportions(flow, found)]
    return max(known, key=lambda each: abs(each.mean) - SIGNIFICANT * each.deviation, default=None)


def _disproportions(flow: FlowOverOpening, found: Identified) -> Iterator[Disproportion]:
    """Of all ranges that enough parts of the recording show."""
    nominal = found.experiment.settings.nominal_flow.flow
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
