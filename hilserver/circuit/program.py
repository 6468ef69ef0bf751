"""Links the engine to a component library and compiles it, once per library and version, into a cache folder.

Numba's own cache does not notice that a function or a constant in another file changed (numba issue 1833); so the name
of the cache folder contains a hash of everything that affects the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import inspect
import linecache
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from enum import EnumType
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite.binding
import numba
import numpy as np

from hilserver.circuit import dispatch, engine
from hilserver.circuit.dispatch import is_pair
from hilserver.circuit.library import Contract, Library
from hilserver.errors import ConfigurationError, Problem
from hilserver.mechanics import native

GENERATED = ("evaluate", "evaluate_sampled")
COMPLETE = f"complete-{hashlib.sha256(str(Path(__file__).parent).encode()).hexdigest()[:12]}"
"""Name of a file in a cache folder that marks the machine code as complete. Numba identifies code by the path of its
source, so code compiled by one installation is not found by another on the same machine; hence the name contains the
installation."""
OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "fastmath": False, "boundscheck": False}
KERNEL_OPTIONS: dict[str, Any] = {**OPTIONS, "forceinline": True}
HEAPLESS: dict[str, Any] = {**OPTIONS, "_nrt": False}
"""A function with these options is compiled only if it allocates no memory on the heap. It does not count references to
its arrays, which would take longer than the computation (decision 0014), and can't return an array to Python."""


class Program:
    """The compiled functions of the linked modules by name (``program.advance``, …), and their cache folder."""

    def __init__(self, functions: dict[str, Any], folder: Path) -> None:
        self.folder = folder
        self.functions = functions

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["functions"][name]
        except KeyError:
            raise AttributeError(name) from None


def cache_root() -> Path:
    """Folder of compiled programs: $CACHE_DIRECTORY (systemd), otherwise hilserver in $XDG_CACHE_HOME or ~/.cache."""
    if folder := os.environ.get("CACHE_DIRECTORY"):
        return Path(folder.split(":")[0])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hilserver"


def build(
    library: Library, modules: Sequence[ModuleType] = (), root: Path | None = None, *, to_call: bool = True
) -> Program:
    """Link ``engine`` and ``modules`` to the library's kernels; each function is compiled at its first call.

    The functions that call the library's ``evaluate``, that is, all functions of these modules, are linked: each
    library has its own copy of them. Functions of other modules are imported as usual
    (`numba.extending.register_jitable`). Programs that are only compiled and not called (not ``to_call``) don't wait
    for the mechanisms' machine code.
    """
    linked = [engine, *modules]
    folder = program_folder(library, modules, root)
    folder.mkdir(parents=True, exist_ok=True)
    generated = _import_generated(dispatch.generate(library), folder)
    for contract in library.contracts:
        vars(generated)[f"k{contract.kind}"] = numba.njit(contract.kernel.function, **KERNEL_OPTIONS)
    given = _mechanisms(folder.parent)[0] if to_call else _declared(folder.parent)
    with cached_in(folder):
        given = given | {name: numba.njit(getattr(generated, name), cache=True, **HEAPLESS) for name in GENERATED}
        compiled = _linked(linked, {vars(engine)[name]: made for name, made in given.items()}, folder)
    return Program({**{name: given[name] for name in GENERATED}, **compiled}, folder)


def program_folder(library: Library, modules: Sequence[ModuleType] = (), root: Path | None = None) -> Path:
    """The folder in which `build` stores compiled code, named by a hash of everything that affects it."""
    linked = [engine, *modules, native, *native.CALLED]
    return _writable(root or cache_root()) / _fingerprint(library.contracts, linked, dispatch.generate(library))


def _linked(modules: Sequence[ModuleType], given: Mapping[Any, Any], folder: Path) -> dict[str, Any]:
    """The modules' own functions by name, each to be compiled with its module's globals.

    In these globals, the linked functions replace the original ones, and the ``given`` objects those of the same name.
    The full names of the functions contain the folder, because the linker identifies functions by their full names: if
    a process loads two programs, one would otherwise call the functions of the other.
    """
    scopes, made, found = {}, dict(given), {}
    for module in modules:
        scopes[module] = dict(vars(module))
        for name, function in vars(module).items():
            if _is_own(module, function) and function not in given:
                if name in found:
                    raise TypeError(f"{module.__name__}: another linked module has a function {name}: rename one")
                copy = FunctionType(function.__code__, scopes[module], name, function.__defaults__)
                copy.__module__, copy.__qualname__ = module.__name__, f"{name}_{folder.name}"
                options = {**HEAPLESS, "_nrt": _gives_arrays(function)}  # False would be inherited from a caller
                found[name] = made[function] = numba.njit(copy, cache=True, **options)
    for scope in scopes.values():
        scope.update({name: made[item] for name, item in scope.items() if inspect.isfunction(item) and item in made})
    return found


def mechanisms_folder(root: Path | None = None) -> Path:
    """Folder of the mechanisms' machine code, separate from programs, because it does not depend on them."""
    return _writable(root or cache_root()) / _fingerprint((), [native, *native.CALLED], "")


@functools.cache
def _mechanisms(place: Path) -> tuple[dict[str, Any], list[Any]]:
    """The entry points of the mechanisms' machine code as functions that compiled code can call, and the code itself.

    They are kept as long as the process lives, because compiled code contains their addresses.
    """
    folder = mechanisms_folder(place)
    folder.mkdir(parents=True, exist_ok=True)
    scope, kept = dict(vars(native)), []
    with cached_in(folder):
        scope |= _linked(native.CALLED, {}, folder)
        for name, signature in native.SIGNATURES.items():
            copy = FunctionType(vars(native)[name].__code__, scope, name)
            copy.__module__ = native.__name__
            machine_code = numba.cfunc(signature, cache=True, **OPTIONS)(copy)  # carray requires the heap
            llvmlite.binding.add_symbol(_symbol(name, folder), machine_code.address)
            kept.append(machine_code)
    (folder / COMPLETE).touch()
    return _external(folder), kept


def _external(folder: Path) -> dict[str, Any]:
    return {
        name: numba.types.ExternalFunction(_symbol(name, folder), signature)
        for name, signature in native.SIGNATURES.items()
    }


def _symbol(name: str, folder: Path) -> str:
    return f"hilserver_{name}_{folder.name}"


def _declared(place: Path) -> dict[str, Any]:
    """The entry points, which the linker requires to have addresses; a call aborts the process if they have no code."""
    folder = mechanisms_folder(place)
    abort = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
    for name in native.SIGNATURES:
        symbol = _symbol(name, folder)
        if llvmlite.binding.address_of_symbol(symbol) is None:  # no other program of this process calls it
            llvmlite.binding.add_symbol(symbol, abort)
    return _external(folder)


def compile_mechanisms(root: Path | None = None) -> None:
    """Compile the mechanisms' machine code into the cache."""
    _mechanisms(_writable(root or cache_root()))


@contextlib.contextmanager
def cached_in(folder: Path) -> Iterator[None]:
    """Within this context, compiled or declared functions are stored in this folder."""
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def check_kernels(library: Library) -> None:
    """Compile each kernel of the user's files by itself. Raises ConfigurationError naming file, kernel and reason."""
    problems = []
    modules = {file.module: file.name for file in library.own}
    pair = numba.types.Tuple((numba.float64[::1], numba.int64))  # type: ignore[no-untyped-call]
    for contract in library.contracts:
        function = contract.kernel.function
        if function.__module__ in modules:
            types = tuple(pair if is_pair(contract, term) else numba.float64 for term in contract.arguments)
            if error := _failure(function, types, HEAPLESS):
                reason = _essence(error)
                if not _failure(function, types, {**HEAPLESS, "_nrt": True}):
                    reason = "it creates an array, a list or a text, but a tick must not allocate memory"
                text = f"kernel {function.__name__} can't be compiled: {reason}"
                problems.append(Problem(text, contract.component.__name__, modules[function.__module__]))
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


def _gives_arrays(function: Any) -> bool:
    """Whether a function returns parts of its arrays, by its annotation."""
    return "Floats" in str(function.__annotations__.get("return"))


def _is_own(module: ModuleType, item: object) -> bool:
    return inspect.isfunction(item) and item.__module__ == module.__name__


def _writable(root: Path) -> Path:
    """The root if it can be written to, else a private folder of this user under the temporary folder."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError:
        pass
    fallback = Path(tempfile.gettempdir()) / f"hilserver-cache-{os.getuid()}"
    fallback.mkdir(mode=0o700, exist_ok=True)
    if fallback.stat().st_uid != os.getuid():  # a folder of another user could contain another program
        return Path(tempfile.mkdtemp(prefix="hilserver-cache-"))
    return fallback


def _fingerprint(contracts: Sequence[Contract], linked: Sequence[ModuleType], text: str) -> str:
    """Hash of the dispatch, of all functions including those they call and the constants they read, and of versions."""
    seen: dict[str, str] = {}
    linecache.checkcache()
    for contract in contracts:
        _collect(contract.kernel.function, seen)
    for module in linked:
        for name, item in vars(module).items():
            if _is_own(module, item) and name not in GENERATED:
                _collect(item, seen)
    versions = [numba.__version__, np.__version__, platform.python_version(), platform.processor(), _cpu()]
    meaning = [f"{name}={what}" for name, what in sorted(seen.items())]
    return hashlib.sha256(
        "\0".join([text, str(KERNEL_OPTIONS), str(HEAPLESS), *meaning, *versions]).encode()
    ).hexdigest()[:16]


def _collect(function: Any, seen: dict[str, str]) -> None:
    """Add a function's source and the values of the global names in it: constants, and functions recursively."""
    function = getattr(function, "py_func", function)  # a helper that its author compiled with numba.njit
    more, function = getattr(function, "compiled_with", ""), inspect.unwrap(function)
    name = f"{function.__module__}.{function.__qualname__}"
    if name in seen:
        return
    seen[name] = _source(function.__code__) + more
    for word in function.__code__.co_names:
        item = function.__globals__.get(word)
        if isinstance(item, bool | int | float | str | tuple | np.dtype):
            seen[f"{function.__module__}.{word}"] = repr(item)
        elif isinstance(item, EnumType):
            seen[f"{item.__module__}.{item.__qualname__}"] = repr(item.__members__)
        elif hasattr(item, "_fields"):
            seen[f"{item.__module__}.{item.__qualname__}"] = repr(item._fields)
        elif inspect.isfunction(item) or hasattr(item, "py_func"):
            _collect(item, seen)


def _source(code: CodeType) -> str:
    """A function's source, by the lines of its code; `inspect.getsource` looks for its end with a slow tokenizer."""
    lines = linecache.getlines(code.co_filename)
    if not lines:
        raise OSError(f"the source of {code.co_name} ({code.co_filename}) can't be read")
    return "".join(lines[code.co_firstlineno - 1 : _last_line(code)])


def _last_line(code: CodeType) -> int:
    within = [_last_line(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return max([line or 0 for start, end, _, _ in code.co_positions() for line in (start, end)] + within)


@functools.cache
def _cpu() -> str:
    return str(llvmlite.binding.get_host_cpu_name())


def _import_generated(text: str, folder: Path) -> ModuleType:
    path = folder / "dispatch.py"
    if not path.exists() or path.read_text() != text:
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(text)
        part.replace(path)
    spec = importlib.util.spec_from_file_location(f"hilserver_dispatch_{folder.name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
