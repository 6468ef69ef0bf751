"""The simulated plant: the rig as a circuit of the same library, seen through sensors and moved by actuators.

``sample`` and ``move`` are linked and compiled with the engine; a plant's own memory is its arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hilserver.circuit.engine import (
    INITIAL,
    N_VALUES,
    SUBSTEPS,
    advance,
)
from hilserver.circuit.library import Library
from hilserver.circuit.model import RIG, read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.errors import ConfigurationError, Problem, did_you_mean
from hilserver.numerics.arrays import Floats, Integers
from hilserver.numerics.shape import clip

# columns of PlantArrays.sensor and .actuator
SOURCE, TO_RAW, RAW_ZERO, NOISE, QUANTUM, DELAY, RAW_LOW, RAW_HIGH = range(8)
TARGET, FROM_RAW, VALUE_ZERO, SAFE_RAW = range(4)
NOISE_SAMPLES = 65_521  # a prime, so that no sensor repeats another's noise in step


class PlantArrays(NamedTuple):
    """A packed plant. ``line`` holds each sensor's last readings (its delay line), ``count`` the number of samples taken."""

    ix: Integers
    val: Floats
    values: Floats
    work: Floats
    sensor: Floats
    actuator: Floats
    line: Floats
    noise: Floats
    count: Integers


def sample(plant: PlantArrays, raw: Floats) -> None:
    """The sensors' raw readings now: scaled, noisy, quantised, within range, delayed."""
    k, depth = plant.count[0], plant.line.shape[1]
    for i in range(plant.sensor.shape[0]):
        s = plant.sensor[i]
        r = s[RAW_ZERO] + s[TO_RAW] * plant.values[int(s[SOURCE])]
        r += s[NOISE] * plant.noise[(k * 31 + i * 7919) % plant.noise.shape[0]]
        if s[QUANTUM] > 0.0:
            r = np.floor(r / s[QUANTUM] + 0.5) * s[QUANTUM]
        r = clip(r, s[RAW_LOW], s[RAW_HIGH])
        if k == 0:
            for j in range(depth):
                plant.line[i, j] = r
        plant.line[i, k % depth] = r
        raw[i] = plant.line[i, (k + depth - int(s[DELAY])) % depth]
    plant.count[0] = k + 1


def move(plant: PlantArrays, commands: Floats, dt: float) -> None:
    """Advance the plant by one tick under raw commands."""
    for i in range(plant.actuator.shape[0]):
        a = plant.actuator[i]
        plant.values[int(a[TARGET])] = clip(a[VALUE_ZERO] + a[FROM_RAW] * commands[i], -1.0, 1.0)
    ix, n = plant.ix, plant.ix[N_VALUES]
    advance(ix, plant.val, plant.values[:n], plant.values[n:], plant.work, ix[SUBSTEPS], dt / ix[SUBSTEPS])


def make_plant_circuit(
    machine: Mapping[str, Any], drive: Mapping[str, Any], library: Library, file: str = ""
) -> PackedCircuit:
    """Machine and drive joined at nodes of the same name, packed. Raises ConfigurationError."""
    return pack(read_circuit(make_joined(machine, drive, file), library, file), library, file=file)


def make_joined(one: Mapping[str, Any], other: Mapping[str, Any], file: str = "") -> dict[str, Any]:
    """Two circuit tables as one: the components of both, joined at nodes of the same name; ``rig.A`` of ``other`` is node A."""
    joined: dict[str, Any] = {**one, "components": dict(one.get("components", {})), "nodes": dict(one.get("nodes", {}))}
    for name, table in other.get("components", {}).items():
        if name in joined["components"]:
            raise ConfigurationError([Problem("both circuits have a component of this name.", f"components.{name}", file)])
        ports = {port: str(node).removeprefix(RIG) for port, node in table.get("ports", {}).items()}
        joined["components"][name] = {**table, "ports": ports}
    for node, start in other.get("nodes", {}).items():
        joined["nodes"].setdefault(node.removeprefix(RIG), start)
    solvers = [table.get("solver", {}) for table in (one, other)]
    joined["solver"] = {**solvers[0], **solvers[1]}
    joined["solver"]["substeps"] = max(solver.get("substeps", 10) for solver in solvers)
    return joined


def make_plant(
    settings: Any, machine: Mapping[str, Any], drive: Mapping[str, Any], library: Library, names: tuple[Sequence[str], Sequence[str]],
    dt: float, file: str = "",
) -> PlantArrays:  # fmt: skip
    """The arrays of a plant.

    ``settings``: the simulated driver's; ``names``: the sensors and actuators used, in the order of the raw arrays; ``dt``: tick, s.
    Raises ConfigurationError where a sensor or actuator names nothing in the circuit.
    """
    packed = make_plant_circuit(machine, drive, library, file)
    places = {name: place for place, name in enumerate(packed.names)}
    problems: list[Problem] = []

    def place(name: str, key: str) -> int:
        for candidate in (name, f"{name}.p"):
            if candidate in places:
                return places[candidate]
        text = f'"{name}" is not a value of the simulated circuit.' + did_you_mean(name, places)
        problems.append(Problem(text, key, file))
        return 0

    sensors = []
    for name in names[0]:
        s = settings.sensors[name]
        (r0, r1), (v0, v1) = s.raw, (s.value[0].value, s.value[1].value)
        gain, span = (r1 - r0) / (v1 - v0), abs(r1 - r0)
        quantum = span / 2**s.bits if s.bits else 0.0
        source = place(s.of, f"sensors.{name}.of")
        sensors.append([source, gain, r0 - gain * v0, s.noise * span, quantum, round(s.delay / dt), min(r0, r1), max(r0, r1)])
    actuators = []
    for name in names[1]:
        a = settings.actuators[name]
        gain = 2.0 / (a.raw[1] - a.raw[0])
        actuators.append([place(a.to, f"actuators.{name}.to"), gain, -1.0 - gain * a.raw[0], a.safe])
    if problems:
        raise ConfigurationError(problems)
    n, first = len(packed.values), int(packed.index[INITIAL])
    values = np.zeros(len(packed.names))
    values[:n] = packed.value[first : first + n]
    sensor = np.array(sensors, dtype=np.float64).reshape(-1, 8)
    return PlantArrays(
        packed.index, packed.value, values, np.zeros(packed.work_size), sensor,
        np.array(actuators, dtype=np.float64).reshape(-1, 4), np.zeros((len(sensors), int(sensor[:, DELAY].max(initial=0)) + 1)),
        np.random.default_rng(settings.seed).standard_normal(NOISE_SAMPLES), np.zeros(1, dtype=np.int64),
    )  # fmt: skip
