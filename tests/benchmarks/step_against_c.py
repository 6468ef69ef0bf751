"""Benchmark: a step of two circuits in the engine against C of the same equations, in one run.

    python tests/benchmarks/step_against_c.py

The verification circuit: RK4 at 0.1 ms, against C written by hand (verification_step.c). The crane: the L-stable method
at 0.5 ms, written by hand in C (rosenbrock_step.c), on the circuit's equations translated to straight-line C with all
constants in place (circuit_in_c.py): with an elimination of the whole matrix; along the circuit's structure, as in the
engine; and the latter with parameters in memory, where the engine has them, too, because they can be changed. Each is
driven by sines; the final states must agree, else the comparison would be meaningless. The engine runs the code for all
circuits, and that compiled for this one. Prints the medians of alternating repetitions and their ratios, in processor
time. Needs gcc.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from math import pi
from pathlib import Path

import numpy as np
from circuit_in_c import circuit_in_c

from hilserver.circuit import engine as e
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import Circuit
from hilserver.circuit.pack import pack
from hilserver.compiler import compiled_program
from hilserver.compiler.circuit_code import compile_for, with_code
from hilserver.numerics.arrays import Floats
from hilserver.simulation.circuit_run import read_circuit_file

HERE = Path(__file__).parent
GCC = ("gcc", "-O3", "-march=native")
IN_PLACE = ("-fno-math-errno", "-ffinite-math-only", "-fno-signed-zeros")
"""Options with which fmax, fmin and sqrt are one instruction, as they are in the engine's code, and no call of the
library. Each program is built without and with them, and the faster one is the measure."""
IN_C = {
    "with the whole matrix": (),
    "along the structure": ("-DSTRUCTURE",),
    "along the structure, parameters in memory": ("-DSTRUCTURE", "-DIN_MEMORY"),
}
"""What the crane is compared with, and the options for it."""
CIRCUITS = HERE.parent.parent / "config" / "circuits"
CIRCUIT = CIRCUITS / "verification.toml"
STEPS, H, REPEATS = 100_000, 1e-4, 7
SUBSTEPS = 10
CRANE_TICKS, CRANE_H, CRANE_SUBSTEPS = 4000, 5e-4, 2
FREQUENCIES = {"boom": (0.8, 0.25), "jib": (0.5, 0.4)}
"""Of the crane's inputs: amplitude and frequency, Hz."""


def main() -> None:
    """Run the comparisons."""
    with tempfile.TemporaryDirectory() as folder:
        for compare in (verification, crane):
            compare(Path(folder))


def verification(folder: Path) -> None:
    """RK4 on the verification circuit."""
    circuit = read_circuit_file(CIRCUIT, standard_library())
    commands = {"joystick": 0.5 * np.sin(np.arange(0, STEPS, SUBSTEPS) * H * 2 * pi)}
    write_parameters(circuit, folder)
    commands_of_C = built("verification_step", folder, [str(STEPS), str(H)])
    names = ["supply.content", "A.content", "B.content", "rod.x", "rod.v", "pump.Q", "relief.K", "main_valve.U"]
    report("verification", Engine(circuit, commands, SUBSTEPS, H), commands_of_C, b"", names)


def crane(folder: Path) -> None:
    """The L-stable method on the crane, 26 states."""
    circuit = read_circuit_file(CIRCUITS / "crane.toml", standard_library())
    packed, time_ = pack(circuit, standard_library()), np.arange(CRANE_TICKS) * CRANE_H * CRANE_SUBSTEPS
    commands = {name: size * np.sin(2 * pi * f * time_) for name, (size, f) in FREQUENCIES.items()}
    (folder / "circuit.h").write_text(circuit_in_c(packed, list(commands), CRANE_SUBSTEPS))
    engine = Engine(circuit, commands, CRANE_SUBSTEPS, CRANE_H)
    given = np.stack(list(commands.values()), axis=1).tobytes()
    states = list(packed.values[: packed.n_states])
    arguments = [str(CRANE_TICKS), str(CRANE_H)]
    for name, options in IN_C.items():
        report(f"crane, C {name}", engine, built("rosenbrock_step", folder, arguments, options), given, states)


def built(name: str, folder: Path, arguments: Sequence[str], more: Sequence[str] = ()) -> list[list[str]]:
    """The commands that run a program in C, built with ``more`` options, without and with IN_PLACE."""
    binaries = [folder / f"{name}_{len(options)}" for options in ((), IN_PLACE)]
    for binary, options in zip(binaries, ((), IN_PLACE), strict=True):
        subprocess.run([*GCC, *more, *options, f"-I{folder}", HERE / f"{name}.c", "-o", binary, "-lm"], check=True)
    return [[str(binary), *arguments] for binary in binaries]


def report(name: str, engine: Engine, in_C: Sequence[Sequence[str]], given: bytes, states: Sequence[str]) -> None:
    """Run engine and C alternately; print their times, or exit with a message if their results differ."""
    times: dict[str, list[float]] = {"all circuits' code": [], "own code": []}
    finals: list[Floats] = []
    for _ in range(REPEATS + 1):
        times["all circuits' code"].append(engine.run())
        plain = engine.rows.tobytes()
        times["own code"].append(engine.run(own=True))
        for k, command in enumerate(in_C):
            words = subprocess.run(command, input=given, capture_output=True, check=True).stdout.split()
            times.setdefault(f"C {k}", []).append(float(words[0]))
            finals.append(np.array([float(word) for word in words[1:]]))
    deviation = np.max([np.abs(engine.final(states) - final) / np.maximum(np.abs(final), 1e-6) for final in finals])
    if not deviation <= 1e-6:
        sys.exit(f"{name}: the two disagree (relative {deviation}): not the same equations")
    if engine.rows.tobytes() != plain:
        sys.exit(f"{name}: the engine's two codes disagree")
    medians = {each: statistics.median(found[1:]) for each, found in times.items()}  # the first repetition loads
    medians["C"] = min(medians.pop(f"C {k}") for k in range(len(in_C)))
    shown = ", ".join(f"{each} {1e6 * t:.3f} µs ({t / medians['C']:.2f})" for each, t in medians.items())
    print(f"{name}, per step (and relative to C): {shown}; final states agree within {deviation:.1e}")


class Engine:
    """The packed circuit, stepped as the tick does: some steps with the commands held, all in compiled code."""

    def __init__(self, circuit: Circuit, commands: Mapping[str, Floats], substeps: int, h: float) -> None:
        self.program = compiled_program(standard_library())
        self.packed = pack(circuit, standard_library())
        compile_for(self.packed.index)
        self.own = with_code(self.packed, self.program)
        self.values = np.zeros(len(self.packed.names))
        self.work = np.zeros(self.packed.work_size)
        self.given = np.stack(list(commands.values()), axis=1)
        self.rows = np.empty((len(self.given), len(self.packed.names)))
        self.driven = np.array([self.packed.values.index(name) for name in commands], dtype=np.int64)
        self.substeps, self.h = substeps, h

    def run(self, own: bool = False) -> float:
        """Seconds per step."""
        packed = self.own if own else self.packed
        n, first = len(packed.values), int(packed.index[e.INITIAL])
        self.values[:n] = packed.value[first : first + n]
        arrays = packed.index, packed.value, self.values, self.work, self.driven, self.given
        begin = time.thread_time()
        self.program.run_free(*arrays, self.substeps, self.h, self.rows)
        return (time.thread_time() - begin) / len(self.given) / self.substeps

    def final(self, states: Sequence[str]) -> Floats:
        """The final values of these states."""
        return np.array([self.values[self.packed.values.index(name)] for name in states])


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
