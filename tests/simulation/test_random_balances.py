"""The balances of random circuits from the whole library, with cavitating, moving and switching parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_circuits import ALL, LIBRARY, Raw, circuits, commands, program

from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.simulation.balance import Balance, balance
from hilserver.simulation.circuit_run import TICK
from hilserver.simulation.packed_run import initial_values, run_packed

pytestmark = pytest.mark.slow

PRESCRIBED = {"position_source", "velocity_source"}
"""Their rods follow signals: a stroke is not the integral of the speed."""
OWN_MOTION = [kind for kind in ALL if kind not in PRESCRIBED]


def balance_of(raw: Raw, seed: int, integrator: str, substeps: int, seconds: float = 1.0) -> Balance:
    """Of a run at 1 kHz under random commands."""
    circuit = read_circuit(raw | {"solver": {"integrator": integrator, "substeps": substeps}}, LIBRARY)
    packed = pack(circuit, LIBRARY, accounts=True)
    given = commands(circuit, round(seconds / TICK), seed)
    lines = np.column_stack(list(given.values())) if given else np.zeros((round(seconds / TICK), 0))
    start = initial_values(packed)
    rows = run_packed(program(), packed, TICK, list(given), lines, start)
    return balance(program(), LIBRARY, circuit, packed, start, rows, TICK)


@pytest.mark.parametrize(("integrator", "substeps"), [("rk4", 10), ("rosenbrock", 1)])
@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(raw=circuits(OWN_MOTION, ["0.5 l", "2 l"], air=(0.0, 0.005)), seed=st.integers(0, 999))
def test_oil_is_kept_to_rounding(integrator: str, substeps: int, raw: Raw, seed: int) -> None:
    found = balance_of(raw, seed, integrator, substeps)
    assert found.oil.relative_error < 1e-9, found


@settings(max_examples=15, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(raw=circuits(OWN_MOTION, ["0.5 l", "2 l"], air=(0.0, 0.005)), seed=st.integers(0, 999))
def test_energy_is_kept_to_the_order_of_the_method(raw: Raw, seed: int) -> None:
    """With a quarter of the step RK4 makes 1/256 of the error; half of it where parts switch, or next to nothing."""
    coarse, fine = (balance_of(raw, seed, "rk4", substeps).energy for substeps in (10, 40))
    assert fine.relative_error < max(0.5 * coarse.relative_error, 1e-9), (coarse, fine)
    assert fine.relative_error < 1e-4, fine
