"""The tick without a clock: many ticks in one call, as fast as possible, deterministic."""

from __future__ import annotations

from hilserver.bridge.columns import BLOCK, OUTPUT
from hilserver.circuit.engine import N_VALUES, advance
from hilserver.numerics.arrays import Floats, Integers
from hilserver.realtime.tick import tick
from hilserver.rig.columns import AGE, COMMAND_WIDTH, DT, RAW, TICK, VALVE
from hilserver.rig.plan import Plan
from hilserver.rig.plant import PlantArrays, move, sample


def run_bridged(
    plan: Plan, ix: Integers, val: Floats, row: Floats, work: Floats, command: Floats, plant: PlantArrays, raw: Floats, rows: Floats
) -> None:
    """Run the bridge against a simulated plant for ``len(rows)`` ticks; each tick's row is kept in ``rows``.

    ``command`` is taken in the first tick. ``raw`` is scratch: room for the plant's sensors and actuators.
    """
    n, m = plant.sensor.shape[0], plant.actuator.shape[0]
    for k in range(rows.shape[0]):
        row[TICK] += 1.0
        sample(plant, raw)
        for i in range(n):
            row[plan.layout[RAW] + i] = raw[i]
            row[plan.layout[AGE] + i] = 0.0
        tick(plan, ix, val, row, work, command)
        for i in range(COMMAND_WIDTH):
            command[i] = 0.0
        for i in range(m):
            raw[n + i] = row[plan.layout[VALVE] + i * BLOCK + OUTPUT]
        move(plant, raw[n:], plan.loop[DT])
        for j in range(row.shape[0]):
            rows[k, j] = row[j]


def run_recorded(
    plan: Plan, ix: Integers, val: Floats, row: Floats, work: Floats, command: Floats, inputs: Integers, given: Floats, rows: Floats
) -> None:
    """Run the tick over recorded inputs: ``given[k, j]`` goes into column ``inputs[j]`` of tick k; each row is kept in ``rows``.

    ``command`` is taken in the first tick.
    """
    for k in range(rows.shape[0]):
        for j in range(inputs.shape[0]):
            row[inputs[j]] = given[k, j]
        tick(plan, ix, val, row, work, command)
        for i in range(COMMAND_WIDTH):
            command[i] = 0.0
        for j in range(row.shape[0]):
            rows[k, j] = row[j]


def run_free(
    ix: Integers, val: Floats, values: Floats, work: Floats, driven: Integers, given: Floats, steps: int, h: float, rows: Floats
) -> None:
    """Run a circuit by itself: ``given[k, j]`` goes into value ``driven[j]``, then ``steps`` steps of ``h``; all values in ``rows[k]``."""
    n = ix[N_VALUES]
    for k in range(rows.shape[0]):
        for j in range(driven.shape[0]):
            values[driven[j]] = given[k, j]
        advance(ix, val, values[:n], values[n:], work, steps, h)
        for j in range(values.shape[0]):
            rows[k, j] = values[j]
