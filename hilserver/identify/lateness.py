r"""Delays that no recording tells apart: of a valve, and one that all sensors have in common.

A recording shows their sum. Where rig file and recording differ by :math:`e_i` at valve i, either is possible, each
within its usual tolerance: the sensors are later by c in common (standard deviation :math:`\sigma_c`), or the valve is
later (:math:`\sigma_v`; :math:`s_i` is the deviation of the fit itself). What is most probable is

.. math:: c = \frac{\sum_i w_i e_i}{1/\sigma_c^2 + \sum_i w_i}, \qquad w_i = \frac{1}{\sigma_v^2 + s_i^2}

with the variance :math:`1/(1/\sigma_c^2 + \sum_i w_i)`. Source: Gelman et al., Bayesian Data Analysis, 3rd ed. 2013,
ch. 2.5 (normal data with a normal prior).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import sqrt

from hilserver.identify.findings import delay_and_deviation
from hilserver.identify.identification import Identified, Lateness
from hilserver.identify.influences import COMMON_DELAY, VALVE_DELAY, uniform, unseen_delay

MIN_LATENESS = 1e-4
"""s: less is not stated."""


def with_lateness(results: Sequence[Identified]) -> list[Identified]:
    """The same valves with what they say together of the delay that their sensors have in common.

    Unchanged where the delays of the sensors are known, and for valves without a stated delay, or with a sensor of the
    spool, which separates the two.
    """
    found = list(results)
    states_one = [
        each for each in found if "delay" in each.experiment.settings.model_fields_set and each.experiment.spool is None
    ]
    if not states_one or found[0].experiment.recording.delays_known:
        return found
    dt = found[0].experiment.dt
    common, valve = uniform(COMMON_DELAY * dt), uniform(VALVE_DELAY * dt)
    excess, weights = [], []
    for each in states_one:
        delay, deviation = delay_and_deviation(each)
        own = max(deviation**2 - unseen_delay(dt) ** 2, 0.0)
        excess.append(delay - each.experiment.settings.delay)
        weights.append(1.0 / (valve**2 + own))
    precision = common**-2 + sum(weights)
    later = sum(w * e for w, e in zip(weights, excess, strict=True)) / precision
    later = max(later, -_least(_channel_delays(found)))
    later = min(later, _least(delay_and_deviation(each)[0] for each in found))
    if abs(later) < MIN_LATENESS:
        later = 0.0
    return [replace(each, lateness=Lateness(later, sqrt(1.0 / precision))) for each in found]


def _least(delays: Iterable[float]) -> float:
    return max(min(delays, default=0.0), 0.0)


def _channel_delays(results: Sequence[Identified]) -> list[float]:
    """Stated delays of the channels on which the results depend."""
    channels = results[0].experiment.rig.settings.channels
    return [channels[name].delay for each in results for name in each.experiment.measured_channels()]
