"""The variables of an FMU: the quantities of a packed circuit, each with its places in the memory of an instance.

That memory is one block of cells: the row of the circuit (values, then recorded results), its parameters
(``packed.value``), then constants that are only shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import inf

from hilserver.circuit.model import RIG, Circuit, Placed
from hilserver.circuit.pack import PackedCircuit
from hilserver.simulation.packed_run import initial_values
from hilserver.units import unit_of_value


class Causality(IntEnum):
    """What may be done with a variable; the numbers are those of ``compiler/fmi/instance.h``."""

    OUTPUT = 0
    INPUT = 1
    TUNABLE = 2
    FIXED = 3
    CONSTANT = 4
    TIME = 5
    DERIVATIVE = 6


PARAMETERS = (Causality.TUNABLE, Causality.FIXED, Causality.CONSTANT)


@dataclass(frozen=True)
class Variable:
    """A variable: SI unit, its start value, the cells that follow from it, and the range in which it can be set.

    ``factors``: of the cells, default 1. A parameter has a cell of its own in addition, from which it is read.
    ``state``: the variable whose derivative it is; its place is the number of the state.
    """

    name: str
    kind: Causality
    unit: str
    description: str
    start: float
    places: tuple[int, ...]
    lower: float = -inf
    upper: float = inf
    factors: tuple[float, ...] = ()
    state: str = ""

    @property
    def is_parameter(self) -> bool:
        """Whether it is neither an input nor calculated."""
        return self.kind in PARAMETERS


TIME = "time"
"""Name of the independent variable."""
HIDDEN = ("constant", "memory", "account")
"""Beginnings of the kinds of values that are not shown: as in the table of a circuit run."""


def quantities(circuit: Circuit, packed: PackedCircuit) -> list[Variable]:
    """Time, the inputs, and all logged quantities of a circuit as outputs."""
    inputs = {*circuit.inputs(), *(f"{RIG}{port}.p" for port in circuit.rig_ports())}
    starts = [*initial_values(packed).tolist(), *[0.0] * len(packed.recorded)]
    kinds = [*packed.kinds, *["recorded"] * len(packed.recorded)]
    words = _Words(circuit)
    found = []
    for place, (name, kind) in enumerate(zip(packed.names, kinds, strict=True)):
        if place == packed.n_states:
            found.append(Variable(TIME, Causality.TIME, "s", "time", 0.0, (place,)))
        elif not kind.startswith(HIDDEN):
            unit = kind if place < packed.n_states else unit_of_value(name)
            of = Causality.INPUT if name in inputs else Causality.OUTPUT
            found.append(Variable(name, of, "" if unit == "1" else unit, words.of(name), starts[place], (place,)))
    return sorted(found, key=lambda variable: (Causality.TIME, Causality.INPUT, Causality.OUTPUT).index(variable.kind))


def derivatives(packed: PackedCircuit, found: Iterable[Variable]) -> list[Variable]:
    """The derivatives of the states, by which a circuit is given for model exchange."""
    states = {variable.places[0]: variable for variable in found if variable.kind is Causality.OUTPUT}
    return [
        Variable(
            f"der({states[i].name})",
            Causality.DERIVATIVE,
            f"{states[i].unit or '1'}/s",
            f"derivative of {states[i].name}",
            0.0,
            (i,),
            state=states[i].name,
        )
        for i in range(packed.n_states)
    ]


_OF_NODE = {
    "content": "state of node {}: its pressure; below the vapour pressure it counts the void",
    "p": "pressure of node {}, gauge",
    "q": "flow into the machine at {}, mean of the step",
    "x": "position of node {}",
    "v": "velocity of node {}",
    "phi": "angle of shaft {}",
    "w": "speed of shaft {}",
}
_AT_PORT = {
    "q": "flow of {} into the node at port {}",
    "F": "force of {} on the node at port {}",
    "T": "torque of {} on the shaft at port {}",
}


class _Words:
    """Descriptions of the quantities of a circuit, from their names."""

    def __init__(self, circuit: Circuit) -> None:
        self.placed = {placed.name: placed for placed in circuit.placed}
        self.mechanisms = {placed.name for placed in circuit.mechanisms}
        self.nodes = {*circuit.hydraulic_nodes(), *circuit.mechanical_nodes(), *circuit.rotational_nodes()}
        self.writers = dict(_writers(circuit))

    def of(self, name: str) -> str:
        owner, _, last = name.rpartition(".")
        if owner in self.nodes and last in _OF_NODE:
            return _OF_NODE[last].format(owner)
        if owner in self.placed:
            return _of_component(self.placed[owner], last)
        mechanism = next((each for each in self.mechanisms if name.startswith(f"{each}.")), "")
        if mechanism:
            return f"coordinate of mechanism {mechanism}"
        return f"signal of {self.writers[name]}" if name in self.writers else "input"


def _of_component(placed: Placed, last: str) -> str:
    kind = type(placed.component)
    who = f"{placed.name} ({kind.type_name})"
    letter, _, port = last.partition("_")
    if letter in _AT_PORT and port in (*kind.hydraulic, *kind.mechanical, *kind.rotational):
        return _AT_PORT[letter].format(who, port)
    return f"{'state' if last in {state.name for state in kind.states} else 'quantity'} {last} of {who}"


def _writers(circuit: Circuit) -> Iterator[tuple[str, str]]:
    for placed in circuit.placed:
        for port in placed.component.outputs:
            yield str(placed.signals[port]), f"{placed.name} ({type(placed.component).type_name})"
