"""Benchmark: a component of the user's own against the built-in one with the same equation, in one run.

    python tests/benchmarks/own_component.py

Two circuits of 50 orifices between 50 volumes, one with the built-in orifice, one with the same lines in a file of the
user's own, stepped in turn by the same compiled program; then circuits of both kinds are switched, while everything
that numba compiles is counted. The final states must be bit-identical.
"""

from __future__ import annotations

import inspect
import statistics
import sys
import time
from typing import Any

import numpy as np
from numba.core import event

from hilserver.circuit.library import Library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.own import OwnFile, own_module
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.components import orifice
from hilserver.components.volume import OilVolume

COUNT, STEPS, H, REPEATS = 50, 5_000, 1e-5, 15


def main() -> None:
    """Run the comparison."""
    module = own_module(OwnFile("my_orifice.py", own_text()))
    library = Library([OilVolume, orifice.Orifice, module.MyOrifice])
    program = compiled_program(library)  # compiles the own kernel, or loads it
    circuits = {kind: chain(kind, library) for kind in ("orifice", "my_orifice")}
    results = {kind: run(program, packed)[1] for kind, packed in circuits.items()}  # loads
    with event.install_recorder("numba:compile") as compiled:
        times: dict[str, list[float]] = {kind: [] for kind in circuits}
        for _ in range(REPEATS):
            for kind, packed in circuits.items():
                times[kind].append(run(program, packed)[0])
    if not np.array_equal(results["orifice"], results["my_orifice"]):
        sys.exit("the two disagree: not the same equations")
    built_in, own = (statistics.median(times[kind]) for kind in circuits)
    figures = f"built-in orifice {built_in * 1e6:.2f} µs per RK4 step of {COUNT}, own {own * 1e6:.2f} µs"
    print(f"{figures}, ratio {own / built_in:.2f}")
    switches = f"compiled in {2 * REPEATS} switches between the two: {len(compiled.buffer)} functions"
    print(f"{switches}; final states: bit-identical")


def own_text() -> str:
    """The built-in component as a user would have written it: other names, the same lines."""
    text = inspect.getsource(orifice).replace("class Orifice(", "class MyOrifice(").replace("(Orifice)", "(MyOrifice)")
    return text.replace('"orifice"', '"my_orifice"').replace("-> Orifice", "-> MyOrifice")


def chain(kind: str, library: Library) -> PackedCircuit:
    """Volumes in a row, joined by orifices, the first one full of pressure."""
    components: dict[str, Any] = {}
    for k in range(COUNT):
        nodes = {"A": f"n{k}", "B": f"n{k + 1}"}
        components[f"o{k}"] = {"type": kind, "ports": nodes, "nominal_flow": {"flow": "10 l/min", "drop": "5 bar"}}
        components[f"v{k}"] = {"type": "volume", "ports": {"P": f"n{k}"}, "volume": "0.1 l"}
    components["end"] = {"type": "volume", "ports": {"P": f"n{COUNT}"}, "volume": "0.1 l"}
    return pack(read_circuit({"components": components, "nodes": {"n0": {"pressure": "200 bar"}}}, library), library)


def run(program: Program, packed: PackedCircuit) -> tuple[float, Any]:
    """Seconds per step, and the final values."""
    z, y, work = np.zeros(len(packed.values)), np.zeros(len(packed.recorded)), np.zeros(packed.work_size)
    program.load(packed.index, packed.value, z)
    begin = time.perf_counter()
    program.advance(packed.index, packed.value, z, y, work, STEPS, H)
    return (time.perf_counter() - begin) / STEPS, z


if __name__ == "__main__":
    main()
