"""Elimination along the structure of a circuit, against NumPy's solution, and as one operation after the other."""

from __future__ import annotations

import ctypes
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_circuits import ALL, LIBRARY, Raw, circuit_of, circuits, commands, program

from hilserver.circuit import engine as e
from hilserver.circuit.coupling import Call, Coupling
from hilserver.circuit.elimination import factorise_structure, is_sound, solve_structure
from hilserver.circuit.pack import TABLE_WIDTHS, PackedCircuit, pack
from hilserver.circuit.rosenbrock import GAMMA, factorise_step, solve_step
from hilserver.compiler.straight_elimination import ELIMINATED, elimination
from hilserver.numerics.arrays import Floats, Indices
from hilserver.numerics.linear import compressed_size
from hilserver.simulation.circuit_run import read_circuit_file

CIRCUITS = Path(__file__).parents[2] / "config" / "circuits"
STIFF = ("crane", "regenerative")


def index_of(structure: np.ndarray) -> Indices:
    """Header and table of a circuit in which rate i depends on state j where the structure has an entry."""
    n = len(structure)
    calls = [Call(np.flatnonzero(structure[i]).tolist(), [], [i]) for i in range(n)]
    table = Coupling(n, calls, [], {header: [] for header in TABLE_WIDTHS}).elimination()
    index = np.zeros(e.HEADER + len(table), dtype=np.uint64)
    index[e.N_STATES], index[e.N_ELIMINATION], index[e.ELIMINATION] = n, len(table), e.HEADER
    index[e.HEADER :] = table
    return index


def example(seed: int) -> tuple[Indices, Floats, Floats]:
    """A random structure, a Jacobian with it, and a right-hand side."""
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 13))
    structure = random.random((n, n)) < random.choice([0.1, 0.3, 0.6])
    jacobian = random.standard_normal((n, n)) * structure - np.diag(random.uniform(1.0, 4.0, n))
    return index_of(structure), jacobian, random.standard_normal(n)


def solved(index: Indices, jacobian: Floats, b: Floats, scale: float) -> tuple[Floats, Floats]:
    """The solution, and the factors: NaN outside of the structure."""
    n, found = len(b), b.copy()
    factors, columns = np.full(n * n, np.nan), jacobian.T.ravel().copy()
    factorise_structure(index, columns, factors, scale)
    assert is_sound(index, columns, factors, scale)
    solve_structure(index, factors, found)
    return found, factors


@pytest.mark.parametrize("seed", range(30))
def test_the_solution_is_that_of_numpy(seed: int) -> None:
    index, jacobian, b = example(seed)
    found, _ = solved(index, jacobian, b, -0.7)
    assert found == pytest.approx(np.linalg.solve(np.eye(len(b)) - 0.7 * jacobian, b), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_nothing_outside_of_the_structure_is_touched(seed: int) -> None:
    """Each entry of the Jacobian is in the structure; the elimination makes no entry that is not."""
    index, jacobian, b = example(seed)
    _, factors = solved(index, jacobian, b, -0.7)
    touched = ~np.isnan(factors.reshape(jacobian.shape).T)
    assert touched[(jacobian != 0.0) | np.eye(len(b), dtype=bool)].all()
    if len(b) > 3:
        assert touched.sum() <= len(b) ** 2


@pytest.mark.parametrize("seed", range(10))
def test_the_units_of_the_states_do_not_matter(seed: int) -> None:
    """Pa beside m³/s: with other units, here powers of two, the same bits. (Pivoting would choose other rows.)"""
    index, jacobian, b = example(seed)
    units = 2.0 ** np.random.default_rng(seed).integers(-40, 40, len(b))
    found, _ = solved(index, jacobian, b, -0.7)
    other, _ = solved(index, jacobian * units / units[:, None], b / units, -0.7)
    assert (other * units).tolist() == found.tolist()


def test_a_chain_makes_no_new_entries() -> None:
    """And a hub in the middle of a star comes last, although it is the first state."""
    chain = np.eye(40, dtype=bool) | np.eye(40, k=1, dtype=bool) | np.eye(40, k=-1, dtype=bool)
    star = np.eye(40, dtype=bool)
    star[0, :] = star[:, 0] = True
    for structure in (chain, star):
        assert index_of(structure)[e.N_ELIMINATION] == structure.sum() - 40 + 4 * 40


def test_a_full_matrix_is_eliminated_as_a_whole() -> None:
    """As is that of a circuit with an explicit method, on its way to an equilibrium."""
    assert index_of(np.ones((40, 40), dtype=bool))[e.N_ELIMINATION] == 0
    assert packed_circuit("verification").index[e.N_ELIMINATION] == 0


@pytest.mark.parametrize("loss", [0.0, 1e-12])
def test_a_pivot_that_is_lost_is_found_elsewhere(loss: float) -> None:
    """A state that would grow in the step by just its own amount; the equations have a solution all the same."""
    h = 1e-3
    jacobian = np.array([[(1.0 - loss) / (GAMMA * h), 1e4, 0.0], [-1e4, 0.0, 3.0], [0.0, 2.0, -5.0]])
    index, b, n = index_of(jacobian != 0.0), np.array([1.0, 2.0, 3.0]), 3
    index[e.HEADER :] = [0, 1, 1, 1, 1, 6, 1, 1, 1, 2, 2, 6, 2, 0, 0, 4]  # its column first
    work = np.zeros(8 * n + 2 * n * n + compressed_size(n))
    work[7 * n : 7 * n + n * n] = jacobian.T.ravel()  # behind the rates and six vectors
    assert not _is_sound_first(index, work[7 * n :], h)
    factorise_step(index, work, work[:0], h)
    solve_step(index, work, n, b)
    assert b == pytest.approx(np.linalg.solve(np.eye(n) - GAMMA * h * jacobian, [1.0, 2.0, 3.0]), rel=1e-9)


def _is_sound_first(index: Indices, jacobian: Floats, h: float) -> bool:
    factors = np.zeros(9)
    with np.errstate(divide="ignore", invalid="ignore"):
        factorise_structure(index, jacobian, factors, -GAMMA * h)
    return is_sound(index, jacobian, factors, -GAMMA * h)


def packed_circuit(name: str) -> PackedCircuit:
    return pack(read_circuit_file(CIRCUITS / f"{name}.toml", LIBRARY), LIBRARY)


def test_the_structure_of_the_crane_is_sparse() -> None:
    """Of 676 entries; each state has four cells more."""
    packed = packed_circuit("crane")
    assert 0 < packed.index[e.N_ELIMINATION] < 140 + 4 * packed.n_states


def runs(packed: PackedCircuit, driven: dict[str, Floats], ticks: int) -> list[Floats]:
    """The states over a run along the structure, and over one with the whole matrix."""
    places = np.array([packed.values.index(value) for value in driven], dtype=np.int64)
    lines, found = np.column_stack([*driven.values()]) if driven else np.zeros((ticks, 0)), []
    for cells in (packed.index[e.N_ELIMINATION], 0):
        index, values = packed.index.copy(), np.zeros(len(packed.names))
        index[e.N_ELIMINATION] = cells
        rows, work = np.empty((ticks, len(values))), np.zeros(packed.work_size)
        program().load(index, packed.value, values)
        program().run_free(index, packed.value, values, work, places, lines, 2, 5e-4, rows)
        found.append(rows[:, : packed.n_states])
    return found


def assert_equal_motion(packed: PackedCircuit, along: Floats, whole: Floats) -> None:
    """To a small part of each state's largest value, or of its typical size."""
    size = np.maximum(np.abs(whole).max(axis=0), packed.value[int(packed.index[e.SCALE]) :][: packed.n_states])
    assert (np.abs(along - whole).max(axis=0) <= 1e-7 * size).all()


@pytest.mark.parametrize("name", STIFF)
def test_a_circuit_moves_as_with_the_whole_matrix(name: str) -> None:
    """Over a second with sines at all inputs."""
    packed = packed_circuit(name)
    inputs = [value for value in packed.values if "." not in value and value != "t"]
    driven = {value: np.sin(2e-3 * np.pi * (k + 1) * np.arange(1000)) for k, value in enumerate(inputs)}
    along, whole = runs(packed, driven, 1000)
    assert along.tobytes() != whole.tobytes()
    assert_equal_motion(packed, along, whole)


@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(circuits(ALL, ["0.01 l", "0.1 l", "1 l"], air=(0.0, 0.005)), st.integers(0, 999))
def test_random_circuits_move_as_with_the_whole_matrix(raw: Raw, seed: int) -> None:
    """With voids, end stops and valves that open."""
    circuit = circuit_of(raw, "rosenbrock")
    packed = pack(circuit, LIBRARY, accounts=True)
    assert_equal_motion(packed, *runs(packed, commands(circuit, 60, seed), 60))


@pytest.mark.parametrize("seed", range(6))
def test_without_loops_the_bits_are_the_same(seed: int) -> None:
    """The intermediate code for one circuit, compiled on its own."""
    index, jacobian, b = example(seed)
    found, factors = solved(index, jacobian, b, -0.7)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly("\n".join(elimination(index)))
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    pointer, same, straight = ctypes.c_void_p, b.copy(), np.full_like(factors, np.nan)
    columns = jacobian.T.ravel().copy()
    factorise, solve = (engine.get_function_address(ELIMINATED[name]) for name in sorted(ELIMINATED))
    ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, pointer, ctypes.c_double)(factorise)(
        index.ctypes.data, columns.ctypes.data, straight.ctypes.data, -0.7
    )
    ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, pointer)(solve)(
        index.ctypes.data, straight.ctypes.data, same.ctypes.data
    )
    assert straight.tobytes() == factors.tobytes()
    assert same.tobytes() == found.tobytes()
