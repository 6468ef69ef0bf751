"""Runs of the reference simulation that are given the same share their rows; any other run has its own."""

from __future__ import annotations

import numpy as np
from lift_bench import lift
from port_account import installed

from hilserver.compiler import compiled_program
from hilserver.fidelity.step import IntegrationStep
from hilserver.simulation.packed_run import run_packed

TICK = 1e-3


def test_a_run_from_another_state_with_another_input_or_step_is_not_the_shared_one() -> None:
    rig = lift({})
    program, reference = compiled_program(rig.library), installed(rig)
    start, still, moved = reference.start({}), np.zeros(50), np.full(50, 0.5)
    further = start * np.where(np.arange(len(start)) == reference.packed.values.index("rod.x"), 1.1, 1.0)
    finer = reference.at(IntegrationStep(2))
    for circuit, command, begin in (
        (reference, moved, start),
        (reference, moved, start),  # the shared one
        (reference, still, start),
        (reference, moved, further),
        (finer, moved, start),
        (reference, moved, start),
    ):
        rows = circuit.run(program, TICK, {"joystick": command}, begin)
        alone = run_packed(program, circuit.packed, TICK, ["joystick"], command[:, None], begin)
        assert np.array_equal(rows, alone)
    first = reference.run(program, TICK, {"joystick": moved}, start)
    assert reference.run(program, TICK, {"joystick": moved.copy()}, start.copy()) is first
    assert not np.array_equal(first, reference.run(program, TICK, {"joystick": still}, start))
    assert not np.array_equal(first, reference.run(program, TICK, {"joystick": moved}, further))
    assert not np.array_equal(first, finer.run(program, TICK, {"joystick": moved}, start))
