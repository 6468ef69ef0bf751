r"""Delays that no recording can tell apart: that of a valve, and one that all sensors have in common.

A recording shows their sum. Where rig file and recording differ by :math:`e_i` at valve i, either is possible, each
within its tolerance, the usual one or the one that the rig file states beside it: the sensors are later by c in common
(standard deviation :math:`\sigma_c`), or the valve is later (:math:`\sigma_v`; :math:`s_i` is the deviation of the fit
itself). What is most probable is

.. math:: c = \frac{\sum_i w_i e_i}{1/\sigma_c^2 + \sum_i w_i}, \qquad w_i = \frac{1}{\sigma_v^2 + s_i^2}

with the variance :math:`1/(1/\sigma_c^2 + \sum_i w_i)`. Source: Gelman et al., Bayesian Data Analysis, 3rd ed. 2013,
ch. 2.5 (normal data with a normal prior). No valve and no sensor is early: where the recording shows that one sensor is
earlier than the others, these are later by at least that much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import sqrt

from hilserver.identify.estimate import Estimate
from hilserver.identify.experiment import Experiment
from hilserver.identify.findings import identified_delay, own_delay
from hilserver.identify.identification import Identified
from hilserver.identify.influences import (
    VALVE_DELAY,
    delay_tolerance,
    sensor_delay_tolerances,
    uniform,
    unseen_delay,
)
from hilserver.rig.settings import RigSettings, ValveSettings

MIN_LATENESS = 1e-4
"""s: less is not stated."""


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
    dt = found[0].experiment.dt
    rig = found[0].experiment.rig
    channels = {name for each in found for name in each.experiment.measured_channels()}
    common = uniform(max(sensor_delay_tolerances(rig, channels, dt)[0], MIN_LATENESS))
    excess, weights = [], []
    for each in states_one:
        delay = identified_delay(each)
        excess.append(delay.value - each.experiment.settings.delay)
        valve = uniform(delay_tolerance(rig, "valves", each.experiment.valve, VALVE_DELAY * dt))
        weights.append(1.0 / (valve**2 + delay.variance_without(unseen_delay(dt))))
    precision = common**-2 + sum(weights)
    later = sum(w * e for w, e in zip(weights, excess, strict=True)) / precision
    later = max(later, -min(_channel_delays(found), default=0.0))
    later = min(later, max(min(identified_delay(each).value for each in found), 0.0))
    if abs(later) < MIN_LATENESS:
        later = 0.0
    return [replace(each, lateness=Estimate(later, sqrt(1.0 / precision))) for each in found]


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
    for actuator in settings.actuators().values():
        if ports & {actuator.port_A, actuator.port_B}:
            ports |= {port for port in (actuator.port_A, actuator.port_B) if port is not None}
            yield actuator.motion
    yield from (valve.supply, valve.tank, valve.flow, valve.spool, *(settings.ports[port] for port in ports))


def _channel_delays(results: Sequence[Identified]) -> list[float]:
    """Delays of the channels on which the results depend: the stated one, and what a sensor has beside the others."""
    channels = results[0].experiment.rig.settings.channels
    unknown = {name for each in results for name in each.experiment.sensors_of_unknown_delay()}
    names = {name for each in results for name in each.experiment.measured_channels()} - unknown
    return [channels[name].delay + own_delay(results, name).value for name in names]
