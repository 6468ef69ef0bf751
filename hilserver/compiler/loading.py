"""Finds and loads the compiled program; if there is none for the present sources, it is built first."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from hilserver.circuit.program import SYMBOL, Function, Program, parameters_of
from hilserver.compiler.levels import V2, level_of_this_machine, levels
from hilserver.compiler.seal import is_sealed, require_seal
from hilserver.compiler.sources import SHIPPED, cache_folder, fingerprint
from hilserver.errors import HilserverError
from hilserver.tick.program import ENTRY_POINTS

LEVEL_VARIABLE = "HILSERVER_CPU_LEVEL"
"""Environment variable with the level to load, for comparisons."""
FMI = "fmi"
"""Name of the shared library of FMUs, among those of the levels: the program with the functions of FMI."""
CIRCUIT = "circuit"
"""Name of the file with the intermediate code that is compiled again for a single circuit."""
RUNNER = "hilserver-runner"
"""Name of the executable program that runs a packed rig without Python, beside the shared libraries."""
FINGERPRINT_FILE = "fingerprint"
"""File beside the shared libraries: the hash of the sources from which they were compiled."""


def is_built() -> bool:
    """Whether there is a program for the present sources."""
    return found_file() is not None


def load(path: Path, name: str = "") -> Program:
    """Load a shared library; ``name``: an addition to the fingerprint of the sources."""
    library = ctypes.CDLL(str(path))
    functions = {}
    for function in ENTRY_POINTS:
        symbol = getattr(library, SYMBOL + function.__name__)
        address = ctypes.cast(symbol, ctypes.c_void_p).value or 0
        functions[function.__name__] = Function(function.__name__, parameters_of(function), address)
    return Program(functions, fingerprint() + name, library)


def standard_file() -> Path:
    """The shared library for this processor; builds it if necessary."""
    if (found := found_file()) is not None:
        return found
    done = subprocess.run([sys.executable, "-m", "hilserver.compiler"])  # one process builds, others wait for it
    if done.returncode or (found := found_file()) is None:
        raise HilserverError("hilserver can't be compiled (see the messages above).")
    return found


def found_file() -> Path | None:
    """The shared library for this processor, of the present sources; None if there is none.

    Raises HilserverError if the one in the cache is not the one that hilserver has put there.
    """
    level = level_used()
    if (shipped := _complete(SHIPPED, level)) is not None:
        return shipped
    folder = folder_in_cache()
    if not is_sealed(folder):
        return None
    require_seal(folder)
    return _complete(folder, level)


def level_used() -> str:
    """The level whose code is run: that of the processor, or that in LEVEL_VARIABLE.

    Raises HilserverError if there is no such level.
    """
    level = os.environ.get(LEVEL_VARIABLE) or level_of_this_machine()
    if level not in levels():
        raise HilserverError(f"{LEVEL_VARIABLE}={level}: must be one of {', '.join(levels())}.")
    return level


def _complete(folder: Path, level: str) -> Path | None:
    try:
        same = (folder / FINGERPRINT_FILE).read_text() == fingerprint()
    except FileNotFoundError:
        return None
    return folder / f"{level}.so" if same else None


def folder_in_cache() -> Path:
    """Folder in which a program of the present sources is stored if the installed package has none.

    Raises HilserverError if somebody else may have written into it.
    """
    return cache_folder(fingerprint())


def files_in(folder: Path) -> dict[str, Path]:
    """The shared library of each level in a folder."""
    return {level: folder / f"{level}.so" for level in levels()}


def all_files_in(folder: Path) -> dict[str, Path]:
    """All compiled files in a folder: shared libraries of each level and of FMUs, the intermediate code, the runner."""
    more = {FMI: f"{FMI}.so", CIRCUIT: f"{CIRCUIT}.bc", RUNNER: RUNNER}
    return {**files_in(folder), **{name: folder / file for name, file in more.items()}}


def fmi_file() -> Path:
    """The shared library of FMUs; builds it if necessary."""
    return all_files_in(standard_file().parent)[FMI]


def circuit_bitcode() -> Path:
    """The intermediate code that is compiled again for a single circuit; builds the program if necessary."""
    return all_files_in(standard_file().parent)[CIRCUIT]


def runner_files() -> dict[str, Path]:
    """The runner, and the shared library of each level, by their names beside a packed rig; builds them if necessary.

    Raises HilserverError on a machine for which there is no runner.
    """
    if V2 not in levels():
        raise HilserverError(f"the runner is for x86-64, and this machine is {levels()[0]}.")
    folder = standard_file().parent
    return {RUNNER: folder / RUNNER, **{f"{level}.so": path for level, path in files_in(folder).items()}}
