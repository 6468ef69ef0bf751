"""The simulated plant: a packed circuit that is measured by sensors and driven by actuators.

Linked and compiled with the engine; the memory of a plant is its arrays (built by :mod:`hilserver.rig.simulated`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hilserver.circuit.engine import N_VALUES, SUBSTEPS
from hilserver.circuit.integrators import advance
from hilserver.numerics.arrays import Floats, Indices, Integers, Matrix
from hilserver.numerics.shape import clip
from hilserver.tick.plant_records import actuators_on, sensors_on


class PlantArrays(NamedTuple):
    """A packed plant.

    ``sensor`` and ``actuator`` hold the cells of their records (:mod:`hilserver.tick.plant_records`); ``line`` holds
    each sensor's last readings (its delay line), ``taken`` the number of samples so far, and ``under_way`` each
    actuator's last commands, the newest first.
    """

    ix: Indices
    val: Floats
    values: Floats
    work: Floats
    sensor: Floats
    actuator: Floats
    line: Matrix
    noise: Floats
    taken: Integers
    under_way: Matrix


def sample(plant: PlantArrays, raw: Floats) -> None:
    """The sensors' present raw readings: scaled, with noise, quantised, limited to their range, delayed."""
    k, depth, sensors = plant.taken[0], plant.line.shape[1], sensors_on(plant.sensor)
    for i in range(sensors.shape[0]):
        s = sensors[i]
        r = s.raw_zero + s.gain * plant.values[s.source]
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


def watch_commands(plant: PlantArrays, commands: Floats, ticks: int) -> None:
    """The device's watchdog: its safe values in place of commands that are as old as this."""
    actuators = actuators_on(plant.actuator)
    for i in range(actuators.shape[0]):
        if ticks > actuators[i].watchdog:
            commands[i] = actuators[i].safe


def move(plant: PlantArrays, commands: Floats, dt: float) -> None:
    """Advance the plant by one tick with these raw commands."""
    actuators = actuators_on(plant.actuator)
    for i in range(actuators.shape[0]):
        a = actuators[i]
        for j in range(a.delay, 0, -1):
            plant.under_way[i, j] = plant.under_way[i, j - 1]
        plant.under_way[i, 0] = commands[i]
        plant.values[a.target] = clip(a.value_zero + a.gain * plant.under_way[i, a.delay], -1.0, 1.0)
    n, substeps = int(plant.ix[N_VALUES]), int(plant.ix[SUBSTEPS])
    advance(plant.ix, plant.val, plant.values[:n], plant.values[n:], plant.work, substeps, dt / substeps)
