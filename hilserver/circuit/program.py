"""Links the engine to a component library and compiles it, once per library and version, into a cache folder.

Numba's own cache does not notice that a kernel in another file changed (numba issue 1833); so the cache folder's name carries a hash
of every source that goes into the program.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numba
import numpy as np

import hilserver.numerics.flow
import hilserver.numerics.fluid
import hilserver.numerics.motion
import hilserver.numerics.shape
import hilserver.numerics.valve
from hilserver.circuit import dispatch, engine
from hilserver.circuit.library import Library

OPTIONS = {"error_model": "numpy", "nogil": True, "fastmath": False, "boundscheck": False}


class Program:
    """The compiled functions of the linked modules, by name (``program.advance``, …), and the folder they are cached in."""

    def __init__(self, functions: dict[str, Any], folder: Path) -> None:
        self.folder = folder
        self.functions = functions

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["functions"][name]
        except KeyError:
            raise AttributeError(name) from None


def cache_root() -> Path:
    """Where compiled programs are kept: $CACHE_DIRECTORY (systemd), else $XDG_CACHE_HOME/hilserver, else ~/.cache/hilserver."""
    if folder := os.environ.get("CACHE_DIRECTORY"):
        return Path(folder.split(":")[0])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hilserver"


def build(library: Library, modules: Sequence[ModuleType] = (), root: Path | None = None) -> Program:
    """Link ``engine`` and ``modules`` (in this order) to the library's kernels; compile at the first call of each function.

    A function of a linked module sees the functions of all modules linked so far under their names.
    """
    linked = [engine, *modules]
    text = dispatch.generate(library)
    folder = _writable(root or cache_root()) / _fingerprint(library, linked, text)
    folder.mkdir(parents=True, exist_ok=True)
    generated = _import_generated(text, folder)
    scope: dict[str, Any] = {}
    for contract in library.contracts:
        vars(generated)[f"k{contract.kind}"] = numba.njit(contract.kernel.function, **OPTIONS)
    cache_before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
    try:
        compiled = {"evaluate": numba.njit(generated.evaluate, cache=True, **OPTIONS)}
        for module in linked:
            scope.update(vars(module))
            for name, function in vars(module).items():
                if _is_own(module, function) and name != "evaluate":
                    copy = FunctionType(function.__code__, scope, name, function.__defaults__)
                    compiled[name] = numba.njit(copy, cache=True, **OPTIONS)
            scope.update(compiled)
    finally:
        numba.config.CACHE_DIR = cache_before
    return Program(compiled, folder)


def _is_own(module: ModuleType, item: object) -> bool:
    return inspect.isfunction(item) and item.__module__ == module.__name__ and not item.__name__.startswith("make_")


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
    if fallback.stat().st_uid != os.getuid():  # somebody else's folder could hold somebody else's program
        return Path(tempfile.mkdtemp(prefix="hilserver-cache-"))
    return fallback


def _fingerprint(library: Library, linked: Sequence[ModuleType], text: str) -> str:
    kernel_modules = {inspect.getmodule(contract.kernel.function) for contract in library.contracts}
    numerics = hilserver.numerics
    helpers = [numerics.flow, numerics.fluid, numerics.motion, numerics.shape, numerics.valve]
    sources = [inspect.getsource(module) for module in [*linked, *helpers]]
    sources += sorted(inspect.getsource(module) for module in kernel_modules if module is not None)
    versions = [numba.__version__, np.__version__, platform.python_version(), platform.processor(), _cpu()]
    digest = hashlib.sha256("\0".join([text, *sources, *versions]).encode())
    return digest.hexdigest()[:16]


@functools.cache
def _cpu() -> str:
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name())


def _import_generated(text: str, folder: Path) -> ModuleType:
    path = folder / "dispatch.py"
    if not path.exists() or path.read_text() != text:
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(text)
        part.replace(path)
    spec = importlib.util.spec_from_file_location(f"hilserver_dispatch_{folder.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
