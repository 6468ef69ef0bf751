"""Circuits exported as FMUs, and the importers that run them: FMPy, and fmu_importer.c, which needs no Python."""

from __future__ import annotations

import functools
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import fmpy
import numpy as np
import pytest
from numpy.typing import NDArray

from hilserver.circuit.library import standard_library
from hilserver.circuit.pack import pack
from hilserver.compiler import standard_program
from hilserver.fmu.export import WrittenFmu, export_circuit
from hilserver.fmu.variables import Causality
from hilserver.numerics.arrays import Floats
from hilserver.simulation.circuit_run import read_circuit_file
from hilserver.simulation.packed_run import run_packed

CONFIG = Path(__file__).parents[2] / "config"
SOURCE = Path(__file__).with_name("fmu_importer.c")
NAMES = ("accumulator", "boom", "crane", "excavator", "lowering", "regenerative", "verification")
"""The ready circuits that include their machine."""
TICK = 1e-3

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc, which builds the importer, is missing")


@dataclass(frozen=True)
class Fmu:
    """An exported circuit, unpacked: its names in the order of their value references."""

    circuit: Path
    exported: WrittenFmu
    folder: Path

    @property
    def file(self) -> Path:
        return self.exported.file

    def names(self, kind: Causality) -> list[str]:
        return [variable.name for variable in self.exported.variables if variable.kind is kind]

    def reference(self, name: str) -> int:
        return [variable.name for variable in self.exported.variables].index(name)

    @property
    def inputs(self) -> list[str]:
        return self.names(Causality.INPUT)

    @property
    def outputs(self) -> list[str]:
        return self.names(Causality.OUTPUT)


def exported(circuit: Path, folder: Path, fmi: str = "2.0", tick: float = TICK) -> Fmu:
    """The FMU of a circuit file in this folder."""
    made = export_circuit(circuit, folder / f"{circuit.stem}_{fmi[0]}.fmu", fmi, tick)
    unpacked = folder / f"{circuit.stem}_{fmi[0]}"
    fmpy.extract(str(made.file), str(unpacked))
    return Fmu(circuit, made, unpacked)


def in_motion(inputs: int, ticks: int) -> Floats:
    """Inputs that move within -1 … 1, and jump now and then: a value per tick and input."""
    time = np.arange(ticks)[:, None] * TICK
    wave = 0.7 * np.sin(2.0 * time + 1.7 * np.arange(inputs)) + 0.3 * np.sign(np.sin(5.1 * time))
    return np.asarray(wave, dtype=np.float64)


def in_hilserver(
    circuit: Path, names: list[str], given: Floats, outputs: list[str], start: Floats | None = None
) -> Floats:
    """The outputs of `hilserver simulate --hold-inputs` at the end of each tick."""
    packed = pack(read_circuit_file(circuit, standard_library()), standard_library(), accounts=True)
    rows = run_packed(standard_program(), packed, TICK, names, given)
    return np.asarray(rows[:, [packed.names.index(name) for name in outputs]])


def in_fmpy(fmu: Fmu, given: Floats) -> Floats:
    """The same in FMPy, which also reads the derivatives after each step."""
    time = np.arange(len(given)) * TICK
    columns = [("time", float), *((name, float) for name in fmu.inputs)]
    signals = np.array([(t, *row) for t, row in zip(time, given, strict=True)], dtype=columns) if fmu.inputs else None
    found: NDArray[np.void] = fmpy.simulate_fmu(
        str(fmu.folder),
        stop_time=len(given) * TICK,
        output_interval=TICK,
        fmi_type="CoSimulation",
        input=signals,
        output=[*fmu.outputs, *fmu.names(Causality.DERIVATIVE)],
        validate=False,
    )
    return np.column_stack([found[name][1:] for name in fmu.outputs])


@functools.cache
def _importer() -> Path:
    program = Path(mkdtemp(prefix="fmu-importer-")) / "importer"
    subprocess.run(["gcc", "-O1", "-o", program, SOURCE, "-ldl"], check=True)
    return program


def in_c(fmu: Fmu, given: Floats) -> Floats:
    """The same in the importer written in C."""
    (library,) = fmu.folder.glob("binaries/*/*.so")
    resources = fmu.folder / "resources"
    description = fmpy.read_model_description(str(fmu.folder), validate=False)
    version = fmu.exported.version
    token = description.guid if version == "2.0" else description.instantiationToken
    place = resources.as_uri() if version == "2.0" else f"{resources}/"
    words = [version[0], str(library), token, place, repr(TICK), len(given), len(fmu.inputs), len(fmu.outputs)]
    done = subprocess.run([_importer(), *map(str, words)], input=given.tobytes(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout).reshape(len(given), -1)
