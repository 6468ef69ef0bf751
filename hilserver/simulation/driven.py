"""Inputs of a work cycle as signals of the circuit itself, evaluated in every stage of the integrator.

In a real tick the loop can only hold its inputs. A run without a clock need not: an input that is held for 1 ms lags
by half of that on average, which is far more than the error of the integrator.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil

import numpy as np

from hilserver.circuit.model import Circuit, Placed
from hilserver.components.table_signal import TableSignal
from hilserver.numerics.arrays import Floats
from hilserver.rig.cycle import CycleInput, CycleSettings
from hilserver.rig.plan import cycle_objects
from hilserver.tick.codes import Shape
from hilserver.tick.work_cycle import cycle_value

PIECES = 2000
"""Number of straight segments that replace a STEP: they deviate by at most 2e-7 of its height
(height·6/T²·(T/PIECES)²/8)."""
PIECES_OF_PERIOD = 1000
"""Number of straight segments that replace a period of a sine: they deviate by at most 5e-6 of its amplitude."""


def is_continuous(entry: CycleInput) -> bool:
    """Whether an input changes continuously between its points; one of the shape ``hold`` is constant there, and
    jumps."""
    return entry.shape != "hold"


def drivers(circuit: Circuit, cycle: CycleSettings) -> Iterator[Placed]:
    """A `TableSignal` for each input of the circuit that the cycle moves continuously."""
    names = {placed.name for placed in circuit.placed}
    for signal in circuit.inputs():
        if signal in cycle.inputs and is_continuous(cycle.inputs[signal]):
            name = f"cycle_{signal}"
            while name in names:
                name += "_"
            times, values = course(cycle, signal)
            samples = tuple(zip(times.tolist(), values.tolist(), strict=True))
            # Thousands of points that need no validation: that would take a second.
            table = TableSignal.model_construct(samples=samples, start=0.0, repeat=cycle.repeat)
            yield Placed(name, table, ports={}, signals={"signal": signal})


def course(cycle: CycleSettings, signal: str) -> tuple[Floats, Floats]:
    """Times, s, and values of an input, with straight lines in between; for a cycle that repeats, exactly one
    period."""
    lines = cycle_objects(cycle, [signal])
    at = [0.0]
    for before, point in pairwise([None, *lines]):
        start = 0.0 if before is None else float(before.at)
        pieces = 1
        if before is not None and point.kind == Shape.SMOOTH:
            pieces = PIECES
        elif before is not None and point.kind == Shape.SINE:
            pieces = ceil(PIECES_OF_PERIOD * point.frequency * (point.at - start))
        at += np.linspace(start, point.at, pieces + 1)[1:].tolist()
    if cycle.repeat:
        at = [t for t in at if t < cycle.duration] + [cycle.duration]
    times = np.unique(at)
    next_points = np.searchsorted([point.at for point in lines], times, side="right")
    around = (lines[max(k - 1, 0) : k + 1] for k in next_points)  # no others determine the value
    values = [cycle_value(points, 0, t, 0.0) for points, t in zip(around, times.tolist(), strict=True)]
    return times, np.array(values)
