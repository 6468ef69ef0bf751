"""Builds the simulated plant: the circuit files of machine and drive, joined and packed, with sensors and actuators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor, pi
from typing import Any

import numpy as np

from hilserver.circuit.drawn import DRAWING
from hilserver.circuit.engine import INITIAL
from hilserver.circuit.library import Library
from hilserver.circuit.model import RIG, Circuit, Solver, read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.variant import read_variant
from hilserver.errors import ConfigurationError, Problem, did_you_mean, shown
from hilserver.numerics.arrays import Floats
from hilserver.rig.drift import circuits_at_end, drifting
from hilserver.tick.plan import table_of
from hilserver.tick.plant import PlantArrays
from hilserver.tick.plant_records import PlantActuator, SensorRecord
from hilserver.units import unit_of_value

IMPLICIT = "rosenbrock"
NOISE_SAMPLES = 65_521  # a prime, so that no sensor repeats another's noise in step
WHOLE = 1e-6
"""Fraction of a tick by which a delay of whole ticks may differ from them."""


@dataclass(frozen=True)
class PlantCircuit:
    """Machine and drive of a simulated device as one circuit, and the same packed."""

    circuit: Circuit
    packed: PackedCircuit


def read_plant(
    machine: Mapping[str, Any],
    drive: Mapping[str, Any],
    library: Library,
    file: str = "",
    accounts: bool = False,
    before: PlantCircuit | None = None,
    drift: Any = None,
) -> PlantCircuit:
    """Machine and drive joined at nodes of the same name. Raises ConfigurationError.

    ``before``: another one with the same accounts, from which it differs little, see `read_variant`; ``drift``: of the
    simulated device (setting of its driver); None if it has none.
    """
    if drift is not None:
        return _drifting(machine, drive, library, file, accounts, drift)
    table = joined(machine, drive, file)
    if before is None:
        circuit = read_circuit(table, library, file)
        return PlantCircuit(circuit, pack(circuit, library, file=file, accounts=accounts))
    circuit = read_variant(before.circuit, table, library, file)
    return PlantCircuit(circuit, pack(circuit, library, file=file, accounts=accounts, like=before.packed))


def _drifting(
    machine: Mapping[str, Any], drive: Mapping[str, Any], library: Library, file: str, accounts: bool, drift: Any
) -> PlantCircuit:
    """Machine and drive as they are at first, packed with their drift. Raises ConfigurationError."""
    first = read_plant(machine, drive, library, file, accounts)
    try:
        at_end = circuits_at_end({"machine": machine, "drive": drive}, drift, library)
        last = read_plant(at_end["machine"], at_end["drive"], library, file, accounts)
        return replace(first, packed=drifting(first.packed, last.packed, drift.over))
    except ConfigurationError as error:
        raise ConfigurationError(
            replace(each, key=f"drift.{each.key}".rstrip(".")) for each in error.problems
        ) from None


def plant_circuit(machine: Mapping[str, Any], drive: Mapping[str, Any], library: Library) -> PackedCircuit:
    """The same, packed only."""
    return read_plant(machine, drive, library).packed


def joined(one: Mapping[str, Any], other: Mapping[str, Any], file: str = "") -> dict[str, Any]:
    """Two circuit tables as one, joined at nodes of the same name; ``rig.A`` of ``other`` is node A of ``one``.

    Each component keeps its oil. The step is the smaller one, and implicit if that of either is: an explicit one may be
    unstable there. Raises ConfigurationError if both have a component of the same name.
    """
    one = {key: value for key, value in one.items() if key != DRAWING}  # places of half of the parts help nobody
    both: dict[str, Any] = {**one, "components": dict(one.get("components", {})), "nodes": dict(one.get("nodes", {}))}
    for name, table in other.get("components", {}).items():
        if name in both["components"]:
            problem = Problem("both circuits have a component of this name.", f"components.{name}", file)
            raise ConfigurationError([problem])
        both["components"][name] = joined_component(table, one, other)
    for node, start in other.get("nodes", {}).items():
        both["nodes"].setdefault(node.removeprefix(RIG), start)
    if mechanisms := [table["mechanisms"] for table in (one, other) if "mechanisms" in table]:
        both["mechanisms"] = {name: table for each in mechanisms for name, table in each.items()}
        if len(both["mechanisms"]) < sum(map(len, mechanisms)):
            raise ConfigurationError([Problem("both circuits have a mechanism of the same name.", "mechanisms", file)])
    solvers = [table.get("solver", {}) for table in (one, other)]
    substeps = max(solver.get("substeps", Solver().substeps) for solver in solvers)
    integrators = {solver["integrator"] for solver in solvers if "integrator" in solver}
    implicit = {"integrator": IMPLICIT} if IMPLICIT in integrators else {}
    both["solver"] = {**solvers[0], **solvers[1], **implicit, "substeps": substeps}
    return both


def joined_component(table: Mapping[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a component of ``other`` in the circuit of both, see `joined`."""
    fluid = other.get("fluid", {})
    oil = {"fluid": fluid} if fluid != one.get("fluid", {}) else {}
    ports = {port: str(node).removeprefix(RIG) for port, node in table.get("ports", {}).items()}
    return {**oil, **table, "ports": ports}


def build_plant(
    settings: Any,
    packed: PackedCircuit,
    names: tuple[Sequence[str], Sequence[str]],
    dt: float,
    file: str = "",
) -> PlantArrays:
    """The arrays of a plant.

    ``settings``: the simulated driver's; ``packed``: see `plant_circuit`; ``names``: the sensors and actuators used, in
    the order of the raw arrays; ``dt``: tick, s. Raises ConfigurationError where a sensor or actuator names nothing in
    the circuit.
    """
    places = {name: place for place, name in enumerate(packed.names)}
    problems: list[Problem] = []

    def place(name: str, key: str) -> int:
        for candidate in (name, f"{name}.p"):
            if candidate in places:
                return places[candidate]
        text = f"{shown(name)} is not a value of the simulated circuit." + did_you_mean(name, places)
        problems.append(Problem(text, key, file))
        return 0

    sensors = [
        _sensor(settings.sensors[name], place(settings.sensors[name].of, f"sensors.{name}.of"), dt) for name in names[0]
    ]
    actuators = [
        _actuator(settings.actuators[name], place(settings.actuators[name].to, f"actuators.{name}.to"), settings, dt)
        for name in names[1]
    ]
    if problems:
        raise ConfigurationError(problems)
    sensor, actuator = table_of(SensorRecord, sensors), table_of(PlantActuator, actuators)
    latest = int((actuator["delay"] + (actuator["fraction"] > 0.0)).max(initial=0))
    val, first, last, over = _numbers(packed)
    return PlantArrays(
        ix=packed.index,
        val=val,
        first=first,
        last=last,
        over=over,
        values=_initial(packed),
        work=np.zeros(packed.work_size),
        sensor=np.asarray(sensor).view(np.float64),
        actuator=np.asarray(actuator).view(np.float64),
        within=np.zeros(len(sensors)),
        line=np.zeros((len(sensors), int(sensor["delay"].max(initial=0)) + 1)),
        noise=_noise(settings.seed),
        taken=np.zeros(1, dtype=np.int64),
        under_way=np.repeat(actuator["safe"][:, None], latest + 1, axis=1),
    )


def on_circuit(plant: PlantArrays, packed: PackedCircuit) -> PlantArrays:
    """A plant as it begins with another circuit, whose values have the same names."""
    work = np.zeros(packed.work_size)
    val, first, last, over = _numbers(packed)
    plant = plant._replace(val=val, first=first, last=last, over=over)
    return plant._replace(ix=packed.index, values=_initial(packed), work=work)


def _numbers(packed: PackedCircuit) -> tuple[Floats, Floats, Floats, Floats]:
    """``val``, ``first``, ``last`` and ``over`` of a plant with this circuit."""
    if packed.drift is None:
        return packed.value, np.empty(0), np.empty(0), np.empty(0)
    return packed.value.copy(), packed.value, packed.drift.value, np.array([packed.drift.over])


def _initial(packed: PackedCircuit) -> Floats:
    """The initial values of a circuit, then room for what its kernels record."""
    n, first = len(packed.values), int(packed.index[INITIAL])
    values = np.zeros(len(packed.names))
    values[:n] = packed.value[first : first + n]
    return values


@lru_cache(maxsize=4)
def _noise(seed: int) -> Floats:
    """The noise of all sensors, drawn once: a study builds thousands of plants with the same."""
    found = np.random.default_rng(seed).standard_normal(NOISE_SAMPLES)
    found.flags.writeable = False  # shared by all plants
    return found


def _sensor(s: Any, source: int, dt: float) -> dict[str, Any]:
    """The fields of a sensor's record."""
    in_radians = 2.0 * pi if counts_turns(s) else 1.0
    (r0, r1), (v0, v1) = s.raw, (in_radians * s.value[0].value, in_radians * s.value[1].value)
    gain, span = (r1 - r0) / (v1 - v0), abs(r1 - r0)
    ticks, fraction = _ticks(s.delay, dt)
    return {
        "source": source,
        "gain": gain,
        "raw_zero": r0 - gain * v0,
        "noise": s.noise * span,
        "quantum": span / 2**s.bits if s.bits else 0.0,
        "delay": ticks,
        "fraction": fraction,
        "raw_low": min(r0, r1),
        "raw_high": max(r0, r1),
    }


def counts_turns(sensor: Any) -> bool:
    """Whether a sensor's range is a speed, 1/s, of a shaft whose value is in rad/s."""
    return unit_of_value(sensor.of) == "rad/s" and sensor.value[0].unit == "1/s"


def _actuator(a: Any, target: int, settings: Any, dt: float) -> dict[str, Any]:
    """The fields of an actuator's record; ``settings``: the driver's."""
    gain = 2.0 / (a.raw[1] - a.raw[0])
    ticks, fraction = _ticks(a.delay, dt)
    return {
        "target": target,
        "gain": gain,
        "value_zero": -1.0 - gain * a.raw[0],
        "safe": a.safe,
        "watchdog": int(settings.watchdog / dt + 1e-9),
        "delay": ticks,
        "fraction": fraction,
    }


def _ticks(delay: float, dt: float) -> tuple[int, float]:
    """A delay as whole ticks and a fraction of one."""
    ticks = delay / dt
    whole = floor(ticks + WHOLE)
    return whole, ticks - whole if ticks - whole > WHOLE else 0.0
