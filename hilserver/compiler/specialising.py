"""Compiles the integrators for one circuit alone: ``python -m hilserver.compiler.specialising < INDEX``.

To LLVM the circuit's index is a constant. It knows then which kernels are called with which values, how long each loop
is and which branches are never taken, and nothing of it is left for the processor to do. The operations on numbers and
their order are the same, so are the results, bit for bit. Parameters are not constants: one code serves all variants
of a circuit.

Importing this module loads LLVM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

from hilserver.circuit.dispatch import ARRAYS, TABLES
from hilserver.circuit.engine import INTEGRATOR, Integrator
from hilserver.circuit.library import FIRST_OWN_KIND
from hilserver.compiler.circuit_code import BESIDE_A_LOOP, ENTRY, FILE, PREFIX, folder_of, kinds_of, without_code
from hilserver.compiler.loading import circuit_bitcode, level_used
from hilserver.compiler.machine_code import link, linker, write_object
from hilserver.compiler.seal import fill_once
from hilserver.compiler.straight_elimination import elimination
from hilserver.compiler.unused import remove_unused
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Indices
from hilserver.tick.program import OWN_KERNEL, OWN_TABLE

EVALUATE = {name: f"circuit_{name}" for name in TABLES}
"""Functions of the engine that call the kernels, and their symbols in the module."""
KERNEL, INTEGRATE = "circuit_kernel_", "circuit_integrate"
"""Symbols in the module: one call of a kernel, with its number behind; the integrators."""
ENTRY_ARRAYS = ("ix", "val", "z", "y", "work", "chambers")
"""Arguments of the integrators that are arrays; length of the last one, number of steps, step and purpose follow."""
LOWEST_PRIORITY = 19
CALL, EVALUATION = "call_", ("evaluate", "rates_within_step")
"""Parts of the names of functions that become parts of their callers: each call of a kernel, so that its places are
constants; in an explicit method, the evaluation of the rates, too. The L-stable one calls that from many places: there
it would only make the code longer."""


def write_code(index: Indices, file: Path) -> None:
    """Compile for a circuit of this index into a shared library. Raises HilserverError if there is no linker."""
    linker()  # without one, the compiler need not run
    module = llvm.parse_bitcode(circuit_bitcode().read_bytes())
    module.link_in(llvm.parse_assembly("\n".join(_text(index))))
    inlined = (CALL,) if index[INTEGRATOR] == Integrator.ROSENBROCK else (CALL, *EVALUATION)
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration:
            if any(name in item.name for name in inlined):
                item.add_function_attribute("alwaysinline")
            item.linkage = "external" if item.name in (ENTRY, OWN_TABLE) else "internal"
    compiled = file.with_suffix(".o")
    write_object(module.as_bitcode(), level_used(), compiled)
    link([compiled], file)
    compiled.unlink()


def _text(index: Indices) -> Iterator[str]:
    """Intermediate code with the index, the calls of the kernels, and the entry point."""
    cells = ", ".join(f"i64 {int(cell)}" for cell in index)
    yield f"@circuit_index = internal constant [{len(index)} x i64] [{cells}], align 64"
    yield f"declare i32 @{OWN_KERNEL}(i64, {', '.join(['ptr'] * len(ARRAYS))}, i64, i64, i64)"
    for kind in sorted({kind for kind in kinds_of(index) if kind < FIRST_OWN_KIND}):
        yield f"declare i32 @{KERNEL}{kind}({', '.join(['ptr'] * len(ARRAYS))}, i64, i64, i64)"
    for name, symbol in EVALUATE.items():
        yield from _evaluate(index, symbol, *TABLES[name])
    yield from elimination(index)
    given = ", ".join(f"ptr %{array}" for array in ENTRY_ARRAYS[1:])
    yield f"declare i32 @{INTEGRATE}(ptr, {given}, i64, i64, double, i64)"
    apart = given.replace("ptr ", "ptr noalias ").replace("noalias %chambers", "%chambers")  # those are a part of work
    numbers = "i64 %cells, i64 %steps, double %h, i64 %purpose"
    yield f"define i32 @{ENTRY}({apart}, {numbers}) {{"
    yield f"  %status = call i32 @{INTEGRATE}(ptr @circuit_index, {given}, {numbers})"
    yield "  ret i32 %status\n}"


def _evaluate(index: Indices, symbol: str, number: int, table: int) -> Iterator[str]:
    """The calls of a table of the index, one after the other; the first status of an error is returned."""
    arrays = ", ".join(f"ptr %{array}" for array in ARRAYS[1:])
    first = int(index[table])
    calls = index[first : first + 4 * int(index[number])].reshape(-1, 4).tolist()
    yield f"define i32 @{symbol}(ptr %ix, {arrays.replace('ptr', 'ptr noalias')}) {{"
    for k, (kind, *places) in enumerate(calls):
        own = kind >= FIRST_OWN_KIND
        words = [
            f"i64 {kind}, ptr @circuit_index" if own else "ptr @circuit_index",
            arrays,
            *(f"i64 {n}" for n in places),
        ]
        yield f"  %status.{k} = call i32 @{OWN_KERNEL if own else f'{KERNEL}{kind}'}({', '.join(words)})"
        if own:
            yield f"  %failed.{k} = icmp ne i32 %status.{k}, 0"
            yield f"  br i1 %failed.{k}, label %end.{k}, label %next.{k}\nend.{k}:\n  ret i32 %status.{k}\nnext.{k}:"
    yield "  ret i32 0\n}"


def main() -> None:
    """Compile for the index on the standard input into the cache, unless that has been done."""
    if BESIDE_A_LOOP in sys.argv[1:]:
        os.nice(LOWEST_PRIORITY)
    index = without_code(np.frombuffer(sys.stdin.buffer.read(), dtype=np.uint64))
    made = folder_of(index)
    fill_once(made, lambda folder: write_code(index, folder / FILE))
    remove_unused(made.parent, PREFIX, keep=made)


if __name__ == "__main__":
    try:
        main()
    except (HilserverError, OSError, RuntimeError) as error:  # no linker; a full disk; an LLVM that is too old
        sys.exit(str(error))
