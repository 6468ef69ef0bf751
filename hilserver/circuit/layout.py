"""The places of a circuit's values: states first, then time, pressures, memories, boundary values, signals, flows."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterator, Mapping

import numpy as np

from hilserver.circuit.library import RESISTING, SUMMED, WRITTEN, Contract, Library, Role, Term
from hilserver.circuit.mechanisms import PlacedMechanism
from hilserver.circuit.model import FORCE, RIG, Circuit, NodeStart, Placed
from hilserver.circuit.motion import STRAIGHT, TURNING, Motion
from hilserver.components.base import Table
from hilserver.errors import ConfigurationError, Problem
from hilserver.mechanics.tables import MechanismTables, tables


@functools.cache
def _at_rest() -> NodeStart:
    """The initial values of a node for which none are given. (Made on demand: units are slow to load.)"""
    return NodeStart()


class CircuitLayout:
    """A circuit's kernel calls, its nodes, and the place of each of its values; ``problems`` if it has none."""

    def __init__(
        self,
        circuit: Circuit,
        library: Library,
        bindings: Mapping[str, int] | None,
        outside: tuple[tuple[str, ...], tuple[str, ...]],
        file: str,
        accounts: bool,
    ) -> None:
        self.circuit, self.library, self.bindings, self.file = circuit, library, bindings, file
        self.ports, self.actuators = outside
        self.accounts = accounts
        self.flows: list[tuple[str, str, str]] = []
        self.calls = [
            (placed, contract)
            for placed in circuit.placed
            for contract in library.contracts_of(type(placed.component))
            if not contract.kernel.sampled or placed.component.is_sampled()
        ]
        self.problems: list[Problem] = []
        self.hydraulic, self.boundary = list[str](), list[str]()
        self.moving: dict[str, Motion] = {}
        self.names, self.kinds = list[str](), list[str]()
        self.initial: list[float] = []
        self.limits: list[tuple[float, float, float]] = []
        self.place, self.sums = dict[str, int](), dict[str, int]()
        self.mechanisms: dict[str, MechanismTables] = {}

    def lay_out(self) -> None:
        """Find the owner of every node, and give every value its place."""
        self._find_owners()
        self._lay_out_values()

    # --- owners of the nodes ---------------------------------------------------------------------------------------

    def _find_owners(self) -> None:
        """Nodes with a state (volume, mass), prescribed nodes (tank, source), and the nodes that have neither."""
        volumes, masses = self._by_role(Role.CAPACITANCE), self._by_role(Role.MASS) | self._by_role(Role.INERTIA)
        prescribed = self._by_role(Role.PRESSURE) | self._by_role(Role.POSITION) | self._by_role(Role.ANGLE)
        fixed = {**prescribed, **dict(self._moved(prescribed))}
        for node in self.circuit.hydraulic_nodes():
            if node.startswith(RIG) or node in prescribed:
                self.boundary.append(node)
            elif node in volumes:
                self.hydraulic.append(node)
            else:
                users = ", ".join(p.name for p in self.circuit.placed if node in p.ports.values())
                text = f'node "{node}" has no volume: its pressure is undefined. Add a volume, pipe or hose to it '
                self._problem(f"{text}(it connects {users}).", self.circuit.where(node))
        for node, motion in self._motions().items():
            if node not in fixed and node in masses:
                self.moving[node] = motion
            elif node not in fixed:
                users = ", ".join(p.name for p in self.circuit.placed if node in p.ports.values())
                text = f'node "{node}" has no {motion.resists}: its motion is undefined.'
                self._problem(f"{text} Add {motion.remedy} to it (it connects {users}).", self.circuit.where(node))
        self._check_starts(prescribed)
        for node, start in self.circuit.starts.items():
            if not (self.bindings is None or not start.pressure_from or RIG + start.pressure_from in self.bindings):
                self._problem(f'"{start.pressure_from}" is not a port of the rig.', f"nodes.{node}.pressure_from")
        self._check_rig()

    def _check_rig(self) -> None:
        """The rig has every port and every actuator that the circuit names."""
        for port in self.circuit.rig_ports():
            if self.bindings is not None and RIG + port not in self.bindings:
                known = ", ".join(RIG + name for name in self.ports) or "none"
                text = f'"{RIG}{port}" is not a port of the rig. The rig\'s ports: {known}.'
                self._problem(text, self.circuit.where(RIG + port))
        for name in self.circuit.rig_actuators():
            if self.bindings is not None and f"{RIG}{name}{FORCE}" not in self.bindings:
                known = ", ".join(RIG + actuator for actuator in self.actuators) or "none"
                text = f'"{RIG}{name}" is not an actuator of the rig. The rig\'s actuators: {known}.'
                self._problem(text, self.circuit.where(RIG + name))

    def _check_starts(self, prescribed: Mapping[str, Placed]) -> None:
        """A node that a component prescribes has no initial values of its own."""
        for node, start in self.circuit.starts.items():
            if node in prescribed and not node.startswith(RIG):
                for key in sorted(start.model_fields_set):
                    text = f"{prescribed[node].name} already prescribes it: remove this value"
                    if "initial" in type(prescribed[node].component).model_fields and key == "position":
                        text += f", and set components.{prescribed[node].name}.initial"
                    self._problem(f"{text}.", f"nodes.{node}.{key}")

    def _moved(self, prescribed: Container[str]) -> Iterator[tuple[str, str]]:
        """The nodes that mechanisms move, each with the mechanism's name; nothing else may prescribe them."""
        for placed in self.circuit.mechanisms:
            for node in placed.nodes.values():
                if node in prescribed:
                    self._problem(f'"{node}" is moved by mechanisms.{placed.name} and also prescribed by a component.')
                yield node, placed.name

    def _motions(self) -> dict[str, Motion]:
        """The nodes that move, each with its kind of motion."""
        straight = dict.fromkeys(self.circuit.mechanical_nodes(), STRAIGHT)
        return straight | dict.fromkeys(self.circuit.rotational_nodes(), TURNING)

    def _by_role(self, role: Role) -> dict[str, Placed]:
        """Node -> the component with this role there; only one may prescribe a value, none a measured one."""
        found: dict[str, Placed] = {}
        for placed, contract in self.calls:
            if role is Role.MASS and not placed.component.has_mass():
                continue
            for node in (placed.ports[term.name] for term in contract.results if term.role is role):
                other, key = found.setdefault(node, placed), f"components.{placed.name}"
                if role in WRITTEN and other is not placed:
                    self._problem(f'"{node}" is also prescribed by {other.name}.', key)
                if role is Role.PRESSURE and node.startswith(RIG):
                    text = "is measured at the machine: nothing else can prescribe it"
                    self._problem(f'"{node}" {text}; place an orifice or a line in between.', key)
        return found

    def _problem(self, text: str, key: str = "") -> None:
        self.problems.append(self.circuit.origin.located(Problem(text, key, self.file), self.file))

    # --- layout of z -----------------------------------------------------------------------------------------------

    def _value(self, name: str, kind: str, initial: float = 0.0) -> None:
        self.place[name] = len(self.names)
        self.names.append(name)
        self.kinds.append(kind)
        self.initial.append(initial)

    def _lay_out_values(self) -> None:
        """States first, then time, boundary values, signals, flows into the machine; then the sums at the nodes."""
        self._lay_out_states()
        self.n_states = len(self.names)
        self._value("t", "s")
        for node in self.hydraulic:
            self._value(f"{node}.p", "pressure", self._start(node).pressure)
        self._lay_out_memories()
        self._lay_out_boundaries()
        self._lay_out_signals()
        self._lay_out_flows()
        for node in (*self.hydraulic, *self.boundary, *self._motions()):
            self.sums[node] = 2 * len(self.sums)
        for name in sorted({name for name in self.names if self.names.count(name) > 1}):
            self._problem(f'"{name}" would name two values: rename the node, component or signal.')

    def _lay_out_flows(self) -> None:
        """The mean flows into the machine's ports, and the accounts of all nodes."""
        self.flows += [(f"{node}.q", node, "") for node in self.boundary if node.startswith(RIG)]
        if self.accounts:
            hydraulic = (*self.hydraulic, *self.boundary)
            self.flows += [(f"{node}.passed_volume", node, "") for node in hydraulic]
            factors = dict.fromkeys(hydraulic, "p") | {node: m.speed for node, m in self._motions().items()}
            self.flows += [(f"{node}.passed_energy", node, f"{node}.{factor}") for node, factor in factors.items()]
        for name, _, _ in self.flows:
            self._value(name, "flow" if name.endswith(".q") else "account")

    def _lay_out_states(self) -> None:
        for node in self.hydraulic:
            self._state(f"{node}.content", "Pa", self._start(node).pressure, -np.inf, np.inf, 1e5)
        for node, motion in self.moving.items():
            place, speed = motion.start(self._start(node))
            self._state(f"{node}.{motion.place}", motion.unit, place, -np.inf, np.inf, 1e-3)
            self._state(f"{node}.{motion.speed}", f"{motion.unit}/s", speed, -np.inf, np.inf, 1e-3)
        for placed in self.circuit.placed:
            for s in placed.component.states:
                numbers = [self._number(placed, v) for v in (s.initial, s.lower, s.upper, s.scale)]
                self._state(f"{placed.name}.{s.name}", s.unit, *numbers)
        for mechanism in self.circuit.mechanisms:
            self._lay_out_mechanism(mechanism)

    def _lay_out_mechanism(self, placed: PlacedMechanism) -> None:
        try:
            found = tables(placed.mechanism, self.file, f"mechanisms.{placed.name}")
        except ConfigurationError as error:
            self.problems += error.problems
            return
        self.mechanisms[placed.name] = found
        for name, unit, initial in found.states:
            self._state(f"{placed.name}.{name}", unit, initial, -np.inf, np.inf, 1e-3)
        for node, (initial, _) in zip(placed.nodes.values(), found.motions, strict=True):
            motion = self._motions()[node]
            self._state(f"{node}.{motion.place}", motion.unit, initial, -np.inf, np.inf, 1e-3)

    def _lay_out_memories(self) -> None:
        for placed in self.circuit.placed:
            for memory in placed.component.memories:
                name, initial = f"{placed.name}.{memory.name}", self._number(placed, memory.initial)
                for k in range(memory.size):
                    self._value(f"{name}[{k}]" if memory.size > 1 else name, f"memory of {memory.size}", initial)

    def _number(self, placed: Placed, given: float | str) -> float:
        """A number, or the parameter of this name."""
        if not isinstance(given, str):
            return given
        value = self.circuit.parameters_of(placed)[given]
        assert not isinstance(value, Table), f"{placed.name}.{given} is a table"
        return float(value)

    def _lay_out_boundaries(self) -> None:
        for node in self.boundary:
            self._value(f"{node}.p", "boundary", self._start(node).pressure)
        moved = {
            node: start
            for placed in self.circuit.mechanisms
            if placed.name in self.mechanisms
            for node, (_, start) in zip(placed.nodes.values(), self.mechanisms[placed.name].motions, strict=True)
        }
        for node, motion in self._motions().items():
            if node in moved:
                self._value(f"{node}.{motion.speed}", "boundary", moved[node])
            elif node not in self.moving:
                place, speed = motion.start(self._start(node))
                self._value(f"{node}.{motion.place}", "boundary", place)
                self._value(f"{node}.{motion.speed}", "boundary", speed)

    def _lay_out_signals(self) -> None:
        for placed in self.circuit.placed:
            for port, signal in placed.signals.items():
                if not isinstance(signal, str):
                    self._value(f"{placed.name}.{port}", "constant", signal)
        for signal in dict.fromkeys(s for p in self.circuit.placed for s in p.signals.values() if isinstance(s, str)):
            self._value(signal, "signal")
        for signal in self.circuit.inputs():
            if self.bindings is not None and signal not in self.bindings:
                known = ", ".join(name for name in self.bindings if not name.startswith(RIG)) or "none"
                text = f'signal "{signal}" is written by no component and is not an input of the rig.'
                self._problem(f"{text} The rig's inputs: {known}.", self.circuit.where(signal))

    def _start(self, node: str) -> NodeStart:
        return self.circuit.starts.get(node) or _at_rest()

    def _state(self, name: str, unit: str, initial: float, lower: float, upper: float, scale: float) -> None:
        self._value(name, unit, initial)
        self.limits.append((lower, upper, scale))

    def slot(self, placed: Placed, contract: Contract, term: Term) -> int:
        """Index in z of an argument, in z or d of a result."""
        role = term.role
        if role is Role.TIME:
            return self.n_states
        if role is Role.STEP:
            return self.n_states + 2 * len(self.sums)
        if role in (Role.STATE, Role.DERIVATIVE):
            return self.place[f"{placed.name}.{term.name}"]
        if role in (Role.MEMORY, Role.NEXT):
            name = f"{placed.name}.{term.name}"
            return self.place[name if name in self.place else f"{name}[0]"]
        if role is Role.SIGNAL:
            signal = placed.signals[term.name]
            return self.place[signal if isinstance(signal, str) else f"{placed.name}.{term.name}"]
        node = placed.ports[term.name]
        if role in SUMMED:
            return self.n_states + self.sums[node] + (role in RESISTING)
        return self.place[f"{node}.{role.value.removesuffix('_')}"]
