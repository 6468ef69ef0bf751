"""The audit of a log: the balances of the virtual circuit that ran in a rig, from what was recorded.

A log holds all values of the circuit at the end of each tick. So each tick is computed again, from the recorded state
before it and with the recorded pressures and signals, by the same circuit with its accounts, which the loop does not
keep. The flows are summed and compared with the recorded states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.model import RIG, Circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.numerics.arrays import Floats, Integers
from hilserver.record.format import RecordError
from hilserver.record.reader import LogReader
from hilserver.rig.build import Rig
from hilserver.simulation.balance import Balance, balance, balance_texts
from hilserver.simulation.replay import rig_of_log

ROUNDING = 1e-12
"""Difference of the states, as a fraction of their largest values, below which it is not mentioned."""


@dataclass(frozen=True)
class Audit:
    """The balances of a circuit over some rows of a log without a gap.

    ``first``: number of the first row, of which the state is the start; ``ticks``: that were computed again;
    ``difference``: the largest one of a state from the log, as a fraction of the state's largest value.
    """

    first: int
    ticks: int
    seconds: float
    balance: Balance
    mechanisms: bool
    difference: float

    def sentences(self) -> list[str]:
        """The balances in words, and how far the ticks could be computed again."""
        texts = [f"{name} of the circuit: {text}." for name, text in balance_texts(self.balance, self.mechanisms)]
        agrees = "bit for bit."
        if self.difference > ROUNDING:
            agrees = f"within {self.difference:.1e} of their largest values, which the errors include."
        elif self.difference > 0.0:
            agrees = "to rounding."
        return [f"From row {self.first}, {self.seconds:g} s: computed again, the states agree {agrees}", *texts]

    def figures(self) -> dict[str, Any]:
        """The same as data for JSON, SI."""
        oil, energy = self.balance.oil, self.balance.energy
        return {
            "first_row": self.first,
            "ticks": self.ticks,
            "difference": self.difference,
            "oil": {**vars(oil), "stored": oil.stored, "relative_error": oil.relative_error},
            "energy": {**vars(energy), "relative_error": energy.relative_error},
            "voids": dict(self.balance.voids),
        }


def audit_log(path: Path, *, trust: bool = False) -> tuple[Audit, ...]:
    """The balances of the circuits in a log: one for each part without a switch of the circuit or a gap.

    Over each tick the circuit gets the pressures that are logged for it, held, as in the loop. Where the bridge looks
    ahead, the loop lets them change within the tick: the states then agree less, and the errors include it.
    Raises RecordError if the log can't be used; ``trust``: as for `replay_log`.
    """
    reader = LogReader(path)
    rig = rig_of_log(reader.header, path, trust)
    stretches: list[_Stretch] = []
    for batch in reader.batches():
        missed, ticks, values = batch.column("missed"), batch.column("tick"), batch.circuit_values()
        for k in range(len(batch)):
            last = stretches[-1] if stretches else None
            if last is None or batch.circuit is not last.version or ticks[k] - last.tick != missed[k] + 1.0:
                last = _Stretch(batch.circuit, batch.start + k)
                stretches.append(last)
            last.tick = float(ticks[k])
            last.values.append(values[k].copy())
            last.elapsed.append(int(missed[k]) + 1)
    found = tuple(each.audited(rig, path) for each in stretches if len(each.values) > 1)
    if not found:
        raise RecordError(path, "has no two consecutive rows: there is nothing to balance.")
    return found


class _Stretch:
    """Rows of one circuit without a gap."""

    def __init__(self, version: Any, first: int) -> None:
        self.version, self.first, self.tick = version, first, 0.0
        self.values: list[Floats] = []
        self.elapsed: list[int] = []

    def audited(self, rig: Rig, path: Path) -> Audit:
        circuit = rig.read_circuit(self.version.packed["source"], str(path))
        packed, program = pack(circuit, rig.library, accounts=True), compiled_program(rig.library)
        logged = _in_order(np.array(self.values), self.version.names, packed)
        dt = float(rig.plan.loop[0].dt)
        rows = np.concatenate(list(_again(program, circuit, packed, logged, self.elapsed, dt)))
        ends = np.cumsum(self.elapsed[1:]) - 1
        states = slice(0, packed.n_states)
        size = np.maximum(np.abs(logged[:, states]).max(axis=0), packed.value[_scale(packed)])
        difference = float((np.abs(rows[ends, states] - logged[1:, states]) / size).max(initial=0.0))
        rows[-1, states] = logged[-1, states]
        found = balance(program, rig.library, circuit, packed, logged[0], rows, dt)
        return Audit(self.first, len(rows), dt * len(rows), found, bool(circuit.mechanisms), difference)


def _scale(packed: PackedCircuit) -> slice:
    first = int(packed.index[e.SCALE])
    return slice(first, first + packed.n_states)


def _in_order(logged: Floats, names: tuple[str, ...], packed: PackedCircuit) -> Floats:
    """The logged values in the order of a circuit with accounts; the accounts are 0."""
    places = {name: k for k, name in enumerate(names)}
    rows = np.zeros((len(logged), len(packed.names)))
    for k, name in enumerate(packed.values):
        if name in places:
            rows[:, k] = logged[:, places[name]]
    return rows


def _again(
    program: Program, circuit: Circuit, packed: PackedCircuit, logged: Floats, elapsed: list[int], dt: float
) -> Iterator[Floats]:
    """The rows of each tick, computed again from the logged state before it; of missed ticks one row each."""
    names = [*circuit.inputs(), *(f"{RIG}{port}.p" for port in circuit.rig_ports())]
    driven: Integers = np.array([packed.values.index(name) for name in names], dtype=np.int64)
    steps, work = int(packed.index[e.SUBSTEPS]), np.zeros(packed.work_size)
    values = np.empty(len(packed.names))
    for k in range(1, len(logged)):
        values[:] = logged[k - 1]
        rows = np.empty((elapsed[k], len(packed.names)))
        given = np.repeat(logged[k : k + 1, driven], elapsed[k], axis=0)
        program.run_free(packed.index, packed.value, values, work, driven, given, steps, dt / steps, rows)
        yield rows
