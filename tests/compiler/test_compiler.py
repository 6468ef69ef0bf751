"""The prebuilt program: the choice of its file, its fingerprint, the same bits on every processor."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuit_runs import run_freely

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.circuit.program import Program
from hilserver.compiler import linking, loading, storing
from hilserver.compiler.levels import NEEDED_FOR_V3, V2, V3, level_of_this_machine, levels
from hilserver.compiler.loading import FINGERPRINT_FILE, all_files_in, files_in, load
from hilserver.compiler.seal import seal
from hilserver.compiler.sources import COMPILED_FROM, cache_root, fingerprint, writable
from hilserver.errors import HilserverError
from hilserver.rig.build import load_rig
from hilserver.rig.simulated import joined
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.program import ENTRY_POINTS
from hilserver.toml import read_toml

CONFIG = Path(__file__).parents[2] / "config"
RIGS = ("boom", "demo", "frame", "lift")
"""Rigs with simulated devices: each runs a virtual circuit, and those of its machine and drive."""
CIRCUITS = {file.stem for file in (CONFIG / "circuits").glob("*.toml")}
ON_RIGS = {
    name for rig in RIGS for name in re.findall(r"circuits/(\w+)\.toml", (CONFIG / f"rigs/{rig}.toml").read_text())
}
MACHINES = {"frame_actuator": "frame_specimen"}
"""Drives that are on none of these rigs, each with the machine that it moves."""


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
        seal(folder)
    assert loading.found_file() is None
    (cache / fingerprint() / FINGERPRINT_FILE).write_text(fingerprint())
    seal(cache / fingerprint())
    assert loading.found_file() == cache / fingerprint() / f"{level_of_this_machine()}.so"
    (shipped / FINGERPRINT_FILE).write_text(fingerprint())
    assert loading.found_file() == shipped / f"{level_of_this_machine()}.so"


def test_a_failed_build_leaves_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What marks it as complete is removed before, and written last."""

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
    seal(folder)
    assert loading.found_file() is not None
    with pytest.raises(HilserverError, match="no linker"):
        storing.build_in(folder)
    assert loading.found_file() is None


@pytest.mark.parametrize("where", ["built", "elsewhere"])
def test_a_package_is_filled_from_what_is_built(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without building it again; also where it is there already."""
    folder = tmp_path / "built"
    folder.mkdir()
    for path in all_files_in(folder).values():
        path.write_text(path.name)
    (folder / FINGERPRINT_FILE).write_text(fingerprint())
    monkeypatch.setattr(loading, "SHIPPED", folder)
    monkeypatch.delattr(storing, "build")
    storing.fill(tmp_path / where)
    assert {path.name for path in (tmp_path / where).iterdir()} == {
        *(f"{level}.so" for level in levels()),
        "circuit.bc",
        "fmi.so",
        "hilserver-runner",
        "fingerprint",
    }
    assert all(path.read_text() == path.name for path in all_files_in(tmp_path / where).values())


def test_a_package_is_built_where_there_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by `pip install` of a source archive: its folder is made, too."""

    def build(parts: Mapping[str, Path], report: Any) -> None:
        for name, path in parts.items():
            path.write_text(name)

    monkeypatch.setattr(loading, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "cache"))
    monkeypatch.setattr(storing, "build", build)
    storing.fill(folder := tmp_path / "package" / "built")
    assert {name: path.read_text() for name, path in all_files_in(folder).items()} == {
        name: name for name in all_files_in(folder)
    }
    assert (folder / FINGERPRINT_FILE).read_text() == fingerprint()


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


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CACHE_DIRECTORY", f"{tmp_path}/a:{tmp_path}/b")
    assert cache_root() == tmp_path / "a"
    monkeypatch.delenv("CACHE_DIRECTORY")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "hilserver"


def test_without_a_writable_cache_a_private_folder_is_used(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", sorted(CIRCUITS - ON_RIGS))
def test_both_levels_compute_the_same_bits(name: str, programs: list[Program]) -> None:
    library, file = standard_library(), CONFIG / f"circuits/{name}.toml"
    table = read_toml(file)
    if name in MACHINES:
        table = joined(read_toml(CONFIG / f"circuits/{MACHINES[name]}.toml"), table)
    circuit = read_circuit(table, library, str(file))
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
