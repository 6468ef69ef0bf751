"""The simulated plant: a packed circuit that is measured by sensors and driven by actuators.

Linked and compiled with the engine; the memory of a plant is its arrays (built by :mod:`hilserver.rig.simulated`).
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np

from hilserver.circuit.engine import N_STATES, N_VALUES, SUBSTEPS
from hilserver.circuit.integrators import advance
from hilserver.numerics.arrays import Floats, Indices, Integers, Matrix
from hilserver.numerics.shape import clip
from hilserver.tick.plant_records import actuators_on, sensors_on

SAME = 1e-9
"""A part of a tick that is longer than a whole number of sub-steps by at most this many of them is not longer."""


class PlantArrays(NamedTuple):
    """A packed plant.

    ``sensor`` and ``actuator`` hold the cells of their records (:mod:`hilserver.tick.plant_records`); ``within`` holds
    what the sensors measure that are late by a part of a tick, as it was at that time, ``line`` each sensor's last
    readings (its delay line), ``taken`` the number of samples so far, and ``under_way`` each actuator's last commands,
    the newest first. ``val`` drifts from ``first`` to ``last`` within ``over`` s (one value), if these are not empty.
    """

    ix: Indices
    val: Floats
    first: Floats
    last: Floats
    over: Floats
    values: Floats
    work: Floats
    sensor: Floats
    actuator: Floats
    within: Floats
    line: Matrix
    noise: Floats
    taken: Integers
    under_way: Matrix


def sample(plant: PlantArrays, raw: Floats) -> None:
    """The sensors' present raw readings: scaled, with noise, quantised, limited to their range, delayed.

    For the part of a delay that is not a whole number of ticks, the value was taken within the last tick (`move`).
    """
    if plant.taken[0] == 0:
        begin(plant)
    k, depth, sensors = plant.taken[0], plant.line.shape[1], sensors_on(plant.sensor)
    for i in range(sensors.shape[0]):
        s = sensors[i]
        measured = plant.within[i] if s.fraction > 0.0 and k > 0 else plant.values[s.source]
        r = s.raw_zero + s.gain * measured
        r += s.noise * plant.noise[(k * 31 + i * 7919) % plant.noise.shape[0]]
        if s.quantum > 0.0:
            r = np.floor(r / s.quantum + 0.5) * s.quantum
        r = clip(r, s.raw_low, s.raw_high)
        if k == 0:
            for j in range(depth):
                plant.line[i, j] = r
        plant.line[i, k % depth] = r
        raw[i] = plant.line[i, (k + depth - s.delay) % depth]
    plant.taken[0] = k + 1


def begin(plant: PlantArrays) -> None:
    """Calculate what follows from the initial states: signals and flows that sensors may measure before any step."""
    command_actuators(plant, 0.0)
    n = int(plant.ix[N_VALUES])
    advance(plant.ix, plant.val, plant.values[:n], plant.values[n:], plant.work, 0, 0.0)


def watch_commands(plant: PlantArrays, commands: Floats, ticks: int) -> None:
    """The device's watchdog: its safe values in place of commands that are as old as this."""
    actuators = actuators_on(plant.actuator)
    for i in range(actuators.shape[0]):
        if ticks > actuators[i].watchdog:
            commands[i] = actuators[i].safe


def move(plant: PlantArrays, commands: Floats, dt: float) -> None:
    """Advance the plant by one tick with these raw commands.

    A command that takes effect within the tick divides it: the integration begins anew there. So does a sensor that is
    late by a part of a tick. (Interpolated between ticks, it would see a fast sine too small, at 80 Hz and 1 kHz by
    3 %, as if the valve were slower.)
    """
    if plant.last.shape[0] > 0:
        time = plant.values[plant.ix[N_STATES]]  # the circuit's time follows its states
        drift(plant.val, plant.first, plant.last, time / plant.over[0])
    actuators = actuators_on(plant.actuator)
    for i in range(actuators.shape[0]):
        for j in range(plant.under_way.shape[1] - 1, 0, -1):
            plant.under_way[i, j] = plant.under_way[i, j - 1]
        plant.under_way[i, 0] = commands[i]
    n, substeps, at = int(plant.ix[N_VALUES]), int(plant.ix[SUBSTEPS]), 0.0
    while at < 1.0:
        until = min(command_actuators(plant, at), next_reading(plant, at))
        share = until - at
        steps = max(ceil(share * substeps - SAME), 1)
        advance(plant.ix, plant.val, plant.values[:n], plant.values[n:], plant.work, steps, share * dt / steps)
        at = until
        take_readings(plant, at)


def drift(val: Floats, first: Floats, last: Floats, share: float) -> None:
    """Set the numbers of a circuit to those at ``share`` of the way from the first to the last ones."""
    way = clip(share, 0.0, 1.0)
    for k in range(last.shape[0]):
        if last[k] != first[k]:  # others may be infinite
            val[k] = first[k] + way * (last[k] - first[k])


def next_reading(plant: PlantArrays, at: float) -> float:
    """When the next sensor is read after ``at``, as a fraction of the tick; 1 if none is within it."""
    sensors, until = sensors_on(plant.sensor), 1.0
    for i in range(sensors.shape[0]):
        if sensors[i].fraction > 0.0 and at < 1.0 - sensors[i].fraction < until:
            until = 1.0 - sensors[i].fraction
    return until


def take_readings(plant: PlantArrays, at: float) -> None:
    """Note what the sensors measure that are read at ``at``."""
    sensors = sensors_on(plant.sensor)
    for i in range(sensors.shape[0]):
        if sensors[i].fraction > 0.0 and at == 1.0 - sensors[i].fraction:
            plant.within[i] = plant.values[sensors[i].source]


def command_actuators(plant: PlantArrays, at: float) -> float:
    """Set the commands that have arrived at ``at``, a fraction of the tick; returns when the next one does, or 1."""
    actuators, until = actuators_on(plant.actuator), 1.0
    for i in range(actuators.shape[0]):
        a = actuators[i]
        late = a.delay
        if a.fraction > at:
            late, until = late + 1, min(until, a.fraction)
        plant.values[a.target] = clip(a.value_zero + a.gain * plant.under_way[i, late], -1.0, 1.0)
    return until
