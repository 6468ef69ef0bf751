r"""Zero errors of pressure sensors, from recordings of a piston at the ends of its stroke.

With the valve open and the piston at rest, hardly any oil flows: the port has the pressure of the line to which it is
connected, supply or tank. Two sensors then measure the same pressure p, and differ by their errors of zero and gain

.. math:: p_{port} - p_{line} = z_{port} - z_{line} + (g_{port} - g_{line})\,p \mp \Delta p

and by the drop at which the valve, open by u less its overlap o, passes the leakage past the piston

.. math:: Q = C\,(u - o)\,f(\Delta p)

with the orifice law f. Q and o follow from different openings. The errors of the sensors have their usual tolerances as
prior knowledge, so that the estimate is their conditional mean: what all sensors have in common is not visible, and
counts by its probability. Source: Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, ch. 14.8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from hilserver.identify.estimate import Estimate
from hilserver.identify.influences import ACCURACY, PISTON_LEAKAGE, uniform, zero_tolerance
from hilserver.identify.recorded import Recording
from hilserver.numerics.arrays import Floats
from hilserver.numerics.flow_of_arrays import drop_of_law
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.rig import Rig
from hilserver.rig.settings import ValveSettings
from hilserver.units import shown_value

WINDOW = 0.1
"""s over which means are taken; one such window at rest before it is required for the pressures to settle."""
OPEN = 0.15
"""Opening of a valve beyond which it counts as open (overlap, null and hysteresis are smaller)."""
MOVING = 0.05e5
"""Pa: pressure drop over the valve by the piston's speed above which the piston moves."""
SETTLED = 0.2e5
"""Pa: change of the port's pressure from one window to the next below which it is at rest."""
MODEL = 0.03e5
"""Pa: standard deviation of a difference of two mean pressures beside that by noise."""
SHARE = 0.5
"""Smallest part of a recording that is evaluated alone, if the piston is not at its ends before."""
OVERLAP = 0.02
"""Standard deviation of the stated overlap."""
IMPLAUSIBLE = 4.0
"""Standard deviations by which a difference is no error of sensors and no leakage: something blocks the line."""


@dataclass(frozen=True)
class PortAtRest:
    """A port connected with a line, both pressures at rest, over a window of time.

    ``tick`` at which it begins; ``port``, ``line``: their channels; ``valve``, and its ``opening``, positive from the
    supply; ``difference``: mean pressure of the port less that of the line, Pa; ``pressure``: mean of the line, Pa.
    """

    tick: int
    valve: str
    port: str
    line: str
    opening: float
    difference: float
    pressure: float


def without_zero_errors(rig: Rig, recording: Recording) -> Recording:
    """The recording less the zero errors that it shows itself, which it then has as ``zeros``; ``notes`` about them.

    If the piston comes to an end of its stroke in the second half only, as at the end of an excitation,
    this is the part before: ends and slow movements tell nothing else of the valve.
    """
    found = connections(rig, recording)
    blocked = implausible(rig, found)
    zeros = zero_errors(rig, [c for c in found if c not in blocked])
    channels = dict(recording.channels)
    for name, zero in zeros.items():
        channels[name] = channels[name] - zero.value
    corrected = replace(recording, channels=channels, zeros=zeros, notes=tuple(_notes(rig, found, blocked)))
    first = min((c.tick for c in found), default=0)
    return corrected.until(first) if first >= SHARE * len(recording.known) else corrected


def _notes(rig: Rig, found: Sequence[PortAtRest], blocked: Sequence[PortAtRest]) -> Iterator[str]:
    if not found and any(cylinder.position is not None for cylinder in rig.settings.cylinders.values()):
        yield (
            "The zeros of the pressure sensors are not known: the piston was not at rest at the ends of its stroke "
            f"with a valve open by {OPEN:.0%} or more (option --end-stops). Zero them with the lines depressurised "
            "(hilserver calibrate --tare)."
        )
    for port, line in dict.fromkeys((c.port, c.line) for c in blocked):
        most = max((c.difference for c in blocked if (c.port, c.line) == (port, line)), key=abs)
        yield (
            f"At the end of the stroke, with the valve open, {port} differed from {line} by "
            f"{shown_value(most, 'Pa', 3)}, more than sensor errors can explain: is a line blocked, or a sensor faulty?"
        )


def connections(rig: Rig, recording: Recording) -> list[PortAtRest]:
    """All windows of a recording in which a port is connected with a line and nothing moves."""
    found: list[PortAtRest] = []
    for name, valve in rig.settings.valves.items():
        for port, turn in ((valve.port, 1.0), (valve.other_port, -1.0)):
            cylinder = next((c for c in rig.settings.cylinders.values() if port in (c.port_A, c.port_B)), None)
            if port is not None and cylinder is not None and cylinder.position is not None:
                pressure = rig.settings.ports[port]
                found += _at_rest(recording, name, valve, turn * recording.commands[name], pressure, cylinder)
    return found


def _at_rest(
    recording: Recording, name: str, valve: ValveSettings, opening: Floats, pressure: str, cylinder: CylinderSettings
) -> Iterator[PortAtRest]:
    """The windows in which one port of a valve, which is open by ``opening``, is at rest with one of its lines."""

    def means(signal: Floats) -> Floats:
        return np.asarray(_windows(signal, recording.dt).mean(axis=1))

    u, x, p = means(opening), means(recording.channels[str(cylinder.position)]), means(recording.channels[pressure])
    lines = {name: means(recording.channels[name]) for name in (valve.supply, valve.tank)}
    held = np.ptp(_windows(opening, recording.dt), axis=1) == 0.0
    steady = held & (np.abs(u) > OPEN) & _windows(recording.known, recording.dt).all(axis=1)
    flow = max(cylinder.areas()) * np.abs(np.diff(x, prepend=np.nan)) / WINDOW
    drop = (flow / (valve.nominal_flow.coefficient() * np.maximum(np.abs(u), OPEN))) ** 2
    still = (drop < MOVING) & (np.abs(np.diff(p, prepend=np.nan)) < SETTLED)
    for k in np.flatnonzero(steady & still & np.roll(steady, 1)).tolist():
        line = valve.supply if u[k] > 0.0 else valve.tank
        now = float(lines[line][k])
        yield PortAtRest(k * _ticks(recording.dt), name, pressure, line, float(u[k]), float(p[k]) - now, now)


def _windows(signal: NDArray[Any], dt: float) -> NDArray[Any]:
    """[windows, ticks]"""
    ticks = _ticks(dt)
    return signal[: len(signal) // ticks * ticks].reshape(-1, ticks)


def _ticks(dt: float) -> int:
    return max(round(WINDOW / dt), 1)


def zero_errors(rig: Rig, found: Sequence[PortAtRest]) -> dict[str, Estimate]:
    """The zero errors of the channels that were connected, SI; those with a fixed value have none.

    Unknown are zero and gain of each sensor, and of each connection the leakage and the overlap of its edge.
    """
    if not found:
        return {}
    names = dict.fromkeys(name for c in found for name in (c.port, c.line))
    sensors = [name for name in names if rig.settings.channels[name].is_measured]
    pairs = list(dict.fromkeys((c.port, c.line) for c in found))
    zeros = [_tolerance(rig, name) for name in sensors]
    leaks = [_leakage(rig, next(c for c in found if (c.port, c.line) == pair)) for pair in pairs]
    curves = {name: valve.curve() for name, valve in rig.settings.valves.items()}
    overlaps = [curves[next(c.valve for c in found if (c.port, c.line) == pair)].overlap for pair in pairs]
    known = np.array([*zeros, *[uniform(ACCURACY)] * len(sensors), *leaks, *[OVERLAP] * len(pairs)])
    errors = np.zeros((len(found), 2 * len(sensors)))
    for row, c in zip(errors, found, strict=True):
        for name, sign in ((c.port, 1.0), (c.line, -1.0)):
            if name in sensors:
                row[sensors.index(name)] += sign
                row[len(sensors) + sensors.index(name)] += sign * c.pressure
    number = np.array([pairs.index((c.port, c.line)) for c in found], dtype=np.int64)
    u = np.array([float(curves[c.valve].linear_opening(c.opening)) for c in found])
    transition = np.array([rig.settings.valves[c.valve].transition_pressure for c in found])
    measured = np.array([c.difference for c in found])

    def residuals(scaled: Floats) -> Floats:
        z, leakage, overlap = np.split(scaled * known, [2 * len(sensors), 2 * len(sensors) + len(pairs)])
        opened = np.maximum(np.abs(u) - np.maximum(overlap + overlaps, 0.0)[number], 0.5 * OPEN)
        drop = np.sign(u) * drop_of_law(np.abs(leakage)[number] / opened, transition)
        return np.concatenate([(measured - errors @ z + drop) / MODEL, scaled])

    start = np.concatenate([np.zeros(2 * len(sensors)), np.full(len(pairs), 0.5), np.zeros(len(pairs))])
    solved = least_squares(residuals, start)
    deviations = known * np.sqrt(np.diag(np.linalg.inv(solved.jac.T @ solved.jac)))
    return {n: Estimate(float(known[k] * solved.x[k]), float(deviations[k])) for k, n in enumerate(sensors)}


def implausible(rig: Rig, found: Sequence[PortAtRest]) -> list[PortAtRest]:
    """Connections whose pressures differ by more than errors of sensors and leakage: something blocks a line."""
    return [c for c in found if abs(c.difference) > _largest_difference(rig, c)]


def _largest_difference(rig: Rig, c: PortAtRest) -> float:
    transition = rig.settings.valves[c.valve].transition_pressure
    drop = drop_of_law(np.array(IMPLAUSIBLE * _leakage(rig, c) / abs(c.opening)), np.array(transition))
    return float(drop) + IMPLAUSIBLE * hypot(MODEL, _tolerance(rig, c.port), _tolerance(rig, c.line))


def _leakage(rig: Rig, c: PortAtRest) -> float:
    """Standard deviation of the leakage past the piston over the flow coefficient of the open edge, sqrt(Pa)."""
    valve = rig.settings.valves[c.valve]
    supply = rig.settings.channels[valve.supply]
    highest = max(supply.measuring_range() or (0.0, 0.0)) if supply.is_measured else supply.fixed()
    return uniform(PISTON_LEAKAGE) * highest / valve.nominal_flow.coefficient()


def _tolerance(rig: Rig, channel: str) -> float:
    """Standard deviation of the zero of a sensor, Pa."""
    return uniform(zero_tolerance(rig, channel)) if rig.settings.channels[channel].is_measured else 0.0
