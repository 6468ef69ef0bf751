"""The simulated plant: a packed circuit that is measured by sensors and driven by actuators.

Linked and compiled with the engine; the memory of a plant is its arrays (built by :mod:`hilserver.rig.simulated`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hilserver.circuit.engine import N_VALUES, SUBSTEPS, advance
from hilserver.numerics.arrays import Floats, Indices, Integers, Matrix
from hilserver.numerics.shape import clip

# columns of PlantArrays.sensor and .actuator
SOURCE, TO_RAW, RAW_ZERO, NOISE, QUANTUM, SENSOR_DELAY, RAW_LOW, RAW_HIGH = range(8)
TARGET, FROM_RAW, VALUE_ZERO, SAFE_RAW, TICKS_LATE = range(5)


class PlantArrays(NamedTuple):
    """A packed plant.

    ``line`` holds each sensor's last readings (its delay line), ``taken`` the number of samples so far, and
    ``under_way`` each actuator's last commands, the newest first.
    """

    ix: Indices
    val: Floats
    values: Floats
    work: Floats
    sensor: Matrix
    actuator: Matrix
    line: Matrix
    noise: Floats
    taken: Integers
    under_way: Matrix


def sample(plant: PlantArrays, raw: Floats) -> None:
    """The sensors' present raw readings: scaled, with noise, quantised, limited to their range, delayed."""
    k, depth = plant.taken[0], plant.line.shape[1]
    for i in range(plant.sensor.shape[0]):
        s = plant.sensor[i]
        r = s[RAW_ZERO] + s[TO_RAW] * plant.values[int(s[SOURCE])]
        r += s[NOISE] * plant.noise[(k * 31 + i * 7919) % plant.noise.shape[0]]
        if s[QUANTUM] > 0.0:
            r = np.floor(r / s[QUANTUM] + 0.5) * s[QUANTUM]
        r = clip(r, s[RAW_LOW], s[RAW_HIGH])
        if k == 0:
            for j in range(depth):
                plant.line[i, j] = r
        plant.line[i, k % depth] = r
        raw[i] = plant.line[i, (k + depth - int(s[SENSOR_DELAY])) % depth]
    plant.taken[0] = k + 1


def move(plant: PlantArrays, commands: Floats, dt: float) -> None:
    """Advance the plant by one tick with these raw commands."""
    for i in range(plant.actuator.shape[0]):
        a = plant.actuator[i]
        late = int(a[TICKS_LATE])
        for j in range(late, 0, -1):
            plant.under_way[i, j] = plant.under_way[i, j - 1]
        plant.under_way[i, 0] = commands[i]
        plant.values[int(a[TARGET])] = clip(a[VALUE_ZERO] + a[FROM_RAW] * plant.under_way[i, late], -1.0, 1.0)
    n, substeps = int(plant.ix[N_VALUES]), int(plant.ix[SUBSTEPS])
    advance(plant.ix, plant.val, plant.values[:n], plant.values[n:], plant.work, substeps, dt / substeps)
