"""Generates ``evaluate``: one branch per kernel of the library. The generated source is in the cache folder."""

from __future__ import annotations

from collections.abc import Sequence

from hilserver.circuit import engine as e
from hilserver.circuit.library import RECORDED, SUMMED, WRITTEN, Contract, Library, Role, Term

ARRAYS = ("ix", "val", "z", "y", "d")
"""Arguments of ``evaluate``."""
TABLES = {
    "evaluate": (e.N_CALLS, e.CALLS),
    "evaluate_ports": (e.N_PORT_CALLS, e.PORT_CALLS),
    "evaluate_sampled": (e.N_SAMPLED, e.SAMPLED),
}
"""The generated functions, each with the table of the calls that it makes."""
CALLED = {"evaluate": "make_calls", "evaluate_ports": "make_calls", "evaluate_sampled": "make_sampled_calls"}
"""The generated function by which each of them makes its calls: all kernels are compiled into it."""


def generate(library: Library) -> str:
    """Source text of a module with the functions of TABLES and CALLED, and for each kernel one call (`call_name`).

    The kernels that these call are k0, k1, … in it; those of the user are called by their number with ``own_kernel``.
    """
    contracts = library.built_in
    modules = sorted({contract.kernel.function.__module__ for contract in contracts})
    lines = ['"""Generated from the component library: runs every kernel call of a packed circuit."""', ""]
    lines += [f"import {module} as m{number}" for number, module in enumerate(modules)]
    lines += ["import numpy as np", "", *_unsigned(contracts)]
    for contract in contracts:
        function = contract.kernel.function
        lines.append(f"k{contract.kind} = m{modules.index(function.__module__)}.{function.__name__}")
    for contract in contracts:
        lines += _definition(call_name(contract.kind), contract)
    for name in dict.fromkeys(CALLED.values()):
        sampled = name == CALLED["evaluate_sampled"]
        lines += _make_calls(name, [contract for contract in contracts if contract.kernel.sampled is sampled])
    arrays = ", ".join(ARRAYS)
    for name, (number, table) in TABLES.items():
        lines += ["", "", f"def {name}({arrays}) -> None:", f"    {CALLED[name]}({arrays}, ix[{table}], ix[{number}])"]
    return "\n".join(lines) + "\n"


def _make_calls(name: str, called: Sequence[Contract]) -> list[str]:
    lines = ["", "", f"def {name}({', '.join(ARRAYS)}, row, number) -> None:", "    for _ in range(number):"]
    lines += ["        kind, a, p, r = ix[row], ix[row + u1], ix[row + u2], ix[row + u3]", "        row += u4"]
    for contract in called:
        word = "if" if contract is called[0] else "elif"
        lines.append(f"        {word} kind == u{contract.kind}:  # {contract.component.type_name}")
        lines.append(f"            {call_name(contract.kind)}({', '.join(ARRAYS)}, a, p, r)")
    lines.append("        else:" if called else "        if True:")
    return [
        *lines,
        "            status = own_kernel(kind, ix.ctypes, val.ctypes, z.ctypes, y.ctypes, d.ctypes, a, p, r)",
        "            if status != 0:",
        "                raise ArithmeticError",
    ]


def call_name(kind: int) -> str:
    """Name of the generated function with one call of a kernel: places of its arguments in ix, val and y are given."""
    return f"call_{kind}"


def generate_own(contract: Contract) -> str:
    """Source text of a module with ``call``, one call of a kernel of the user, which is k<kind> in it.

    ``entry`` is the same for addresses instead of arrays, whose lengths are never checked.
    """
    lines = ['"""Generated: runs one call of a kernel."""', "", "import numpy as np", "from numba import carray", ""]
    lines += [*_unsigned([contract]), "ANY = 1 << 40", *_definition("call", contract), "", ""]
    lines += [f"def entry({', '.join(ARRAYS)}, a, p, r):"]
    lines += [f"    call({', '.join(f'carray({name}, ANY)' for name in ARRAYS)}, a, p, r)"]
    return "\n".join(lines) + "\n"


def _definition(name: str, contract: Contract) -> list[str]:
    return ["", "", f"def {name}({', '.join(ARRAYS)}, a, p, r) -> None:", *("    " + line for line in _call(contract))]


def _unsigned(contracts: list[Contract]) -> list[str]:
    """Numbers as constants u0, u1, …: they are unsigned, so no index is checked for being negative."""
    return [f"u{n} = np.uint64({n})" for n in range(_largest(contracts) + 1)]


def _call(contract: Contract) -> list[str]:
    """Gather the arguments, call the kernel, scatter the results. The order of index slots is that of pack."""
    slot = parameter = record = 0
    arguments = []
    for term in contract.arguments:
        if term.from_parameters:
            arguments.append(f"val[p + u{parameter}]")
            parameter += 1
        elif is_pair(contract, term):
            arguments.append(f"({'val' if term.role is Role.TABLE else 'z'}, int(ix[a + u{slot}]))")
            slot += 1
        else:
            arguments.append(f"{'d' if term.role is Role.STEP else 'z'}[ix[a + u{slot}]]")
            slot += 1
    names = ", ".join(term.word for term in contract.results)
    lines = [f"{names} = k{contract.kind}({', '.join(arguments)})"]
    for term in contract.results:
        if term.role in SUMMED:
            lines.append(f"d[ix[a + u{slot}]] += {term.word}")
        elif term.role in WRITTEN or term.role is Role.NEXT:
            lines.append(f"z[ix[a + u{slot}]] = {term.word}")
        elif term.role is Role.DERIVATIVE:
            lines.append(f"d[ix[a + u{slot}]] = {term.word}")
        slot += term.role is not Role.OBSERVABLE
        if term.role in RECORDED:
            lines.append(f"y[r + u{record}] = {term.word}")
            record += 1
    return lines


def is_pair(contract: Contract, term: Term) -> bool:
    """Whether a kernel gets this argument as (array, place of the first value): a table, a memory of several values.

    The place is a signed integer, unlike the index, so that the result is an integer when the author adds to it.
    """
    sizes = {memory.name: memory.size for memory in contract.component.memories}
    return term.role is Role.TABLE or (term.role is Role.MEMORY and sizes[term.name] > 1)


def _largest(contracts: list[Contract]) -> int:
    """The largest number that occurs in the generated code."""
    terms = [len(contract.arguments) + len(contract.results) for contract in contracts]
    return max([4, *(contract.kind for contract in contracts), *terms])
