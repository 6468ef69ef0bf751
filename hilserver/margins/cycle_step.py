"""The error of the integrator's step on a rig: its circuit over the work cycle, on the pressures of its machine.

The circuit runs as in the loop, with inputs and pressures held in each tick; the pressures are those at the ports of
the simulated machine to which it is connected directly.
"""

from __future__ import annotations

import numpy as np

from hilserver.circuit.model import RIG
from hilserver.circuit.program import Program
from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.simulation.circuit_run import quantities
from hilserver.simulation.machine import circuit_on, machine_of_device
from hilserver.simulation.packed_run import given_inputs, initial_values, run_packed, solved_by
from hilserver.simulation.step_error import Quantity, StepError, step_error

LONGEST = 30.0
"""s of the work cycle that are evaluated."""


def cycle_step_error(rig: Rig, program: Program) -> StepError | None:
    """The error of the rig's step over its work cycle; None without a cycle or a simulated machine to run it on."""
    device = next((device for device in rig.devices if device.is_simulated), None)
    if rig.cycle is None or device is None or not rig.circuit.rig_ports():
        return None
    dt = 1.0 / rig.settings.loop.rate
    ticks = round(min(rig.cycle.duration, LONGEST) / dt)
    signals = [name for name in rig.circuit.inputs() if name in rig.settings.inputs]
    given = given_inputs(rig.cycle, tuple(signals), ticks, dt)
    for j, name in enumerate(signals):
        if name not in rig.cycle.inputs:
            given[:, j] = rig.settings.inputs[name].initial
    try:
        pressures = _pressures(rig, program, signals, given, dt)
    except ConfigurationError:  # circuit and machine can't be connected directly
        return None
    if not np.isfinite(pressures).all():
        return None
    driven = [*signals, *(f"{RIG}{port}.p" for port in rig.circuit.rig_ports())]
    held = np.column_stack([given, pressures])

    def run_with(substeps: int, integrator: str, halvings: int) -> list[Quantity]:
        rows = run_packed(program, solved_by(rig.packed, substeps, integrator, halvings), dt, driven, held)
        return quantities(rig.circuit, {name: rows[:, i] for i, name in enumerate(rig.packed.names)})

    return step_error(rig.circuit.solver, dt, ticks, dt * np.arange(1.0, ticks + 1.0), run_with)


def _pressures(rig: Rig, program: Program, signals: list[str], given: Floats, dt: float) -> Floats:
    """Pressures, Pa, of the circuit's ports at the start of each tick. Raises ConfigurationError."""
    device = next(device for device in rig.devices if device.is_simulated)
    direct = circuit_on(rig, machine_of_device(rig, device))
    places = [direct.values.index(f"{port}.p") for port in rig.circuit.rig_ports()]
    rows = run_packed(program, direct, dt, signals, given)
    return np.vstack([initial_values(direct)[places], rows[:-1, places]])
