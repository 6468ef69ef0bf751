"""Identification of a rig's real valves: start values, choice of the parameters and of the spool's order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, pi

import numpy as np

from hilserver.identify.estimate import SIGNIFICANT, Estimate
from hilserver.identify.experiment import Experiment
from hilserver.identify.fit import ALONG_VALLEY, USUAL, FitResult, Whitener, fit
from hilserver.identify.flows import suggested_curve
from hilserver.identify.influences import OTHER_EDGES
from hilserver.identify.model import delay_of, lag_of
from hilserver.identify.motor_chamber import CASE_LEAKAGE
from hilserver.identify.parameters import Parameter, Values
from hilserver.identify.recorded import Recording
from hilserver.identify.speed_limit import FittedValve, LagBySpeed, lag_by_speed
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig

FIRST = ("piston_leakage", CASE_LEAKAGE, *OTHER_EDGES)
"""Influences of a motor that the first fit contains: a valve without them would leak at all openings, to make up for
them, and the next fit would begin too far from the optimum.
"""
NOT_FIRST = "gone_at"
"""What the first fit leaves as it starts. A leakage at all openings, as far as the parameter may go, would make up for
restrictions, air and leakage past the piston, which this fit does not contain. There, the valve's leakage has another
minimum, from which the next fit would not come back.
"""
LARGEST_DAMPING = 3.0
"""Above it, a second-order spool counts as first-order."""
USEFUL_FREQUENCY = 0.15
"""Largest relative standard deviation with which a frequency is still useful."""

DELAYS = (0.0, 1e-3, 2e-3, 3e-3, 5e-3, 8e-3)
FREQUENCIES = (20.0, 40.0, 80.0, 160.0)
OVERLAPS = (0.0, 0.02, 0.05)
NULLS = (-0.03, 0.0, 0.03)
ROUGH_POLE = 0.9
OTHER_DELAYS = (-2e-3, -1.5e-3, -1e-3, -0.5e-3, 0.5e-3, 1e-3, 1.5e-3, 2e-3)
OTHER_DAMPINGS = (0.5, 0.75, 1.1)
"""Start values that don't depend on the rig file, so that the fit does not end in a local minimum."""
OTHER_ELASTICITIES = (0.8, 1.25)
"""The same for the elasticity of the oil, as shares of the usual start."""


@dataclass(frozen=True)
class Identified:
    """The identified valve. ``left_out``: parameters that the recording does not identify, with their deviation.

    ``fitted``: the values of all parameters with which the model fits best, also of those left out. ``lateness``: by
    how much all sensors are later than stated, s, which is no longer in the delay of the valve
    (:mod:`hilserver.identify.lateness`); None: not known.
    """

    experiment: Experiment
    second_order: bool
    fit: FitResult
    left_out: dict[str, float]
    fitted: dict[str, float]
    lateness: Estimate | None = None

    @property
    def values(self) -> dict[str, float]:
        """All parameters: identified, or configured where they were left out."""
        start = self.experiment.parameters(self.second_order)
        return {name: p.start for name, p in start.items()} | self.fit.values

    def estimate(self, name: str) -> Estimate:
        """A parameter. Not known are those that were left out, and those that the model does not have: they are 0."""
        return Estimate(self.values.get(name, 0.0), self.fit.deviations.get(name, inf))

    @property
    def best(self) -> FittedValve:
        """The model with which it fits best."""
        return FittedValve(self.experiment, self.fit, self.fitted, self.second_order)

    @cached_property
    def suggested_curve(self) -> list[tuple[float, float]]:
        """The flow-signal curve that has to be entered first: until then, no value can be relied on; usually none."""
        return curve_to_enter(self.best)

    @cached_property
    def lag_by_speed(self) -> LagBySpeed | None:
        """The lag of its spool in fast movements and in slow ones; None if the recording does not show both."""
        return lag_by_speed(self.best)

    @property
    def is_speed_limited(self) -> bool:
        """Whether its spool seems to be of limited speed, or slower in large movements (`withheld`)."""
        return self.lag_by_speed is not None and self.lag_by_speed.is_limited

    @property
    def is_always_late(self) -> bool:
        """Whether it seems to be at its highest speed all the time: all values that depend on it are then wrong."""
        return self.lag_by_speed is not None and self.lag_by_speed.is_limited and not self.lag_by_speed.is_later_if_fast

    @property
    def is_of_second_order(self) -> bool:
        """Whether the recording shows a second-order spool that a first-order model does not describe equally well."""
        known = {"frequency", "damping"} <= set(self.fit.values)
        return self.second_order and known and self.values["damping"] < LARGEST_DAMPING


def curve_to_enter(found: FittedValve) -> list[tuple[float, float]]:
    """The suggested flow-signal curve; none for a spool of limited speed, whose mean flows also show it on its way.

    Nor for one that is always on its way: no motion of second order describes it.
    """
    if found.values.get("damping", 0.0) >= LARGEST_DAMPING:
        return []
    curve = suggested_curve(found.experiment, found.values)
    lag = lag_by_speed(found) if curve else None
    return [] if lag is not None and lag.is_limited else curve


def identify_valve(rig: Rig, recording: Recording, valve: str, order: int | None = None) -> Identified:
    """Fit a valve's model to a recording. ``order`` of the spool: 1, 2, or None: chosen by the recording.

    Raises NotIdentifiable if neither rig nor recording shows the flow of the valve.
    """
    experiment = Experiment(rig, recording, valve)
    start = start_values(experiment)
    second = _best(experiment, True, start) if order != 1 else None
    if second is not None and second.suggested_curve:
        return second
    if second is not None and (order == 2 or second.is_of_second_order):
        return second
    if second is not None and order is None and "frequency" in second.left_out and experiment.settings.f45 is None:
        return second  # a first-order model would state a frequency only because it leaves the damping out
    f45 = 1.0 / (2.0 * pi * lag_of(start["frequency"], start["damping"]))
    first = _best(experiment, False, {**start, "frequency": f45})
    if second is None:
        return first
    parameters = len(second.fit.values) - len(first.fit.values)
    better = second.fit.deviance - first.fit.deviance + 2.0 * parameters  # Akaike information criterion
    needed = SIGNIFICANT**2 if second.left_out.keys() & {"frequency", "damping"} else -(SIGNIFICANT**2)
    return first if better > needed else second


def start_values(experiment: Experiment) -> dict[str, float]:
    """Start values: the best of a coarse grid, with the linear parameters solved for."""
    values = {name: p.start for name, p in experiment.parameters(True).items()}
    values["damping"] = 0.8
    by_motion = [{"lag": delay + lag_of(f, 0.8), "frequency": f} for delay in DELAYS for f in FREQUENCIES]
    by_null = [{"overlap": o, "null": n} for o in OVERLAPS for n in NULLS] if "overlap" in values else []
    for trials in (by_null, by_motion):
        values = min(
            (_solved(experiment, values | t) for t in [{}, *trials]), key=lambda trial: trial[0], default=(0.0, values)
        )[1]
    return values


def _solved(experiment: Experiment, values: dict[str, float]) -> tuple[float, dict[str, float]]:
    """(cost, values) with the best flow coefficients."""
    linear = [name for name in ("C_PA", "C_AT", "leakage") if name in values]
    off = values | dict.fromkeys(linear, 0.0)

    def filtered(values: Values, shares: bool) -> Floats:
        predicted = experiment.predict(values)
        parts = []
        for signal, y in zip(experiment.signals, predicted, strict=True):
            deviation = float(np.std(signal.measured[signal.used])) or 1.0
            whiten = Whitener(ROUGH_POLE if signal.summed else 0.0, np.ones(1), deviation)
            parts.append(whiten(y if shares else signal.measured - y, signal.used))
        return np.concatenate(parts)

    rest = filtered(off, False)
    if not linear:
        return float(rest @ rest), values
    columns = np.array([filtered(off, False) - filtered(off | {name: 1.0}, False) for name in linear]).T
    best, *_ = np.linalg.lstsq(columns, rest, rcond=None)
    left = rest - columns @ best
    limits = experiment.parameters(True)
    inside = {n: float(np.clip(b, limits[n].lower, limits[n].upper)) for n, b in zip(linear, best, strict=True)}
    return float(left @ left), values | inside


def _best(experiment: Experiment, second_order: bool, start: Values) -> Identified:
    """The fit; where it does not know the flow of the valve, the best of several from other starts.

    There may be another minimum, in which oil of twice the elasticity makes up for the noise of the pressures, and the
    valve is left without a meaning.
    """
    found = _reduced(experiment, second_order, start)
    soft = [name for name in start if name.startswith("elasticity ")]
    if found.suggested_curve or not soft or not found.left_out.keys() & {"C_PA", "C_AT"}:
        return found
    starts = ({**start, **{name: share * start[name] for name in soft}} for share in OTHER_ELASTICITIES)
    return min(
        [found, *(_reduced(experiment, second_order, each) for each in starts)], key=lambda each: each.fit.deviance
    )


def _reduced(experiment: Experiment, second_order: bool, start: Values) -> Identified:
    """Fit; then fit again with unidentified parameters near their configured values: not reported, but uncertain.

    First without errors of sensors and the like, then with all of them, from there. Where the flow-signal curve is
    another one, no values fit well, and to search further would take minutes.
    """
    wanted: dict[str, Parameter] = experiment.parameters(second_order)
    signals, left_out = experiment.signals, dict[str, float]()
    of_motor = experiment.of_motor
    search = ALONG_VALLEY if of_motor else USUAL
    values = {name: start.get(name, p.start) for name, p in wanted.items()}
    of_valve = {name: p for name, p in wanted.items() if p.prior == inf and name != NOT_FIRST}
    first = of_valve | {name: wanted[name] for name in FIRST if of_motor and name in wanted}
    values |= fit(first, signals, experiment.predict, values, with_same_lag, search).values
    found = fit(wanted, signals, experiment.predict, values, search=search)
    while True:
        unknown = _unknown(wanted, found)
        left_out |= unknown
        if not unknown or curve_to_enter(FittedValve(experiment, found, found.values, second_order)):
            reported = [name for name in wanted if name not in left_out]
            return Identified(experiment, second_order, found.of(reported), left_out, found.values)
        wanted |= {name: replace(wanted[name], prior=wanted[name].size, useful=0.0) for name in unknown}
        found = fit(wanted, signals, experiment.predict, found.values, search=search, near=True)


def with_same_lag(values: Values) -> Iterator[dict[str, float]]:
    """Other motions with the same lag in slow movements, where delay and spool compensate each other."""
    if "damping" not in values:
        return
    for more in OTHER_DELAYS:
        for damping in OTHER_DAMPINGS:
            rest = values["lag"] - delay_of(values) - more
            if rest > lag_of(500.0, damping):
                yield {**values, "damping": damping, "frequency": damping / (pi * rest)}


def _unknown(wanted: Mapping[str, Parameter], found: FitResult) -> dict[str, float]:
    """Parameters that are not known well enough, with their deviations: the least known is left out first.

    Frequency and damping go together: either would compensate for the other.
    """
    unknown: dict[str, float] = {}
    leakage = found.values.get("leakage", 0.0)
    if (
        "gone_at" in wanted
        and wanted["gone_at"].prior == inf
        and leakage <= SIGNIFICANT * found.deviations.get("leakage", 0.0)
    ):
        unknown["gone_at"] = found.deviations["gone_at"]  # without leakage there is no point at which it ends
    useful = {name: p.useful for name, p in wanted.items()}
    if "frequency" in useful:
        useful["frequency"] = USEFUL_FREQUENCY * found.values["frequency"]
    surrounding = [name for name, p in wanted.items() if p.prior < inf]
    while names := [name for name, p in wanted.items() if name not in unknown and p.prior == inf]:
        deviations = np.sqrt(np.diag(found.covariance_with([*names, *surrounding])))[: len(names)]
        excess = [deviation / useful[name] for name, deviation in zip(names, deviations, strict=True)]
        worst = int(np.argmax(excess))
        if excess[worst] <= 1.0:
            break
        together = ("frequency", "damping") if names[worst] in ("frequency", "damping") else (names[worst],)
        unknown |= {name: float(deviations[names.index(name)]) for name in together if name in names}
    return unknown
