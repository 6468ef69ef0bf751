"""Validated circuit -> packed circuit: two arrays that the compiled program integrates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.coupling import Call, Coupling, Moved, behind
from hilserver.circuit.integrators import work_size
from hilserver.circuit.layout import CircuitLayout
from hilserver.circuit.library import RECORDED, SUMMED, WRITTEN, Contract, Library, Role
from hilserver.circuit.model import FORCE, RIG, Circuit, Placed
from hilserver.components.base import Parameters, Table
from hilserver.components.force_source import ForceSource
from hilserver.errors import ConfigurationError
from hilserver.mechanics import columns as m
from hilserver.numerics.arrays import Floats, Indices, Integers

INTEGRATORS = {method.name.lower(): method for method in e.Integrator}
TABLE_WIDTHS = {
    e.CALLS: 4,
    e.SAMPLED: 4,
    e.HYDRAULIC: 5,
    e.MECHANICAL: 2,
    e.FLOWS: 3,
    e.BOUND: 2,
    e.PORTS: 3,
    e.FOLLOWED: 2,
    e.LIMITED: 1,
    e.PORT_CALLS: 4,
    e.MECHANISMS: 1,
    e.GROUPED: 1,
    e.ELIMINATION: 1,
}
"""Columns of each table of the index, by its position in the header; the number of rows precedes each table."""


CONSTANT = {Role.TABLE, Role.STEP}
"""Roles of arguments that are not values in z."""


@dataclass(frozen=True)
class Packing:
    """How a circuit was packed: into which cells of ``value`` the numbers of each component went.

    ``contracts``: of its kernels, in the order of `numbers_of`. ``given``: bindings, ports, actuators, accounts, see
    `pack`.
    """

    circuit: Circuit
    index: Indices
    value: Floats
    contracts: Mapping[str, Sequence[Contract]]
    cells: Mapping[str, Integers]
    given: object


@dataclass(frozen=True)
class Drift:
    """How the numbers of a circuit change while it runs: in a straight line, to ``value`` within ``over`` s."""

    value: Floats
    over: float


@dataclass(frozen=True)
class PackedCircuit:
    """A circuit as arrays: ``values`` name the entries of z, ``recorded`` those of y; ``kinds``: for a switch.

    ``packing``: how it was packed, if that was here. ``drift``: of ``value``; None if it is constant.
    """

    index: Indices
    value: Floats
    values: tuple[str, ...]
    recorded: tuple[str, ...]
    kinds: tuple[str, ...]
    packing: Packing | None = field(default=None, repr=False, compare=False)
    drift: Drift | None = field(default=None, repr=False)

    @property
    def n_states(self) -> int:
        """Number of integrated states."""
        return int(self.index[e.N_STATES])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all values in their order in a row: z, then y."""
        return self.values + self.recorded

    @property
    def work_size(self) -> int:
        """Length of the scratch array that the integrators require."""
        return work_size(self.index)

    def carried_from(self, old: PackedCircuit) -> Integers:
        """For each value its index in ``old`` (same name, same kind), or -1: the values kept in a switch."""
        if (self.values, self.kinds) == (old.values, old.kinds):
            return np.array([-1 if kind == "constant" else k for k, kind in enumerate(self.kinds)], dtype=np.int64)
        places = {(name, kind): place for place, (name, kind) in enumerate(zip(old.values, old.kinds, strict=True))}
        carried = [
            places.get((name, kind), -1) if kind != "constant" else -1
            for name, kind in zip(self.values, self.kinds, strict=True)
        ]
        return np.array(carried, dtype=np.int64)


def pack(
    circuit: Circuit,
    library: Library,
    bindings: Mapping[str, int] | None = None,
    ports: tuple[str, ...] = (),
    file: str = "",
    accounts: bool = False,
    like: PackedCircuit | None = None,
    actuators: tuple[str, ...] = (),
) -> PackedCircuit:
    """Pack a circuit.

    ``bindings`` maps outside names (``rig.A``, ``joystick``) to row columns that are copied in before each step; None
    binds nothing (the caller sets inputs itself). ``ports`` are the rig's ports in the order in which their flows are
    looked up, ``actuators`` the rig's actuators in the order in which the motion of their nodes is. With ``accounts``
    the values include what has passed into every node since the start, integrated with the states: volume
    (``<node>.passed_volume``, m³) and energy (``<node>.passed_energy``, J). Raises ConfigurationError for nodes without
    a volume or mass, signal loops, and names that are not provided.

    ``like``: a packed circuit; if this one differs from it in numbers of components only, these are written into a
    copy, which gives the same arrays faster.
    """
    circuit, given = with_measured_forces(circuit), (bindings, ports, actuators, accounts)
    if like is not None and (found := _packed_like(like, circuit, given)) is not None:
        return found
    return _Packer(circuit, library, bindings, (ports, actuators), file, accounts).packed()


def with_measured_forces(circuit: Circuit) -> Circuit:
    """The circuit with the measured force of the specimen at each node that an actuator of the rig follows.

    The force (``rig.<actuator>.force``, N, in the direction of increasing position) is a signal that is set from
    outside.
    """
    followed = circuit.rig_actuators()
    if not followed:
        return circuit
    unit = ForceSource.model_validate({"force": "1 N"})
    nodes = [f"{RIG}{name}" for name in followed]
    forces = [Placed(node, unit, {"rod": node}, {"command": node + FORCE}) for node in nodes]
    return replace(circuit, placed=(*circuit.placed, *forces))


def _packed_like(like: PackedCircuit, circuit: Circuit, given: object) -> PackedCircuit | None:
    """The circuit packed like another one; None if more than numbers of components differs.

    ``given``: the bindings, ports, actuators and accounts that are wanted.
    """
    packing = like.packing
    if packing is None or packing.given != given:
        return None
    before = packing.circuit
    if len(before.placed) != len(circuit.placed) or _frame(before) != _frame(circuit):
        return None
    value = packing.value.copy()
    for old, new in zip(before.placed, circuit.placed, strict=True):
        if new is old:
            continue
        if _structure(old) != _structure(new):
            return None
        numbers = np.array(numbers_of(circuit, new, packing.contracts[new.name]), dtype=float)
        cells = packing.cells[new.name]
        if len(numbers) != len(cells) or not np.array_equal(np.isfinite(numbers), np.isfinite(value[cells])):
            return None  # curves of other lengths, or other states with limits
        value[cells] = numbers
    packing = replace(packing, circuit=circuit, value=value)
    return replace(like, index=packing.index, value=value.copy(), packing=packing)


def _frame(circuit: Circuit) -> object:
    """What the arrays depend on beside the components."""
    return circuit.fluid, circuit.solver, circuit.starts, circuit.mechanisms, circuit.known


def _structure(placed: Placed) -> object:
    """Of a component, what its places in the arrays depend on."""
    component = placed.component
    kind = type(component), component.is_sampled(), component.has_mass()
    return placed.name, kind, placed.ports, placed.signals, placed.fluid


def numbers_of(circuit: Circuit, placed: Placed, contracts: Iterable[Contract]) -> list[float]:
    """All numbers of a component: limits, sizes and initial values of states, memories, parameters of its kernels."""
    parameters, found = circuit.parameters_of(placed), list[float]()

    def number(given: float | str) -> float:
        return float(parameters[given]) if isinstance(given, str) else given

    for state in placed.component.states:
        found += map(number, (state.lower, state.upper, state.scale, state.initial))
    for memory in placed.component.memories:
        found += [number(memory.initial)] * memory.size
    for contract in contracts:
        found += _numbers(contract, parameters)
    return found


def _numbers(contract: Contract, parameters: Parameters) -> list[float]:
    """The numbers that a kernel gets: parameters, then curves."""
    scalars = [parameters[term.name] for term in contract.arguments if term.from_parameters]
    curves = [parameters[term.name] for term in contract.arguments if term.role is Role.TABLE]
    return [*map(float, scalars), *(number for curve in curves for number in _curve(curve))]


class _Packer(CircuitLayout):
    def packed(self) -> PackedCircuit:
        self.lay_out()
        order = self._order()
        if self.problems:
            raise ConfigurationError(self.problems)
        return self._write(order)

    # --- order of the calls ----------------------------------------------------------------------------------------

    def _order(self) -> list[int]:
        """Writers of a signal or of a prescribed pressure before its readers; otherwise in the order of the circuit."""
        if self.problems:
            return []
        writers = {
            self.slot(*call, term): number
            for number, call in enumerate(self.calls)
            for term in call[1].results
            if term.role in WRITTEN
        }
        graph: dict[int, set[int]] = {}
        for number, call in enumerate(self.calls):
            reads = {self.slot(*call, term) for term in call[1].arguments if term.role in WRITTEN}
            graph[number] = {writers[slot] for slot in reads if slot in writers}
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            names = " -> ".join(self.calls[number][0].name for number in error.args[1])
            self._problem(f"signal loop: {names}. Break it with a component that has a lag.")
            return []

    # --- the arrays ------------------------------------------------------------------------------------------------

    def _write(self, order: list[int]) -> PackedCircuit:
        tables: dict[int, list[int]] = {header: [] for header in TABLE_WIDTHS}
        slots: list[int] = []
        curves: list[int] = []
        parameters: list[float] = []
        recorded: list[str] = []
        self._written = {placed.name: list[tuple[Contract, range]]() for placed in self.circuit.placed}
        for number in order:
            placed, contract = self.calls[number]
            values = self.circuit.parameters_of(placed)
            table = tables[e.SAMPLED if contract.kernel.sampled else e.CALLS]
            table += [contract.kind, len(slots), len(parameters), len(recorded)]
            curve = len(parameters) + sum(term.from_parameters for term in contract.arguments)
            for term in contract.arguments:
                if term.role is Role.TABLE:
                    curves.append(len(slots))
                    slots.append(curve)
                    curve += len(_curve(values[term.name]))
                elif not term.from_parameters:
                    slots.append(self.slot(placed, contract, term))
            slots += [
                self.slot(placed, contract, term) for term in contract.results if term.role is not Role.OBSERVABLE
            ]
            recorded += [f"{placed.name}.{term.word}" for term in contract.results if term.role in RECORDED]
            numbers = _numbers(contract, values)
            self._written[placed.name].append((contract, range(len(parameters), len(parameters) + len(numbers))))
            parameters += numbers
        self._write_nodes(tables)
        calls = [self._call(*self.calls[number]) for number in order if not self.calls[number][1].kernel.sampled]
        mechanisms = self._moved_by_mechanisms()
        coupling = Coupling(self.n_states, calls, mechanisms, tables)
        tables[e.GROUPED] = coupling.table()
        if INTEGRATORS[self.circuit.solver.integrator] is e.Integrator.ROSENBROCK:
            tables[e.ELIMINATION] = coupling.elimination()
        sums_at_ports = tables[e.FLOWS][1 : 3 * self.kinds.count("flow") : 3]
        found, read = behind(sums_at_ports, calls)
        tables[e.PORT_CALLS] = [cell for k in found for cell in tables[e.CALLS][4 * k : 4 * k + 4]]
        packed = self._assemble(tables, slots, curves, parameters, recorded)
        packed.index[e.PORTS_MOVED] = any(read.intersection((*each.states, *each.speeds)) for each in mechanisms)
        return replace(packed, packing=self._packing(packed.index, packed.value))

    def _moved_by_mechanisms(self) -> list[Moved]:
        """What each mechanism has as states, and moves."""
        mechanisms = []
        for placed in self.circuit.mechanisms:
            names = [f"{placed.name}.{name}" for name, _, _ in self.mechanisms[placed.name].states]
            moved = [(node, self._motions()[node]) for node in placed.nodes.values()]
            states = [self.place[name] for name in (*names, *(f"{node}.{motion.place}" for node, motion in moved))]
            speeds = [self.place[f"{node}.{motion.speed}"] for node, motion in moved]
            mechanisms.append(Moved(states, speeds, [self.n_states + self.sums[node] for node, _ in moved]))
        return mechanisms

    def _call(self, placed: Placed, contract: Contract) -> Call:
        """What a kernel reads and writes."""
        reads = [term for term in contract.arguments if not term.from_parameters and term.role not in CONSTANT]
        z = [term for term in contract.results if term.role in WRITTEN]
        d = [term for term in contract.results if term.role in SUMMED or term.role is Role.DERIVATIVE]
        return Call(*([self.slot(placed, contract, term) for term in terms] for terms in (reads, z, d)))

    def _vapour_pressure(self, node: str) -> float:
        """The highest one of the oils in a node's volumes, Pa."""
        return max(
            self.circuit.fluid_of(placed).vapour_pressure
            for placed, contract in self.calls
            for term in contract.results
            if term.role is Role.CAPACITANCE and placed.ports[term.name] == node
        )

    def _write_nodes(self, tables: dict[int, list[int]]) -> None:
        cells = self.n_states + 2 * len(self.sums) + 1  # of the nodes in a step, behind the sums and the explicit step
        for number, node in enumerate(self.hydraulic):
            place, total = self.place[f"{node}.content"], self.n_states + self.sums[node]
            tables[e.HYDRAULIC] += [place, total, self.place[f"{node}.p"], cells + e.NODE_CELLS * number, number]
        for node, motion in self.moving.items():
            tables[e.MECHANICAL] += [self.place[f"{node}.{motion.place}"], self.n_states + self.sums[node]]
        for name, node, factor in self.flows:
            times = self.place[factor] if factor else len(self.names)
            tables[e.FLOWS] += [self.place[name], self.n_states + self.sums[node], times]
        for name, column in (self.bindings or {}).items():
            target = f"{name}.p" if name.startswith(RIG) and name not in self.place else name
            if target in self.place:
                tables[e.BOUND] += [self.place[target], column]
        limits = [(lower, upper) for lower, upper, _ in self.limits]
        tables[e.LIMITED] = [i for i, limit in enumerate(limits) if np.isfinite(limit).any()]
        nowhere = [len(self.names), self.n_states, len(self.names)]
        for name in (f"{RIG}{port}" for port in self.ports):
            connected = f"{name}.q" in self.place
            places = [self.place[f"{name}.{what}"] for what in "qp"] if connected else []
            tables[e.PORTS] += [places[0], self.n_states + self.sums[name], places[1]] if connected else nowhere
        for node in (f"{RIG}{actuator}" for actuator in self.actuators):
            tables[e.FOLLOWED] += [self.place.get(f"{node}.{what}", len(self.names)) for what in "xv"]

    def _assemble(
        self,
        tables: dict[int, list[int]],
        slots: list[int],
        curves: list[int],
        parameters: list[float],
        recorded: list[str],
    ) -> PackedCircuit:
        """The two arrays; up to here slots and parameters count from the start of their own sections."""
        index = [0] * e.HEADER + slots
        sections = [
            *np.array(self.limits, dtype=float).reshape(-1, 3).T,
            np.array(self.initial),
            np.array([self._vapour_pressure(node) for node in self.hydraulic]),
        ]
        offset = 0
        for header, section in zip((e.LOWER, e.UPPER, e.SCALE, e.INITIAL, e.VAPOUR), sections, strict=True):
            index[header] = offset
            offset += len(section)
        for row in range(0, len(tables[e.HYDRAULIC]), TABLE_WIDTHS[e.HYDRAULIC]):
            tables[e.HYDRAULIC][row + 4] += index[e.VAPOUR]
        for calls in (tables[e.CALLS], tables[e.PORT_CALLS], tables[e.SAMPLED]):
            for start in range(0, len(calls), 4):
                calls[start + 1] += e.HEADER
                calls[start + 2] += offset
        for slot in curves:
            index[e.HEADER + slot] += offset
        blocks, numbers, scratch = self._blocks(offset + len(parameters))
        tables[e.MECHANISMS], mechanisms = [], sum(map(len, tables.values())) + len(index) + len(blocks)
        for block in blocks:
            tables[e.MECHANISMS].append(mechanisms)
            mechanisms += len(block)
        for header, table in tables.items():
            index[header - 1], index[header] = len(table) // TABLE_WIDTHS[header], len(index)
            index += table
        index += [entry for block in blocks for entry in block]
        index[e.N_STATES], index[e.N_VALUES] = self.n_states, len(self.names)
        index[e.N_RECORDED], index[e.N_CLEARED] = len(recorded), 2 * len(self.sums)
        index[e.N_MEANS] = self.kinds.count("flow")
        index[e.N_SUMS] = 2 * len(self.sums) + 1 + e.NODE_CELLS * len(self.hydraulic) + scratch
        index[e.INTEGRATOR] = INTEGRATORS[self.circuit.solver.integrator]
        index[e.SUBSTEPS] = self.circuit.solver.substeps
        if (solutions := self.circuit.solver.mechanics_substeps) is not None:
            index[e.SOLUTION_STEPS] = self.circuit.solver.substeps // solutions
        value = np.concatenate([*sections, np.array([*parameters, *numbers], dtype=float)])
        return PackedCircuit(
            np.array(index, dtype=np.uint64), value, tuple(self.names), tuple(recorded), tuple(self.kinds)
        )

    def _packing(self, index: Indices, value: Floats) -> Packing:
        """Where the numbers of each component are."""
        cells, first = {}, int(index[e.VAPOUR]) + len(self.hydraulic)
        sections = [int(index[each]) for each in (e.LOWER, e.UPPER, e.SCALE, e.INITIAL)]
        for placed in self.circuit.placed:
            found = list[int]()
            for state in placed.component.states:
                found += [section + self.place[f"{placed.name}.{state.name}"] for section in sections]
            for memory in placed.component.memories:
                name = f"{placed.name}.{memory.name}"
                at = sections[-1] + self.place[name if memory.size == 1 else f"{name}[0]"]
                found += range(at, at + memory.size)
            for _, places in self._written[placed.name]:
                found += [first + place for place in places]
            cells[placed.name] = np.array(found, dtype=np.int64)
        contracts = {name: [contract for contract, _ in calls] for name, calls in self._written.items()}
        given = (self.bindings, self.ports, self.actuators, self.accounts)
        return Packing(self.circuit, index.copy(), value.copy(), contracts, cells, given)

    def _blocks(self, first: int) -> tuple[list[list[int]], list[float], int]:
        """The mechanisms' blocks of the index, their numbers (from ``first`` in val), and all their scratch space."""
        blocks: list[list[int]] = []
        numbers: list[float] = []
        scratch = 0
        for placed in self.circuit.mechanisms:
            found = self.mechanisms[placed.name]
            block = [0] * m.NODES
            block[m.METHOD], block[m.N_ACTUATORS] = found.method, len(placed.nodes)
            block[m.FIRST_STATE] = self.place[f"{placed.name}.{found.states[0][0]}"]
            block[m.PARAMETERS] = first + len(numbers)
            block[m.SCRATCH] = self.n_states + 2 * len(self.sums) + 1 + e.NODE_CELLS * len(self.hydraulic) + scratch
            block[m.OWN : m.OWN + len(found.own)] = found.own
            for node in placed.nodes.values():
                motion = self._motions()[node]
                place, speed = (self.place[f"{node}.{name}"] for name in (motion.place, motion.speed))
                block += [place, self.n_states + self.sums[node], speed]
            blocks.append([*block, *found.entries])
            numbers += found.values
            scratch += found.work
        return blocks, numbers, scratch


def _curve(table: object) -> list[float]:
    """A table in the form stored among the parameters: number of points, all x, all y."""
    assert isinstance(table, Table), "a kernel argument table_... requires a Table in parameters()"
    return [float(len(table.x)), *table.x, *table.y]
