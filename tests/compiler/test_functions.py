"""Functions that are compiled for themselves: any process knows their symbols, and their annotations are checked."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.extending import register_jitable

from hilserver.compiler import functions
from hilserver.compiler.functions import Compiled, prepare
from hilserver.compiler.linking import HEAPLESS, UNWRAPPED


def half(number: float) -> float:
    return 0.5 * number


def twice_the_half(number: float) -> float:
    return 2.0 * half(number)


def wrongly_annotated(number: float) -> int:
    return half(number)  # type: ignore[return-value]


for function in (half, twice_the_half, wrongly_annotated):
    register: Any = register_jitable(no_cfunc_wrapper=True)
    register(function)


def compile_a_caller() -> Compiled:
    """In the process: a function that calls one which is compiled for itself."""

    def caller(number):  # type: ignore[no-untyped-def]
        return twice_the_half(number)

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
    (symbol, modules, (wanted,)), (other_symbol, _, (other_wanted,)) = callers
    assert wanted.qualified_name == "twice_the_half"
    assert wanted.symbol == other_wanted.symbol
    assert symbol != other_symbol  # two callers in one program, which may be different functions
    assert (symbol,) in modules
    assert (wanted.symbol,) not in modules
    made, code, (inner,) = processes[1].submit(functions._compile, wanted).result()
    assert made == wanted.symbol
    assert list(code) == [(made,)]
    assert inner.qualified_name == "half"
    made, code, none = processes[0].submit(functions._compile, inner).result()
    assert (list(code), none) == ([(inner.symbol,)], [])


def test_an_annotation_that_is_not_true_is_named(processes: list[Executor], callers: list[Compiled]) -> None:
    _, _, (wanted,) = callers[0]
    wrong = replace(wanted, qualified_name="wrongly_annotated")
    with pytest.raises(TypeError, match="wrongly_annotated returns float64, but is annotated as int64"):
        processes[0].submit(functions._compile, wrong).result()
