r"""Delays that no recording can tell apart: that of a valve, and one that all sensors have in common.

A recording shows their sum, and by how much each sensor is later than another. With c, by which the sensor of the flow
is later than stated, sensor k is later by :math:`c + r_k`, and valve i by :math:`e_i - c`, with :math:`r_k` and
:math:`e_i` from the recording. Filters, converters and electronics delay, and never bring forward: sensors are taken to
be later than stated by anything up to :math:`t_s`, all equally probable, and valves by :math:`t_v` in the mean,
exponentially distributed; where the rig file states a tolerance beside a delay, by anything within it. The probability
density of c is then

.. math:: p(c) \propto \prod_k u(c + r_k) \prod_i v(e_i - c)

with the densities u of a sensor and v of a valve, each with the standard deviation of the fit, and a small one for
delays that are stated wrongly. Mean and standard deviation of c are those of p. Source: Gelman et al., Bayesian Data
Analysis, 3rd ed. 2013, ch. 1.3 (Bayes' rule); the exponential density with a normal error: Grushka, Anal. Chem. 44
(1972) 1733.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from scipy.special import ndtr
from scipy.stats import exponnorm

from hilserver.identify.estimate import Estimate, most_certain
from hilserver.identify.experiment import Experiment
from hilserver.identify.findings import identified_delay, own_delay
from hilserver.identify.identification import Identified
from hilserver.identify.influences import common_delay, stated_delay_tolerance, unseen_delay, valve_delay
from hilserver.numerics.arrays import Floats
from hilserver.rig.settings import RigSettings, ValveSettings

MIN_LATENESS = 1e-4
"""s: less is not stated."""
LEAST_DEVIATION = 0.1
"""Standard deviation, ticks, by which the difference between two delays is known at best."""
MISSTATED, DENSITY_OF_MISSTATED = 1e-3, 0.05
"""Probability that a delay is stated wrongly, and the density of what it then is, 1/tick."""
POINTS = 1001
"""At which the density is evaluated."""


def with_lateness(results: Sequence[Identified]) -> list[Identified]:
    """The same valves with what they say together of the delay that their sensors have in common.

    Unchanged where the delays of the sensors are known, where no valve has a stated delay, and where the sensors also
    serve valves that are not among them: the delays of those were found with these sensors as they are stated. What a
    spool lags in fast movements is its own: such a valve does not say anything of the sensors.
    """
    found = list(results)
    states_one = [each for each in found if _states_delays(each.experiment) and not each.is_speed_limited]
    if not states_one or found[0].experiment.recording.delays_known or _serve_others(found):
        return found
    later = _most_probable(found, states_one)
    if abs(later.value) < MIN_LATENESS:
        later = Estimate(0.0, later.deviation)
    return [replace(each, lateness=later) for each in found]


def _most_probable(found: Sequence[Identified], states_one: Sequence[Identified]) -> Estimate:
    """By how much the sensors are later in common, s: mean and deviation of p(c), where no delay is negative."""
    rig, dt = found[0].experiment.rig, found[0].experiment.dt
    least = -min(_channel_delays(found), default=0.0)
    c = np.linspace(least, max(min(identified_delay(each).value for each in found), least), POINTS)
    density = np.ones_like(c)
    for name, own in _sensor_delays(found).items():
        later = Later(c + own.value, max(own.deviation, LEAST_DEVIATION * dt), dt)
        density *= later.density_of_sensor(stated_delay_tolerance(rig, "channels", name))
    for each in states_one:
        delay = identified_delay(each)
        deviation = max(sqrt(delay.variance_without(unseen_delay(dt))), LEAST_DEVIATION * dt)
        later = Later(delay.value - each.experiment.settings.delay - c, deviation, dt)
        density *= later.density_of_valve(stated_delay_tolerance(rig, "valves", each.experiment.valve))
    mean = float(np.average(c, weights=density))
    return Estimate(mean, sqrt(float(np.average((c - mean) ** 2, weights=density))))


@dataclass(frozen=True)
class Later:
    """What a sensor or valve is later than stated, with the standard deviation of the fit and the time of a tick, s."""

    values: Floats
    deviation: float
    dt: float

    def density_of_sensor(self, tolerance: float | None) -> Floats:
        """Its probability density, 1/tick; within the tolerance (s) if the rig file states one."""
        lower, upper = (0.0, common_delay(self.dt)) if tolerance is None else (-tolerance, tolerance)
        below = ndtr((self.values - lower) / self.deviation) - ndtr((self.values - upper) / self.deviation)
        return self._or_misstated(below * self.dt / (upper - lower))

    def density_of_valve(self, tolerance: float | None) -> Floats:
        """The same for a valve."""
        if tolerance is not None:
            return self.density_of_sensor(tolerance)
        ratio = valve_delay(self.dt) / self.deviation
        return self._or_misstated(exponnorm.pdf(self.values, ratio, scale=self.deviation) * self.dt)

    def _or_misstated(self, density: Floats) -> Floats:
        return np.asarray((1.0 - MISSTATED) * density + MISSTATED * DENSITY_OF_MISSTATED, dtype=np.float64)


def _states_delays(experiment: Experiment) -> bool:
    """Whether the delays of a valve, and of the sensor that shows its flow, are stated."""
    by_sensor = not experiment.chambers and bool(experiment.sensors_of_unknown_delay())
    return "delay" in experiment.settings.model_fields_set and not by_sensor


def _serve_others(results: Sequence[Identified]) -> bool:
    """Whether another valve of the rig depends on channels of these valves."""
    settings = results[0].experiment.rig.settings
    own = {each.experiment.valve for each in results}
    used = {name for each in results for name in each.experiment.measured_channels()}
    others = (valve for name, valve in settings.valves.items() if name not in own)
    return any(used.intersection(_channels_of(settings, valve)) for valve in others)


def _channels_of(settings: RigSettings, valve: ValveSettings) -> Iterator[str | None]:
    """Channels on which the identification of a valve depends; None for those that it does not have."""
    ports = {port for port in (valve.port, valve.other_port) if port is not None}
    for actuator in settings.hydraulic_actuators().values():
        if ports & {actuator.port_A, actuator.port_B}:
            ports |= {port for port in (actuator.port_A, actuator.port_B) if port is not None}
            yield actuator.motion
    yield from (valve.supply, valve.tank, valve.flow, valve.spool, *(settings.ports[port] for port in ports))


def _sensor_delays(results: Sequence[Identified]) -> Mapping[str, Estimate]:
    """By how much each sensor is later than that of the flow, s; without those that the recording does not show."""
    found = {name: most_certain(each.estimate(f"delay {name}") for each in results) for name in _channels(results)}
    references = {name for each in results for name in each.experiment.reference_channels()}
    found |= {name: Estimate(0.0, 0.0) for name in found.keys() & references}
    return {name: own for name, own in found.items() if own.is_known}


def _channel_delays(results: Sequence[Identified]) -> list[float]:
    """Delays of these channels: the stated one, and what a sensor has beside the others."""
    channels = results[0].experiment.rig.settings.channels
    return [channels[name].delay + own_delay(results, name).value for name in _channels(results)]


def _channels(results: Sequence[Identified]) -> list[str]:
    """The channels on which the results depend, without those whose delay is unknown."""
    unknown = {name for each in results for name in each.experiment.sensors_of_unknown_delay()}
    return sorted({name for each in results for name in each.experiment.measured_channels()} - unknown)
