"""The part of the program that is compiled again for a single circuit, as LLVM's intermediate code.

It consists of the integrators and of a function for one call of each kernel. What is missing is the circuit: its index,
``evaluate``, which calls its kernels (`hilserver.compiler.specialising`), and the elimination along its structure
(`hilserver.compiler.straight_elimination`).

Importing this module loads Numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

from hilserver.circuit.dispatch import ARRAYS, call_name
from hilserver.circuit.library import standard_library
from hilserver.compiler.functions import Functions
from hilserver.compiler.merging import merged
from hilserver.compiler.specialising import ENTRY_ARRAYS, EVALUATE, INTEGRATE, KERNEL
from hilserver.compiler.straight_elimination import ELIMINATED

MISSING: dict[str, tuple[str, Sequence[str]]] = {
    **{name: (symbol, ARRAYS) for name, symbol in EVALUATE.items()},
    "factorise_structure": (ELIMINATED["factorise_structure"], ("ix", "jacobian", "factors", "scale")),
    "solve_structure": (ELIMINATED["solve_structure"], ("ix", "factors", "b")),
}
"""Functions that are made for each circuit: symbol and arguments."""
NUMBERS = ("scale",)
"""Arguments that are numbers, not arrays."""
LONGEST = 1 << 40
"""Number of elements of an array whose length is not known; none is checked."""


def circuit_module(made: Functions, shared: Sequence[str]) -> bytes:
    """The module: of the functions of the program those without ``evaluate``.

    ``shared``: intermediate code of what the whole program also has.
    """
    missing = {made.symbol(name): function for name, function in MISSING.items()}
    texts = [_missing(*function, symbol) for symbol, function in missing.items()]
    texts += [_kernel(each.kind, made.symbol(call_name(each.kind))) for each in standard_library().built_in]
    texts.append(_integrate(made.symbol("integrate")))
    module = merged("circuit", made.bitcode(without=missing), (*shared, *texts))
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration:
            item.linkage = "external" if item.name.startswith(("circuit_", "hilserver_")) else "internal"
    _remove_unused(module)
    return bytes(module.as_bitcode())


def _remove_unused(module: Any) -> None:
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))


def _given(array: str, length: int | str = LONGEST) -> str:
    """An array of Numba as the arguments of a call: owner, parent, length, size of an element, address, shape, step."""
    return f"ptr null, ptr null, i64 {length}, i64 8, ptr %{array}, i64 {length}, i64 8"


def _taken(array: str) -> str:
    """The same as parameters of a function."""
    names = ("owner", "parent", "length", "size", "", "shape", "step")
    kinds = ("ptr", "ptr", "i64", "i64", "ptr", "i64", "i64")
    return ", ".join(f"{kind} %{array}{'.' if name else ''}{name}" for kind, name in zip(kinds, names, strict=True))


def _missing(made: str, arguments: Sequence[str], symbol: str) -> str:
    """A function of Numba that calls the one ``made`` for the circuit; ``arguments`` are arrays or NUMBERS."""
    taken = ", ".join(f"double %{each}" if each in NUMBERS else _taken(each) for each in arguments)
    given = ", ".join(f"{'double' if each in NUMBERS else 'ptr'} %{each}" for each in arguments)
    return f"""
declare i32 @{made}({given})
define i32 @"{symbol}"(ptr %result, ptr %error, {taken}) {{
  %status = call i32 @{made}({given})
  ret i32 %status
}}
"""


def _kernel(kind: int, symbol: str) -> str:
    parameters = ", ".join([*(f"ptr %{array}" for array in ARRAYS), "i64 %a, i64 %p, i64 %r"])
    return f"""
declare i32 @"{symbol}"(ptr, ptr, {", ".join(map(_taken, ARRAYS))}, i64, i64, i64)
define i32 @{KERNEL}{kind}({parameters}) alwaysinline {{
  %result = alloca ptr
  %error = alloca ptr
  %status = call i32 @"{symbol}"(ptr %result, ptr %error, {", ".join(map(_given, ARRAYS))}, i64 %a, i64 %p, i64 %r)
  ret i32 %status
}}
"""


def _integrate(symbol: str) -> str:
    taken = ", ".join(f"ptr %{array}" for array in ENTRY_ARRAYS)
    given = ", ".join(_given(array, "%cells" if array == "chambers" else LONGEST) for array in ENTRY_ARRAYS)
    return f"""
declare i32 @"{symbol}"(ptr, ptr, {", ".join(map(_taken, ENTRY_ARRAYS))}, i64, double, i64)
define i32 @{INTEGRATE}({taken}, i64 %cells, i64 %steps, double %h, i64 %ports) alwaysinline {{
  %result = alloca ptr
  %error = alloca ptr
  %status = call i32 @"{symbol}"(ptr %result, ptr %error, {given}, i64 %steps, double %h, i64 %ports)
  ret i32 %status
}}
"""
