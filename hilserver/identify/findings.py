"""Identified properties of a valve, as datasheets and rig files state them, with standard deviations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, hypot, inf, isfinite, log10, pi, sqrt
from typing import Literal

from hilserver.identify.drift import trust_in
from hilserver.identify.identification import SIGNIFICANT, Identified, Lateness
from hilserver.identify.influences import OWN_DELAY, SPOOL, uniform, unseen_delay
from hilserver.identify.model import delay_of, lag_of
from hilserver.rig.valves import time_constant
from hilserver.units import shown_unit

MAX_DIGITS = 5
"""After the decimal point."""
TYPICAL_LEAKAGE_DROP = 70e5
"""Pa, at which leakage is stated where the rig file has none."""


MIN_DELAY = 1e-4
"""s: smallest correction of a sensor's delay."""


@dataclass(frozen=True)
class IdentifiedValue:
    """An identified property: SI value, standard deviation (inf: not identifiable), configured value, and shown unit.

    ``key``: of the rig file, empty if there is none; ``factor``: from SI to ``unit``.
    """

    name: str
    key: str
    value: float
    deviation: float
    configured: float | None
    unit: str = ""
    factor: float = 1.0

    @property
    def known(self) -> bool:
        """Whether the recording determines this value."""
        return isfinite(self.deviation)

    def text(self) -> str:
        """``"58.8 l/min"``, with its significant digits."""
        return joined(rounded(self.value * self.factor, self.deviation * self.factor), self.unit)

    def deviation_text(self) -> str:
        """``"0.2 l/min"``"""
        return joined(f"{self.deviation * self.factor:.2g}", self.unit) if self.known else "not identifiable"


def findings(found: Identified) -> list[IdentifiedValue]:
    """The properties of a valve."""
    v, fit, C = found.experiment.settings, found.fit, found.experiment.C_PA
    values, drop = found.values, v.nominal_flow.edge_drop()
    to_tank = v.nominal_flow_AT

    def sd(name: str, factor: float = 1.0) -> float:
        return fit.deviations[name] * factor if name in fit.deviations else inf

    result = []
    if "C_PA" in values:
        result += [
            IdentifiedValue(
                "flow P to port, full command", "nominal_flow",
                values["C_PA"] * C * sqrt(drop), sd("C_PA", C * sqrt(drop)),
                v.nominal_flow.flow, *shown_unit("m^3/s"),
            ),
            IdentifiedValue(
                "flow port to T, full command", "nominal_flow_to_tank", values["C_AT"] * C * sqrt(to_tank.edge_drop()),
                sd("C_AT", C * sqrt(to_tank.edge_drop())), to_tank.flow, *shown_unit("m^3/s"),
            ),
        ]  # fmt: skip
    result += _motion(found)
    result.append(IdentifiedValue("delay", "delay", *delay_and_deviation(found), v.delay, "ms", 1e3))
    if "C_PA" in values:
        result.append(_overlap(found))
        leak = leakage_point(found)
        shown = leak.flow_of(values["leakage"] * C), leak.flow_of(sd("leakage", C))
        configured = v.leakage.flow if v.leakage else 0.0
        result.append(IdentifiedValue("leakage at null", "leakage", *shown, configured, *shown_unit("m^3/s")))
        gone = v.leakage.gone_at if v.leakage else None
        ends = _at_spool(found, "gone_at")
        result.append(IdentifiedValue("opening at which leakage ends", "gone_at", *ends, gone))
    null = v.null - v.polarity * values["null"]
    result.append(IdentifiedValue("null", "null", null, sd("null"), v.null))
    result.append(IdentifiedValue("hysteresis", "hysteresis", values["hysteresis"], sd("hysteresis"), v.hysteresis))
    return result


def _overlap(found: Identified) -> IdentifiedValue:
    """The overlap; a flow-signal curve contains it, so that there is no key of its own."""
    curve = found.experiment.curve
    key = "overlap" if found.experiment.settings.flow_signal is None else ""
    return IdentifiedValue("overlap", key, *_at_spool(found, "overlap"), curve.closed_to)


def _at_spool(found: Identified, name: str) -> tuple[float, float]:
    """An opening of the linear valve as a position of the spool, and its standard deviation."""
    curve, value = found.experiment.curve, found.values[name]
    deviation = found.fit.deviations.get(name, inf)
    return float(curve.spool_for(value)), deviation / curve.first_slope


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
    v, values, fit = found.experiment.settings, found.values, found.fit
    f, d = values["frequency"], values.get("damping", 0.0)
    sd = fit.deviations.get("frequency", inf)
    if not found.second_order:
        return [IdentifiedValue("-45° frequency (first order)", "f45", f, sd, v.f45, "Hz")]
    root = sqrt(d * d + 1.0)
    known = {"frequency", "damping"} <= set(fit.deviations)
    sd45 = fit.deviation_of({"frequency": root - d, "damping": f * (d / root - 1.0)}) if known else inf
    return [
        IdentifiedValue("-90° frequency", "f90", f, sd, v.f90, "Hz"),
        IdentifiedValue("damping", "damping", d, fit.deviations.get("damping", inf), v.damping if v.f90 else None),
        IdentifiedValue("-45° frequency", "", f * (root - d), sd45, v.f45, "Hz"),
    ]


def trust_findings(found: Identified) -> list[IdentifiedValue]:
    """How closely the valve keeps to these properties, and the feedback time that suits it; empty if not known."""
    v = found.experiment.settings
    nominal = found.values.get("C_PA", 0.0) * found.experiment.C_PA * sqrt(v.nominal_flow.edge_drop())
    if (trust := trust_in(found, nominal)) is None:
        return []
    drift, deviation = trust.drift / nominal, trust.drift_deviation / nominal
    times = trust.feedback_time, trust.feedback_deviation, v.bridge.feedback_time
    return [
        IdentifiedValue("drift of the flow in 0.1 s", "flow_drift", drift, deviation, v.flow_drift),
        IdentifiedValue("feedback time", "feedback_time", *times, "ms", 1e3),
    ]


def separates_delay(found: Identified) -> bool:
    """Whether the recording separates the delay from the lag of the spool."""
    return {"frequency", "damping"} & found.values.keys() <= found.fit.deviations.keys()


def delay_and_deviation(found: Identified) -> tuple[float, float]:
    """The delay, the lag minus that of the spool and what the sensors are late, and its standard deviation, s."""
    value, deviation = _delay_and_sensors(found)
    if found.lateness is None:
        return value, deviation
    dt = found.experiment.dt
    fitted = max(deviation**2 - unseen_delay(dt) ** 2, 0.0)  # of the fit alone
    return value - found.lateness.value, sqrt(fitted + lateness_deviation(found.lateness, dt) ** 2)


def lateness_deviation(lateness: Lateness, dt: float) -> float:
    """Standard deviation of the delay of a sensor: of what all have in common, and of its own, s."""
    return hypot(lateness.deviation, uniform(OWN_DELAY * dt))


def own_delay(results: Sequence[Identified], channel: str) -> tuple[float, float]:
    """By how much a sensor is later than the one that shows the flow, beyond what is stated, and its deviation, s.

    0 where that is not significant.
    """
    key = f"delay {channel}"
    known = [(each.fit.deviations[key], each.values[key]) for each in results if key in each.fit.deviations]
    deviation, more = min(known, default=(inf, 0.0))
    return (more if abs(more) > max(SIGNIFICANT * deviation, MIN_DELAY) else 0.0), deviation


def _delay_and_sensors(found: Identified) -> tuple[float, float]:
    """The delay of the valve with that of the sensors beyond the stated one.

    Where the recording does not separate delay and spool, the spool remains that of the rig file, with its usual
    tolerance.
    """
    values, fit = found.values, found.fit
    if separates_delay(found):
        f, d = values["frequency"], values.get("damping", 0.0)
        gradient = {"lag": 1.0, "frequency": lag_of(f, d) / f, "damping": -1.0 / (pi * f)}
        return delay_of(values), fit.deviation_of(gradient) if "lag" in fit.deviations else inf
    tau = time_constant(found.experiment.settings)
    return values["lag"] - tau, hypot(fit.deviations.get("lag", inf), sqrt(2.0) * uniform(SPOOL) * tau)


def rounded(value: float, deviation: float) -> str:
    """A value rounded to two digits of its standard deviation.

    >>> rounded(58.80315, 0.012), rounded(71.8, 2.1), rounded(0.03, 0.0), rounded(-1e-9, 1e-3)
    ('58.803', '71.8', '0.03', '0.0000')
    """
    if not (isfinite(deviation) and deviation > 0.0):
        return f"{value:.6g}"
    digits = min(max(1 - floor(log10(deviation)), 0), MAX_DIGITS)
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0.0 else text


def joined(text: str, unit: str) -> str:
    """A number and its unit, if it has one."""
    return f"{text} {unit}" if unit else text
