"""The balances of a circuit run: oil and energy that entered, left, and are stored.

The engine integrates the flow and the power into every node together with the states, with the weights of its method.
The terms of a balance are therefore sums of the integrated values, and they are compared with the states: strokes,
contents of accumulators, voids, pressures of rigid volumes, speeds of masses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import log, sin
from typing import Any

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.library import Library, Role
from hilserver.circuit.mechanisms import PlacedMechanism
from hilserver.circuit.model import Circuit, Placed
from hilserver.circuit.pack import TABLE_WIDTHS, PackedCircuit
from hilserver.circuit.program import Program
from hilserver.components.base import Parameters
from hilserver.components.crane_arm import crane_arm
from hilserver.mechanics.columns import N_ACTUATORS, NODES
from hilserver.mechanics.energy import energy_in, reference_energy
from hilserver.mechanics.stroke import NODE_ENTRIES
from hilserver.numerics.arrays import Floats, Integers

Values = Mapping[str, float]
"""Values of a circuit by name, at one moment."""


@dataclass(frozen=True)
class OilBalance:
    """m³ over a run: what entered and left (tanks, pressure sources), and the increase of what is stored.

    ``displaced``: in cylinders and accumulators, by their strokes and contents; ``compressed``: in nodes; ``void``:
    space without oil, which reduces the stored oil. ``largest`` is the volume of the largest node.
    """

    inflow: float
    outflow: float
    displaced: float
    compressed: float
    void: float
    error: float
    largest: float

    @property
    def stored(self) -> float:
        """Increase of the stored oil since the start."""
        return self.displaced + self.compressed - self.void

    @property
    def relative_error(self) -> float:
        """The error relative to the largest volume or to the volume that has flowed, whichever is larger."""
        return self.error / max(self.largest, self.inflow, self.outflow, 1e-300)


@dataclass(frozen=True)
class EnergyBalance:
    """J over a run: what entered and left, the increase of what is stored, and what was dissipated.

    ``inflow``: from pumps, sources, tanks and prescribed motions that gave energy; ``outflow``: to those that took it;
    ``stored``: in oil, motion, gas, springs and weights; ``mechanisms``: taken by mechanisms, whose bodies store it as
    motion and height (friction and motors of their joints are components of the circuit). The error
    is the difference between what the engine has integrated and the energy that follows from speeds, from the places
    and speeds of the bodies of mechanisms, and from the pressures of rigid volumes without air. ``moved``: what went
    into and out of all nodes, taken as positive, and what is usual in the mechanisms (`reference_energy`).
    """

    inflow: float
    outflow: float
    stored: float
    mechanisms: float
    dissipated: float
    error: float
    moved: float

    @property
    def relative_error(self) -> float:
        """The error relative to the energy that was moved."""
        return self.error / max(self.moved, 1e-300)


@dataclass(frozen=True)
class Balance:
    """Both balances of a run, and where oil was missing: the largest void, m³, by node."""

    oil: OilBalance
    energy: EnergyBalance
    voids: Mapping[str, float] = field(default_factory=dict)


def _gas(p: Parameters, values: Values, placed: Placed) -> float:
    """Energy of an accumulator's gas, above that without oil and without the work of the atmosphere."""
    V_0, n = p["V_0"], p["n"]
    V_g = V_0 - values[f"{placed.name}.V"]
    work = V_0 * log(V_0 / V_g) if n == 1.0 else V_0 / (n - 1.0) * ((V_0 / V_g) ** (n - 1.0) - 1.0)
    return float(p["p_pre"] * work - p["p_0"] * (V_0 - V_g))


def _spring(p: Parameters, values: Values, placed: Placed) -> float:
    stretched = values[f"{placed.ports['rod']}.x"] - values[f"{placed.ports['base']}.x"] - p.get("x_0", 0.0)
    return float(0.5 * p["K"] * stretched**2)


def _return_spring(p: Parameters, values: Values, placed: Placed) -> float:
    x = values[f"{placed.ports['rod']}.x"]
    return float(p["F_spring"] * x + 0.5 * p["K_spring"] * x * x)


def _crane(p: Parameters, values: Values, placed: Placed) -> float:
    arm: Callable[..., tuple[float, ...]] = crane_arm
    _, _, theta, _ = arm(values[f"{placed.ports['rod']}.x"], 0.0, **p)
    return float(p["weight"] * sin(theta))


STORES: Mapping[str, Callable[[Parameters, Values, Placed], float]] = {
    "accumulator": _gas,
    **dict.fromkeys(("spring", "elastic_coupling"), _spring),
    "single_acting_cylinder": _return_spring,
    "load_mass": lambda p, values, placed: float(p["F_g"] * values[f"{placed.ports['rod']}.x"]),
    "crane_arm": _crane,
}
"""Energy, J, that a component keeps and gives back, by type. Oil and motion belong to the nodes."""
CHANGING_MASS = {"crane_arm"}
"""Types whose mass at their node changes with the position: a part of their force belongs to the energy of motion."""


def _piston_oil(p: Parameters, values: Values, placed: Placed) -> float:
    return float((p["A_A"] - p["A_B"]) * values[f"{placed.ports['rod']}.x"])


ENERGY = ".passed_energy"
"""Ending of the names of the accounts of energy."""
KEPT_OIL: Mapping[str, Callable[[Parameters, Values, Placed], float]] = {
    **dict.fromkeys(("cylinder", "double_rod_cylinder", "single_acting_cylinder"), _piston_oil),
    "accumulator": lambda p, values, placed: values[f"{placed.name}.V"],
}
"""Oil, m³, that a component contains in addition to the compressed oil of the nodes, by type."""
RIGID = {"volume", "pipe", "accumulator"}
"""Types whose capacitance is constant where there is no air in their oil."""


def balance_texts(found: Balance, mechanisms: bool) -> tuple[tuple[str, str], ...]:
    """The balances in words: oil in litres, energy in joules; ``mechanisms``: whether the circuit has any."""
    oil, energy = found.oil, found.energy
    litres = (oil.inflow, oil.outflow, oil.stored, oil.displaced, oil.compressed, oil.void)
    into, out, stored, displaced, compressed, void = (f"{1e3 * volume:.6g} l" for volume in litres)
    of_oil = f"in {into}, out {out}, stored {stored} (displaced {displaced}, compressed {compressed}, void {void})"
    of_energy = f"in {energy.inflow:.6g} J, out {energy.outflow:.6g} J, stored {energy.stored:.6g} J"
    if mechanisms:
        of_energy += f", to mechanisms {energy.mechanisms:.6g} J"
    return (
        ("Oil", f"{of_oil}; relative error {oil.relative_error:.1e}"),
        ("Energy", f"{of_energy}, dissipated {energy.dissipated:.6g} J; relative error {energy.relative_error:.1e}"),
    )


def balance_figures(found: Balance) -> dict[str, Any]:
    """The balances as data for JSON, SI."""
    oil, energy = found.oil, found.energy
    return {
        "oil": {**vars(oil), "stored": oil.stored, "relative_error": oil.relative_error},
        "energy": {**vars(energy), "relative_error": energy.relative_error},
        "voids": dict(found.voids),
    }


def balance(
    program: Program, library: Library, circuit: Circuit, packed: PackedCircuit, start: Floats, rows: Floats, dt: float
) -> Balance:
    """The balances of a run of a circuit packed with ``accounts``.

    ``start``: the values at its start; ``rows``: all values (columns: ``packed.names``) at the end of each tick of
    ``dt`` s. Signs of flows and powers are those of each row.
    """
    account = _Account(program, library, circuit, packed, start, rows, dt)
    return Balance(account.oil(), account.energy(), account.largest_voids())


class _Account:
    def __init__(
        self,
        program: Program,
        library: Library,
        circuit: Circuit,
        packed: PackedCircuit,
        start: Floats,
        rows: Floats,
        dt: float,
    ) -> None:
        n = len(packed.values)
        self.circuit, self.packed, self.rows, self.dt, self.library = circuit, packed, rows, dt, library
        self.first = dict(zip(packed.values, start[:n].tolist(), strict=True))
        self.last = dict(zip(packed.values, rows[-1, :n].tolist(), strict=True))
        self.nodes = [name.removesuffix(".content") for name in packed.values if name.endswith(".content")]
        self.sums = [node_sums(program, packed, values) for values in (start[:n], rows[-1, :n])]
        self.vapour = dict(zip(self.nodes, _vapour_pressures(packed), strict=True))
        self.moving = self._moving()
        self.actuated = [node for placed in circuit.mechanisms for node in placed.nodes.values()]
        self.rigid = [node for node in self.nodes if self._is_rigid(node)]
        self.mechanisms = {placed.name: self._gained_by(placed) for placed in circuit.mechanisms}
        """Gain of the energy of each mechanism, J."""

    # --- oil ---------------------------------------------------------------------------------------------------------

    def oil(self) -> OilBalance:
        crossing = np.array([self._steps(f"{node}.passed_volume") for node in self._boundaries()]).reshape(-1)
        inflow, outflow = (float(np.maximum(side * crossing, 0.0).sum()) for side in (-1.0, 1.0))
        flown = {node: self._passed(f"{node}.passed_volume") for node in self.nodes}
        opened = {node: self._void(node, self.last) - self._void(node, self.first) for node in self.nodes}
        compressed = {node: flown[node] + opened[node] for node in self.nodes}
        displaced = self._change(KEPT_OIL)
        wrong = inflow - outflow - displaced - sum(flown.values())
        rigid = [self._capacitance(node) * self._rise(node) - compressed[node] for node in self.rigid]
        largest = max((self._capacitance(n) * self.circuit.fluid.bulk_modulus for n in self.nodes), default=0.0)
        error = abs(wrong) + sum(map(abs, rigid))
        return OilBalance(inflow, outflow, displaced, sum(compressed.values()), sum(opened.values()), error, largest)

    def _void(self, node: str, values: Values) -> float:
        return e.VOID_CAPACITANCE * max(self.vapour[node] - values[f"{node}.content"], 0.0)

    def _pressure(self, node: str, values: Values) -> float:
        return max(values[f"{node}.content"], self.vapour[node])

    def _rise(self, node: str) -> float:
        return self._pressure(node, self.last) - self._pressure(node, self.first)

    def _capacitance(self, node: str) -> float:
        return self.sums[0][f"{node}.content"]

    def largest_voids(self) -> dict[str, float]:
        """The largest void of each node that had one."""
        found = {}
        for node in self.nodes:
            lowest = float(self._column(f"{node}.content").min())
            if lowest < self.vapour[node]:
                found[node] = self._void(node, {f"{node}.content": lowest})
        return found

    # --- energy ------------------------------------------------------------------------------------------------------

    def energy(self) -> EnergyBalance:
        into = {name.removesuffix(ENERGY): self._passed(name) for name in self._energies()}
        outside = [into[node] for node in into if node not in (*self.nodes, *self.moving, *self.actuated)]
        kept = (self._kept(p) for p in self.circuit.placed if p.component.type_name not in CHANGING_MASS)
        inflow, outflow = (sum(max(side * x, 0.0) for x in outside) for side in (-1.0, 1.0))
        inflow -= sum(min(energy, 0.0) for energy in kept)
        in_oil, in_motion = sum(into[node] for node in self.nodes), sum(map(self._gained_speed, self.moving))
        stored = in_oil + in_motion + self._change(STORES)
        mechanisms = sum(self.mechanisms.values())
        dissipated = inflow - outflow - stored - mechanisms
        moved = sum(float(np.abs(self._steps(name)).sum()) for name in self._energies())
        moved += sum(reference_energy(p.mechanism, _own(self.last, p)) for p in self.circuit.mechanisms)
        return EnergyBalance(inflow, outflow, stored, mechanisms, dissipated, self._energy_error(into), moved)

    def _gained_speed(self, node: str) -> float:
        """Gain of the energy of motion of a mass or inertia."""
        place, speed = self.moving[node]
        before, after = (
            0.5 * sums[place] * values[speed] ** 2
            for sums, values in zip(self.sums, (self.first, self.last), strict=True)
        )
        return float(after - before)

    def _gained_by(self, placed: PlacedMechanism) -> float:
        """Gain of the energy of a mechanism's bodies, and of the motion of what its actuators carry."""
        gain, of_bodies = 0.0, energy_in(placed.mechanism)
        for sign, sums, values in zip((-1.0, 1.0), self.sums, (self.first, self.last), strict=True):
            carried = (0.5 * sums[speed] * values[speed] ** 2 for speed in self._speeds_of(placed))
            gain += sign * (of_bodies(_own(values, placed)) + sum(carried))
        return gain

    def _speeds_of(self, placed: PlacedMechanism) -> list[str]:
        """The names of the speeds of a mechanism's actuators."""
        speeds = {"mechanical": "v", "rotational": "w"}
        return [f"{node}.{speeds[placed.kind_of(actuator)]}" for actuator, node in placed.nodes.items()]

    def _kept(self, placed: Placed) -> float:
        """Energy that a component took and neither stored nor passed on, J: dissipated, or negative for a source.

        By the trapezoidal rule over the ticks: it serves to tell sources from losses only.
        """
        power = np.zeros(len(self.rows))
        component = placed.component
        for ports, result, value in (
            (component.hydraulic, "q", "p"),
            (component.mechanical, "F", "v"),
            (component.rotational, "T", "w"),
        ):
            for port in ports:
                for place in self._places(f"{placed.name}.{result}_{port}"):
                    power -= self.rows[:, place] * self._column(f"{placed.ports[port]}.{value}")
        taken = self.dt * float(power.sum() - 0.5 * (power[0] + power[-1]) + power[0])
        return taken - self._change(STORES, placed)

    def _energy_error(self, into: Mapping[str, float]) -> float:
        """What was integrated, against what masses of constant size, mechanisms and rigid volumes hold."""
        wrong = 0.0
        for placed in self.circuit.mechanisms:
            wrong += abs(sum(into[node] for node in placed.nodes.values()) - self.mechanisms[placed.name])
        for node, (place, _) in self.moving.items():
            if self.packed.drift is None and self.sums[0][place] == self.sums[1][place]:
                wrong += abs(into[node] - self._gained_speed(node))
        for node in self.rigid:
            before, after = (self._pressure(node, values) for values in (self.first, self.last))
            opened = self._void(node, self.last) - self._void(node, self.first)
            gained = 0.5 * self._capacitance(node) * (after**2 - before**2) - self.vapour[node] * opened
            wrong += abs(into[node] - gained)
        return wrong

    # --- parts -------------------------------------------------------------------------------------------------------

    def _column(self, name: str) -> Floats:
        column: Floats = self.rows[:, self.packed.values.index(name)]
        return column

    def _passed(self, name: str) -> float:
        """What an account has taken over the whole run."""
        return float(self.last[name] - self.first[name])

    def _steps(self, name: str) -> Floats:
        """What an account has taken in each row."""
        steps: Floats = np.diff(self._column(name), prepend=self.first[name])
        return steps

    def _places(self, name: str) -> list[int]:
        """Columns of a recorded result; several kernels of a component may have one of the same name."""
        return [place for place, known in enumerate(self.packed.names) if known == name]

    def _energies(self) -> list[str]:
        return [name for name in self.packed.values if name.endswith(ENERGY)]

    def _boundaries(self) -> list[str]:
        """Hydraulic nodes whose pressure is prescribed, or measured at the machine."""
        return [node for node in self.circuit.hydraulic_nodes() if node not in self.nodes]

    def _moving(self) -> dict[str, tuple[str, str]]:
        """The names of position and speed of each node that moves by its mass or inertia."""
        states = self.packed.values[: self.packed.n_states]
        known = (*self.circuit.mechanical_nodes(), *self.circuit.rotational_nodes())
        names = {
            node: pair
            for node in known
            for pair in ((f"{node}.x", f"{node}.v"), (f"{node}.phi", f"{node}.w"))
            if pair[1] in states
        }
        return names

    def _change(
        self, of: Mapping[str, Callable[[Parameters, Values, Placed], float]], only: Placed | None = None
    ) -> float:
        """Increase, over the run, of the content of all components, or of one."""
        change = 0.0
        for placed in self.circuit.placed if only is None else (only,):
            if held := of.get(placed.component.type_name):
                p = placed.component.parameters(self.circuit.fluid_of(placed))
                change += held(p, self.last, placed) - held(p, self.first, placed)
        return change

    def _is_rigid(self, node: str) -> bool:
        """Whether the capacitance of a node is constant."""
        return self.packed.drift is None and all(
            placed.component.type_name in RIGID and self.circuit.fluid_of(placed).air_fraction == 0.0
            for placed in self.circuit.placed
            for contract in self.library.contracts_of(type(placed.component))
            for term in contract.results
            if term.role is Role.CAPACITANCE and placed.ports[term.name] == node
        )


def _own(values: Values, placed: PlacedMechanism) -> dict[str, float]:
    """The states of a mechanism by their names in it."""
    prefix = f"{placed.name}."
    return {name.removeprefix(prefix): x for name, x in values.items() if name.startswith(prefix)}


def node_sums(program: Program, packed: PackedCircuit, values: Floats) -> dict[str, float]:
    """Total capacitance (m³/Pa), mass or inertia by the name of the node's first state; of actuators by their speed."""
    z, y, work = values.copy(), np.zeros(len(packed.recorded)), np.zeros(packed.work_size)
    program.derivatives(packed.index, packed.value, z, y, work)
    tables = (_table(packed, header) for header in (e.HYDRAULIC, e.MECHANICAL))
    found = {packed.values[line[0]]: float(work[line[1] + 1]) for lines in tables for line in lines}
    for block in _table(packed, e.MECHANISMS)[:, 0]:
        for row in range(int(packed.index[block + N_ACTUATORS])):
            _, total, speed = packed.index[block + NODES + NODE_ENTRIES * row :][:NODE_ENTRIES].astype(np.int64)
            found[packed.values[speed]] = float(work[total + 1])
    return found


def _vapour_pressures(packed: PackedCircuit) -> Iterator[float]:
    return (float(packed.value[line[4]]) for line in _table(packed, e.HYDRAULIC))


def _table(packed: PackedCircuit, header: int) -> Integers:
    start, width = int(packed.index[header]), TABLE_WIDTHS[header]
    lines = packed.index[start : start + width * int(packed.index[header - 1])]
    return lines.astype(np.int64).reshape(-1, width)
