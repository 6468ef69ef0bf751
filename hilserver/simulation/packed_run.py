"""A packed circuit run on its own: its inputs in every tick, all its values at the end of every tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.pack import INTEGRATORS, PackedCircuit
from hilserver.circuit.program import Program
from hilserver.compiler.circuit_code import running
from hilserver.numerics.arrays import Floats
from hilserver.rig.cycle import CycleSettings
from hilserver.rig.plan import cycle_objects
from hilserver.simulation.pacing import TickPace
from hilserver.tick.work_cycle import cycle_value


def solved_by(circuit: PackedCircuit, substeps: int, integrator: str, halvings: int) -> PackedCircuit:
    """The same circuit with this number of substeps and this integrator, and with halved parts of divided steps."""
    index = circuit.index.copy()
    index[e.SUBSTEPS], index[e.INTEGRATOR], index[e.HALVINGS] = substeps, INTEGRATORS[integrator], halvings
    return replace(circuit, index=index)


def run_packed(
    program: Program,
    circuit: PackedCircuit,
    dt: float,
    driven: Sequence[str],
    given: Floats,
    start: Floats | None = None,
    pacing: TickPace | None = None,
    drifted: float = 0.0,
) -> Floats:
    """Run a packed circuit: all values (columns: ``circuit.names``) at the end of every tick of ``dt`` seconds.

    ``given[k, j]`` is the signal ``driven[j]`` in tick k; signals that the circuit does not have are ignored.
    ``start``: the circuit's ``values`` at the start, default: its initial values. ``pacing``: by this clock.
    ``drifted``: time for which a circuit with a drift has drifted at the start, s; its numbers change from tick to
    tick, as those of a simulated device.
    """
    used = [(circuit.values.index(name), j) for j, name in enumerate(driven) if name in circuit.values]
    n = len(circuit.values)
    values = np.zeros(len(circuit.names))
    values[:n] = initial_values(circuit) if start is None else start
    rows = np.empty((len(given), len(values)))
    places = np.array([place for place, _ in used], dtype=np.int64)
    columns = np.ascontiguousarray(given[:, [j for _, j in used]])
    steps, work, done = int(circuit.index[e.SUBSTEPS]), np.zeros(circuit.work_size), 0
    while done < len(rows):
        part = slice(done, len(rows) if pacing is None else done + pacing.due())
        run = values, work, places, columns[part], steps, dt / steps, rows[part]
        with running(circuit, program) as index:
            if circuit.drift is None:
                program.run_free(index, circuit.value, *run)
            else:
                last, over = circuit.drift.value, circuit.drift.over
                share = (drifted + done * dt) / over
                program.run_drifting(index, circuit.value.copy(), circuit.value, last, share, dt / over, *run)
        if pacing is not None:
            pacing.computed(len(rows[part]), values)
        done += len(rows[part])
    return rows


def initial_values(circuit: PackedCircuit) -> Floats:
    """The initial values of a circuit's ``values``."""
    first = int(circuit.index[e.INITIAL])
    return circuit.value[first : first + len(circuit.values)].copy()


def given_inputs(cycle: CycleSettings | None, inputs: tuple[str, ...], ticks: int, tick: float) -> Floats:
    """The inputs in every tick: their values at its start, as on a rig."""
    given = np.zeros((ticks, len(inputs)))
    if cycle is None:
        return given
    table = cycle_objects(cycle, list(inputs))
    length = round(cycle.duration / tick) if cycle.repeat else ticks
    for k in range(ticks):
        t = k % length * tick
        for j in range(len(inputs)):
            given[k, j] = cycle_value(table, j, t, 0.0)
    return given
