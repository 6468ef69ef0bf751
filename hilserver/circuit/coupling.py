"""Which rates of a circuit depend on which states, and states whose columns of the Jacobian can be found together.

Two columns that have no row in common are found by one evaluation of the rates, in which both states are changed: each
rate then depends on one of the two only, so that the differences are the same as one by one, bit for bit. Source:
Curtis, Powell & Reid, On the estimation of sparse Jacobian matrices, IMA J. Appl. Math. 13 (1974) 117.

A set of states is a whole number whose bits are the states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from hilserver.circuit import engine as e

FEW = 300
"""Operations of an elimination. One with more of them is done along the circuit's structure only if that saves three
quarters of the operations: those with the whole matrix are done several at a time."""


@dataclass(frozen=True)
class Call:
    """A call of a kernel: the places in z that it reads; those that it writes in z, and those in d."""

    reads: Sequence[int]
    writes: Sequence[int]
    rates: Sequence[int]


@dataclass(frozen=True)
class Moved:
    """A mechanism: its states with the strokes, the places in z of its actuators' speeds, their sums in d."""

    states: Sequence[int]
    speeds: Sequence[int]
    sums: Sequence[int]


def behind(sums: Iterable[int], calls: Sequence[Call]) -> tuple[list[int], set[int]]:
    """The numbers of the calls on which these entries of d depend, in their order; the places in z that they read."""
    wanted, read, found = set(sums), set[int](), list[int]()
    for number, call in reversed(list(enumerate(calls))):
        if wanted.intersection(call.rates) or read.intersection(call.writes):
            found.append(number)
            read.update(call.reads)
    return found[::-1], read


class Coupling:
    """The states on which each value in z and each entry of d depends."""

    def __init__(
        self, n: int, calls: Iterable[Call], mechanisms: Sequence[Moved], tables: dict[int, list[int]]
    ) -> None:
        self.n = n
        self._z, self._d = defaultdict[int, int](int), defaultdict[int, int](int)
        self._z.update({i: 1 << i for i in range(n)})
        self._hydraulic = list(_rows(tables[e.HYDRAULIC], 5))
        for content, _, pressure, *_ in self._hydraulic:
            self._z[pressure] = 1 << content
        for moved in mechanisms:
            self._z.update(dict.fromkeys(moved.speeds, self._of(moved.states)))
        for call in calls:
            self._add(call)
        self._derive(mechanisms, tables)
        self._flows = [self._d[total] | self._z[factor] for _, total, factor in _rows(tables[e.FLOWS], 3)]
        self._ports = [self._divided(total) for _, total, _ in _rows(tables[e.PORTS], 3)]

    def _of(self, places: Iterable[int]) -> int:
        """The states on which any of these values in z depends."""
        return reduce(or_, (self._z[place] for place in places), 0)

    def _divided(self, total: int) -> int:
        """The states on which the quotient of two sums depends, such as that of forces and that of masses."""
        return self._d[total] | self._d[total + 1]

    def _add(self, call: Call) -> None:
        read = self._of(call.reads)
        self._z.update(dict.fromkeys(call.writes, read))
        for place in call.rates:
            self._d[place] |= read

    def _derive(self, mechanisms: Sequence[Moved], tables: Mapping[int, Sequence[int]]) -> None:
        """What follows from the sums, as in `hilserver.circuit.engine.rates_within_step`."""
        for moved in mechanisms:
            acting = reduce(or_, map(self._divided, moved.sums), self._of(moved.states))
            self._d.update(dict.fromkeys(moved.states, acting))
        for content, total, *_ in self._hydraulic:
            self._d[content] = self._divided(total)
        for place, total in _rows(tables[e.MECHANICAL], 2):
            self._d[place], self._d[place + 1] = 1 << (place + 1), self._divided(total)
        for limited in tables[e.LIMITED]:
            self._d[limited] |= 1 << limited

    def groups(self) -> list[list[int]]:
        """The states in groups; the columns of two states of a group have no row in common."""
        rows = [self._d[i] for i in range(self.n)] + self._flows + self._ports
        conflicts = [reduce(or_, (row for row in rows if row >> j & 1), 0) for j in range(self.n)]
        groups: list[list[int]] = []
        for j in sorted(range(self.n), key=lambda j: -conflicts[j].bit_count()):
            fits = (group for group in groups if not any(conflicts[j] >> other & 1 for other in group))
            group = next(fits, None)
            if group is None:
                groups.append(group := [])
            group.append(j)
        return groups

    def table(self) -> list[int]:
        """The table GROUPED of a packed circuit.

        For each group the number of its states; for each of these its number, the length of all this, and what depends
        on it: the numbers of the states, of the ports and of the flows, each after their count.
        """
        cells = []
        for group in self.groups():
            cells.append(len(group))
            for j in group:
                own = [self._d[i] for i in range(self.n)]
                column = []
                for rows in (own, self._ports, self._flows):
                    found = [number for number, row in enumerate(rows) if row >> j & 1]
                    column += [len(found), *found]
                cells += [j, 2 + len(column), *column]
        return cells

    def elimination(self) -> list[int]:
        """The table ELIMINATION of a packed circuit (`hilserver.circuit.elimination`); empty where it does not pay.

        The next state is always the one whose elimination changes the fewest entries. Source: Markowitz, The
        elimination form of the inverse, Management Science 3 (1957) 255.
        """
        rows = [self._d[i] | 1 << i for i in range(self.n)]
        columns = [reduce(or_, (1 << i for i, row in enumerate(rows) if row >> j & 1)) for j in range(self.n)]
        left, cells, operations = set(range(self.n)), list[int](), 0
        while left:
            p = min(left, key=lambda k: ((rows[k].bit_count() - 1) * (columns[k].bit_count() - 1), k))
            left.remove(p)
            below, right = (_members(of[p] & ~(1 << p)) for of in (columns, rows))
            for of, changed in ((rows, below), (columns, right)):
                for k in changed:
                    of[k] = (of[k] | of[p]) & ~(1 << p)
            operations += len(below) * len(right)
            cells += [p, len(below), len(right), *below, *right, 4 + len(below) + len(right)]
        return cells if operations <= max(FEW, self.n**3 // 12) else []


def _members(states: int) -> list[int]:
    """The states of a set, in ascending order."""
    return [k for k in range(states.bit_length()) if states >> k & 1]


def _rows(table: Sequence[int], width: int) -> Iterator[Sequence[int]]:
    """The rows of a table."""
    return (table[start : start + width] for start in range(0, len(table), width))
