"""Runs of one circuit with other values, each reduced to figures: no validation and no file per run."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.library import library_of
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.compiler import compiled_program
from hilserver.compiler.circuit_code import running
from hilserver.numerics.arrays import Floats
from hilserver.rig.cycle import CycleSettings
from hilserver.simulation.driven import drivers, is_continuous
from hilserver.simulation.packed_run import given_inputs, initial_values, solved_by
from hilserver.simulation.step_error import HALVINGS
from hilserver.studies.figures import Figure
from hilserver.studies.subject import VariantFailedError
from hilserver.studies.variant_circuits import Choices, VariantCircuits

BLOCK = 2000
"""Ticks from one look at the clock and at the values to the next."""
LIMIT = 60.0
"""s of computing time after which a variant is given up; a nominal run has no limit."""


@dataclass(frozen=True)
class CircuitSubject:
    """A circuit as written, what drives it, which values are varied, and the figures of a run.

    ``varied``: short keys; ``ranges``: the lowest and the highest value of each, SI. ``tick``, ``duration``: s.
    ``choices``: for those of ``varied`` that are components, the tables that they are chosen from. ``measured``: times,
    s, and values, SI, of what is held over each tick as in a real-time loop: pressures at the machine's ports.
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
    choices: Choices = field(default_factory=dict)
    measured: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)

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
        self._drivers = tuple(drivers(circuit, subject.cycle)) if subject.cycle is not None else ()
        self._known = {placed.name: circuit.parameters_of(placed) for placed in self._drivers}
        self._circuits = VariantCircuits(
            circuit, subject.varied, subject.ranges, subject.choices, self._packed, self.library, subject.file
        )
        self.varied = self._circuits.own
        self.program = compiled_program(self.library)
        ticks = max(round(subject.duration / subject.tick), 1)
        self.time = np.arange(1.0, ticks + 1.0) * subject.tick
        inputs = subject.cycle.inputs if subject.cycle is not None else {}
        self._held = tuple(name for name in circuit.inputs() if name in inputs and not is_continuous(inputs[name]))
        given, begins = given_inputs(subject.cycle, self._held, ticks, subject.tick), np.arange(ticks) * subject.tick
        self._given = np.column_stack([given, *(np.interp(begins, *line) for line in subject.measured.values())])
        self._held += tuple(subject.measured)
        self.names = self.varied.packed.names
        self.wanted = list(dict.fromkeys(figure.quantity for figure in subject.figures))
        self.computed = 0.0
        self._nominal = self.series(self.varied.packed, self.wanted)
        self.nominal = self.figures_of(self._nominal)

    @property
    def in_place(self) -> tuple[bool, ...]:
        """For each varied quantity, whether its values are written in place."""
        return self._circuits.in_place

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Keys of quantities that change no number of the circuit as written."""
        return self.varied.without_effect

    @property
    def nominal_end(self) -> None:
        """A run that ends early has no figures."""
        return None

    def __call__(self, values: Floats) -> Floats:
        """The figures of a variant. Raises VariantFailedError."""
        return self.figures_of(self.series(self.packed(values), self.wanted, self.subject.limit))

    def packed(self, values: Floats) -> PackedCircuit:
        """The circuit of a variant. Raises VariantFailedError if it can't have these values."""
        return self._circuits.packed(values)

    def of_half_the_step(self, values: Floats | None = None) -> Floats:
        """The figures with half of every integration step; without values: nominal. Raises VariantFailedError."""
        packed = self.packed(values) if values is not None else self.varied.packed
        name = e.Integrator(int(packed.index[e.INTEGRATOR])).name.lower()
        finer = solved_by(packed, 2 * int(packed.index[e.SUBSTEPS]), name, HALVINGS)
        return self.figures_of(self.series(finer, self.wanted))

    def figures_of(self, series: Floats) -> Floats:
        """The figures of a run; ``series``: the quantities ``wanted``, a row for each."""
        rows = {name: k for k, name in enumerate(self.wanted)}
        found = (
            figure.of(self.time, series[rows[figure.quantity]], self._nominal[rows[figure.quantity]])
            for figure in self.subject.figures
        )
        return np.array(list(found))

    def series(self, packed: PackedCircuit, names: Sequence[str], limit: float = np.inf) -> Floats:
        """These quantities in every tick, a row for each. Raises VariantFailedError.

        ``limit``: s of computing time.
        """
        if missing := [name for name in names if name not in packed.names]:
            raise VariantFailedError(f"has no quantity {missing[0]}: the components chosen don't have it")
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
            with running(packed, self.program) as index:
                self.program.run_free(
                    index, packed.value, values, work, places, given[part], steps, self.subject.tick / steps, block
                )
            self.computed += clock.thread_time() - before
            kept[:, part] = block[:, columns].T
            if not np.isfinite(values).all():
                raise VariantFailedError(_diverged(packed, block, self.time[part]))
            if self.computed - begun > limit:
                at = float(self.time[part.stop - 1])
                raise VariantFailedError(f"aborted after {limit:g} s of computing time, at {at:.3g} s")
        return kept

    def _packed(self, circuit: Circuit, *, like: PackedCircuit | None = None) -> PackedCircuit:
        """Packed with what drives it, whose curves have thousands of points and were calculated once."""
        driven = replace(circuit, placed=(*circuit.placed, *self._drivers), known=self._known)
        return pack(driven, self.library, file=self.subject.file, like=like)


def _diverged(packed: PackedCircuit, rows: Floats, time: Floats) -> str:
    k = int(np.argmax(~np.isfinite(rows).all(axis=1)))
    name = packed.names[int(np.argmax(~np.isfinite(rows[k])))]
    return f"diverged: {name} is not finite after {time[k]:.4g} s"
