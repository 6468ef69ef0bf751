"""The prebuilt program: its entry points, the choice of its file, the same bits on every processor, own components."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.circuit.library import FIRST_OWN_KIND, Library, library_of, standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Argument, Function, Program, Record, parameters_of
from hilserver.compiler import compiled_program, loading, standard_program
from hilserver.compiler.levels import NEEDED_FOR_V3, V2, V3, level_of_this_machine, levels
from hilserver.compiler.loading import FINGERPRINT_FILE, load
from hilserver.compiler.sources import cache_root, fingerprint, writable
from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.numerics.valve_record import through_play
from hilserver.simulation.circuit_run import run_packed
from hilserver.tick.lockstep import Attached, run_bridged
from hilserver.tick.plant import PlantArrays, move
from hilserver.tick.program import ENTRY_POINTS
from hilserver.toml import read_toml

CIRCUITS = sorted(Path("config/circuits").glob("*.toml"))
"""The ready circuits; those for rigs are simulated on them by the golden runs (tests/tick/test_golden.py)."""


# --- entry points ----------------------------------------------------------------------------------------------------


def test_parameters_are_those_of_the_python_function() -> None:
    assert parameters_of(move)["commands"] is Argument.FLOATS
    assert parameters_of(move)["dt"] is Argument.NUMBER
    plant, devices = parameters_of(move)["plant"], parameters_of(run_bridged)["devices"]
    assert isinstance(plant, Record)
    assert plant.type is PlantArrays
    assert plant.fields[:2] == (Argument.INDICES, Argument.FLOATS)
    assert plant.fields[PlantArrays._fields.index("line")] is Argument.MATRIX
    assert isinstance(devices, Record)
    assert (devices.type, devices.many, devices.cells) == (Attached, True, 2)
    assert devices.one().cells == sum(field.cells for field in devices.fields) > plant.cells


def test_every_entry_point_is_callable() -> None:
    program = standard_program()
    for function in ENTRY_POINTS:
        assert isinstance(getattr(program, function.__name__), Function)
    with pytest.raises(AttributeError, match="retreat"):
        _ = program.retreat


def test_a_compiled_function_computes_what_the_python_function_computes() -> None:
    command = np.random.default_rng(1).uniform(-1.0, 1.0, 500)
    compiled, plain = np.empty(500), np.empty(500)
    standard_program().through_play(command, 0.02, 0.01, compiled)
    through_play(command, 0.02, 0.01, plain)
    np.testing.assert_array_equal(compiled, plain)


def test_a_bound_call_works_on_the_arrays_themselves() -> None:
    command, target = np.zeros(3), np.empty(3)
    run = standard_program().through_play.bound(command, 0.0, 0.0, target)
    for value in (0.25, -0.5):
        command[:] = value
        run()
        assert target.tolist() == [value] * 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((np.zeros(3), 0.0, 0.0), "through_play takes 4 arguments, got 3"),
        (([0.0], 0.0, 0.0, np.zeros(1)), "through_play: command must be .*float64 with 1 dimensions, is list"),
        ((np.zeros(3, np.float32), 0.0, 0.0, np.zeros(3)), "command must be .* is float32"),
        ((np.zeros((3, 1)), 0.0, 0.0, np.zeros(3)), "command must be .* is float64 with 2 dimensions"),
        ((np.zeros(6)[::2], 0.0, 0.0, np.zeros(3)), "command must be a contiguous array .* is not contiguous"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        standard_program().through_play(*arguments)


# --- the file --------------------------------------------------------------------------------------------------------


def test_level_3_needs_all_its_instructions(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor : 0\nflags : fpu sse4_2 {' '.join(sorted(NEEDED_FOR_V3))}\n")
    level = level_of_this_machine.__wrapped__
    assert level(file) == (V3 if V3 in levels() else levels()[0])
    file.write_text(f"processor : 0\nflags : fpu sse4_2 {' '.join(sorted(NEEDED_FOR_V3 - {'bmi2'}))}\n")
    assert level(file) == (V2 if V2 in levels() else levels()[0])


def test_a_program_of_other_sources_is_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped, cache = tmp_path / "built", tmp_path / "cache"
    monkeypatch.setattr(loading, "SHIPPED", shipped)
    monkeypatch.setenv("CACHE_DIRECTORY", str(cache))
    for folder in (shipped, cache / fingerprint()):
        folder.mkdir(parents=True)
        (folder / FINGERPRINT_FILE).write_text("0123456789abcdef")
    assert loading.found_file() is None
    (cache / fingerprint() / FINGERPRINT_FILE).write_text(fingerprint())
    assert loading.found_file() == cache / fingerprint() / f"{level_of_this_machine()}.so"
    (shipped / FINGERPRINT_FILE).write_text(fingerprint())
    assert loading.found_file() == shipped / f"{level_of_this_machine()}.so"


def test_the_cache_follows_the_systems_wishes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CACHE_DIRECTORY", f"{tmp_path}/a:{tmp_path}/b")
    assert cache_root() == tmp_path / "a"
    monkeypatch.delenv("CACHE_DIRECTORY")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "hilserver"


def test_where_nothing_can_be_written_a_private_folder_is_taken(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    place = writable(blocked / "cache")
    assert place.is_dir()
    assert place.stat().st_mode & 0o077 == 0


# --- the same bits ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def programs() -> tuple[Program, Program]:
    """The program for two levels of this processor."""
    if level_of_this_machine() != V3:
        pytest.skip("the processor has one level only")
    file = loading.standard_file()
    return load(file), load(file.with_name(f"{V2}.so"))


def run_freely(program: Program, packed: PackedCircuit, ticks: int = 200) -> Floats:
    """All values of a circuit over some ticks of 1 ms, with its inputs in motion."""
    given = np.sin(np.arange(ticks) * 0.03)[:, None]
    return run_packed(program, packed, 1e-3, ("joystick",), given)


@pytest.mark.parametrize("file", CIRCUITS, ids=lambda file: file.stem)
def test_both_levels_compute_the_same_bits(file: Path, programs: tuple[Program, Program]) -> None:
    library = standard_library()
    try:
        packed = pack(read_circuit(read_toml(file), library, str(file)), library)
    except ConfigurationError:
        pytest.skip("a circuit for a rig")
    first, second = (run_freely(program, packed) for program in programs)
    assert np.abs(first).max() > 0.0
    assert first.tobytes() == second.tobytes()


def test_the_program_needs_only_the_c_library(tmp_path: Path) -> None:
    """A process without any module of Python's packages loads it."""
    code = f"import ctypes; print(ctypes.CDLL({str(loading.standard_file())!r}).hilserver_tick is not None)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "True\n", done.stderr


# --- own components --------------------------------------------------------------------------------------------------

OWN = """
from hilserver.components.base import Component, kernel
from hilserver.units import Number


class Leak(Component):
    type_name = "own_leak"
    hydraulic = ("P",)
    size: Number

    def parameters(self, fluid):
        return {{"size": self.size}}


@kernel(Leak)
def leak(p_P, size):
    q_P = {law}
    return q_P
"""


def own_library(law: str) -> Library:
    return library_of([OwnFile("own.py", OWN.format(law=law))])


def emptied(library: Library) -> Floats:
    raw = {
        "components": {
            "v": {"type": "volume", "ports": {"P": "n"}, "volume": "1 l"},
            "leak": {"type": "own_leak", "ports": {"P": "n"}, "size": 1e-12},
        },
        "nodes": {"n": {"pressure": "100 bar"}},
    }
    return run_freely(compiled_program(library), pack(read_circuit(raw, library), library))


def test_two_libraries_of_one_process_keep_their_own_physics() -> None:
    slow, fast = own_library("-size * p_P"), own_library("-2.0 * size * p_P")
    assert slow.own_kernels[0].kind == fast.own_kernels[0].kind == FIRST_OWN_KIND
    first, second, again = emptied(slow), emptied(fast), emptied(slow)
    np.testing.assert_array_equal(first, again)
    pressures = [rows[-1, 0] / rows[0, 0] for rows in (first, second)]
    assert 0.5 < pressures[1] < pressures[0] < 1.0
    assert np.log(pressures[1]) == pytest.approx(2.0 * np.log(pressures[0]), rel=1e-3)


def test_an_own_component_leaves_the_kinds_of_the_others_alone() -> None:
    own = own_library("-size * p_P")
    standard = standard_library()
    few = Library([own.types["tank"], own.types["orifice"]])
    assert {c.kind for c in few.contracts} < {c.kind for c in standard.contracts}
    for component in few.types.values():
        assert [c.kind for c in few.contracts_of(component)] == [c.kind for c in standard.contracts_of(component)]
    assert [c.kind for c in own.built_in] == [c.kind for c in standard.contracts] == list(range(len(own.built_in)))


def test_an_own_copy_of_a_built_in_component_computes_the_same_bits() -> None:
    import inspect

    from hilserver.components import orifice

    text = inspect.getsource(orifice).replace("class Orifice(", "class MyOrifice(").replace("(Orifice)", "(MyOrifice)")
    text = text.replace('"orifice"', '"my_orifice"').replace("-> Orifice", "-> MyOrifice")
    library = library_of([OwnFile("my_orifice.py", text)])

    def emptying(kind: str) -> Floats:
        through = {"type": kind, "ports": {"A": "a", "B": "b"}, "nominal_flow": {"flow": "10 l/min", "drop": "5 bar"}}
        volumes = {n: {"type": "volume", "ports": {"P": n}, "volume": "0.1 l"} for n in ("a", "b")}
        raw = {"components": {"o": through, **volumes}, "nodes": {"a": {"pressure": "200 bar"}}}
        return run_freely(compiled_program(library), pack(read_circuit(raw, library), library))

    assert emptying("orifice").tobytes() == emptying("my_orifice").tobytes()
