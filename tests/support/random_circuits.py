"""Random circuits from the whole library, for tests of what holds for every circuit.

A circuit is drawn as a table, as a user would write it: every component with the datasheet of its example page, its
ports at random nodes, its inputs led by operator signals or by other components. Every hydraulic node has a volume,
every mechanical one a mass, every shaft an inertia.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hilserver.circuit import engine as e
from hilserver.circuit.library import WRITTEN, Role, standard_library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.numerics.arrays import Floats, Integers
from hilserver.toml import read_toml

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
LIBRARY = standard_library()
Raw = dict[str, Any]


@functools.cache
def datasheet(kind: str) -> Raw:
    """The component's table in the example circuit of its page, without its connections."""
    parts = read_toml(EXAMPLES / f"{kind}.toml")["components"]
    raw = next(part for part in parts.values() if part["type"] == kind)
    signals = (*LIBRARY.types[kind].inputs, *LIBRARY.types[kind].outputs)
    return {key: value for key, value in raw.items() if key not in ("ports", *signals)}


def results(kind: str, *roles: Role) -> set[str]:
    """Ports to which kernels of this type give a result of one of these roles."""
    contracts = LIBRARY.contracts_of(LIBRARY.types[kind])
    return {term.name for contract in contracts for term in contract.results if term.role in roles}


def prescribes(kind: str) -> bool:
    """Whether it holds a node's pressure or motion: only one such component may connect to a node."""
    return bool(results(kind, *WRITTEN - {Role.SIGNAL}))


BUILT_IN = [name for name, part in LIBRARY.types.items() if part.__module__.startswith("hilserver.components.")]
ALL = [name for name in BUILT_IN if (EXAMPLES / f"{name}.toml").exists()]


@st.composite
def circuits(
    draw: st.DrawFn,
    kinds: Sequence[str],
    volumes: Sequence[str],
    air: Sequence[float] = (0.0,),
    always: Sequence[str] = (),
) -> Raw:
    """The table of a circuit: ``always`` and 1 to 10 more components of these kinds, volumes, masses, inertias."""
    nodes = [f"n{k}" for k in range(draw(st.integers(1, 4)))]
    parts: Raw = {"tank": {"type": "tank", "ports": {"T": "tank"}}}
    starts: Raw = {}
    for node in nodes:
        volume = {"type": "volume", "ports": {"P": node}, "volume": draw(st.sampled_from(volumes))}
        parts[f"oil_{node}"] = volume
        starts[node] = {"pressure": f"{draw(st.sampled_from([0, 20, 80, 140]))} bar"}
    boundaries: dict[str, list[str]] = {"hydraulic": ["tank"], "mechanical": [], "rotational": []}
    written: list[str] = []
    for number, kind in enumerate([*always, *draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=10))]):
        name, part = f"c{number}_{kind}", copy.deepcopy(datasheet(kind))
        parts[name] = part
        for group, own in (("hydraulic", nodes), ("mechanical", ["r0", "r1"]), ("rotational", ["s0", "s1"])):
            for port in getattr(LIBRARY.types[kind], group):
                if port in results(kind, *WRITTEN):
                    boundaries[group].append(f"held{number}")
                    node = f"held{number}"
                else:
                    node = draw(st.sampled_from([*own, *boundaries[group]]))
                part.setdefault("ports", {})[port] = node
        for port in LIBRARY.types[kind].inputs:
            part[port] = draw(st.sampled_from([*written, f"command{number % 4}", f"command{number % 3}"]))
        for port in LIBRARY.types[kind].outputs:
            part[port] = f"reading{number}"  # in SI units: millions of Pa
            limited = {"input": part[port], "signal": f"signal{number}", "lower": -1.0, "upper": 1.0}
            parts[f"limit{number}"] = {"type": "limiter", **limited}
            written.append(f"signal{number}")
    _add_resistance(parts, starts)
    return {"components": parts, "nodes": starts, "fluid": {"air_fraction": draw(st.sampled_from(air))}}


def _add_resistance(parts: Raw, starts: Raw) -> None:
    """A mass at every moving node, an inertia at every shaft; rods start within their stroke."""
    for node in sorted({node for part in parts.values() for node in part.get("ports", {}).values()}):
        if node in ("r0", "r1"):
            parts[f"mass_{node}"] = {"type": "load_mass", "ports": {"rod": node}, "mass": "400 kg"}
            starts[node] = {"position": "50 mm"}
        elif node in ("s0", "s1"):
            parts[f"inertia_{node}"] = {"type": "inertia", "ports": {"shaft": node}, "inertia": "1 kg*m^2"}


def commands(circuit: Circuit, ticks: int, seed: int) -> dict[str, Floats]:
    """Random operator signals: jumps, ramps and rests between -1.2 and 1.2, some 3 per second at 1 kHz."""
    rng = np.random.default_rng(seed)
    given = {}
    for name in sorted(circuit.inputs()):
        places = np.flatnonzero(rng.random(ticks) < 0.003)
        levels = rng.choice([0.0, 1.0, -1.0, *rng.uniform(-1.2, 1.2, 3)], len(places) + 2)
        corners = np.concatenate([[0], places, [ticks]])
        held = levels[np.searchsorted(places, np.arange(ticks), side="right")]
        ramped = np.interp(np.arange(ticks), corners, levels[np.arange(len(corners)) % len(levels)])
        given[name] = np.where(rng.random() < 0.5, held, ramped)
    return given


def circuit_of(raw: Raw, integrator: str = "rk4") -> Circuit:
    """The validated circuit."""
    return read_circuit(raw | {"solver": {"integrator": integrator}}, LIBRARY)


@functools.cache
def program() -> Program:
    """The compiled program of the standard library."""
    return compiled_program(LIBRARY)


@dataclass(frozen=True)
class Run:
    """Values of all ticks (``rows[k]``: at the end of tick k), by name."""

    circuit: Circuit
    packed: PackedCircuit
    rows: Floats

    @functools.cached_property
    def rates(self) -> Floats:
        """Time derivatives of the states at all times."""
        packed = self.packed
        work, y = np.zeros(packed.work_size), np.zeros(max(len(packed.recorded), 1))
        found = np.empty((len(self.rows), packed.n_states))
        for k, row in enumerate(self.rows):
            program().derivatives(packed.index, packed.value, row[: len(packed.values)].copy(), y, work)
            found[k] = work[: packed.n_states]
        return found

    def rate(self, name: str) -> Floats:
        """Time derivative of one state."""
        column: Floats = self.rates[:, self.packed.values.index(name)]
        return column

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.packed.names

    def __getitem__(self, name: str) -> Floats:
        """One value at all times; where a component gives several results of a name, their sum."""
        places = [k for k, known in enumerate(self.names) if known == name]
        assert places, f"no value {name}"
        total: Floats = self.rows[:, places].sum(axis=1)
        return total


def run(raw: Raw, given: Mapping[str, Floats], ticks: int, integrator: str, substeps: int, step: float) -> Run:
    """Run a circuit for so many ticks of ``substeps`` steps, ``given[name][k]`` being a signal in tick k."""
    circuit = circuit_of(raw, integrator)
    packed = pack(circuit, LIBRARY)
    driven = np.array([packed.values.index(name) for name in given], dtype=np.int64)
    lines = np.column_stack([*given.values()]) if given else np.zeros((ticks, 0))
    values = np.zeros(len(packed.names))
    program().load(packed.index, packed.value, values)
    rows = np.empty((ticks, len(packed.names)))
    program().run_free(
        packed.index, packed.value, values, np.zeros(packed.work_size), driven, lines, substeps, step, rows
    )
    return Run(circuit, packed, rows)


@dataclass(frozen=True)
class Sums:
    """What the engine summed up at the nodes, one line per step.

    ``C``: capacitance of the nodes with a state, whose pressures are named; ``m``: mass or inertia of what moves, whose
    speeds are named. ``inflow``: out of the boundary nodes, m³/s, just after the commands changed and at the end.
    """

    pressures: list[str]
    speeds: list[str]
    C: Floats
    m: Floats
    inflow_first: Floats
    inflow_last: Floats


def sums_of(run: Run) -> Sums:
    """Evaluate the derivatives again at both ends of every step; for runs with one step per tick."""
    packed, n = run.packed, run.packed.n_states
    hydraulic, moving = (_table(packed, at, width) for at, width in ((e.HYDRAULIC, 5), (e.MECHANICAL, 2)))
    held_pressures = [
        name
        for name, kind in zip(packed.values, packed.kinds, strict=True)
        if kind == "boundary" and name.endswith(".p")
    ]
    held = n + 2 * (len(hydraulic) + np.arange(len(held_pressures)))
    work, y = np.zeros(packed.work_size), np.zeros(max(len(packed.recorded), 1))
    z = np.empty(len(packed.values))
    derivatives = program().derivatives.bound(packed.index, packed.value, z, y, work)
    C, m, first, last = [], [], [], []
    for k in range(len(run.rows)):
        z[:] = run.rows[k, : len(z)]
        z[: n + 1] = run.rows[max(k - 1, 0), : n + 1]  # the states and the time before, the commands of now
        derivatives()
        first.append(-work[held].sum())
        z[:] = run.rows[k, : len(z)]
        derivatives()
        last.append(-work[held].sum())
        C.append(work[hydraulic[:, 1] + 1])
        m.append(work[moving[:, 1] + 1])
    pressures, speeds = [packed.values[k] for k in hydraulic[:, 2]], [packed.values[k + 1] for k in moving[:, 0]]
    return Sums(pressures, speeds, np.array(C), np.array(m), np.array(first), np.array(last))


def _table(packed: PackedCircuit, header: int, width: int) -> Integers:
    start, lines = int(packed.index[header]), int(packed.index[header - 1])
    return packed.index[start : start + lines * width].astype(np.int64).reshape(lines, width)
