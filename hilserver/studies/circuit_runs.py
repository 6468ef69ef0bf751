"""Runs of one circuit with other values, each reduced to figures: no validation and no file per run."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.library import library_of
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.rig.cycle import CycleSettings
from hilserver.simulation.driven import driven_table
from hilserver.simulation.packed_run import given_inputs, initial_values, solved_by
from hilserver.simulation.step_error import HALVINGS
from hilserver.studies.figures import Figure
from hilserver.studies.in_place import VariedCircuit
from hilserver.studies.quantities import changeable, find
from hilserver.studies.subject import VariantFailedError

BLOCK = 2000
"""Ticks from one look at the clock and at the values to the next."""
LIMIT = 60.0
"""s of computing time after which a variant is given up; a nominal run has no limit."""


@dataclass(frozen=True)
class CircuitSubject:
    """A circuit as written, what drives it, which values are varied, and the figures of a run.

    ``varied``: short keys; ``ranges``: the lowest and the highest value of each, SI. ``tick``, ``duration``: s.
    """

    file: str
    table: Mapping[str, Any]
    own: tuple[OwnFile, ...]
    cycle: CycleSettings | None
    duration: float
    tick: float
    varied: tuple[str, ...]
    ranges: tuple[tuple[float, float], ...]
    figures: tuple[Figure, ...] = ()
    limit: float = LIMIT

    def prepare(self) -> CircuitRuns:
        """Packed, driven, and run once with the circuit's own values."""
        return CircuitRuns(self)


class CircuitRuns:
    """The runs of a `CircuitSubject` in this process.

    ``wanted``: the quantities that the figures need; ``computed``: CPU time, s, of the compiled program so far.
    """

    def __init__(self, subject: CircuitSubject) -> None:
        self.subject, self.library = subject, library_of(subject.own)
        circuit = read_circuit(subject.table, self.library, subject.file)
        self._tables, held = _driving(circuit, subject.cycle, self.library, subject.file)
        known = changeable(circuit)
        quantities = [find(known, key) for key in subject.varied]
        self.varied = VariedCircuit(circuit, quantities, subject.ranges, self._packed, self.library, subject.file)
        self.program = compiled_program(self.library)
        ticks = max(round(subject.duration / subject.tick), 1)
        self.time = np.arange(1.0, ticks + 1.0) * subject.tick
        self._held, self._given = held, given_inputs(subject.cycle, held, ticks, subject.tick)
        self.names = self.varied.packed.names
        self.wanted = list(dict.fromkeys(figure.quantity for figure in subject.figures))
        self.computed = 0.0
        self.nominal = self.series(self.varied.packed, self.wanted)

    def __call__(self, values: Floats) -> Floats:
        """The figures of a variant. Raises VariantFailedError."""
        try:
            packed = self.varied.at(values.tolist())
        except (ValueError, ConfigurationError) as error:
            raise VariantFailedError(f"impossible: {str(error).splitlines()[0]}") from None
        series = self.series(packed, self.wanted, self.subject.limit)
        return self.figures_of(series)

    def of_half_the_step(self, values: Floats) -> Floats:
        """The figures of a variant with half of every integration step. Raises VariantFailedError."""
        packed = self.varied.at(values.tolist())
        name = e.Integrator(int(packed.index[e.INTEGRATOR])).name.lower()
        finer = solved_by(packed, 2 * int(packed.index[e.SUBSTEPS]), name, HALVINGS)
        return self.figures_of(self.series(finer, self.wanted))

    def figures_of(self, series: Floats) -> Floats:
        """The figures of a run; ``series``: the quantities ``wanted``, a row for each."""
        rows = {name: k for k, name in enumerate(self.wanted)}
        found = (
            figure.of(self.time, series[rows[figure.quantity]], self.nominal[rows[figure.quantity]])
            for figure in self.subject.figures
        )
        return np.array(list(found))

    def series(self, packed: PackedCircuit, names: Sequence[str], limit: float = np.inf) -> Floats:
        """These quantities in every tick, a row for each. Raises VariantFailedError.

        ``limit``: s of computing time.
        """
        columns = [packed.names.index(name) for name in names]
        kept = np.empty((len(columns), len(self.time)))
        values, work = np.zeros(len(packed.names)), np.zeros(packed.work_size)
        values[: len(packed.values)] = initial_values(packed)
        used = [(packed.values.index(name), j) for j, name in enumerate(self._held) if name in packed.values]
        places = np.array([place for place, _ in used], dtype=np.int64)
        given = np.ascontiguousarray(self._given[:, [j for _, j in used]])
        steps, rows = int(packed.index[e.SUBSTEPS]), np.empty((min(BLOCK, len(self.time)), len(packed.names)))
        begun = self.computed
        for start in range(0, len(self.time), BLOCK):
            part, before = slice(start, min(start + BLOCK, len(self.time))), clock.thread_time()
            block = rows[: part.stop - part.start]
            self.program.run_free(
                packed.index, packed.value, values, work, places, given[part], steps, self.subject.tick / steps, block
            )
            self.computed += clock.thread_time() - before
            kept[:, part] = block[:, columns].T
            if not np.isfinite(values).all():
                raise VariantFailedError(_diverged(packed, block, self.time[part]))
            if self.computed - begun > limit:
                at = float(self.time[part.stop - 1])
                raise VariantFailedError(f"given up: {limit:g} s of computing time had reached {at:.3g} s")
        return kept

    def _packed(self, circuit: Circuit) -> PackedCircuit:
        return pack(replace(circuit, placed=(*circuit.placed, *self._tables)), self.library, file=self.subject.file)


def _diverged(packed: PackedCircuit, rows: Floats, time: Floats) -> str:
    k = int(np.argmax(~np.isfinite(rows).all(axis=1)))
    name = packed.names[int(np.argmax(~np.isfinite(rows[k])))]
    return f"diverged: {name} is not finite after {time[k]:.4g} s"


def _driving(circuit: Circuit, cycle: CycleSettings | None, library: Any, file: str) -> tuple[Any, tuple[str, ...]]:
    """The components that drive the inputs of a circuit, as in `hilserver simulate`; and the inputs that are held.

    Their curves have thousands of points, and are the same in all variants: they are calculated once.
    """
    if cycle is None:
        return (), ()
    driven = read_circuit(driven_table(circuit, cycle), library, file)
    own = {placed.name for placed in circuit.placed}
    tables = tuple(placed for placed in driven.placed if placed.name not in own)
    for placed in tables:
        found = placed.component.parameters(driven.fluid)
        vars(placed.component)["parameters"] = lambda fluid, found=found: found
    return tables, tuple(signal for signal in driven.inputs() if signal in cycle.inputs)
