"""The prebuilt program: its entry points, the choice of its file, the same bits on every processor, own components."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hilserver.circuit import dispatch, engine
from hilserver.circuit.library import FIRST_OWN_KIND, Library, library_of, standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Argument, Function, Parameter, Program, Record, parameters_of
from hilserver.compiler import compiled_program, linking, loading, own, standard_program, storing
from hilserver.compiler.levels import NEEDED_FOR_V3, V2, V3, level_of_this_machine, levels
from hilserver.compiler.loading import FINGERPRINT_FILE, files_in, load
from hilserver.compiler.sources import COMPILED_FROM, cache_root, fingerprint, writable
from hilserver.components import orifice
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.numerics.valve_record import through_play
from hilserver.rig.build import load_rig
from hilserver.simulation.circuit_run import run_packed
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.lockstep import Attached, run_bridged, run_free
from hilserver.tick.plant import PlantArrays, move
from hilserver.tick.program import ENTRY_POINTS
from hilserver.toml import read_toml

CONFIG = Path(__file__).parents[2] / "config"
RIGS = ("boom", "demo", "lift")
"""Rigs with simulated devices: each runs a virtual circuit, and those of its machine and drive."""
CIRCUITS = {file.stem for file in (CONFIG / "circuits").glob("*.toml")}
ON_RIGS = {
    name for rig in RIGS for name in re.findall(r"circuits/(\w+)\.toml", (CONFIG / f"rigs/{rig}.toml").read_text())
}


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
    assert set(parameters_of(run_free).values()) == set(Argument)


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


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The Python functions from which the program was compiled, with the generated ``evaluate``."""
    generated = linking.import_generated(dispatch.generate(standard_library()), "plain", tmp_path)
    for name in linking.GENERATED:
        monkeypatch.setattr(engine, name, vars(generated)[name])
    return SimpleNamespace(**{function.__name__: function for function in ENTRY_POINTS})


@pytest.mark.parametrize("name", RIGS)
def test_a_rig_runs_in_plain_python_as_it_does_compiled(name: str, plain: Any) -> None:
    """Every bit of its start: of what it computes, and of what its simulated devices do."""
    found = []
    for program in (standard_program(), plain):
        run = LockstepRun(load_rig(CONFIG / f"rigs/{name}.toml"), program=program, trace=True)
        found.append([np.concatenate([run.start(), run.run(10)]), *map(run.true_values, run.plants)])
    assert all(len(rows) > 10 for rows in found[0])
    assert [rows.tobytes() for rows in found[0]] == [rows.tobytes() for rows in found[1]]


def test_a_circuit_runs_in_plain_python_as_it_does_compiled(plain: Any) -> None:
    """A stiff one by the implicit method, with a mechanism."""
    source = read_toml(CONFIG / "circuits/boom.toml")
    source["solver"] = {"integrator": "rosenbrock", "substeps": 2}
    library = standard_library()
    packed = pack(read_circuit(source, library, str(CONFIG / "circuits/boom.toml")), library)
    first, second = (run_freely(program, packed, 10) for program in (standard_program(), plain))
    assert np.ptp(first, axis=0).any()
    assert first.tobytes() == second.tobytes()


def test_a_bound_call_works_on_the_arrays_themselves() -> None:
    command, target = np.zeros(3), np.empty(3)
    run = standard_program().through_play.bound(command, 0.0, 0.0, target)
    for value in (0.25, -0.5):
        command[:] = value
        run()
        assert target.tolist() == [value] * 3


VALID: Mapping[Argument, Any] = {
    Argument.FLOATS: np.zeros(3),
    Argument.MATRIX: np.zeros((2, 3)),
    Argument.INTEGERS: np.zeros(3, np.int64),
    Argument.INDICES: np.zeros(3, np.uint64),
    Argument.WHOLE: 3,
    Argument.NUMBER: 0.5,
}
FUNCTIONS: tuple[Callable[..., Any], ...] = (run_free, move, run_bridged)
"""One with all kinds of arguments, one with a named tuple, one with a tuple of named tuples."""


def made(name: str, parameter: Parameter, wrong: Mapping[str, Any]) -> Any:
    """A valid argument, or the wrong one of this name; fields are named like ``devices.plant.line``."""
    if name in wrong:
        return wrong[name]
    if isinstance(parameter, Argument):
        return VALID[parameter]
    fields = zip(fields_of(parameter), parameter.fields, strict=True)
    one = parameter.type(*(made(f"{name}.{field}", kind, wrong) for field, kind in fields))
    return (one, one) if parameter.many else one


def leaves(name: str, parameter: Parameter) -> Iterator[tuple[str, Argument]]:
    """All arrays and numbers of an argument, by name."""
    if isinstance(parameter, Argument):
        yield name, parameter
    else:
        for field, kind in zip(fields_of(parameter), parameter.fields, strict=True):
            yield from leaves(f"{name}.{field}", kind)


def fields_of(record: Record) -> tuple[str, ...]:
    names: tuple[str, ...] = record.type._fields  # type: ignore[attr-defined]
    return names


def call(function: Callable[..., Any], wrong: Mapping[str, Any]) -> None:
    """Have the arguments looked at, without a call."""
    parameters = parameters_of(function).items()
    arguments = [made(name, parameter, wrong) for name, parameter in parameters]
    getattr(standard_program(), function.__name__).bound(*arguments)


def others_than(array: Any) -> tuple[Any, ...]:
    """What may not stand for an array: another type of cells, or dimension, with gaps, no array."""
    dtypes = {np.dtype(name) for name in ("float64", "float32", "int64", "uint64", "int32", ">f8")} - {array.dtype}
    gaps = np.zeros((2 * array.shape[0], *array.shape[1:]), array.dtype)[::2]
    transposed = (np.asfortranarray(np.ones((2, 3))),) if array.ndim > 1 else ()
    return (*map(array.astype, dtypes), array[None], array[0], gaps, *transposed, array.tolist(), 0.0, None)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_arrays_of_the_wrong_kind_are_refused(function: Callable[..., Any]) -> None:
    """Compiled code would read other memory: whatever the array is part of, it is refused by its name."""
    call(function, {})
    arrays = [
        (name, kind)
        for parameter in parameters_of(function).items()
        for name, kind in leaves(*parameter)
        if kind.dimensions
    ]
    assert arrays
    for name, kind in arrays:
        for wrong in others_than(VALID[kind]):
            with pytest.raises(TypeError, match=rf"^{function.__name__}: {re.escape(name)} must be a contiguous array"):
                call(function, {name: wrong})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [*(("steps", wrong) for wrong in (1.5, "3", None, np.zeros(1))), *(("h", w) for w in ("1", None, np.zeros(1), 1j))],
)
def test_what_is_no_number_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"^run_free: {name} must be"):
        call(run_free, {name: wrong})


def test_numbers_of_numpy_are_numbers() -> None:
    call(run_free, {"steps": np.int64(3), "h": np.float64(0.1)})
    call(run_free, {"steps": np.uint64(3), "h": 1})


def test_the_number_of_arguments_and_fields_is_looked_at() -> None:
    with pytest.raises(TypeError, match="through_play takes 4 arguments, got 3"):
        standard_program().through_play(np.zeros(3), 0.0, 0.0)
    few = made("plant", parameters_of(move)["plant"], {})[:2]
    for plant in (few, None, 0.0):
        with pytest.raises(TypeError, match=r"^move: plant must be"):
            call(move, {"plant": plant})
    for devices in ((few,), None, np.zeros(3)):
        with pytest.raises(TypeError, match=r"^run_bridged: devices must be"):
            call(run_bridged, {"devices": devices})


# --- the file --------------------------------------------------------------------------------------------------------


def level_with(flags: set[str], folder: Path) -> str:
    """The level of a processor with these flags."""
    file = folder / "cpuinfo"
    file.write_text(f"processor\t: 0\nmodel name\t: avx2 bmi2\nflags\t\t: fpu sse4_2 {' '.join(sorted(flags))}\n")
    return str(level_of_this_machine.__wrapped__(file))


@pytest.mark.skipif(levels() != (V2, V3), reason="only x86-64 has these levels")
def test_level_3_needs_all_its_instructions(tmp_path: Path) -> None:
    assert level_with(NEEDED_FOR_V3, tmp_path) == V3
    for flag in NEEDED_FOR_V3:
        assert level_with(NEEDED_FOR_V3 - {flag}, tmp_path) == V2
        assert level_with(NEEDED_FOR_V3 - {flag} | {f"{flag}_new"}, tmp_path) == V2
    (tmp_path / "unknown").write_text("processor : 0\n")
    assert level_of_this_machine.__wrapped__(tmp_path / "unknown") == V2


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


def test_a_build_that_fails_leaves_nothing_to_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark is removed before, and written last."""

    def build(parts: Mapping[str, Path], report: Any) -> None:
        report("functions", 0.5)
        for path in parts.values():
            path.write_text("half of it")
        assert loading.found_file() is None
        raise HilserverError("no linker")

    monkeypatch.setattr(loading, "SHIPPED", tmp_path / "built")
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(storing, "build", build)
    folder = loading.folder_in_cache()
    folder.mkdir()
    (folder / FINGERPRINT_FILE).write_text(fingerprint())
    assert loading.found_file() is not None
    with pytest.raises(HilserverError, match="no linker"):
        storing.build_in(folder)
    assert loading.found_file() is None


@pytest.mark.parametrize("where", ["built", "elsewhere"])
def test_a_package_is_filled_from_what_is_built(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without building it again; also where it is there already."""
    folder = tmp_path / "built"
    folder.mkdir()
    for path in files_in(folder).values():
        path.write_text(path.name)
    (folder / FINGERPRINT_FILE).write_text(fingerprint())
    monkeypatch.setattr(loading, "SHIPPED", folder)
    monkeypatch.delattr(storing, "build")
    storing.fill(tmp_path / where)
    assert {path.name for path in (tmp_path / where).iterdir()} == {
        *(f"{level}.so" for level in levels()),
        "fingerprint",
    }
    assert all(path.read_text() == path.name for path in files_in(tmp_path / where).values())


def functions_of(function: Callable[..., Any], found: dict[str, Callable[..., Any]]) -> None:
    """Add a function and those that it calls."""
    function = inspect.unwrap(function)
    name = f"{function.__module__}.{function.__qualname__}"
    if name not in found:
        found[name] = function
        for word in function.__code__.co_names:
            if inspect.isfunction(item := function.__globals__.get(word)):
                functions_of(item, found)


@functools.cache
def from_elsewhere(module: str) -> frozenset[str]:
    """Global names of a module that come from sources of hilserver which the program's fingerprint leaves out.

    Imported ones, and constants that are calculated from them.
    """
    found: set[str] = set()
    tree = ast.parse(Path(sys.modules[module].__file__ or "").read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hilserver."):
            source = str(node.module)
            left_out = source.split(".")[1] not in COMPILED_FROM
            for alias in node.names:
                if left_out or alias.name in (from_elsewhere(source) if source in sys.modules else ()):
                    found.add(alias.asname or alias.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            read = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if read & found:
                found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return frozenset(found)


def test_the_fingerprint_is_of_all_sources_that_are_compiled() -> None:
    """No compiled function is, calls or reads anything of another package: its change would meet old machine code."""
    found: dict[str, Callable[..., Any]] = {}
    for function in ENTRY_POINTS:
        functions_of(function, found)
    for contract in standard_library().built_in:
        functions_of(contract.kernel.function, found)
    for module in linking.LINKED:
        for item in vars(module).values():
            if linking.is_own(module, item):
                functions_of(item, found)
    packages = {function.__module__.split(".")[1] for function in found.values()}
    assert packages == set(COMPILED_FROM) - {"compiler"}
    assert {"BAR", "Pressure"} <= from_elsewhere("hilserver.components.accumulator")
    for name, function in found.items():
        assert not from_elsewhere(function.__module__) & set(function.__code__.co_names), name


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
def programs() -> list[Program]:
    """The program for each level."""
    if level_of_this_machine() != V3:
        pytest.skip(f"this processor has not all instructions of {V3}")
    return [load(path) for path in files_in(loading.standard_file().parent).values()]


def run_freely(program: Program, packed: PackedCircuit, ticks: int, inputs: tuple[str, ...] = ("joystick",)) -> Floats:
    """All values of a circuit over some ticks of 1 ms, with its inputs in motion."""
    given = np.sin(np.arange(ticks)[:, None] * 0.03 + np.arange(len(inputs)))
    return run_packed(program, packed, 1e-3, inputs, given)


@pytest.mark.parametrize("name", sorted(CIRCUITS - ON_RIGS))
def test_both_levels_compute_the_same_bits(name: str, programs: list[Program]) -> None:
    library, file = standard_library(), CONFIG / f"circuits/{name}.toml"
    circuit = read_circuit(read_toml(file), library, str(file))
    packed = pack(circuit, library)
    first, second = (run_freely(program, packed, 1000, tuple(circuit.inputs())) for program in programs)
    assert np.isfinite(first).all()
    assert np.ptp(first, axis=0).any()
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("name", RIGS)
def test_both_levels_compute_the_same_bits_of_a_rig(name: str, programs: list[Program]) -> None:
    """The loop, and the circuits of rig, machine and drive."""
    found = []
    for program in programs:
        run = LockstepRun(load_rig(CONFIG / f"rigs/{name}.toml"), program=program, trace=True)
        found.append([np.concatenate([run.start(), run.run(1000)]), *map(run.true_values, run.plants)])
        assert run.mode == "RUNNING"
    assert all(np.ptp(rows, axis=0).any() for rows in found[0])
    assert [rows.tobytes() for rows in found[0]] == [rows.tobytes() for rows in found[1]]


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
    return run_freely(compiled_program(library), pack(read_circuit(raw, library), library), 200)


def test_two_libraries_of_one_process_keep_their_own_physics() -> None:
    slow, fast = own_library("-size * p_P"), own_library("-2.0 * size * p_P")
    assert slow.own_kernels[0].kind == fast.own_kernels[0].kind == FIRST_OWN_KIND
    first, second, again = emptied(slow), emptied(fast), emptied(slow)
    np.testing.assert_array_equal(first, again)
    pressures = [rows[-1, 0] / rows[0, 0] for rows in (first, second)]
    assert 0.5 < pressures[1] < pressures[0] < 1.0
    assert np.log(pressures[1]) == pytest.approx(2.0 * np.log(pressures[0]), rel=1e-3)


@pytest.mark.parametrize("refusal", ["assert p_P > 99e5", 'if p_P < 99e5:\n        raise ValueError("empty")'])
def test_a_kernel_that_raises_ends_the_run(refusal: str) -> None:
    """The run would go on without the flow of this component."""
    text = OWN.format(law="-size * p_P").replace("    q_P", f"    {refusal}\n    q_P")
    with pytest.raises(HilserverError, match="run_free failed"):
        emptied(library_of([OwnFile("own.py", text)]))


def test_more_kernels_than_there_is_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "MOST_OWN_KINDS", 0)
    with pytest.raises(HilserverError, match="1 kernels of your own components are too many: 0 can be used"):
        compiled_program(own_library("-3.0 * size * p_P"))


def test_machine_code_of_own_kernels_is_kept_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only there: beside the sources it would outlive their change, and a service can't write there."""
    file = loading.standard_file()
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    own.program_with(own_library("-4.0 * size * p_P"), file)
    assert {path.suffix for path in tmp_path.rglob("*.*")} >= {".py", ".nbi", ".nbc"}


def test_an_own_component_leaves_the_kinds_of_the_others_alone() -> None:
    own = own_library("-size * p_P")
    standard = standard_library()
    few = Library([own.types["tank"], own.types["orifice"]])
    assert {c.kind for c in few.contracts} < {c.kind for c in standard.contracts}
    for component in few.types.values():
        assert [c.kind for c in few.contracts_of(component)] == [c.kind for c in standard.contracts_of(component)]
    assert [c.kind for c in own.built_in] == [c.kind for c in standard.contracts] == list(range(len(own.built_in)))


def test_an_own_copy_of_a_built_in_component_computes_the_same_bits() -> None:
    text = inspect.getsource(orifice).replace("class Orifice(", "class MyOrifice(").replace("(Orifice)", "(MyOrifice)")
    text = text.replace('"orifice"', '"my_orifice"').replace("-> Orifice", "-> MyOrifice")
    library = library_of([OwnFile("my_orifice.py", text)])

    def emptying(kind: str) -> Floats:
        through = {"type": kind, "ports": {"A": "a", "B": "b"}, "nominal_flow": {"flow": "10 l/min", "drop": "5 bar"}}
        volumes = {n: {"type": "volume", "ports": {"P": n}, "volume": "0.1 l"} for n in ("a", "b")}
        raw = {"components": {"o": through, **volumes}, "nodes": {"a": {"pressure": "200 bar"}}}
        return run_freely(compiled_program(library), pack(read_circuit(raw, library), library), 200)

    assert emptying("orifice").tobytes() == emptying("my_orifice").tobytes()


def test_a_folder_of_the_same_name_in_the_working_folder_is_no_obstacle(tmp_path: Path) -> None:
    """Python takes it for a part of the package, which then has no file of its own."""
    (tmp_path / "hilserver").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", "from hilserver.compiler.sources import PACKAGE; print((PACKAGE / 'tick').is_dir())"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "True\n", done.stderr
