"""Links engine and tick to the generated ``evaluate``, as functions that Numba compiles.

Importing this module loads Numba.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numba

from hilserver.circuit import (
    differences,
    dispatch,
    elimination,
    engine,
    equilibrium,
    integrators,
    linearisation,
    rosenbrock,
)
from hilserver.circuit.library import Library
from hilserver.compiler.lowering import register_marks
from hilserver.mechanics import chain_halves, chain_steps, equations
from hilserver.tick import circuit, lockstep, plant, tick
from hilserver.tick.program import OWN_KERNEL

GENERATED = "hilserver_generated_"
"""Beginning of the names of generated modules."""
OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "fastmath": False, "boundscheck": False}
KERNEL_OPTIONS: dict[str, Any] = {**OPTIONS, "forceinline": True}
HEAPLESS: dict[str, Any] = {**OPTIONS, "_nrt": False}
"""A function with these options is compiled only if it allocates no memory on the heap. It does not count references to
its arrays, which would take longer than the computation (decision 0014), and can't return an array to Python."""
UNWRAPPED: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""A function with these options can be called by compiled code only."""
CORE: tuple[ModuleType, ...] = (
    *equations.CALLED,
    equations,
    engine,
    linearisation,
    elimination,
    rosenbrock,
    integrators,
    equilibrium,
)
LINKED: tuple[ModuleType, ...] = (*CORE, differences, chain_steps, chain_halves, circuit, tick, plant, lockstep)
"""Modules whose functions are compiled as parts of a program: those that call ``evaluate``, and the mechanisms, whose
functions are too large for a copy in each caller. They access functions of other modules by ordinary imports."""
CIRCUIT_CODE = "hilserver_circuit_code"
"""Symbol of the function that calls the code of a circuit by its address."""
_CELLS: Any = numba.types.CPointer(numba.types.float64)  # type: ignore[no-untyped-call]
_INDEX: Any = numba.types.CPointer(numba.types.uint64)  # type: ignore[no-untyped-call]
OWN_SIGNATURE: Any = numba.types.void(_INDEX, _CELLS, _CELLS, _CELLS, _CELLS, *[numba.types.uint64] * 3)
"""Of such a kernel: index, values, values of the circuit, results, derivatives; places of its arguments in them."""
_STATUS: Any = numba.types.int32
_KERNEL: Any = numba.types.ExternalFunction(OWN_KERNEL, _STATUS(numba.types.uint64, *OWN_SIGNATURE.args))
_NUMBERS = (numba.types.int64, numba.types.int64, numba.types.float64, numba.types.int64)
_CODE: Any = numba.types.ExternalFunction(CIRCUIT_CODE, _STATUS(numba.types.uint64, *[_CELLS] * 5, *_NUMBERS))


def _run_code(ix, val, z, y, work, chambers, n_steps, h, purpose):  # type: ignore[no-untyped-def]
    """Compiled form of `hilserver.circuit.engine.run_code`."""
    arrays = val.ctypes, z.ctypes, y.ctypes, work.ctypes, chambers.ctypes
    if _CODE(ix[engine.CODE], *arrays, chambers.shape[0], n_steps, h, purpose) != 0:
        raise ArithmeticError


def linked(library: Library, name: str, folder: Path, options: Mapping[str, Any] = {}) -> dict[str, Any]:
    """The functions of all linked modules by name, each to be compiled by Numba at its first call.

    ``name`` must be unique in the process: it becomes part of the full names of the functions, by which Numba's linker
    identifies them; otherwise one program would call functions of another. The generated code is written to ``folder``.
    """
    register_marks()
    generated = import_generated(dispatch.generate(library), name, folder)
    for contract in library.built_in:
        vars(generated)[f"k{contract.kind}"] = numba.njit(contract.kernel.function, **KERNEL_OPTIONS, **UNWRAPPED)
    vars(generated)["own_kernel"] = _KERNEL
    with cached_in(folder):
        calls = [dispatch.call_name(contract.kind) for contract in library.built_in]
        names = [*calls, *dispatch.CALLED.values(), *dispatch.TABLES]
        made = {each: numba.njit(vars(generated)[each], **HEAPLESS, **options) for each in names}
        vars(generated).update(made)
        made["run_code"] = numba.njit(_run_code, **HEAPLESS, **options)
        given = {item: made[each] for each, item in vars(engine).items() if each in made}
        return made | _link(LINKED, given, name, options)


def _link(
    modules: Sequence[ModuleType], given: Mapping[Any, Any], suffix: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The modules' own functions by name, each to be compiled with its module's globals.

    In these globals, the linked functions replace the original ones, and the ``given`` objects those of the same name.
    """
    scopes: dict[ModuleType, dict[str, Any]] = {}
    found: dict[str, Any] = {}
    made = dict(given)
    for module in modules:
        scopes[module] = dict(vars(module))
        for name, function in vars(module).items():
            if is_own(module, function) and function not in given and name != "attached_at":
                if name in found:
                    raise TypeError(f"{module.__name__}: another linked module has a function {name}: rename one")
                copy = FunctionType(function.__code__, scopes[module], name, function.__defaults__)
                copy.__module__, copy.__qualname__ = module.__name__, f"{name}_{suffix}"
                copy.__annotations__ = function.__annotations__
                nrt = {"_nrt": _gives_arrays(function)}  # False would be inherited from a caller
                found[name] = made[function] = numba.njit(copy, **{**HEAPLESS, **nrt, **options})
    for scope in scopes.values():
        scope.update({name: made[item] for name, item in scope.items() if inspect.isfunction(item) and item in made})
    return found


@contextlib.contextmanager
def cached_in(folder: Path) -> Iterator[None]:
    """Within this context, functions that Numba is to cache are stored in this folder."""
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def is_own(module: ModuleType, item: object) -> bool:
    """Whether an item of a module is a function that the module itself defines."""
    return inspect.isfunction(item) and item.__module__ == module.__name__


def _gives_arrays(function: Callable[..., Any]) -> bool:
    """Whether a function returns parts of its arrays, by its annotation."""
    return "Floats" in str(function.__annotations__.get("return"))


def import_generated(text: str, name: str, folder: Path) -> ModuleType:
    """Import a generated module from a file in this folder, which is written only if its text is another one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "generated.py"
    if not path.exists() or path.read_text() != text:
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(text)
        part.replace(path)
    spec = importlib.util.spec_from_file_location(f"{GENERATED}{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
