"""One LLVM module made of many: those of Numba's functions, and texts of intermediate code.

Importing this module loads Numba.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import llvmlite.binding as llvm
from numba.core.registry import cpu_target


def copies_of(libraries: Iterable[Any]) -> list[Any]:
    """Copies of the modules of Numba's libraries: linking empties a module."""
    return [llvm.parse_bitcode(library._final_module.as_bitcode()) for library in libraries]


def merged(name: str, modules: Sequence[Any], texts: Iterable[str]) -> Any:
    """These modules, which it empties, and those in the texts in one module of this name.

    Neighbours are linked, then neighbours among the results: linking takes as long as the module is large to which
    another one is added, so that adding several hundred one by one would take a quarter of the build.
    """
    empty = llvm.parse_assembly(str(cpu_target.target_context.codegen()._create_empty_module(name)))
    modules = [empty, *modules, *map(llvm.parse_assembly, texts)]
    while len(modules) > 1:
        for module, next_one in zip(modules[::2], modules[1::2], strict=False):
            module.link_in(next_one)
        modules = modules[::2]
    return modules[0]
