"""Benchmark: a step of the verification circuit in the engine against hand-written C of the same equations, in one run.

    python tests/benchmarks/step_against_c.py

All integrate 10 s with RK4 at 0.1 ms under the same sine command; their final states must agree, else the comparison
would be meaningless. The engine runs the code for all circuits, and that compiled for this one. Prints the medians of
alternating repetitions and their ratios. Needs gcc.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from math import pi
from pathlib import Path

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import pack
from hilserver.compiler import compiled_program
from hilserver.compiler.circuit_code import compile_for, with_code
from hilserver.numerics.arrays import Floats

HERE = Path(__file__).parent
CIRCUIT = HERE.parent.parent / "config" / "circuits" / "verification.toml"
STEPS, H, REPEATS = 100_000, 1e-4, 7
SUBSTEPS = 10


def main() -> None:
    """Run the comparison."""
    circuit = read_circuit(tomllib.loads(CIRCUIT.read_text()), standard_library())
    with tempfile.TemporaryDirectory() as folder:
        binary = compiled(circuit, Path(folder))
        engine, compiled_engine = Engine(circuit), Engine(circuit, compiled=True)
        ours, own, theirs = [], [], []
        for _ in range(REPEATS + 1):
            ours.append(engine.run())
            own.append(compiled_engine.run())
            words = subprocess.run(
                [binary, str(STEPS), str(H)], capture_output=True, text=True, check=True
            ).stdout.split()
            theirs.append(float(words[0]))
        final = np.array([float(word) for word in words[1:]])
    deviation = np.abs(engine.final() - final) / np.maximum(np.abs(final), 1e-6)
    if deviation.max() > 1e-6:
        sys.exit(f"the two disagree (relative {deviation}): not the same equations")
    if engine.rows.tobytes() != compiled_engine.rows.tobytes():
        sys.exit("the engine's two codes disagree")
    c = statistics.median(theirs[1:])  # the first repetition loads
    for name, times in (("engine", ours), ("engine, compiled circuit", own)):
        a = statistics.median(times[1:])
        print(f"{name}: {a * 1e6:.3f} µs per step, C {c * 1e6:.3f} µs per step, ratio {a / c:.2f}")
    print(f"final states agree within {deviation.max():.1e}")


class Engine:
    """The packed circuit, stepped as the tick does: SUBSTEPS steps with the command held, all in compiled code."""

    def __init__(self, circuit: Circuit, compiled: bool = False) -> None:
        self.program = compiled_program(standard_library())
        self.packed = pack(circuit, standard_library())
        if compiled:
            compile_for(self.packed.index)
            self.packed = with_code(self.packed, self.program)
        self.values = np.zeros(len(self.packed.names))
        self.work = np.zeros(self.packed.work_size)
        self.rows = np.empty((STEPS // SUBSTEPS, len(self.packed.names)))
        self.commands = 0.5 * np.sin(np.arange(0, STEPS, SUBSTEPS) * H * 2 * pi).reshape(-1, 1)
        self.driven = np.array([self.packed.values.index("joystick")], dtype=np.int64)

    def run(self) -> float:
        """Seconds per step."""
        n, first = len(self.packed.values), int(self.packed.index[e.INITIAL])
        self.values[:n] = self.packed.value[first : first + n]
        begin = time.perf_counter()
        self.program.run_free(
            self.packed.index,
            self.packed.value,
            self.values,
            self.work,
            self.driven,
            self.commands,
            SUBSTEPS,
            H,
            self.rows,
        )
        return (time.perf_counter() - begin) / STEPS

    def final(self) -> Floats:
        """The final state in the order of the C program."""
        names = ["supply.content", "A.content", "B.content", "rod.x", "rod.v", "pump.Q", "relief.K", "main_valve.U"]
        return np.array([self.values[self.packed.values.index(name)] for name in names])


def compiled(circuit: Circuit, folder: Path) -> Path:
    """The C program with this circuit's parameters."""
    write_parameters(circuit, folder)
    binary = folder / "verification_step"
    source = HERE / "verification_step.c"
    subprocess.run(["gcc", "-O3", "-march=native", f"-I{folder}", source, "-o", binary, "-lm"], check=True)
    return binary


def write_parameters(circuit: Circuit, folder: Path) -> None:
    """A header with the parameters of the verification circuit, for the programs in C."""
    known = {placed.name: placed.component.parameters(circuit.fluid) for placed in circuit.placed}
    pump, relief, valve, cylinder = (known[name] for name in ("pump", "relief", "main_valve", "cylinder"))
    numbers = {
        "SUBSTEPS": SUBSTEPS,
        "B_O": circuit.fluid.bulk_modulus,
        "V_S": known["supply"]["V"],
        **{"Q_MAX": pump["Q_max"], "P_MAX": pump["P_max"], "ETA": pump["eta_tot"], "K_PUMP": pump["k"]},
        **{"P_REF_PUMP": pump["p_ref"], "TAU_PUMP": pump["tau"]},
        **{"P_REF": relief["p_ref"], "C_1": relief["C_1"], "C_2": relief["C_2"], "C_DYN": relief["C_dyn"]},
        **{"TAU": valve["tau"], "C_V": valve["C_v"], "C_LEAK": valve["C_leak"], "U_LEAK": valve["U_leak"]},
        **{"P_TR": valve["p_tr"], "A_A": cylinder["A_A"], "A_B": cylinder["A_B"], "STROKE": cylinder["stroke"]},
        **{"V_0A": cylinder["V_0A"], "V_0B": cylinder["V_0B"], "C_PISTON": cylinder["C"], "LOSS": cylinder["loss"]},
        **{"V_0": cylinder["v_0"], "K_END": cylinder["K_end"], "D_END": cylinder["D_end"], "ZONE": cylinder["zone"]},
        **{"M_MOVING": cylinder["m_moving"], "M_EQ": known["load"]["m_eq"], "F_G": known["load"]["F_g"]},
        **{
            f"P_{node}_START": circuit.starts[name].pressure for node, name in (("S", "supply"), ("A", "A"), ("B", "B"))
        },
        "X_START": circuit.starts["rod"].position,
    }
    (folder / "parameters.h").write_text("".join(f"#define {name} {value!r}\n" for name, value in numbers.items()))


if __name__ == "__main__":
    main()
