"""A circuit by itself with its inputs in motion, to compare programs."""

from __future__ import annotations

import numpy as np

from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.numerics.arrays import Floats
from hilserver.simulation.packed_run import run_packed


def run_freely(program: Program, packed: PackedCircuit, ticks: int, inputs: tuple[str, ...] = ("joystick",)) -> Floats:
    """All values of a circuit over some ticks of 1 ms, with its inputs in motion."""
    given = np.sin(np.arange(ticks)[:, None] * 0.03 + np.arange(len(inputs)))
    return run_packed(program, packed, 1e-3, inputs, given)
