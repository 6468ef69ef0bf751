"""Benchmark: cost of a step over the size of the circuit.

    python tests/benchmarks/scaling.py

Chains of n volumes with an orifice between each two, fed by a pressure source: 2·n + 2 components, n states. An
explicit integrator's cost grows with n; the implicit one's with n² (a column of the Jacobian per state, each over all
n) and, for large n, n³. Also shows that a new circuit is read and packed in milliseconds.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program

LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200)
REPEATS = 5
STEPS = {"euler": 4000, "rk4": 1000, "rosenbrock": 20}


def main() -> None:
    """Run all lengths."""
    program = compiled_program(standard_library())
    cost(program, chain(1), "rk4")  # load
    print("components  states  packed in   " + "".join(f"{name:>12}" for name in STEPS) + "   µs per step")
    explicit = []
    for n in LENGTHS:
        begin = time.perf_counter()
        packed = pack(read_circuit(chain(n), standard_library()), standard_library())
        packing = time.perf_counter() - begin
        costs = [cost(program, chain(n), integrator) for integrator in STEPS]
        explicit.append(costs[1])
        line = "".join(f"{1e6 * c:12.2f}" for c in costs)
        print(f"{2 * n + 2:10}{packed.n_states:8}{1e3 * packing:8.1f} ms   {line}")
    slope, base = np.polyfit(LENGTHS, explicit, 1)
    print(f"rk4: {1e6 * base:.2f} µs + {1e6 * slope / 2:.3f} µs per component;", end=" ")
    print(f"exponent from {LENGTHS[-3]} to {LENGTHS[-1]}: {exponent(explicit):.2f} (1 is linear)")


def chain(n: int) -> dict[str, Any]:
    """n volumes in a row, each 10 bar below the one before at the start."""
    parts: dict[str, Any] = {
        "source": {"type": "pressure_source", "ports": {"P": "n0"}, "pressure": "100 bar", "command": 1},
        "tank": {"type": "tank", "ports": {"T": f"n{n + 1}"}},
    }
    point = {"flow": "20 l/min", "drop": "10 bar"}
    for k in range(1, n + 1):
        parts[f"oil{k}"] = {"type": "volume", "ports": {"P": f"n{k}"}, "volume": "1 l"}
        parts[f"orifice{k}"] = {"type": "orifice", "ports": {"A": f"n{k - 1}", "B": f"n{k}"}, "nominal_flow": point}
    return {"components": parts}


def cost(program: Program, raw: dict[str, Any], integrator: str) -> float:
    """Seconds per step of 0.1 ms, the least of several runs."""
    library = standard_library()
    packed = pack(read_circuit(raw | {"solver": {"integrator": integrator}}, library), library)
    values, y = np.zeros(len(packed.values)), np.zeros(len(packed.recorded))
    work = np.zeros(packed.work_size)
    program.load(packed.index, packed.value, values)
    costs = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        program.advance(packed.index, packed.value, values, y, work, STEPS[integrator], 1e-4)
        costs.append((time.perf_counter() - begin) / STEPS[integrator])
    return min(costs)


def exponent(costs: list[float]) -> float:
    """Of the growth over the last lengths: cost ~ length^exponent."""
    return float(np.log(costs[-1] / costs[-3]) / np.log(LENGTHS[-1] / LENGTHS[-3]))


if __name__ == "__main__":
    main()
