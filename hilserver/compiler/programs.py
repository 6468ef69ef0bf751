"""The program for a component library, and the check of the user's kernels."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from types import ModuleType

from hilserver.circuit.library import INSTALLED, Library, library_of
from hilserver.circuit.own import OwnFile
from hilserver.circuit.program import Program
from hilserver.compiler.loading import is_built, load, standard_file
from hilserver.errors import HilserverError
from hilserver.installed import installed


def compiled_program(library: Library) -> Program:
    """The program for a library; it is built first if it is missing, and the user's kernels are compiled.

    Raises HilserverError if it can't be built.
    """
    if not library.own_kernels:
        return standard_program()
    program: Program = _compiler_of_own().program_with(library, standard_file())
    return program


def program_for(own: Sequence[OwnFile]) -> Program:
    """The program with the components in these files of the user, the installed and the built-in ones.

    Where there are only built-in ones, their modules are not imported, which takes a third of a second.
    """
    if not own and not installed(INSTALLED):
        return standard_program()
    return compiled_program(library_of(own))


def check(library: Library) -> None:
    """Compile each kernel of the user separately. Raises ConfigurationError naming file, kernel and reason."""
    if library.own_kernels:
        _compiler_of_own().check_kernels(library)


def _compiler_of_own() -> ModuleType:
    """The module that compiles the user's kernels; it loads Numba. Raises HilserverError if Numba is not installed."""
    try:
        return importlib.import_module("hilserver.compiler.own")
    except ModuleNotFoundError as error:
        if error.name not in ("numba", "llvmlite"):
            raise
        raise HilserverError(
            "components of your own need Numba, which compiles them: pip install 'hilserver[own-components]' "
            "(an installation by make: make install EXTRAS=own-components)."
        ) from None


@functools.cache
def standard_program() -> Program:
    """The program with the built-in components."""
    return load(standard_file())


def is_compiled(library: Library) -> bool:
    """Whether nothing needs to be built before a program of this library can run. (The user's kernels take seconds.)"""
    return is_built()
