"""Design of the excitation: what is least certain after its rounds is excited longest after them.

A design in two stages: the first part of the excitation shows how certain each property becomes per second, the second
one lasts as long as the least certain ones need. A standard deviation decreases with the square root of the time.
Source: G. C. Goodwin, R. L. Payne, Dynamic System Identification: Experiment Design and Data Analysis, 1977, ch. 6.
"""

from __future__ import annotations

from cmath import exp
from collections.abc import Iterable, Mapping
from enum import Enum
from math import inf, pi, sqrt

from hilserver.identify.experiment import NotIdentifiable
from hilserver.identify.identification import Identified, identify_valve
from hilserver.identify.model import delay_of
from hilserver.identify.recorded import Recording
from hilserver.rig.rig import Rig


class RoundPart(Enum):
    """Parts of a round of the excitation."""

    NULL = "staircase through the null region"
    STAIRS = "staircase to the largest command"
    STEPS = "random steps"


WANTED = {
    RoundPart.NULL: {"overlap": 1e-3, "null": 1e-3, "leakage": 2e-3, "hysteresis": 1e-3},
    RoundPart.STAIRS: {"C_PA": 5e-3, "C_AT": 5e-3},
}
"""Standard deviations that are good enough: 1e-3 of the stroke, 0.5 % of the flow, as the fit has its parameters."""
WANTED_RESPONSE = 0.01
"""The same of the spool's frequency response at its -45° frequency: 1 % in amplitude, 0.6° in phase."""
LEAST = 5.0
"""s, the shortest second part."""


def still_needed(rig: Rig, recording: Recording, valves: Iterable[str], most: float) -> dict[RoundPart, float]:
    """For how many s, at most ``most`` together, which parts should be repeated.

    ``recording``: of a round with the largest commands, from which the properties of these valves are estimated. Empty
    if it shows all well enough, or nothing at all: the evaluation of the whole recording will say why.
    """
    needed: dict[RoundPart, float] = {}
    if most < LEAST:
        return needed
    for valve in valves:
        try:
            found = identify_valve(rig, recording, valve)
        except NotIdentifiable:
            continue
        for part, excess in uncertain(found).items():
            more = recording.duration * (excess**2 - 1.0)
            if more > 0.0:
                needed[part] = max(needed.get(part, LEAST), min(more, most))
    together = max(sum(needed.values()) / most, 1.0)
    return {part: seconds / together for part, seconds in needed.items()}


def uncertain(found: Identified) -> Mapping[RoundPart, float]:
    """The largest standard deviation that each part decreases, divided by the one that is good enough."""
    deviations = {part: max(_excess(found, n, w) for n, w in wanted.items()) for part, wanted in WANTED.items()}
    return {**deviations, RoundPart.STEPS: response_deviation(found) / WANTED_RESPONSE}


def _excess(found: Identified, name: str, wanted: float) -> float:
    if name in found.left_out:
        return found.left_out[name] / wanted
    if name not in found.fit.deviations:
        return 0.0  # this recording can't show it: there is neither chamber nor flow sensor
    inseparable = found.fit.parameters[name].inseparable
    return sqrt(found.estimate(name).variance_without(inseparable)) / wanted


def response_deviation(found: Identified) -> float:
    """Relative standard deviation of the spool's response to the command, at the frequency at which it lags 45°.

    Not counted is the delay that all sensors have in common, which no excitation shows. Infinite without a frequency.
    """
    fit = found.fit
    names = [name for name in fit.values if name in ("frequency", "damping", "lag")]
    if "frequency" not in names:
        return inf
    damping = found.values.get("damping", 0.0) if found.second_order else 0.0
    frequency = found.values["frequency"] * (sqrt(damping**2 + 1.0) - damping)
    base, gradient = _response(found.values, frequency), {}
    for name in names:
        step = 1e-3 * fit.values[name]
        gradient[name] = (_response({**found.values, name: fit.values[name] + step}, frequency) / base - 1.0) / step
    parts = ({name: getattr(slope, part) for name, slope in gradient.items()} for part in ("real", "imag"))
    variance = sum(fit.deviation_of(part) ** 2 for part in parts)
    common = abs(gradient["lag"]) * fit.parameters["lag"].inseparable if "lag" in names else 0.0
    return sqrt(max(variance - common**2, 0.0))


def _response(values: Mapping[str, float], frequency: float) -> complex:
    """The spool's response to the command, delay included. A first-order spool has no ``damping``."""
    s = 1j * frequency / values["frequency"]
    spool = s * s + 2.0 * values["damping"] * s + 1.0 if values.get("damping", 0.0) > 0.0 else s + 1.0
    return exp(-2j * pi * frequency * delay_of(values)) / spool
