"""Code that is compiled for one circuit gives the results of the code for all circuits, bit for bit."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from circuit_runs import run_freely
from own_library import OWN, with_gap

from hilserver.bench.parts import RecordedInputs
from hilserver.circuit.engine import CODE
from hilserver.circuit.library import library_of, standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.compiler import circuit_code, compiled_program, specialising, standard_program
from hilserver.compiler.circuit_code import address, compile_for, compiled_file, running, with_code
from hilserver.compiler.levels import levels
from hilserver.compiler.loading import LEVEL_VARIABLE, circuit_bitcode
from hilserver.compiler.seal import fill_once
from hilserver.errors import HilserverError
from hilserver.rig.build import load_rig
from hilserver.simulation.circuit_run import read_circuit_file
from hilserver.toml import read_toml

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).parents[2] / "config"


@functools.cache
def ready(name: str) -> PackedCircuit:
    return pack(read_circuit_file(CONFIG / f"circuits/{name}.toml", standard_library()), standard_library())


def with_own_code(packed: PackedCircuit) -> PackedCircuit:
    compile_for(packed.index)
    made = with_code(packed, standard_program())
    assert made.index[CODE] != 0
    return made


@pytest.mark.parametrize("name", ["crane", "boom", "accumulator"])
def test_a_circuit_with_code_of_its_own_does_the_same(name: str) -> None:
    """The crane: stiff, of sub-circuits, with sampled components; explicit: a mechanism, and sampled components."""
    packed = ready(name)
    inputs = tuple(value for value in packed.values if "." not in value and value != "t")
    made = with_own_code(packed)
    assert (
        run_freely(standard_program(), made, 400, inputs).tobytes()
        == run_freely(standard_program(), packed, 400, inputs).tobytes()
    )


def test_a_tick_that_looks_ahead_does_the_same() -> None:
    """Stiff chambers are states of the circuit then; the parts of the tick around the circuit are shared."""
    rig = load_rig(CONFIG / "rigs/demo.toml")
    recorded = RecordedInputs.of(rig, 1500)
    made = replace(recorded, rig=replace(rig, packed=with_own_code(rig.packed)))
    ends = []
    for each in (recorded, made):
        row = each.row.copy()
        each.program.run_recorded(*each.arguments(row))
        ends.append(row.tobytes())
    assert ends[0] == ends[1]


def test_kernels_are_a_part_of_the_rates_and_these_of_an_explicit_method() -> None:
    """By the symbols of the functions that remain; a renamed function would no longer be found by its name."""
    explicit, implicit = (compile_for(ready(name).index).read_bytes() for name in ("lift", "crane"))
    symbols = [item.name for item in llvm.parse_bitcode(circuit_bitcode().read_bytes()).functions]
    for name in (specialising.CALL, *specialising.EVALUATION):
        assert any(name in symbol for symbol in symbols)
        assert name.encode() not in explicit
    assert b"rates_within_step" in implicit
    assert specialising.CALL.encode() not in implicit


def test_the_code_holds_for_other_values_of_the_circuit() -> None:
    rig = load_rig(CONFIG / "rigs/demo.toml")
    made = with_own_code(rig.packed)
    value = rig.packed.value * np.linspace(0.99, 1.01, len(rig.packed.value))
    plain, other = replace(rig.packed, value=value), replace(made, value=value)
    a, b = (run_freely(standard_program(), packed, 200) for packed in (plain, other))
    assert a.tobytes() == b.tobytes()
    assert a.tobytes() != run_freely(standard_program(), rig.packed, 200).tobytes()


def test_components_of_the_user_are_called_by_it() -> None:
    library = library_of([OwnFile("own.py", OWN)])
    source: Any = with_gap(read_toml(CONFIG / "circuits/verification.toml"))
    packed, program = pack(read_circuit(source, library), library), compiled_program(library)
    compile_for(packed.index)
    made = with_code(packed, program)
    a, b = (run_freely(program, each, 200) for each in (packed, made))
    assert a.tobytes() == b.tobytes()
    without = pack(read_circuit(read_toml(CONFIG / "circuits/verification.toml"), library), library)
    assert a[:, 0].tobytes() != run_freely(program, without, 200)[:, 0].tobytes()


def test_code_of_another_circuit_is_refused() -> None:
    file = compile_for(load_rig(CONFIG / "rigs/demo.toml").packed.index)
    with pytest.raises(HilserverError, match="the code of another circuit"):
        address(ready("crane").index, standard_program(), file)


def test_a_changed_file_in_the_cache_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    index = ready("verification").index
    file = compile_for(load_rig(CONFIG / "rigs/demo.toml").packed.index)
    monkeypatch.setattr(circuit_code, "folder_of", lambda index: tmp_path)
    for name in (file.name, "seal"):
        (tmp_path / name).write_bytes((file.parent / name).read_bytes())
    with pytest.raises(HilserverError, match="has not written here"):
        compiled_file(index)


def test_the_code_is_found_in_the_folder_that_replaces_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That of this user below the temporary folder, where the usual one can't be created."""
    monkeypatch.setattr(circuit_code, "cache_root", lambda: tmp_path / "not created")
    monkeypatch.setattr(circuit_code, "folder_of", lambda index: tmp_path / "circuit")
    fill_once(tmp_path / "circuit", lambda folder: (folder / circuit_code.FILE).write_bytes(b""))
    assert circuit_code.file_made(ready("crane").index, b"") == tmp_path / "circuit" / circuit_code.FILE
    (tmp_path / "circuit" / "seal").unlink()
    with pytest.raises(HilserverError, match="the circuit can't be compiled: no linker"):
        circuit_code.file_made(ready("crane").index, b"no linker\n")


def test_the_code_is_that_of_the_level_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    index, names = ready("crane").index, set()
    for level in levels():
        monkeypatch.setenv(LEVEL_VARIABLE, level)
        names.add(circuit_code.folder_of(index).name)
    assert len(names) == len(levels())


def test_a_run_takes_the_code_as_soon_as_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some computing time; before, and where there is no compiler, a circuit runs without."""
    packed = replace(ready("verification"), index=ready("verification").index.copy())
    monkeypatch.setattr(circuit_code, "_uses", {})
    asked: list[bool] = []

    def found(index: Any, program: Any, compile_it: bool) -> int:
        asked.append(compile_it)
        return 0

    monkeypatch.setattr(circuit_code, "_found", found)
    monkeypatch.setattr(circuit_code, "PAYS_AFTER", 1e-9)
    for _ in range(4):
        with running(packed, standard_program()) as index:
            assert index is packed.index
            run_freely(standard_program(), packed, 20)
    assert asked == [False, True]
    monkeypatch.setenv(circuit_code.SWITCH, "off")
    monkeypatch.setattr(circuit_code, "_uses", {})
    with running(packed, standard_program()) as index:
        assert index[CODE] == 0
    assert len(asked) == 2


def test_a_circuit_runs_on_where_it_cannot_be_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(index: Any) -> Path:
        raise HilserverError("no linker.")

    caplog.set_level("INFO")
    monkeypatch.setattr(circuit_code, "_uses", {})
    monkeypatch.setattr(circuit_code, "compiled_file", broken)
    with running(ready("verification"), standard_program()) as index:
        assert index[CODE] == 0
    assert "The circuit runs without code of its own: no linker." in caplog.text
