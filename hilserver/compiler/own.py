"""Kernels of the user's components: compiled alone, and called by the prebuilt program by their addresses.

Importing this module loads Numba.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import linecache
import os
import platform
import re
from collections.abc import Sequence
from enum import EnumType
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np

from hilserver.circuit import dispatch
from hilserver.circuit.dispatch import is_pair
from hilserver.circuit.library import FIRST_OWN_KIND, MAX_OWN_KINDS, Contract, Library
from hilserver.circuit.program import Program
from hilserver.compiler.linking import (
    HEAPLESS,
    KERNEL_OPTIONS,
    OPTIONS,
    OWN_SIGNATURE,
    UNWRAPPED,
    cached_in,
    import_generated,
)
from hilserver.compiler.loading import load
from hilserver.compiler.lowering import register_marks
from hilserver.compiler.seal import sealed
from hilserver.compiler.sources import cache_folder, fingerprint
from hilserver.errors import ConfigurationError, HilserverError, Problem
from hilserver.numerics.source import source_of
from hilserver.tick.program import OWN_TABLE


def program_with(library: Library, file: Path) -> Program:
    """The prebuilt program with the kernels of the user's components in this library."""
    register_marks()
    contracts = library.own_kernels
    if len(contracts) > MAX_OWN_KINDS:
        raise HilserverError(
            f"{len(contracts)} kernels of your own components are too many: {MAX_OWN_KINDS} can be used."
        )
    linecache.checkcache()
    name = fingerprint_of(contracts)
    return _loaded(name, file, tuple(contracts))


@functools.cache
def _loaded(name: str, file: Path, contracts: tuple[Contract, ...]) -> Program:
    kernels = [_compiled(contract) for contract in contracts]
    program = _loaded_alone(file, f"-{name}")
    table = program.table(OWN_TABLE, MAX_OWN_KINDS)
    for contract, kernel in zip(contracts, kernels, strict=True):
        table[contract.kind - FIRST_OWN_KIND] = _address(kernel)
    program.kept = kernels
    return program


def _loaded_alone(file: Path, name: str) -> Program:
    """A program from a copy of the file in memory: loaded twice, it would be one, with one table of own kernels.

    The copy stays open, because the linker knows libraries by their names, and the next one would have the same.
    """
    memory = os.memfd_create(file.name)
    os.write(memory, file.read_bytes())
    return load(Path(f"/proc/self/fd/{memory}"), name)


def _compiled(contract: Contract) -> Any:
    """A kernel as a C function, with the code that gathers its arguments and distributes its results."""
    name = fingerprint_of([contract])
    folder = cache_folder(f"own-{name}")
    with sealed(folder), cached_in(folder):
        generated = import_generated(dispatch.generate_own(contract), f"own_{name}", folder)
        vars(generated)[f"k{contract.kind}"] = numba.njit(contract.kernel.function, **KERNEL_OPTIONS)
        call, entry = generated.call, generated.entry
        call.__qualname__, entry.__qualname__ = f"call_{name}", f"entry_{name}"
        vars(generated)["call"] = numba.njit(call, **HEAPLESS)
        made = numba.njit(entry, cache=True, **OPTIONS, **UNWRAPPED)  # carray requires the heap
        made.compile(OWN_SIGNATURE.args)
        return made


def _address(made: Any) -> int:
    """Address of the machine code, which returns 0, or Numba's status of an error."""
    (compiled,) = made.overloads.values()
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


def check_kernels(library: Library) -> None:
    """Compile each kernel of the user's files separately. Raises ConfigurationError naming file, kernel and reason."""
    register_marks()
    problems = []
    modules = {file.module: file.name for file in library.own}
    pair = numba.types.Tuple((numba.float64[::1], numba.int64))  # type: ignore[no-untyped-call]
    for contract in library.own_kernels:
        function = contract.kernel.function
        types = tuple(pair if is_pair(contract, term) else numba.float64 for term in contract.arguments)
        if error := _failure(function, types, HEAPLESS):
            reason = _essence(error)
            if not _failure(function, types, {**HEAPLESS, "_nrt": True}):
                reason = "it creates an array, a list or a string, but a tick must not allocate memory"
            text = f"kernel {function.__name__} can't be compiled: {reason}"
            file = modules.get(function.__module__, f"installed components ({function.__module__})")
            problems.append(Problem(text, contract.component.__name__, file))
    if problems:
        raise ConfigurationError(problems)


def _failure(function: Any, types: tuple[Any, ...], options: dict[str, Any]) -> Exception | None:
    """The reason why a function can't be compiled; None if it can."""
    try:
        numba.njit(function, **options).compile(types)
    except Exception as error:  # numba raises many kinds
        return error
    return None


def _essence(error: Exception) -> str:
    """The relevant lines of a compiler's error: the problem and its line."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))  # it contains colour codes
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wrong = [line for line in lines if not line.startswith(("Failed in", "During:", "File", "-", "<", "def ", ">>>"))]
    places = [line for line in lines if line.startswith('File "')]
    line = places[-1].rpartition("line ")[2].rstrip(":") if places else ""
    return f"{wrong[0] if wrong else text}" + (f" (line {line})" if line else "")


def fingerprint_of(contracts: Sequence[Contract]) -> str:
    """Hash of these kernels and of all functions and constants they use, of the prebuilt program and of versions.

    Numba's own cache does not notice that a function or a constant in another file changed (numba issue 1833).
    """
    seen: dict[str, str] = {}
    for contract in contracts:
        _collect(contract.kernel.function, seen)
    versions = [numba.__version__, np.__version__, platform.python_version(), platform.processor(), _cpu()]
    meaning = [f"{name}={what}" for name, what in sorted(seen.items())]
    kinds = [f"{contract.kind} {contract.arguments} {contract.results}" for contract in contracts]
    text = "\0".join([fingerprint(), str(KERNEL_OPTIONS), str(HEAPLESS), *kinds, *meaning, *versions])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _collect(function: Any, seen: dict[str, str]) -> None:
    """Add a function's source and the values of the names in it that are not its own: constants, functions recursively.

    Functions that another one has made differ by the values that this one gave them.
    """
    function = inspect.unwrap(getattr(function, "py_func", function))  # a helper that its author compiled with numba
    code = function.__code__
    given = {word: cell.cell_contents for word, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)}
    constants = {word: item for word, item in given.items() if isinstance(item, CONSTANT)}
    name = f"{function.__module__}.{function.__qualname__}{constants or ''}"
    if name in seen:
        return
    seen[name] = source_of(function)
    for word, item in [*((word, function.__globals__.get(word)) for word in code.co_names), *given.items()]:
        if isinstance(item, CONSTANT):
            seen[f"{function.__module__}.{word}"] = repr(item)
        elif isinstance(item, EnumType):
            seen[f"{item.__module__}.{item.__qualname__}"] = repr(item.__members__)
        elif hasattr(item, "_fields"):
            seen[f"{item.__module__}.{item.__qualname__}"] = repr(item._fields)
        elif inspect.isfunction(item) or hasattr(item, "py_func"):
            _collect(item, seen)


CONSTANT = (bool, int, float, str, tuple, np.dtype)
"""Values that are part of a function's meaning as they are."""


@functools.cache
def _cpu() -> str:
    return str(llvmlite.binding.get_host_cpu_name())
