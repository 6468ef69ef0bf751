"""How true is the rig to the virtual circuit? The circuit joined directly to the machine beside the bridged rig."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hilserver.bridge import columns as b
from hilserver.bridge.strategies import raw_output
from hilserver.circuit import engine as e
from hilserver.circuit.model import RIG, Circuit, Placed, read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.program import Program
from hilserver.errors import ConfigurationError, HilserverError, Problem, did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.realtime.compiled import compiled_program
from hilserver.rig import columns as c
from hilserver.rig.load import Device, Rig, can_feed_back
from hilserver.rig.plant import FROM_RAW, TARGET, VALUE_ZERO, PlantArrays
from hilserver.rig.simulated import joined, plant_circuit
from hilserver.runs.lockstep import LockstepRun

NO_BRIDGE = "no compensation"
VARIANTS = {
    NO_BRIDGE: "the virtual valve's command goes straight to the real valve, as one would do without a bridge",
    "inverse_static": "opening that passes the virtual flow at the measured drop",
    "inverse_lag": "the same, and lead against the real spool's lag",
    "inverse_lag_leakage": "the same, and the real valve's leakage taken off",
    "second_order": "lead of second order, from the virtual circuit's own derivatives",
    "null_region": "the same, through the whole characteristic with leakage and overlap",
    "supply_droop": "the same, with the supply pressure carried on",
    "prediction": "the same, for the moment when the command acts: circuit and machine are foreseen",
    "feedback": "the same, and what did not flow is made good",
    "adaptive": "the same, and the valve's flow gain is tracked",
    "flow_servo": "PID on the measured flow",
}


@dataclass(frozen=True)
class Quantity:
    """Something that is compared: a name for the reader, SI unit, and the values that add up to it in rig and truth."""

    name: str
    unit: str
    in_rig: tuple[str, ...]
    in_truth: tuple[str, ...]


@dataclass(frozen=True)
class Deviation:
    """Of a quantity from the truth: RMS and largest, SI, and the truth's range."""

    rms: float
    largest: float
    range: float

    @property
    def nrmse(self) -> float:
        """RMS of the deviation by the range of the truth."""
        return self.rms / self.range if self.range > 0.0 else float("nan")

    @classmethod
    def between(cls, values: Floats, truth: Floats) -> Deviation:
        """Deviation of ``values`` from ``truth``, both over the same ticks."""
        difference = values - truth
        return cls(
            float(np.sqrt(np.mean(difference * difference))), float(np.max(np.abs(difference))), float(np.ptp(truth))
        )


@dataclass(frozen=True)
class Variant:
    """One way of driving the real valves, and what came of it.

    ``deviations``: from the truth, by quantity. ``tracking``: of each valve's flow from what the virtual circuit asked
    of it in the same run; it shows the bridge alone, without what port pressures make of a deviation. ``saturated``:
    share of the ticks.
    """

    name: str
    series: dict[str, Floats]
    deviations: dict[str, Deviation]
    tracking: dict[str, Deviation]
    saturated: float


@dataclass(frozen=True)
class Fidelity:
    """The truth and every variant over the same work cycle. ``ports_without_valve``: those that nothing drives."""

    rig: str
    time: Floats
    quantities: tuple[Quantity, ...]
    truth: dict[str, Floats]
    valves: tuple[str, ...]
    ports_without_valve: tuple[str, ...]
    variants: tuple[Variant, ...]

    def best(self, quantity: str) -> Variant:
        """The variant with the smallest NRMSE of a quantity."""
        return min(self.variants, key=lambda variant: variant.deviations[quantity].nrmse)

    def gain(self, quantity: str, over: str) -> float:
        """How many times smaller the best NRMSE is than that of variant ``over``."""
        other = next(variant for variant in self.variants if variant.name == over)
        best = self.best(quantity).deviations[quantity].rms
        return other.deviations[quantity].rms / best if best > 0.0 else float("inf")


def fidelity(rig: Rig, strategies: Sequence[str] | None = None) -> Fidelity:
    """Run the work cycle with the truth, without compensation and with each bridge strategy.

    All start alike: same machine, same pressures and positions, and get the same operator's inputs, tick by tick.
    Flows are the simulated ones, not the measured ones. ``strategies``: default all that the rig's sensors allow
    (flow_servo needs a measured flow). Raises HilserverError where the rig has no simulated machine, valve or work
    cycle.
    """
    device = _simulated_device(rig)
    machine, drive = (rig.sources["devices"][device.name][part] for part in ("machine", "drive"))
    program = compiled_program(rig.library)
    chosen = _chosen(rig, strategies)
    truth_circuit = _truth_circuit(rig, machine, device)
    whole_rig = plant_circuit(machine, drive, rig.library)
    quantities = _quantities(rig, machine, drive)
    runs = {name: _bridged(rig, device, name, program) for name in chosen}
    inputs = next(iter(runs.values()))[0][:, rig.plan.layout[c.INPUT] : rig.plan.layout[c.TREND]]
    dt = float(rig.plan.loop[c.DT])
    truth_rows = run_packed(program, truth_circuit, dt, list(rig.settings.inputs), inputs)
    truth = {q.name: _total(truth_rows, truth_circuit, q.in_truth) for q in quantities}

    def variant(name: str, values: Floats, rows: Floats | None = None) -> Variant:
        series = {q.name: _total(values, whole_rig, q.in_rig) for q in quantities}
        deviations = {name: Deviation.between(values, truth[name]) for name, values in series.items()}
        if rows is None:
            return Variant(name, series, deviations, {}, 0.0)
        asked = {valve: rows[:, rig.layout.column(f"valve.{valve}.flow_virtual")] for valve in rig.layout.valves}
        ports = {valve: f"flow {rig.settings.valves[valve].port}" for valve in asked}
        tracking = {valve: Deviation.between(series[ports[valve]], flow) for valve, flow in asked.items()}
        return Variant(name, series, deviations, tracking, _saturated(rig, rows))

    variants = [variant(NO_BRIDGE, _uncompensated(rig, device, program, whole_rig, inputs))]
    variants += [variant(name, values, rows) for name, (rows, values) in runs.items()]
    time = np.arange(1.0, len(inputs) + 1.0, dtype=np.float64) * dt
    driven = {valve.port for valve in rig.settings.valves.values()}
    others = tuple(port for port in rig.circuit.rig_ports() if port not in driven)
    return Fidelity(rig.settings.name, time, quantities, truth, rig.layout.valves, others, tuple(variants))


def _simulated_device(rig: Rig) -> Device:
    """The simulated device. Raises HilserverError without one, or without a valve or a work cycle."""
    devices = [device for device in rig.devices if device.driver.handed == "plant"]
    missing = {
        "one device with driver simulated": len(devices) == 1,
        "a valve": bool(rig.settings.valves),
        "a work cycle": rig.cycle is not None,
    }
    if not all(missing.values()):
        needed = ", ".join(name for name, there in missing.items() if not there)
        raise HilserverError(f"{rig.file}: simulate needs {needed}, which this rig file does not have.")
    return devices[0]


def _chosen(rig: Rig, wanted: Sequence[str] | None) -> list[str]:
    """The wanted strategies; default: all of the ladder for which every valve has its sensors."""
    measured = all(valve.flow is not None for valve in rig.settings.valves.values())
    known = all(can_feed_back(rig.settings, valve) for valve in rig.settings.valves.values())
    needs = {"flow_servo": measured, "feedback": known, "adaptive": known}
    possible = [name for name in b.STRATEGY_NAMES if name != "manual" and needs.get(name, True)]
    for name in wanted or ():
        if name not in possible:
            raise HilserverError(f'{rig.file}: "{name}" is not a strategy to simulate.{did_you_mean(name, possible)}')
    return list(wanted or possible)


def _truth_circuit(rig: Rig, machine: dict[str, Any], device: Device) -> PackedCircuit:
    """The virtual circuit joined directly to the machine."""
    name = str(rig.file.parent / rig.settings.circuit)
    shared = _nodes(machine) & {node for node in _nodes(rig.circuit.source) if not node.startswith(RIG)}
    if shared:
        text = f"{device.config.machine} has a node of this name too. Joined directly they would be one: rename it."
        raise ConfigurationError([Problem(f'"{node}": {text}', "components", name) for node in sorted(shared)])
    return pack(read_circuit(joined(machine, rig.circuit.source, name), rig.library, name), rig.library, file=name)


def _nodes(source: Any) -> set[str]:
    return {node for table in source.get("components", {}).values() for node in table.get("ports", {}).values()}


def _quantities(rig: Rig, machine: dict[str, Any], drive: dict[str, Any]) -> tuple[Quantity, ...]:
    """Positions of the machine, flows into the ports that have a valve."""
    driving = read_circuit(drive, rig.library)
    nodes = read_circuit(machine, rig.library).mechanical_nodes()
    positions = [Quantity(f"position {node}", "m", (f"{node}.x",), (f"{node}.x",)) for node in nodes]
    ports = dict.fromkeys(valve.port for valve in rig.settings.valves.values())
    flows = [
        Quantity(f"flow {port}", "m^3/s", _flows_into(driving, port), _flows_into(rig.circuit, port)) for port in ports
    ]
    return (*positions, *flows)


def _flows_into(circuit: Circuit, port: str) -> tuple[str, ...]:
    """Names of the flows of a circuit's components into a port of the machine."""
    return tuple(
        f"{placed.name}.q_{name}"
        for placed in circuit.placed
        for name, node in placed.ports.items()
        if node.removeprefix(RIG) == port and name in placed.component.hydraulic
    )


def _bridged(rig: Rig, device: Device, strategy: str, program: Program) -> tuple[Floats, Floats]:
    """Rows, and true values of the plant, of a work cycle with this strategy for every valve."""
    first = rig.plan.valve.copy()
    first[:, b.STRATEGY_FIRST] = b.STRATEGY_NAMES.index(strategy)
    with LockstepRun(replace(rig, plan=rig.plan._replace(valve=first)), program=program, trace=True) as run:
        rows = run.run_cycle()
        if run.mode != "RUNNING":
            reason = f" ({run.fault})" if run.fault else ""
            raise HilserverError(f"{rig.file}: with strategy {strategy} the rig ended in mode {run.mode}{reason}.")
        return rows, run.true_values(device.name)


def _saturated(rig: Rig, rows: Floats) -> float:
    """Share of the ticks in which a valve's saturation was reported."""
    flags = [rows[:, rig.layout.column(f"valve.{name}.saturation")] for name in rig.layout.valves]
    return float(np.mean(np.any(np.array(flags) > 0.0, axis=0)))


def _uncompensated(rig: Rig, device: Device, program: Program, circuit: PackedCircuit, inputs: Floats) -> Floats:
    """True values of the plant when each real valve gets the command of the virtual valve at its port."""
    plant: PlantArrays = rig.plants()[device.name]
    names = list(rig.settings.inputs)
    driven, given = [], []
    for number, output in enumerate(device.outputs):
        for name, valve in rig.settings.valves.items():
            if (valve.device, valve.output) != (device.name, output):
                continue
            line = rig.plan.valve[rig.layout.valves.index(name)]
            command = inputs[:, names.index(_command_of(rig, valve.port))]
            raw = np.array([raw_output(u, line) for u in command])
            actuator = plant.actuator[number]
            driven.append(circuit.names[int(actuator[TARGET])])
            given.append(np.clip(actuator[VALUE_ZERO] + actuator[FROM_RAW] * raw, -1.0, 1.0))
    return run_packed(program, circuit, float(rig.plan.loop[c.DT]), driven, np.array(given).T)


def _command_of(rig: Rig, port: str) -> str:
    """The operator input that moves the virtual valve at a port."""

    def moved_by(placed: Placed) -> list[str]:
        return [s for s in placed.signals.values() if isinstance(s, str) and s in rig.settings.inputs]

    for placed in rig.circuit.placed:
        if f"{RIG}{port}" in placed.ports.values() and moved_by(placed):
            return moved_by(placed)[0]
    raise HilserverError(
        f"{rig.file}: no component at {RIG}{port} of the virtual circuit is moved by an operator input: "
        "there is nothing to compare the bridge with."
    )


def run_packed(program: Program, circuit: PackedCircuit, dt: float, driven: Sequence[str], given: Floats) -> Floats:
    """A circuit run by itself: all values (columns: ``circuit.names``) at the end of every tick of ``dt`` seconds.

    ``given[k, j]`` is the signal ``driven[j]`` in tick k; signals that the circuit does not have are left out.
    """
    used = [(circuit.values.index(name), j) for j, name in enumerate(driven) if name in circuit.values]
    n, first = len(circuit.values), int(circuit.index[e.INITIAL])
    values = np.zeros(len(circuit.names))
    values[:n] = circuit.value[first : first + n]
    rows = np.empty((len(given), len(values)))
    places = np.array([place for place, _ in used], dtype=np.int64)
    columns = np.ascontiguousarray(given[:, [j for _, j in used]])
    steps = int(circuit.index[e.SUBSTEPS])
    program.run_free(
        circuit.index, circuit.value, values, np.zeros(circuit.work_size), places, columns, steps, dt / steps, rows
    )
    return rows


def _total(rows: Floats, circuit: PackedCircuit, names: tuple[str, ...]) -> Floats:
    """Sum of these values over the ticks (a component with several kernels may have several flows of one name)."""
    places = [place for place, name in enumerate(circuit.names) if name in names]
    total: Floats = rows[:, places].sum(axis=1)
    return total
