"""Columns of the Jacobian that are found together are those that are found one by one, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_circuits import ALL, LIBRARY, Raw, circuit_of, circuits, commands, program

from hilserver.circuit import engine as e
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.numerics.arrays import Floats
from hilserver.simulation.circuit_run import read_circuit_file

CIRCUITS = Path(__file__).parents[2] / "config" / "circuits"


def columns(packed: PackedCircuit) -> Iterator[list[tuple[int, set[int]]]]:
    """The groups of the table GROUPED: states, each with the states whose rates depend on it."""
    cells = packed.index.astype(np.int64)
    at, end = cells[e.GROUPED], cells[e.GROUPED] + cells[e.N_GROUPED]
    while at < end:
        group, number, at = [], cells[at], at + 1
        for _ in range(number):
            group.append((int(cells[at]), set(cells[at + 3 : at + 3 + cells[at + 2]].tolist())))
            at += cells[at + 1]
        yield group


def one_by_one(packed: PackedCircuit) -> PackedCircuit:
    """The same circuit with each state in a group of its own, and with all rows in its column."""
    n, ports, flows = (int(packed.index[k]) for k in (e.N_STATES, e.N_PORTS, e.N_FLOWS))
    rows = [cell for count in (n, ports, flows) for cell in (count, *range(count))]
    table = [cell for j in range(n) for cell in (1, j, 2 + len(rows), *rows)]
    index = np.concatenate([packed.index, np.array(table, dtype=np.uint64)])
    index[e.N_GROUPED], index[e.GROUPED] = len(table), len(packed.index)
    return replace(packed, index=index)


def run(packed: PackedCircuit, driven: dict[str, Floats], ticks: int) -> Floats:
    values, rows = np.zeros(len(packed.names)), np.empty((ticks, len(packed.names)))
    program().load(packed.index, packed.value, values)
    places = np.array([packed.values.index(name) for name in driven], dtype=np.int64)
    lines = np.column_stack([*driven.values()]) if driven else np.zeros((ticks, 0))
    program().run_free(packed.index, packed.value, values, np.zeros(packed.work_size), places, lines, 2, 5e-4, rows)
    return rows


def assert_complete(packed: PackedCircuit, rows: Floats) -> None:
    """No rate changes with a state that is not among those on which it depends, and no two columns share a row."""
    found = {state: rates for group in columns(packed) for state, rates in group}
    assert sorted(found) == list(range(packed.n_states))
    for group in columns(packed):
        shared = [rate for _, rates in group for rate in rates]
        assert len(shared) == len(set(shared))
    work, y = np.zeros(packed.work_size), np.zeros(max(len(packed.recorded), 1))
    z = np.empty(len(packed.values))
    derivatives = program().derivatives.bound(packed.index, packed.value, z, y, work)
    for row in rows:
        z[:] = row[: len(z)]
        derivatives()
        before = work[: packed.n_states].copy()
        for state, rates in found.items():
            z[:] = row[: len(z)]
            z[state] += 1e-4 * max(abs(z[state]), 1e-3)
            derivatives()
            assert set(np.flatnonzero(work[: packed.n_states] != before).tolist()) <= rates, packed.values[state]


@settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(circuits(ALL, ["0.1 l", "1 l"], air=(0.0, 0.005)), st.integers(0, 999))
def test_random_circuits_depend_on_nothing_else(raw: Raw, seed: int) -> None:
    circuit = circuit_of(raw, "rosenbrock")
    packed, driven = pack(circuit, LIBRARY, accounts=True), commands(circuit, 60, seed)
    together = run(packed, driven, 60)
    assert_complete(packed, together[::20])
    assert run(one_by_one(packed), driven, 60).tobytes() == together.tobytes()


@pytest.mark.parametrize("name", ["crane", "excavator", "boom", "regenerative"])
def test_ready_circuits_depend_on_nothing_else(name: str) -> None:
    packed = pack(read_circuit_file(CIRCUITS / f"{name}.toml", LIBRARY), LIBRARY, accounts=True)
    packed.index[e.INTEGRATOR] = e.Integrator.ROSENBROCK
    driven = {signal: np.sin(0.3 * np.arange(100)) for signal in packed.values if signal == "joystick"}
    together = run(packed, driven, 100)
    assert_complete(packed, together[::33])
    assert run(one_by_one(packed), driven, 100).tobytes() == together.tobytes()


def test_the_crane_needs_less_than_half_of_the_evaluations() -> None:
    packed = pack(read_circuit_file(CIRCUITS / "crane.toml", LIBRARY), LIBRARY)
    assert len([*columns(packed)]) * 2 < packed.n_states
