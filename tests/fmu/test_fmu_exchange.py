"""FMUs for model exchange: integrated by FMPy with CVode, they give what the circuit's own method gives."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import fmpy
import numpy as np
import pytest
from fmu_bench import CONFIG, TICK, Fmu, exported
from fmu_caller import ERROR, NULL, OK, Caller

from hilserver.circuit import engine as e
from hilserver.circuit.library import standard_library
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.compiler import standard_program
from hilserver.numerics.arrays import Floats
from hilserver.simulation.circuit_run import read_circuit_file
from hilserver.simulation.packed_run import initial_values, run_packed, solved_by

COMMAND = 0.5


def packed_of(name: str) -> PackedCircuit:
    return pack(read_circuit_file(CONFIG / f"circuits/{name}.toml", standard_library()), standard_library())


def integrated(fmu: Fmu, duration: float, tolerance: float) -> Any:
    """All outputs, every millisecond, with all inputs at the same value."""
    signals = np.array(
        [(0.0, *[COMMAND] * len(fmu.inputs))], dtype=[("time", float), *((n, float) for n in fmu.inputs)]
    )
    return fmpy.simulate_fmu(
        str(fmu.folder),
        stop_time=duration,
        output_interval=TICK,
        fmi_type="ModelExchange",
        input=signals,
        output=fmu.outputs,
        relative_tolerance=tolerance,
        validate=False,
    )


def deviations(fmu: Fmu, found: Any, packed: PackedCircuit, duration: float) -> dict[str, float]:
    """Largest deviation of each output from a run of the circuit, relative to its largest value there."""
    ticks = round(duration / TICK)
    given = np.full((ticks, len(fmu.inputs)), COMMAND)
    rows = run_packed(standard_program(), packed, TICK, fmu.inputs, given)
    times = (np.arange(ticks) + 1) * TICK
    at = np.searchsorted(found["time"], times - 1e-9)
    places = {name: packed.names.index(name) for name in fmu.outputs}
    return {
        name: float(np.abs(found[name][at] - rows[:, place]).max() / (np.abs(rows[:, place]).max() + 1e-30))
        for name, place in places.items()
    }


@pytest.mark.parametrize("fmi", ["2.0", "3.0"])
def test_verification_circuit(fmi: str, tmp_path: Path) -> None:
    """Against the Runge-Kutta method with steps of 10 µs: 2e-5 of the largest value, with a tolerance of 1e-8."""
    fmu = exported(CONFIG / "circuits/verification.toml", tmp_path, fmi)
    found = integrated(fmu, 0.5, 1e-8)
    fine = solved_by(packed_of("verification"), 100, "rk4", 0)
    worst = deviations(fmu, found, fine, 0.5)
    assert max(worst.values()) < 2e-5, worst
    assert np.ptp(found["rod.x"]) > 0.01
    assert found["relief.K"].min() >= 0.0  # a hard limit


def test_sampled_components_are_evaluated_at_the_circuits_steps(tmp_path: Path) -> None:
    """The lowering circuit has one. Its own method makes the same steps; flows differ by its error."""
    fmu = exported(CONFIG / "circuits/lowering.toml", tmp_path)
    found = integrated(fmu, 0.1, 1e-7)
    packed = packed_of("lowering")
    step = TICK / int(packed.index[e.SUBSTEPS])
    assert len(found) >= 0.1 / step
    worst = deviations(fmu, found, packed, 0.1)
    assert max(error for name, error in worst.items() if name.endswith((".p", ".x", ".v"))) < 2e-3, worst


def test_a_circuit_with_a_mechanism_is_for_co_simulation_only(tmp_path: Path) -> None:
    fmu = exported(CONFIG / "circuits/boom.toml", tmp_path)
    description = fmpy.read_model_description(str(fmu.folder), validate=False)
    assert description.coSimulation is not None
    assert description.modelExchange is None
    caller = Caller(fmu)
    assert caller.new(exchange=True) is None
    assert caller.said("mechanism", "model exchange")


@pytest.mark.parametrize("fmi", ["2.0", "3.0"])
def test_calls_of_model_exchange(fmi: str, tmp_path: Path) -> None:
    """States, derivatives and nominals are those of the circuit; bad calls are refused."""
    caller = Caller(exported(CONFIG / "circuits/verification.toml", tmp_path, fmi))
    s, packed = caller.new(exchange=True) or 0, packed_of("verification")
    caller.start(s)
    n = packed.n_states
    rates, start = derivatives_of(packed), initial_values(packed)[:n]
    derivatives = "GetDerivatives" if fmi == "2.0" else "GetContinuousStateDerivatives"
    for name, expected in {
        derivatives: rates,
        "GetContinuousStates": start,
        "GetNominalsOfContinuousStates": packed.value[int(packed.index[e.SCALE]) :][:n],
    }.items():
        values = (ctypes.c_double * n)()
        assert caller.call(name, s, values, ctypes.c_size_t(n)) == OK
        assert list(values) == expected.tolist()
        assert caller.call(name, s, values, ctypes.c_size_t(n - 1)) == ERROR
        assert caller.said("9 states were expected, 8 given")
        assert caller.call(name, s, NULL, ctypes.c_size_t(n)) == ERROR
    first = caller.fmu.reference("der(supply.content)")
    assert caller.get(s, *range(first, first + n)) == (OK, rates.tolist())
    states = (ctypes.c_double * n)(*start)
    assert caller.call("SetContinuousStates", s, states, ctypes.c_size_t(n)) == ERROR
    assert caller.said("SetContinuousStates", "in event mode")
    assert caller.step(s, 0.0) == ERROR
    assert caller.call("EnterContinuousTimeMode", s) == OK
    assert caller.call("SetContinuousStates", s, states, ctypes.c_size_t(n)) == OK
    assert caller.call("SetTime", s, ctypes.c_double(np.nan)) == ERROR
    assert caller.call("CompletedIntegratorStep", s, 0, NULL, NULL) == ERROR
    caller.function("FreeInstance")(ctypes.c_void_p(s))


def derivatives_of(packed: PackedCircuit) -> Floats:
    """The rates of all states at the start."""
    row, work = np.zeros(len(packed.names)), np.zeros(packed.work_size)
    n = len(packed.values)
    row[:n] = initial_values(packed)
    standard_program().derivatives(packed.index, packed.value, row[:n], row[n:], work)
    return work[: packed.n_states].copy()
