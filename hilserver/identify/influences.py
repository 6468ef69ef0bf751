r"""Influence quantities: quantities that a recording does not show, but on which the identified values depend.

Every sensor is allowed an error of its zero and gain, and a delay in addition to the stated one; the oil between valve
and piston is allowed air, a hose, another dead volume and a restriction. They are parameters of the fit with prior
knowledge: each has the mean 0 and the standard deviation of its usual tolerance (type B evaluation), so that they
increase the standard deviations of all values by the part that can't be distinguished, and no more. A tolerance
:math:`\pm a` without further knowledge is a uniform distribution of the standard deviation :math:`a/\sqrt{3}`.
Sources: JCGM 100:2008 (GUM), 4.3.7 and F.2; Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, ch. 14.8 (prior
information as additional data).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import hypot, inf, log10, sqrt

import numpy as np

from hilserver.identify.parameters import Parameter, Values
from hilserver.identify.recorded import Recording
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.tolerances import Tolerance
from hilserver.units import BAR, L_MIN

USUAL_RANGE = 250.0 * BAR
"""Pa: range of a pressure sensor that does not state it."""
ACCURACY = 0.0025
"""Tolerance of zero and gain of a sensor, as a fraction of its range: accuracy class 0.25 %."""
FILTER_DELAY, SAMPLING, OWN_DELAY = 1e-3, 1.0, 1.0
"""Tolerance of the stated delays: common to all sensors, s of their filters and ticks of sampling; of each, ticks.

A fit has the delays relative to the sensor that shows the flow (position, flow or spool): a recording whose sensors
are all later is that of a later valve, so that the model's errors would decide between them.
"""
VALVE_DELAY = 0.5
"""By how much a valve is later than stated in the mean (electronics, oil temperature), per tolerance of the sensors."""
RESTRICTION = 8e5
"""Pa at ROD_SPEED: tolerance of the drop between port and chamber (fittings and drilled ports)."""
ROD_SPEED = 0.2
"""m/s."""
USUAL_TRANSITION, TRANSITION, TRANSITIONS = 1e4, 1.0, (2.0, 6.0)
"""Drop below which it is laminar, Pa, where the rig file does not state it: 0.01 bar (holes with a sharp edge) to 1 bar
(hoses, long passages); tolerance of its common logarithm, and the bounds of this, unless a value beyond them is stated.
"""
LAMINAR = "laminar edges"
"""The parameter: common logarithm of the drop below which the flow over the valve's edges is laminar, Pa. Tolerance:
TRANSITION, by the viscosity of cold and hot oil, of which it is the square.
"""
OTHER_EDGES = ("edge to the other port", "edge from the other port")
"""The parameters: how much more flow these edges pass than those of the port, as fractions."""
EDGES = 0.1
"""Tolerance of these: ±5 % for each edge (symmetry of the flow in datasheets)."""
MORE_THAN_NOISE = 3.0
"""Change of a pressure that 5 % of the ticks exceed, as a multiple of the standard deviation of that of its noise, from
which the recording shows its delay: 1.96 by noise alone.
"""
ELASTICITY, DEAD_VOLUME = 0.3, 0.25
"""Tolerance of the compliance of the oil, and of the dead volume, as fractions of the stated ones."""
HOSE, AIR, LINE = 1.0, 0.02, 0.3
"""Tolerances: share of the dead volume that lies in a hose; volume of free air at atmospheric pressure; share of the
dead volume in pipes before the restriction, beside the stated one.
"""
SPOOL = 0.3
"""Tolerance of the stated frequency and damping of a spool, as a fraction: amplitude, pressure, temperature."""
PISTON_LEAKAGE = 0.02 * L_MIN / BAR
"""m³/s/Pa: tolerance of the leakage past a piston, 0.02 l/min/bar (worn seals)."""
SMOOTH_PRESSURE = 0.003
"""s over which a pressure is smoothed to identify errors of its sensor and the elasticity of the oil.

As short as noise allows: at 1 kHz it passes 94 % of 80 Hz (8 ms: 65 %). What it lacks of the flow into a hose appears
as a slower valve.
"""
SMOOTHED_AGAIN = 2
"""How often what it lacks is added: 99.9 % of 100 Hz and 96 % of 200 Hz then pass."""
TAPS, KAISER = 16, 6.0
"""Half the length, in ticks, and the shape of the window of the filter that shifts a signal by a part of a tick."""


def uniform(tolerance: float) -> float:
    """Standard deviation of a quantity that is known within ± this tolerance."""
    return tolerance / sqrt(3.0)


def influence(tolerance: float, size: float | None = None) -> Parameter:
    """A parameter that is 0 within this tolerance."""
    deviation = uniform(tolerance)
    return Parameter(0.0, -10.0 * tolerance, 10.0 * tolerance, size or deviation, inf, deviation)


def transition_influence(stated: float) -> Parameter:
    """The common logarithm of a drop below which a flow is laminar, Pa; ``stated``: this drop by the rig file."""
    logarithm = log10(stated)
    lower, upper = min(TRANSITIONS[0], logarithm), max(TRANSITIONS[1], logarithm)
    return Parameter(logarithm, lower, upper, 0.3, inf, uniform(TRANSITION))


def edge_influences(transition_pressure: float, other_port: bool) -> dict[str, Parameter]:
    """What the rig file hardly knows of a valve's edges; ``other_port``: there are those of another port, too."""
    return {
        LAMINAR: transition_influence(transition_pressure),
        **({name: influence(EDGES) for name in OTHER_EDGES} if other_port else {}),
    }


def sensor_influences(rig: Rig, recording: Recording, pressures: Iterable[str]) -> dict[str, Parameter]:
    """Errors of the pressure sensors with which the flow of a valve is known: zero, gain and delay. SI.

    What the recording has shown of a zero error is known that well, and no longer in the recording.
    """
    found: dict[str, Parameter] = {}
    for name in dict.fromkeys(pressures):
        if not rig.settings.channels[name].is_measured:
            continue
        zero = influence(zero_tolerance(rig, name))
        if name in recording.zeros:
            zero = replace(zero, prior=recording.zeros[name].deviation)
        found[f"zero {name}"] = zero
        found[f"gain {name}"] = influence(ACCURACY)
        found[f"delay {name}"] = replace(relative_delay(recording.dt), slope=f"more delay {name}")
    return found


def shows_delay(recording: Recording, name: str) -> bool:
    """Whether a channel changes by more than its noise: a delay of noise would be found where it fits by chance."""
    change = np.gradient(smoothed(recording.channels[name], round(SMOOTH_PRESSURE / recording.dt)))
    noise = recording.noise.get(name)
    by_noise = noise.value * change_of_noise(round(SMOOTH_PRESSURE / recording.dt)) if noise is not None else 0.0
    return float(np.quantile(np.abs(change[recording.known]), 0.95)) > MORE_THAN_NOISE * by_noise


def change_of_noise(ticks: int) -> float:
    """Standard deviation of the change per tick of white noise of standard deviation 1 that is `smoothed`.

    >>> round(change_of_noise(3), 3)
    0.578
    """
    frequency: Floats = (np.arange(512, dtype=np.float64) + 0.5) / 1024.0
    return float(np.sqrt(np.mean((response(ticks, frequency) * np.sin(2.0 * np.pi * frequency)) ** 2)))


def relative_delay(dt: float) -> Parameter:
    """Delay of a sensor beside the stated one, against that of another sensor, s."""
    return influence(sqrt(2.0) * OWN_DELAY * dt)


def unseen_delay(dt: float) -> float:
    """Standard deviation of the delay of the sensor that shows the flow, s: in no recording is it seen."""
    return uniform(hypot(common_delay(dt), OWN_DELAY * dt))


def common_delay(dt: float) -> float:
    """Tolerance of the delay that all sensors have in common, s.

    >>> common_delay(1e-3), common_delay(2.5e-4)
    (0.002, 0.00125)
    """
    return FILTER_DELAY + SAMPLING * dt


def valve_delay(dt: float) -> float:
    """By how much a valve is later than stated in the mean, s."""
    return VALVE_DELAY * common_delay(dt)


def stated_delay_tolerance(rig: Rig, table: str, name: str) -> float | None:
    """Tolerance of the delay of a channel or valve that the rig file states beside it, s; None if it states none."""
    tolerance: Tolerance | None = getattr(rig.sources["rig"][table][name].get("delay"), "tolerance", None)
    if tolerance is None:
        return None
    return max(tolerance.upper - tolerance.value, tolerance.value - tolerance.lower)


def own_delay_tolerance(rig: Rig, channels: Iterable[str], dt: float) -> float:
    """Tolerance of the delay of each of these sensors, s: the usual one, or the smallest stated one if smaller."""
    stated = (stated_delay_tolerance(rig, "channels", name) for name in channels)
    return min([OWN_DELAY * dt, *(each for each in stated if each is not None)])


def zero_tolerance(rig: Rig, channel: str) -> float:
    """Tolerance of the zero of a pressure sensor, Pa."""
    return ACCURACY * (rig.settings.channels[channel].span() or USUAL_RANGE)


class CorrectedChannels:
    """The channels of a recording, less errors of their sensors.

    Errors act on a smoothed signal: else the noise of a sensor would be taken for the effect of its error. A delay
    shifts the signal with its noise, whose strength stays; what is added to it in a fit (``more delay``) shifts the
    smoothed one, to first order.
    """

    def __init__(self, recording: Recording, pressures: Iterable[str]) -> None:
        self._recording, ticks = recording, round(SMOOTH_PRESSURE / recording.dt)
        self._smooth = {name: smoothed(recording.channels[name], ticks) for name in pressures}
        self._shifted = functools.lru_cache(maxsize=2 * len(self._smooth))(self._shifted_now)
        self._less = functools.lru_cache(maxsize=4 * len(self._smooth))(self._less_now)

    def less(self, errors: Values) -> Mapping[str, Floats]:
        """The channels without these errors (``zero``, ``gain``, ``delay`` and ``more delay`` of a channel).

        Of one with the same errors as before, the same array.
        """
        found = dict(self._recording.channels)
        for name in self._smooth:
            words = ("zero", "gain", "delay", "more delay")
            zero, gain, late, more = (errors.get(f"{word} {name}", 0.0) for word in words)
            if zero == gain == late == more == 0.0:
                continue
            found[name] = self._less(name, zero, gain, late, more)
        return found

    def _less_now(self, name: str, zero: float, gain: float, late: float, more: float) -> Floats:
        """A channel without these errors."""
        signal, smooth, slope = self._shifted(name, late)
        return np.asarray(signal + more / self._recording.dt * slope - zero - gain * smooth)

    def _shifted_now(self, name: str, late: float) -> tuple[Floats, Floats, Floats]:
        """A channel, and its smoothed signal with the change of this per tick, ``late`` s later."""
        signal, smooth = self._recording.channels[name], self._smooth[name]
        if late != 0.0:
            signal, smooth = (ahead(s, late / self._recording.dt) for s in (signal, smooth))
        return signal, smooth, np.gradient(smooth)


def ahead(signal: Floats, ticks: float) -> Floats:
    """The signal this number of ticks later, at each tick, by a windowed sinc.

    >>> ahead(np.array([0.0, 1.0, 2.0, 3.0]), 1.0).round(9)
    array([1., 2., 3., 3.])
    """
    whole = round(ticks)
    places = np.arange(-TAPS, TAPS + 1)
    taps = np.sinc(places + ticks - whole) * np.kaiser(len(places), KAISER)
    padded = np.pad(signal, TAPS + abs(whole), mode="edge")[abs(whole) + whole :]
    return np.convolve(padded[: len(signal) + 2 * TAPS], taps / taps.sum(), "valid")


def smoothed(signal: Floats, ticks: int) -> Floats:
    """The mean of a signal, weighted by a Hann window of this number of ticks.

    What it lacks is smoothed, too, and added, SMOOTHED_AGAIN times (twicing: Tukey, Exploratory Data Analysis, 1977,
    ch. 16).
    """
    window = _hann(ticks)
    total, lacking = np.zeros(len(signal)), signal
    for _ in range(1 + SMOOTHED_AGAIN):
        mean = np.convolve(np.pad(lacking, len(window) // 2, mode="edge"), window, "valid")
        total, lacking = total + mean, lacking - mean
    return total


def response(ticks: int, frequency: Floats) -> Floats:
    """The part of a signal that `smoothed` passes, by the frequency in cycles per tick.

    >>> response(3, np.array([0.0, 0.5])).round(3)
    array([1., 0.])
    """
    window = _hann(ticks)
    place = np.arange(len(window)) - len(window) // 2
    lacks = 1.0 - np.cos(2.0 * np.pi * np.outer(frequency, place)) @ window
    return np.asarray(1.0 - lacks ** (1 + SMOOTHED_AGAIN))


def _hann(ticks: int) -> Floats:
    window = np.hanning(2 * (ticks // 2) + 3)[1:-1]
    return np.asarray(window / window.sum())
