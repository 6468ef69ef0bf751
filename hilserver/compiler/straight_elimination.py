"""The elimination of `hilserver.circuit.elimination` for one circuit, as LLVM's intermediate code without a loop.

LLVM would not unroll these loops: their lengths are read from the table ELIMINATION. The operations on numbers are the
same, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from hilserver.circuit.engine import ELIMINATION, N_ELIMINATION, N_STATES
from hilserver.numerics.arrays import Indices

ELIMINATED = {"factorise_structure": "circuit_factorise", "solve_structure": "circuit_solve"}
"""Functions of `hilserver.circuit.elimination`, and their symbols in the module."""


@dataclass
class _Block:
    """Operations on numbers; a value is the name of the operation that gives it."""

    lines: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)

    def of(self, operation: str) -> str:
        name = f"%n{next(self.numbers)}"
        self.lines.append(f"  {name} = {operation}")
        return name

    def load(self, array: str, place: int) -> str:
        return self.of(f"load double, ptr {self.address(array, place)}, align 8")

    def store(self, value: str, array: str, place: int) -> None:
        self.lines.append(f"  store double {value}, ptr {self.address(array, place)}, align 8")

    def address(self, array: str, place: int) -> str:
        return self.of(f"getelementptr double, ptr %{array}, i64 {place}")

    def less(self, value: str, factor: str, other: str) -> str:
        """value - factor·other."""
        product = self.of(f"fmul double {factor}, {other}")
        return self.of(f"fsub double {value}, {product}")


def elimination(index: Indices) -> Iterator[str]:
    """Both functions; of a circuit without the table, which never calls them, they are empty."""
    rows, n = list(_rows(index)), int(index[N_STATES])
    factorise, solve = ELIMINATED.values()
    yield f"define i32 @{factorise}(ptr %ix, ptr noalias %jacobian, ptr noalias %factors, double %scale) {{"
    yield from _factorise(rows, n)
    yield "  ret i32 0\n}"
    yield f"define i32 @{solve}(ptr %ix, ptr noalias %factors, ptr noalias %b) {{"
    yield from _solve(rows, n)
    yield "  ret i32 0\n}"


def _rows(index: Indices) -> Iterator[tuple[int, list[int], list[int]]]:
    """The table ELIMINATION: each state with those left in its column and in its row."""
    cells = index[int(index[ELIMINATION]) :][: int(index[N_ELIMINATION])].tolist()
    at = 0
    while at < len(cells):
        p, below, right = cells[at : at + 3]
        at += 3
        yield p, cells[at : at + below], cells[at + below : at + below + right]
        at += below + right + 1


def _factorise(rows: list[tuple[int, list[int], list[int]]], n: int) -> list[str]:
    block, entries = _Block(), dict[int, str]()
    for p, below, right in rows:
        for at in (p * n + p, *(p * n + i for i in below), *(j * n + p for j in right)):
            entries[at] = block.of(f"fmul double %scale, {block.load('jacobian', at)}")
        entries[p * n + p] = block.of(f"fadd double 1.0, {entries[p * n + p]}")
    for p, below, right in rows:
        entries[p * n + p] = reciprocal = block.of(f"fdiv double 1.0, {entries[p * n + p]}")
        for i in below:
            entries[p * n + i] = block.of(f"fmul double {entries[p * n + i]}, {reciprocal}")
        for j in right:
            for i in below:
                entries[j * n + i] = block.less(entries[j * n + i], entries[p * n + i], entries[j * n + p])
    for at, value in entries.items():
        block.store(value, "factors", at)
    return block.lines


def _solve(rows: list[tuple[int, list[int], list[int]]], n: int) -> list[str]:
    block = _Block()
    b = {p: block.load("b", p) for p, _, _ in rows}
    for p, below, _ in rows:
        for i in below:
            b[i] = block.less(b[i], block.load("factors", p * n + i), b[p])
    for p, _, right in reversed(rows):
        for j in right:
            b[p] = block.less(b[p], block.load("factors", j * n + p), b[j])
        b[p] = block.of(f"fmul double {b[p]}, {block.load('factors', p * n + p)}")
        block.store(b[p], "b", p)
    return block.lines
