"""Functions that are compiled for themselves: any process knows their symbols, and their annotations are checked."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.extending import register_jitable
from service_harness import eventually, is_alive

from hilserver.compiler import functions
from hilserver.compiler.building import _processes
from hilserver.compiler.functions import Compiled, compile_functions, prepare
from hilserver.compiler.linking import HEAPLESS, UNWRAPPED
from hilserver.errors import HilserverError


def half(number: float) -> float:
    return 0.5 * number


def twice_the_half(number: float) -> float:
    return 2.0 * half(number)


def wrongly_annotated(number: float) -> int:
    return half(number)  # type: ignore[return-value]


def scaled(number: float) -> float:
    return 10.0 * number


first_of_this_name = scaled


def scaled(number: float) -> float:  # type: ignore[no-redef]
    return 100.0 * number


for function in (half, twice_the_half, wrongly_annotated, first_of_this_name, scaled):
    register: Any = register_jitable(no_cfunc_wrapper=True)
    register(function)


def compile_a_caller(called: str = "twice_the_half") -> Compiled:
    """In the process: a function that calls one which is compiled for itself."""
    function = globals()[called]

    def caller(number):  # type: ignore[no-untyped-def]
        return function(number)

    made: Any = numba.njit(caller, **HEAPLESS, **UNWRAPPED)
    made.compile((numba.float64,))
    (compiled,) = made.overloads.values()
    compiled.library._ensure_finalized()
    return functions._process.results(compiled.fndesc.llvm_func_name)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Executor]]:
    """Two processes that compile; Numba is good for nothing else there."""
    folder = tmp_path_factory.mktemp("compiled")
    with process_in(folder) as one, process_in(folder) as another:
        yield [one, another]


def process_in(folder: Path) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), prepare, (folder,))


@pytest.fixture(scope="module")
def callers(processes: list[Executor]) -> list[Compiled]:
    """Each process has compiled a caller of its own."""
    return [process.submit(compile_a_caller).result() for process in processes]


def test_one_process_defines_what_another_one_calls(processes: list[Executor], callers: list[Compiled]) -> None:
    one, another = callers
    (wanted,), same = one.wanted, another.wanted
    assert wanted.qualified_name == "twice_the_half"
    assert [wanted.symbol] == [each.symbol for each in same]
    assert one.symbol != another.symbol  # two callers in one program, which may be different functions
    assert (one.symbol,) in one.modules
    assert (wanted.symbol,) not in one.modules
    made = processes[1].submit(functions._compile, wanted).result()
    assert made.symbol == wanted.symbol
    assert list(made.modules) == [(made.symbol,)]
    (inner,) = made.wanted
    assert inner.qualified_name == "half"
    made = processes[0].submit(functions._compile, inner).result()
    assert (list(made.modules), made.wanted) == ([(inner.symbol,)], [])


def forget() -> None:
    """In the process: what a failed compilation has left, with which a build would have ended."""
    functions._process.results("")


def test_an_annotation_that_is_not_true_is_named(processes: list[Executor], callers: list[Compiled]) -> None:
    (wanted,) = callers[0].wanted
    wrong = replace(wanted, qualified_name="wrongly_annotated")
    with pytest.raises(TypeError, match="wrongly_annotated returns float64, but is annotated as int64"):
        processes[0].submit(functions._compile, wrong).result()
    processes[0].submit(forget).result()


def test_two_functions_of_one_name_are_refused(processes: list[Executor]) -> None:
    """Their symbols would be the same, and one would be called for both."""
    processes[0].submit(compile_a_caller, "scaled").result()
    with pytest.raises(TypeError, match="scaled: its module has another function of this name"):
        processes[0].submit(compile_a_caller, "first_of_this_name").result()
    processes[0].submit(forget).result()


def test_sources_that_change_meanwhile_are_not_compiled(
    callers: list[Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changed(Executor):
        """Its process has imported other sources."""

        def submit(self, *_task: Any) -> Future[Any]:  # type: ignore[override]
            future: Future[Any] = Future()
            future.set_result(replace(callers[0], sources="others"))
            return future

    with pytest.raises(HilserverError, match="have changed while they were compiled"):
        compile_functions(Changed(), lambda number: None)


PARENT = """
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from hilserver.compiler.functions import prepare
if __name__ == "__main__":
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), prepare, (Path(sys.argv[1]),)) as processes:
        print(processes.submit(os.getpid).result(), flush=True)
        time.sleep(600)
"""


def test_a_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """However that ended."""
    (tmp_path / "parent.py").write_text(PARENT)
    command = [sys.executable, str(tmp_path / "parent.py"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    eventually(lambda: not is_alive(child))


def test_a_killed_process_is_an_error_for_the_user(tmp_path: Path) -> None:
    with (
        pytest.raises(HilserverError, match="a process that compiled was killed"),
        _processes(tmp_path) as processes,
    ):
        processes.submit(os._exit, 1).result()
