"""Identified properties of a valve, as datasheets and rig files state them, with standard deviations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, pi, sqrt
from statistics import fmean
from typing import Literal

from hilserver.identify.drift import trust_in
from hilserver.identify.estimate import Estimate, most_certain
from hilserver.identify.identification import Identified
from hilserver.identify.influences import SPOOL, own_delay_tolerance, relative_delay, uniform, unseen_delay
from hilserver.identify.model import delay_of, lag_of
from hilserver.rig.valves import time_constant
from hilserver.units import shown_unit

TYPICAL_LEAKAGE_DROP = 70e5
"""Pa, at which leakage is stated where the rig file has none."""
MIN_DELAY = 1e-4
"""s: smallest correction of a sensor's delay."""
HARDLY_SHOWN = 0.5
"""Standard deviation of a sensor's delay, of that before the recording, above which this hardly shows it."""


@dataclass(frozen=True)
class IdentifiedValue:
    """An identified property: its estimate and its configured value, SI, and the unit in which they are shown.

    ``key``: of the rig file, empty if there is none; ``factor``: from SI to ``unit``.
    """

    name: str
    key: str
    estimate: Estimate
    configured: float | None
    unit: str = ""
    factor: float = 1.0

    @property
    def shown(self) -> Estimate:
        """The estimate in ``unit``."""
        return self.estimate.scaled(self.factor)

    def text(self) -> str:
        """``"58.8 l/min"``, with its significant digits."""
        return joined(self.shown.rounded(), self.unit)

    def deviation_text(self) -> str:
        """``"0.2 l/min"``"""
        return joined(f"{self.shown.deviation:.2g}", self.unit) if self.estimate.is_known else "not identifiable"


def findings(found: Identified) -> list[IdentifiedValue]:
    """The properties of a valve."""
    v, C, in_flow = found.experiment.settings, found.experiment.C_PA, shown_unit("m^3/s")
    has_flow = "C_PA" in found.values
    result = []
    if has_flow:
        for name, key, coefficient, point in (
            ("flow P to port, full command", "nominal_flow", "C_PA", v.nominal_flow),
            ("flow port to T, full command", "nominal_flow_to_tank", "C_AT", v.nominal_flow_AT),
        ):
            share, law = found.estimate(coefficient), sqrt(point.edge_drop())
            flow = Estimate(share.value * C * law, share.deviation * (C * law))
            result.append(IdentifiedValue(name, key, flow, point.flow, *in_flow))
    result += _motion(found)
    result.append(IdentifiedValue("delay", "delay", identified_delay(found), v.delay, "ms", 1e3))
    if has_flow:
        result.append(_overlap(found))
        leakage = found.estimate("leakage").scaled(C).scaled(leakage_point(found).flow_of(1.0))
        configured, gone_at = (v.leakage.flow, v.leakage.gone_at) if v.leakage else (0.0, None)
        result.append(IdentifiedValue("leakage at null", "leakage", leakage, configured, *in_flow))
        result.append(IdentifiedValue("opening at which leakage ends", "gone_at", _at_spool(found, "gone_at"), gone_at))
    null = found.estimate("null")
    result.append(IdentifiedValue("null", "null", replace(null, value=v.null - v.polarity * null.value), v.null))
    result.append(IdentifiedValue("hysteresis", "hysteresis", found.estimate("hysteresis"), v.hysteresis))
    return result


def _overlap(found: Identified) -> IdentifiedValue:
    """The overlap; a flow-signal curve contains it, so that there is no key of its own."""
    curve = found.experiment.curve
    key = "overlap" if found.experiment.settings.flow_signal is None else ""
    return IdentifiedValue("overlap", key, _at_spool(found, "overlap"), curve.closed_to)


def _at_spool(found: Identified, name: str) -> Estimate:
    """An opening of the linear valve as a position of the spool."""
    curve, opening = found.experiment.curve, found.estimate(name)
    return Estimate(float(curve.spool_for(opening.value)), opening.deviation / curve.first_slope)


@dataclass(frozen=True)
class LeakagePoint:
    """The pressure drop at which leakage is stated, per edge or per valve."""

    drop: float
    per: Literal["edge", "valve"]

    def flow_of(self, coefficient: float) -> float:
        """Flow of a leakage coefficient: the inverse of Leakage.coefficient."""
        return coefficient * sqrt(self.drop) if self.per == "edge" else 2.0 * coefficient * sqrt(0.5 * self.drop)


def leakage_point(found: Identified) -> LeakagePoint:
    """The drop at which the leakage is stated: that of the rig file, or the usual one."""
    leakage = found.experiment.settings.leakage
    return LeakagePoint(leakage.drop, leakage.per) if leakage else LeakagePoint(TYPICAL_LEAKAGE_DROP, "edge")


def _motion(found: Identified) -> list[IdentifiedValue]:
    v, frequency, damping = found.experiment.settings, found.estimate("frequency"), found.estimate("damping")
    if not found.second_order:
        return [IdentifiedValue("-45° frequency (first order)", "f45", frequency, v.f45, "Hz")]
    f, d = frequency.value, damping.value
    root = sqrt(d * d + 1.0)
    gradient = {"frequency": root - d, "damping": f * (d / root - 1.0)}
    f45 = Estimate(f * (root - d), found.fit.deviation_of(gradient) if separates_delay(found) else inf)
    return [
        IdentifiedValue("-90° frequency", "f90", frequency, v.f90, "Hz"),
        IdentifiedValue("damping", "damping", damping, v.damping if v.f90 else None),
        IdentifiedValue("-45° frequency", "", f45, v.f45, "Hz"),
    ]


def trust_findings(found: Identified) -> list[IdentifiedValue]:
    """How closely the valve keeps to these properties, and the feedback time that suits it; empty if not known."""
    v = found.experiment.settings
    nominal = found.values.get("C_PA", 0.0) * found.experiment.C_PA * sqrt(v.nominal_flow.edge_drop())
    if (trust := trust_in(found, nominal)) is None:
        return []
    drift = Estimate(trust.drift.value / nominal, trust.drift.deviation / nominal)
    return [
        IdentifiedValue("drift of the flow in 0.1 s", "flow_drift", drift, v.flow_drift),
        IdentifiedValue("feedback time", "feedback_time", trust.feedback_time, v.bridge.feedback_time, "ms", 1e3),
    ]


def separates_delay(found: Identified) -> bool:
    """Whether the recording separates the delay from the lag of the spool, and the model describes this one."""
    is_known = {"frequency", "damping"} & found.values.keys() <= found.fit.deviations.keys()
    return is_known and not found.is_speed_limited


def identified_delay(found: Identified) -> Estimate:
    """The delay of the valve, s: the lag minus that of the spool, and minus what the sensors are late."""
    together = _delay_and_sensors(found)
    if found.lateness is None:
        return together
    dt = found.experiment.dt
    sensor = sensor_lateness(found, found.lateness)
    fitted = together.variance_without(unseen_delay(dt))
    return Estimate(together.value - sensor.value, sqrt(fitted + sensor.deviation**2))


def sensor_lateness(found: Identified, common: Estimate) -> Estimate:
    """By how much a sensor is later than stated, s: what all have in common, with the tolerance of its own delay."""
    each = found.experiment
    return common.with_further(uniform(own_delay_tolerance(each.rig, each.measured_channels(), each.dt)))


def own_delay(results: Sequence[Identified], channel: str) -> Estimate:
    """By how much a sensor is later than the one that shows the flow, beyond what is stated, s.

    0 where that is not significant. A delay that the recording hardly shows is taken to be that of the other pressure
    sensors, in the mean.
    """
    more = _relative_delay(results, channel)
    if more.deviation == inf or _is_shown(more, results):
        return _significant(more)
    names = {name for each in results for name in each.experiment.pressures()}
    others = [_relative_delay(results, name) for name in sorted(names)]
    shown = [_significant(each).value for each in others if _is_shown(each, results)]
    return replace(more, value=fmean(shown) if shown else 0.0)


def _relative_delay(results: Sequence[Identified], channel: str) -> Estimate:
    """The same, as the recording shows it."""
    return most_certain(each.estimate(f"delay {channel}") for each in results)


def _is_shown(delay: Estimate, results: Sequence[Identified]) -> bool:
    return delay.deviation <= HARDLY_SHOWN * relative_delay(results[0].experiment.dt).prior


def _significant(delay: Estimate) -> Estimate:
    return delay if delay.is_significant(MIN_DELAY) else replace(delay, value=0.0)


def _delay_and_sensors(found: Identified) -> Estimate:
    """The delay of the valve with that of the sensors beyond the stated one, s.

    Where the recording does not separate delay and spool, the spool remains that of the rig file, with its usual
    tolerance.
    """
    lag, values = found.estimate("lag"), found.values
    if separates_delay(found):
        f, d = values["frequency"], values.get("damping", 0.0)
        gradient = {"lag": 1.0, "frequency": lag_of(f, d) / f, "damping": -1.0 / (pi * f)}
        return Estimate(delay_of(values), found.fit.deviation_of(gradient) if lag.is_known else inf)
    tau = time_constant(found.experiment.settings)
    return lag.shifted(-tau).with_further(sqrt(2.0) * uniform(SPOOL) * tau)


def joined(text: str, unit: str) -> str:
    """A number and its unit, if it has one."""
    return f"{text} {unit}" if unit else text
