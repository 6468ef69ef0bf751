"""Identifies an actuator and its specimen from a recording, by least squares on the predicted samples.

The fit is that of the valves (:mod:`hilserver.identify.fit`): residuals are whitened, and standard deviations include
what parts of the recording contradict each other. It starts from the best of several rough fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log, sqrt

import numpy as np

from hilserver.displacement.actuator import SCALE
from hilserver.displacement.servo import ServoActuator
from hilserver.identify.actuator_model import LOGARITHMIC, ActuatorPrediction, actuator_with
from hilserver.identify.actuator_record import RecordedActuator
from hilserver.identify.estimate import Estimate
from hilserver.identify.fit import FitResult, Signal, fit
from hilserver.identify.linearised import LinearisedModel
from hilserver.identify.many_residuals import minimum
from hilserver.identify.parameters import Parameter, Values
from hilserver.numerics.arrays import Floats
from hilserver.rig.actuator_settings import MAY_VANISH

WIDER = 2.0
"""Factor of all standard deviations where the recording leaves other parameters unknown: along the valley of such a
fit, the model is not linear.
"""
WIDEST = log(8.0)
"""Bound of the logarithm of a parameter's ratio to its stated value."""
TYPICAL = 0.2
"""Typical error of a stated parameter, as a fraction."""
USEFUL = 0.1
"""Largest relative standard deviation of an identified parameter that is useful."""
VANISHING = 0.4
"""The same of a parameter that may be 0, and its largest standard deviation that is useful."""
LITTLE_DAMPING = 0.01
"""Damping ratio of specimen and oil: the typical error of the specimen's damping where none is stated."""
LITTLE_DECAY = 1.0
"""1/s: the typical error of the force decay where none is stated."""
FASTEST_DECAY = 1e3
"""1/s: the largest decay."""
LATEST = 0.1
"""s: the longest delay."""
STARTS: tuple[Mapping[str, float], ...] = (
    {},
    {"velocity_gain": -0.4, "f90": 0.3},
    {"velocity_gain": 0.4},
    {"oil_stiffness": 0.5},
    {"oil_stiffness": -0.5},
    {"f90": -0.4},
    {"specimen_mass": 0.6},
)
"""Starts of rough fits, as changes of the stated values: logarithms of ratios."""
SEARCHES, MANY = 4, 40
"""Rough fits at most, each from another start, the one with the smallest errors first; evaluations in each of them."""
RESTARTS, ENOUGH = 4, 1.0
"""How often a rough fit begins anew where it has ended, until that reduces the sum of squares by less than this."""
SAME = 1e-3
"""Relative difference of the sums of squares of two rough fits that have found the same minimum."""
VAGUE = 3.0
"""Standard deviation of the stated values in rough fits, in typical errors: enough that no parameter goes astray."""
THINNED = 10_000
"""Samples of each sensor in rough fits."""
ROUGH_TOLERANCE = 1e-6
"""Fraction of the sum of squares that a step must gain in a rough fit."""


@dataclass(frozen=True)
class IdentifiedActuator:
    """An actuator as a recording shows it.

    ``model``: with what is identified, otherwise as stated. ``unknown``: parameters that the recording does not
    determine, with their standard deviations. ``values``: of the fit, all of them. ``residuals``: measured minus
    predicted displacement and force, SI, of the used samples; ``explained``: share of the variance of both that is
    predicted.
    """

    record: RecordedActuator
    stated: ServoActuator
    model: ServoActuator
    values: dict[str, float]
    fit: FitResult
    unknown: Mapping[str, float]
    prediction: ActuatorPrediction
    residuals: tuple[Floats, Floats]
    explained: tuple[float, float]

    def estimate(self, name: str) -> Estimate:
        """A parameter, SI; with an infinite deviation if it is not known."""
        value = self.values[name]
        deviation = self.fit.deviations.get(name, inf) * (WIDER if set(self.unknown) - set(MAY_VANISH) else 1.0)
        if name in LOGARITHMIC or name == "specimen_mass":
            before = getattr(self.stated, name) if name in LOGARITHMIC else self.stated.specimen.mass
            return Estimate(before * float(np.exp(value)), before * float(np.exp(value)) * deviation)
        return Estimate(value, deviation)

    @property
    def decay(self) -> float:
        """The slowest decay of its motion, 1/s; negative if the model is not stable."""
        return slowest_decay(self.model)


def parameters_of(record: RecordedActuator) -> dict[str, Parameter]:
    """The parameters of a fit, see `actuator_with`; besides, delay of the force sensor and zeros of both sensors."""
    model, dt = record.rig.settings.actuators[record.name].model(), record.dt
    part, late = model.specimen, stated_delay(record)
    logarithmic = Parameter(0.0, -WIDEST, WIDEST, TYPICAL, USEFUL)
    found = dict.fromkeys([*LOGARITHMIC, "specimen_mass"], logarithmic)
    decay = VANISHING * model.force_decay or LITTLE_DECAY
    oscillation = 2.0 * sqrt((part.stiffness + model.oil_stiffness) * part.mass)
    damping = VANISHING * part.damping or LITTLE_DAMPING * oscillation
    stiffness = TYPICAL * part.stiffness if part.stiffness > 0.0 else 0.1 * model.oil_stiffness
    stiff = max(part.stiffness, model.oil_stiffness) * 10.0
    found |= {
        "force_decay": Parameter(model.force_decay, 0.0, FASTEST_DECAY, decay, decay),
        "specimen_damping": Parameter(part.damping, 0.0, oscillation, damping, damping),
        "specimen_stiffness": Parameter(part.stiffness, 0.0, stiff, stiffness, 0.5 * stiffness),
        "delay": Parameter(late, 0.0, LATEST, max(0.5 * dt, 3e-4), max(dt, 1e-3)),
        "force delay": Parameter(0.0, -LATEST, LATEST, max(0.5 * dt, 3e-4), max(dt, 1e-3)),
    }
    for word, sensor in (("displacement", record.displacement), ("force", record.force)):
        span = float(np.ptp(sensor.value)) + 100.0 * sensor.size
        found[f"{word} zero"] = Parameter(0.0, -span, span, 0.01 * span, span)
    return found


def stated_delay(record: RecordedActuator) -> float:
    """The delay of the command that the rig file states, with the mean lag of a slow device, s."""
    actuator = record.rig.settings.actuators[record.name]
    return actuator.delay + record.rig.slow_devices.lag(actuator.device).mean


def identify_actuator(record: RecordedActuator) -> IdentifiedActuator:
    """Identify actuator, specimen, delays and zeros of the sensors."""
    predict, wanted = ActuatorPrediction(record), parameters_of(record)
    signals, start = _signals(predict), {name: p.start for name, p in wanted.items()} | {"displacement delay": 0.0}
    values = _rough(wanted, ActuatorPrediction(record.thinned(THINNED)), start)
    found = fit(wanted, signals, predict, values, near=True)
    unknown: dict[str, float] = {}
    while more := _least_known(wanted, found, unknown):
        unknown |= more
        for name in more:
            wanted[name] = replace(wanted[name], prior=wanted[name].size, useful=0.0)
        found = fit(wanted, signals, predict, {**start, **found.values}, near=True)
    return _result(record, predict, signals, {**start, **found.values}, found, unknown)


def _signals(predict: ActuatorPrediction) -> list[Signal]:
    sensors = (predict.record.displacement, predict.record.force)
    names = ("displacement", "force")
    return [Signal(n, s.value, used, False) for n, s, used in zip(names, sensors, predict.used, strict=True)]


def _result(
    record: RecordedActuator,
    predict: ActuatorPrediction,
    signals: Sequence[Signal],
    values: dict[str, float],
    found: FitResult,
    unknown: Mapping[str, float],
) -> IdentifiedActuator:
    stated = record.rig.settings.actuators[record.name].model()
    known = found.of([name for name in found.values if name not in unknown])
    pairs = [(s.measured[s.used], y[s.used]) for s, y in zip(signals, predict(values), strict=True)]
    shares = [1.0 - float(np.var(measured - y)) / max(float(np.var(measured)), 1e-300) for measured, y in pairs]
    lag = stated_delay(record) - stated.delay
    kept = {name: p.start for name, p in parameters_of(record).items() if name in unknown}
    merged = {**values, **kept}
    model = actuator_with(stated, {**merged, "delay": max(merged["delay"] - lag, 0.0)})
    residuals = (pairs[0][0] - pairs[0][1], pairs[1][0] - pairs[1][1])
    return IdentifiedActuator(record, stated, model, values, known, unknown, predict, residuals, (shares[0], shares[1]))


def _rough(wanted: Mapping[str, Parameter], predict: ActuatorPrediction, start: Values) -> dict[str, float]:
    """The values with the least sum of squared errors, each divided by its noise.

    It is the best of several searches from different starts, of which the last two have found the same.
    """
    signals, noise = _signals(predict), [predict.record.displacement.size, predict.record.force.size]
    sizes = np.array([p.size for p in wanted.values()])
    low, high = np.array([[p.lower, p.upper] for p in wanted.values()]).T / sizes

    def at(place: Floats) -> dict[str, float]:
        return {**start, **dict(zip(wanted, (place * sizes).tolist(), strict=True))}

    def residual(place: Floats) -> Floats:
        pairs = zip(signals, predict(at(place)), noise, strict=True)
        away = (place - first) / VAGUE
        return np.concatenate([*((s.measured - y)[s.used] / size for s, y, size in pairs), away])

    def jacobian(place: Floats) -> Floats:
        columns = []
        for slopes in LinearisedModel(wanted, predict).slopes(at(place)):
            parts = zip(signals, slopes, noise, strict=True)
            rows = [(np.zeros_like(s.measured) if d is None else -d)[s.used] / size for s, d, size in parts]
            columns.append(np.concatenate(rows))
        return np.concatenate([np.array(columns).T, np.eye(len(wanted)) / VAGUE])

    def scaled(values: Values) -> Floats:
        place: Floats = np.clip(np.array([values[name] for name in wanted]) / sizes, low, high)
        return place

    first = scaled(start)
    starts = [_stable(predict.stated, {n: v + change.get(n, 0.0) for n, v in start.items()}) for change in STARTS]
    best, cost = dict(start), inf
    places = {tuple(scaled(values).tolist()) for values in starts}
    nearest = sorted(places, key=lambda place: float(np.sum(residual(np.array(place)) ** 2)))
    for begin in nearest[:SEARCHES]:
        place, found = np.array(begin), inf
        for _ in range(RESTARTS):
            place, now = minimum(residual, jacobian, place, (low, high), ROUGH_TOLERANCE, MANY)
            found, gained = now, found - now
            if gained < ENOUGH:
                break
        confirmed = abs(found - cost) < SAME * found
        if found < cost:
            best, cost = at(place), found
        if confirmed:
            break
    return best


def _stable(stated: ServoActuator, values: dict[str, float]) -> dict[str, float]:
    """The values with the velocity gain reduced until the model is stable: the prediction of another has no limit."""
    while not is_stable(actuator_with(stated, values)) and values["velocity_gain"] > -WIDEST:
        values = {**values, "velocity_gain": values["velocity_gain"] - TYPICAL}
    return values


def is_stable(model: ServoActuator) -> bool:
    """Whether a motion of actuator and specimen decays when the command rests."""
    return slowest_decay(model) > 0.0


def slowest_decay(model: ServoActuator) -> float:
    """The slowest decay of a motion of actuator and specimen, 1/s; negative if one grows."""
    A = model.motion().scaled(SCALE).A
    return -float(np.linalg.eigvals(A).real.max())


def _least_known(wanted: Mapping[str, Parameter], found: FitResult, unknown: Mapping[str, float]) -> dict[str, float]:
    """The parameter that is known least of those that are not known well enough; empty if there is none."""
    useful = {name: p.useful for name, p in wanted.items() if name not in unknown}
    for name in MAY_VANISH:
        if name in useful:
            useful[name] = max(useful[name], VANISHING * found.values[name])
    excess = {name: found.deviations[name] / most for name, most in useful.items()}
    worst = max(excess, key=lambda name: excess[name])
    return {worst: found.deviations[worst]} if excess[worst] > 1.0 else {}
