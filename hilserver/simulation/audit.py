"""The audit of a log: the balances of the virtual circuit that ran in a rig, from what was recorded.

The loop keeps no accounts. A replay computes each tick again, bit for bit, from the recorded inputs, and there the
circuit keeps them: what passes into each node is integrated with the states, in all sub-steps and in the look-ahead's
steps, whose chambers' pressures are not logged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.compiler import compiled_program
from hilserver.numerics.arrays import Floats
from hilserver.record.format import RecordError
from hilserver.simulation.balance import Balance, balance, balance_figures, balance_texts
from hilserver.simulation.replay import ComputedRows, replay_log


@dataclass(frozen=True)
class Audit:
    """The balances of a circuit over some rows of a log without a gap.

    ``first``: number of the first row; ``ticks``: in these rows, missed ones too; ``difference``: the largest one of
    the replay from the log, as a fraction of a column's range.
    """

    first: int
    ticks: int
    seconds: float
    balance: Balance
    mechanisms: bool
    difference: float

    def sentences(self) -> list[str]:
        """The balances in words, and how closely the log was replayed."""
        texts = [f"{name} of the circuit: {text}." for name, text in balance_texts(self.balance, self.mechanisms)]
        agrees = "the replay, which is identical" if self.difference == 0.0 else "the replay, not of the log"
        return [f"From row {self.first}, {self.seconds:g} s; balances of {agrees}:", *texts]

    def figures(self) -> dict[str, Any]:
        """The same as data for JSON, SI."""
        known = {"first_row": self.first, "ticks": self.ticks, "difference": self.difference}
        return known | balance_figures(self.balance)


def audit_log(path: Path, *, trust: bool = False) -> tuple[Audit, ...]:
    """The balances of the circuits in a log: one for each part without a switch of the circuit or a gap.

    They are those of the replay. Where it differs from the log (another version has written it), the largest difference
    is stated. Raises RecordError if the log can't be used; ``trust``: as for `replay_log`.
    """
    segments: list[_Segment] = []

    def watch(computed: ComputedRows) -> None:
        _Segment.of_rows(computed, segments)

    replayed = replay_log(path, watch=watch, trust=trust, accounts=True)
    difference = max((d.relative for d in replayed.differences), default=0.0)
    found = tuple(segment.audited(path, difference) for segment in segments if segment.values)
    if not found:
        raise RecordError(path, "has no row that can be computed again: there is nothing to balance.")
    return found


class _Segment:
    """Rows of one circuit without a gap: its values before the first one, and in each."""

    def __init__(self, computed: ComputedRows, first: int, before: Floats) -> None:
        self.of, self.first, self.before = computed, first, before
        self.values: list[Floats] = []

    @classmethod
    def of_rows(cls, computed: ComputedRows, so_far: list[_Segment]) -> None:
        """Add the rows to the last segment, or to new ones. (Only a reset of the circuit sets its time back.)"""
        start, names = len(computed.rig.layout.names), computed.packed.names
        circuit = slice(start, start + len(names))
        before, values = computed.before[circuit], computed.rows[:, circuit]
        time = np.concatenate([before[None], values])[:, names.index("t")]
        resets = np.flatnonzero(np.diff(time) <= 0.0)
        if computed.begins or not so_far:
            so_far.append(cls(computed, computed.first, before))
        for k, row in enumerate(values):
            if k in resets:
                so_far.append(cls(computed, computed.first + k + 1, row))
            else:
                so_far[-1].values.append(row)

    def audited(self, path: Path, difference: float) -> Audit:
        rig, packed, rows = self.of.rig, self.of.packed, np.array(self.values)
        circuit, dt = rig.read_circuit(self.of.source, str(path)), float(rig.plan.loop[0].dt)
        found = balance(compiled_program(rig.library), rig.library, circuit, packed, self.before, rows, dt)
        t = packed.names.index("t")
        seconds = float(rows[-1, t] - self.before[t])
        return Audit(self.first, round(seconds / dt), seconds, found, bool(circuit.mechanisms), difference)
