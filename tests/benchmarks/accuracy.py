"""Benchmark: what accuracy costs. Wall time per simulated second of the verification circuit, by integrator and step.

    python tests/benchmarks/accuracy.py

The circuit goes through lifting, holding and lowering; the command changes by steps, held for a tick of 1 ms. The error
is the largest difference of p_A at any tick from a converged solution (Runge-Kutta at 2.5 µs). Prints a table and, for
each integrator, the cheapest step whose error is at most 100 Pa.
"""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import numpy as np

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.compiler import compiled_program
from hilserver.numerics.arrays import Floats

CIRCUIT = Path(__file__).parents[2] / "config" / "circuits" / "verification.toml"
COMMANDS = ((0.0, 0.1), (0.9, 0.5), (0.5, 0.3), (0.0, 0.4), (-0.4, 0.8), (0.0, 0.3))
"""Joystick and seconds."""
TICK, REPEATS, ALLOWED = 1e-3, 5, 100.0
SUBSTEPS = {
    "euler": (20, 50, 100, 200, 500, 1000),
    "rk4": (1, 2, 3, 4, 5, 8, 10, 20),
    "rosenbrock": (1, 2, 4, 10, 20, 50),
}


def main() -> None:
    """Run the comparison."""
    exact, _ = p_A("rk4", 400)
    print("integrator   step/µs   error in p_A/Pa   ms per simulated second")
    best: dict[str, tuple[float, int]] = {}
    for integrator, choices in SUBSTEPS.items():
        for substeps in choices:
            pressures, cost = p_A(integrator, substeps)
            error = float(np.abs(pressures - exact).max())
            print(f"{integrator:11}{1e6 * TICK / substeps:9.1f}{error:18.3g}{1e3 * cost:26.3f}")
            if error <= ALLOWED and cost < best.get(integrator, (np.inf, 0))[0]:
                best[integrator] = cost, substeps
    for integrator, (cost, substeps) in best.items():
        step = 1e6 * TICK / substeps
        print(f"at most {ALLOWED:g} Pa: {integrator} at {step:g} µs, {1e3 * cost:.2f} ms per simulated second")


def p_A(integrator: str, substeps: int) -> tuple[Floats, float]:
    """Pressure at A at the end of every tick; wall seconds per simulated second, the least of several runs."""
    raw = tomllib.loads(CIRCUIT.read_text()) | {"solver": {"integrator": integrator, "substeps": substeps}}
    program, library = compiled_program(standard_library()), standard_library()
    packed = pack(read_circuit(raw, library), library)
    given = np.concatenate([np.full((round(seconds / TICK), 1), joystick) for joystick, seconds in COMMANDS])
    rows = np.empty((len(given), len(packed.names)))
    work, driven = np.zeros(packed.work_size), np.array([packed.values.index("joystick")], dtype=np.int64)
    costs = []
    for _ in range(1 + REPEATS):  # the first run loads
        values = np.zeros(len(packed.names))
        program.load(packed.index, packed.value, values)
        begin = time.perf_counter()
        program.run_free(packed.index, packed.value, values, work, driven, given, substeps, TICK / substeps, rows)
        costs.append((time.perf_counter() - begin) / (len(given) * TICK))
    return rows[:, packed.names.index("A.p")].copy(), min(costs)


if __name__ == "__main__":
    main()
