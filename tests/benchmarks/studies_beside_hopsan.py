"""Runs per minute of a study and of Hopsan's core, of the same lift at the same accuracy, in one go::

    git clone https://github.com/Hopsan/hopsan
    python tests/benchmarks/studies_beside_hopsan.py hopsan

Hopsan's core is compiled from its sources (g++, -O3; without what needs other libraries, which the lift does not). The
lift is that of tests/simulation/hopsan/level.toml over 8 s, with another mass in each run. Both keep the same error of
a pressure, against a run of hilserver with 160 steps per millisecond: hilserver with the fewest RK4 steps, Hopsan with
the longest step. CPU time of one process each, which other programs hardly change; Hopsan's includes setting the mass
and its initialisation, hilserver's packing and the figures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.library import standard_library
from hilserver.numerics.arrays import Floats
from hilserver.rig.cycle import CycleSettings
from hilserver.simulation.circuit_run import read_circuit_file, read_cycle
from hilserver.simulation.packed_run import solved_by
from hilserver.studies.circuit_runs import CircuitRuns, CircuitSubject
from hilserver.studies.figures import read_figures
from hilserver.units import unit_of_value

FOLDER = Path(__file__).parents[1] / "simulation/hopsan"
SECONDS, PERIOD, LARGEST = 8.0, 2.0, 100.0
"""s of a run; s after which the command repeats; Pa."""
MOVES = ((0.02, 0.0), (0.04, 0.75), (0.25, 0.75), (0.29, -0.75), (0.6, -0.75), (0.65, 0.3), (0.9, 0.3), (0.91, 0.0))
"""The command of level_cycle.toml: times, s, and values."""
STEPS = (20e-6, 10e-6, 5e-6, 2.5e-6, 1e-6, 0.5e-6, 0.25e-6)
"""s, of Hopsan."""
INCLUDES = ("HopsanCore/include", "HopsanCore/dependencies/rapidxml", "HopsanCore/dependencies/sundials-extra/include",
            "componentLibraries/defaultLibrary")  # fmt: skip
NEED_MORE = ("CSVParser.cpp", "EquationSystemSolver.cpp", "NumHopHelper.cpp")
"""Sources that need other libraries."""
FLAGS = ("-std=c++14", "-O3", "-DNDEBUG", "-w", "-DHOPSAN_BUILD_TYPE_RELEASE", "-DHOPSAN_INTERNALDEFAULTCOMPONENTS")


def points() -> list[tuple[float, float]]:
    """The command over a whole run."""
    repeated = [(k * PERIOD + t, u) for k in range(round(SECONDS / PERIOD)) for t, u in MOVES]
    return [(0.0, 0.0), *repeated, (SECONDS, 0.0)]


def built(source: Path, folder: Path) -> Path:
    """The program of the lift with Hopsan's core."""
    core = [path for path in sorted((source / "HopsanCore/src").rglob("*.cpp")) if path.name not in NEED_MORE]
    includes = [f"-I{source / each}" for each in INCLUDES]
    objects = []
    for path in (Path(__file__).with_name("hopsan_lift.cpp"), *core):
        objects.append(folder / f"{path.stem}.o")
        subprocess.run(("g++", *FLAGS, *includes, "-c", path, "-o", objects[-1]), check=True)
    subprocess.run(("g++", *objects, "-o", folder / "lift", "-ldl", "-lpthread"), check=True)
    return folder / "lift"


def of_hopsan(program: Path, step: float, runs: int) -> tuple[Floats, float]:
    """Pressures of A and B, Pa, at each millisecond, and the median CPU time of a run, s."""
    command = program.with_name("command.txt")
    command.write_text("".join(f"{t!r} {u!r}\n" for t, u in points()))
    done = subprocess.run(
        (program, command, repr(step), repr(SECONDS), str(runs)), capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    pressures = np.array([line[:2] for line in lines if len(line) == 3], dtype=float)
    return pressures, 1e-3 * float(np.median([float(line[0]) for line in lines if len(line) == 1] or [np.nan]))


def subject(substeps: int) -> CircuitSubject:
    """The same of hilserver, with other masses."""
    circuit = read_circuit_file(FOLDER / "level.toml", standard_library())
    table = {**circuit.written, "solver": {"integrator": "rk4", "substeps": substeps}}
    of_file = read_cycle(FOLDER / "level_cycle.toml")
    inputs = {"u": of_file.inputs["u"].model_validate({"points": [[f"{t!r} s", u] for t, u in points()]})}
    cycle = CycleSettings(inputs=inputs)
    found = CircuitSubject(
        "level.toml", table, (), cycle, SECONDS, 1e-3, ("load.mass",), ((60.0, 200.0),)
    )  # as a study has it
    units = {name: unit_of_value(name) for name in found.prepare().names}
    figures = {"peak": "max(A.p)", "final": "final(rod.x)"}
    return replace(found, figures=read_figures(figures, units, SECONDS, "benchmark"))


def pressures_of(runs: CircuitRuns, refined: int = 1) -> Floats:
    """Pressures of A and B, Pa, at each millisecond, with so many times as many steps."""
    packed = runs.varied.packed
    finer = solved_by(packed, refined * int(packed.index[e.SUBSTEPS]), "rk4", 0)
    return np.asarray(runs.series(finer, ("A.p", "B.p")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="folder of Hopsan's sources")
    parser.add_argument("--runs", type=int, default=100, help="runs of hilserver; Hopsan makes a twentieth of them")
    given = parser.parse_args()
    truth = pressures_of(subject(10).prepare(), 16)
    print(f"{SECONDS:g} s per run, error of a pressure at most {LARGEST:g} Pa; load: {os.getloadavg()[0]:.1f}")
    for substeps in range(1, 11):
        runs = subject(substeps).prepare()
        error = float(np.abs(pressures_of(runs) - truth).max())
        masses, begun = 60.0 + np.arange(1.0, given.runs + 1.0), process_time()
        for mass in masses:
            runs(np.array([mass]))
        said("hilserver", f"{1e3 / substeps:.0f} µs", error, (process_time() - begun) / given.runs)
        if error <= LARGEST:
            break
    with tempfile.TemporaryDirectory() as folder:
        program = built(given.source, Path(folder))
        for step in STEPS:
            pressures, spent = of_hopsan(program, step, max(given.runs // 20, 3))
            error = float(np.abs(pressures.T - truth).max()) if pressures.size else np.nan
            said("Hopsan", f"{1e6 * step:g} µs", error, spent)
            if error <= LARGEST:
                break


def said(program: str, step: str, error: float, spent: float) -> None:
    print(
        f"{program:10s} step {step:8s} error {error:9.1f} Pa  {1e3 * spent:8.1f} ms/run  {60.0 / spent:8.0f} runs/min"
    )


if __name__ == "__main__":
    main()
