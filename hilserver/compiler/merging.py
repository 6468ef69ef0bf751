"""One LLVM module made of many: those of Numba's functions, and texts of intermediate code.

Importing this module loads Numba.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import llvmlite.binding as llvm
from numba.core.registry import cpu_target


def merged(name: str, bitcode: Iterable[bytes], texts: Iterable[str]) -> Any:
    """The modules with this code, and those in the texts, in one module of this name.

    Neighbours are linked, then neighbours among the results: linking takes as long as the module is large to which
    another one is added, so that adding several hundred one by one would take a quarter of the build.
    """
    empty = llvm.parse_assembly(str(cpu_target.target_context.codegen()._create_empty_module(name)))
    modules = [empty, *map(llvm.parse_bitcode, bitcode), *map(llvm.parse_assembly, texts)]
    while len(modules) > 1:
        for module, next_one in zip(modules[::2], modules[1::2], strict=False):
            module.link_in(next_one)
        modules = modules[::2]
    return modules[0]
