"""Kernels of own components: compiled beside the program's, kept in the cache, apart from each other."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from circuit_runs import run_freely

from hilserver.circuit.library import FIRST_OWN_KIND, Library, library_of, standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import pack
from hilserver.compiler import compiled_program, loading, own
from hilserver.components import orifice
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats

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
    monkeypatch.setattr(own, "MAX_OWN_KINDS", 0)
    with pytest.raises(HilserverError, match="1 kernels of your own components are too many: 0 can be used"):
        compiled_program(own_library("-3.0 * size * p_P"))


def test_machine_code_of_own_kernels_is_kept_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only there: beside the sources it would outlive their change, and a service can't write there."""
    file = loading.standard_file()
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    own.program_with(own_library("-4.0 * size * p_P"), file)
    assert {path.suffix for path in tmp_path.rglob("*.*")} >= {".py", ".nbi", ".nbc"}


def test_an_own_component_does_not_change_the_other_kinds() -> None:
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


def test_a_folder_of_the_same_name_in_the_working_folder_is_ignored(tmp_path: Path) -> None:
    """Python takes it for a part of the package, which then has no file of its own."""
    (tmp_path / "hilserver").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", "from hilserver.compiler.sources import PACKAGE; print((PACKAGE / 'tick').is_dir())"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "True\n", done.stderr
