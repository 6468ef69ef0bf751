"""Compiled programs: several in one process, each with the physics of its own library."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LEAK = '''
from hilserver.components.base import Component, Fluid, Parameters, kernel


class Leak(Component):
    """A laminar leak."""

    type_name = "leak"
    hydraulic = ("A", "T")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"G": 1e-12}


@kernel(Leak)
def leak(p_A, p_T, G):
    q_T = FACTOR * G * (p_A - p_T)
    q_A = -q_T
    return q_A, q_T
'''
FACTORS = ("1.0", "2.0")
RUN = """
import sys
import numpy as np
from pathlib import Path
from hilserver.circuit import engine
from hilserver.circuit.library import Library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.own import OwnFile, own_module
from hilserver.circuit.pack import pack
from hilserver.compiler import compiled_program
from hilserver.components.tank import Tank
from hilserver.components.volume import OilVolume

CIRCUIT = {"nodes": {"a": {"pressure": "100 bar"}}, "components": {
    "tank": {"type": "tank", "ports": {"T": "t"}},
    "volume": {"type": "volume", "ports": {"P": "a"}, "volume": "1 l"},
    "leak": {"type": "leak", "ports": {"A": "a", "T": "t"}},
}}
for file in map(Path, sys.argv[1:]):
    library = Library([Tank, OilVolume, own_module(OwnFile.read(file)).Leak])
    packed = pack(read_circuit(CIRCUIT, library), library)
    program = compiled_program(library)
    z, y = np.zeros(int(packed.index[engine.N_VALUES])), np.zeros(int(packed.index[engine.N_RECORDED]))
    work = np.zeros(packed.work_size)
    program.load(packed.index, packed.value, z)
    program.advance(packed.index, packed.value, z, y, work, 100, 1e-3)
    print(file.stem, float(z[packed.values.index("a.p")]).hex())
"""


def run(*files: Path) -> dict[str, str]:
    """The pressure that each library comes to, all of them in one fresh process, in this order."""
    command = [sys.executable, "-c", RUN, *map(str, files)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("own")
    found = []
    for number, factor in enumerate(FACTORS):
        file = folder / f"leak_{number}.py"
        file.write_text(LEAK.replace("FACTOR", factor))
        found.append(file)
    return found


@pytest.fixture(scope="module")
def alone(files: list[Path]) -> dict[str, str]:
    """Each library in a process of its own; what is compiled there stays in the cache."""
    return {name: pressure for file in files for name, pressure in run(file).items()}


def test_libraries_differ(alone: dict[str, str]) -> None:
    assert len(set(alone.values())) == len(FACTORS)


@pytest.mark.parametrize("order", list(itertools.permutations(range(len(FACTORS)))), ids=str)
def test_programs_from_the_cache_keep_their_own_physics(
    order: tuple[int, ...], files: list[Path], alone: dict[str, str]
) -> None:
    """A shared library that is loaded twice is one, with one table of own kernels; each must have its own."""
    assert run(*(files[number] for number in order)) == alone
