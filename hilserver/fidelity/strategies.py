"""A simulated rig in lockstep: work cycle and sweep under each strategy, compared with the reference simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.errors import HilserverError, did_you_mean
from hilserver.fidelity.reference import (
    ReferenceSimulation,
    commanded_by,
    flows_into,
    reference_simulation,
    run_signals,
    total,
)
from hilserver.fidelity.results import NO_BRIDGE, ComparedQuantity, Fidelity, SegmentResult, Variant
from hilserver.fidelity.segments import CircuitRows, passes, segment_result, segments_of
from hilserver.fidelity.sweeps import alone
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import Device, Rig, assemble
from hilserver.rig.ladder import cannot, gains_nothing, possible
from hilserver.rig.settings import RigSettings, ValveSettings
from hilserver.rig.simulated import plant_circuit
from hilserver.simulation.lockstep import LockstepRun, fault_name
from hilserver.simulation.machine import machine_of_device
from hilserver.tick.bridge.ladder import BRIDGING, Strategy
from hilserver.tick.bridge.strategies import raw_output
from hilserver.tick.codes import Mode
from hilserver.tick.plan import plan_on
from hilserver.tick.plant import FROM_RAW, TARGET, TICKS_LATE, VALUE_ZERO, PlantArrays
from hilserver.tick.program import compiled_program

USUAL = ("inverse_static", "inverse_lag_leakage", "second_order", "null_region", "prediction", "feedback", "flow_servo")
"""Strategies that `fidelity` compares by default, together with the one in the rig file."""


def simulate(rig: Rig, strategies: Sequence[str] | None = None) -> Fidelity:
    """Run the work cycle in the reference simulation, without compensation, and with each strategy of the bridge.

    All runs have the same machine, initial state and operator inputs, tick by tick. Flows, pressures and positions are
    the simulated ones, not the measured ones. ``strategies``: default all that the rig can use and may benefit from.
    Raises HilserverError where the rig has no simulated machine, valve or work cycle.
    """
    if rig.cycle is None:
        raise HilserverError(f"{rig.file}: simulate needs a work cycle, which this rig file does not name (cycle = …).")
    return compare(rig, strategies or possible(rig.settings), chosen_by_user=strategies is not None)


def measure(rig: Rig, named: Sequence[str] | None, swept: str = "", sweep: dict[str, Any] | None = None) -> Fidelity:
    """The rig's fidelity: over its work cycle, if it has one, and over a sweep of the input ``swept``.

    ``named``: strategies, or "all"; default the usual ones. Raises HilserverError where the rig has no simulated
    machine, or neither cycle nor sweep.
    """
    if not any(device.is_simulated for device in rig.devices):
        raise HilserverError(
            f"{rig.file}: this rig has no simulated machine. Run the real one (--drive), or give a log in which "
            "its work cycle ran (--log)."
        )
    if rig.cycle is None and sweep is None:
        raise HilserverError(f"{rig.file}: there is nothing to run without a work cycle (cycle = …) or a sweep.")
    cycle = alone(rig, swept, sweep) if sweep is not None else None
    by_user = bool(named) and list(named or ()) != ["all"]
    return compare(rig, selected(rig, named), chosen_by_user=by_user, sweep=cycle, swept=swept)


def compare(
    rig: Rig,
    strategies: Sequence[str],
    *,
    chosen_by_user: bool,
    sweep: Mapping[str, Any] | None = None,
    swept: str = "",
) -> Fidelity:
    """The same for ``strategies``, and also over ``sweep``: the table of a work cycle that sweeps the input ``swept``.

    A rig without a work cycle is only swept. A strategy without benefit is left out unless the user selected it.
    """
    tried, left_out = usable(rig, strategies, chosen_by_user)
    comparison = _Comparison.of(rig)
    results: dict[str, dict[str, SegmentResult]] = {name: {} for name in (NO_BRIDGE, *tried)}
    tripped: dict[str, str] = {}
    for each in (rig, with_cycle(rig, sweep)) if sweep is not None else (rig,):
        if each.cycle is not None:
            for name, found in comparison.run(each, [n for n in tried if n not in tripped], tripped).items():
                results[name] |= found
    if set(tried) <= set(tripped):
        texts = "; ".join(f"with strategy {name} it {text}" for name, text in tripped.items())
        raise HilserverError(f"{rig.file}: the rig does not complete its work cycle: {texts}.")
    driven = {name: valve.port for name, valve in rig.settings.valves.items()}
    others = {valve.other_port for valve in rig.settings.valves.values()}
    return Fidelity(
        rig=rig.settings.name,
        dt=comparison.dt,
        quantities=comparison.quantities(),
        valves=driven,
        variants=tuple(Variant(name, **kinds) for name, kinds in results.items() if kinds and name not in tripped),
        tripped=tripped,
        reference=f"the virtual circuit connected directly to {comparison.reference.machine.origin}",
        left_out=left_out | ({NO_BRIDGE: comparison.no_command} if comparison.no_command else {}),
        ports_without_valve=tuple(p for p in rig.circuit.rig_ports() if p not in {*driven.values(), *others}),
        swept=swept,
        notes=("Flows, pressures and positions are the simulated machine's own values, not those of its sensors.",),
        circuit=rig.circuit.source,
    )


def selected(rig: Rig, named: Sequence[str] | None) -> list[str]:
    """The strategies of these names; "all": all that the rig can use; no names: the usual ones and the rig file's."""
    if named and list(named) != ["all"]:
        return list(named)
    own = {valve.bridge.strategy for valve in rig.settings.valves.values()} - {"manual"}
    return [name for name in possible(rig.settings) if named or name in USUAL or name in own]


def usable(rig: Rig, strategies: Sequence[str], by_user: bool) -> tuple[list[str], dict[str, str]]:
    """Strategies that are tried, and those that are left out, with the reason.

    Raises HilserverError for an unknown strategy, or one that the user selected and a valve of the rig can't use.
    """
    left_out: dict[str, str] = {}
    for name in strategies:
        if name not in BRIDGING:
            raise HilserverError(f'{rig.file}: "{name}" is not a strategy to compare.{did_you_mean(name, BRIDGING)}')
        refused, idle = _against(rig, cannot, name), _against(rig, gains_nothing, name)
        if refused and by_user:
            raise HilserverError(f"{rig.file}: {_sentence(name, refused)}.")
        if refused or (len(idle) == len(rig.settings.valves) and not by_user):
            left_out[name] = _sentence(name, refused or idle)
    return [name for name in BRIDGING if name in strategies and name not in left_out], left_out


def _against(rig: Rig, reason: Callable[[RigSettings, ValveSettings, str], str], strategy: str) -> dict[str, str]:
    """The reason against a strategy, by valve."""
    found = {name: reason(rig.settings, valve, strategy) for name, valve in rig.settings.valves.items()}
    return {name: text for name, text in found.items() if text}


def _sentence(strategy: str, reasons: dict[str, str]) -> str:
    """The same as a sentence."""
    texts = dict.fromkeys(reasons.values())
    by_text = {text: ", ".join(valve for valve, own in reasons.items() if own == text) for text in texts}
    return "; ".join(f"{strategy} {text} (valve {valves})" for text, valves in by_text.items())


def with_cycle(rig: Rig, cycle: Mapping[str, Any]) -> Rig:
    """The rig with another work cycle. Raises ConfigurationError where they don't fit."""
    return assemble({**rig.sources, "cycle": dict(cycle)}, rig.file, rig.library)


def _trip_in(record: CircuitRows, rig: Rig) -> str:
    """Mode, cause and cycle time at which a run left the mode RUNNING; empty if it did not."""
    modes = record.columns["mode"]
    running = np.flatnonzero(modes == Mode.RUNNING)
    if modes[-1] == Mode.RUNNING or not len(running):
        return ""
    last = int(running[-1])
    cause = fault_name(int(record.columns["fault"][last + 1]), rig.layout.limits)
    after = f"{record.columns['cycle_time'][last]:.2f} s"
    return f"ended in mode {Mode(int(modes[last + 1])).name}{f' ({cause})' if cause else ''} at {after}"


def simulated_device(rig: Rig) -> Device:
    """The simulated device. Raises HilserverError without one, or without a valve."""
    devices = [device for device in rig.devices if device.is_simulated]
    missing = {"one device with driver simulated": len(devices) == 1, "a valve": bool(rig.settings.valves)}
    if not all(missing.values()):
        needed = ", ".join(name for name, there in missing.items() if not there)
        raise HilserverError(f"{rig.file}: simulate needs {needed}, which this rig file does not have.")
    return devices[0]


@dataclass(frozen=True)
class _Comparison:
    """What all runs of a rig share.

    ``plant``: machine and drive; ``no_command``: why there is no run without a bridge, empty where there is one.
    """

    rig: Rig
    device: Device
    reference: ReferenceSimulation
    plant: PackedCircuit
    program: Program
    no_command: str

    @classmethod
    def of(cls, rig: Rig) -> _Comparison:
        device = simulated_device(rig)
        machine = machine_of_device(rig, device)
        file = str(rig.file.parent / rig.settings.circuit)
        reference = reference_simulation(machine, rig.circuit, rig.library, file)
        plant = plant_circuit(machine.source, rig.sources["devices"][device.name]["drive"], rig.library)
        uncommanded = [v.port for v in rig.settings.valves.values() if commanded_by(rig.circuit, v.port) is None]
        where = ", ".join(uncommanded)
        reason = f"{NO_BRIDGE}: no signal commands a virtual valve at port {where}" if uncommanded else ""
        return cls(rig, device, reference, plant, compiled_program(rig.library), reason)

    @property
    def dt(self) -> float:
        return float(self.rig.plan.loop[0].dt)

    def quantities(self) -> tuple[ComparedQuantity, ...]:
        """Positions of the machine, flows into its ports, and the pressures there."""
        settings = self.rig.settings
        others = {valve.other_port: name for name, valve in settings.valves.items() if valve.other_port is not None}
        driven = dict.fromkeys(valve.port for valve in settings.valves.values())
        ports = [port for port in settings.ports if port in driven or port in others]
        return (
            *(ComparedQuantity(f"position {node}", "m") for node in self.reference.machine.circuit.mechanical_nodes()),
            *(ComparedQuantity(f"flow {p}", "m^3/s", other_edge="" if p in driven else others[p]) for p in ports),
            *(ComparedQuantity(f"pressure {p}", "Pa", other_edge="" if p in driven else others[p]) for p in ports),
        )

    def run(self, rig: Rig, strategies: list[str], tripped: dict[str, str]) -> dict[str, dict[str, SegmentResult]]:
        """Results of work cycle and sweep, as far as the rig's cycle has them, by strategy and without compensation.

        A strategy with which the rig does not stay RUNNING is entered into ``tripped`` instead, with cause and time.
        """
        assert rig.cycle is not None
        found: dict[str, dict[str, SegmentResult]] = {} if self.no_command else {NO_BRIDGE: {}}
        reference_flows = {port: flows_into(rig.circuit, port) for port in rig.settings.ports}
        for name in strategies:
            record, true_values = self._bridged(rig, name)
            if trip := _trip_in(record, rig):
                tripped[name] = trip
                continue
            found[name] = {}
            segments = segments_of(record, passes(record)[0], rig.cycle)
            for kind, segment in zip(("cycle", "sweep"), segments, strict=True):
                if segment is None:
                    continue
                begin = segment.rows.start - 1
                states = ((self.plant, true_values[begin]), (record.circuit, record.values[begin]))
                signals = record.inputs(segment.rows, list(rig.settings.inputs))
                coupled = self.reference.run(self.program, self.dt, signals, self.reference.start({}, *states))
                reference = self._series(coupled, self.reference.packed, reference_flows)
                actual = self._series(true_values[segment.rows], self.plant, self._plant_flows())
                found[name][kind] = segment_result(rig.settings, record, segment, actual, reference)
                if NO_BRIDGE in found and kind not in found[NO_BRIDGE]:
                    commands = {v: self._command(coupled, valve.port) for v, valve in rig.settings.valves.items()}
                    alone = self._uncompensated(commands, true_values[begin])
                    found[NO_BRIDGE][kind] = replace(
                        found[name][kind],
                        actual=self._series(alone, self.plant, self._plant_flows()),
                        command=commands,
                        virtual={},
                        saturation={},
                        estimate={},
                        stated_deviation={},
                    )
        return found

    def _plant_flows(self) -> dict[str, tuple[str, ...]]:
        drive = read_circuit(self.rig.sources["devices"][self.device.name]["drive"], self.rig.library)
        return {port: flows_into(drive, port) for port in self.rig.settings.ports}

    def _series(self, rows: Floats, circuit: PackedCircuit, flows: dict[str, tuple[str, ...]]) -> dict[str, Floats]:
        """The quantities, from the values of a circuit."""
        names = list(circuit.names)
        found = {}
        for quantity in self.quantities():
            what, _, where = quantity.name.partition(" ")
            if what == "flow":
                found[quantity.name] = total(rows, circuit, flows[where])
            else:
                found[quantity.name] = rows[:, names.index(f"{where}.{'x' if what == 'position' else 'p'}")]
        return found

    def _bridged(self, rig: Rig, strategy: str) -> tuple[CircuitRows, Floats]:
        """A work cycle with this strategy for every valve: its rows, and the true values of the plant."""
        plan = plan_on(rig.plan.block.copy())
        plan.valve["strategy_first"][:] = Strategy[strategy]
        with LockstepRun(replace(rig, plan=plan), program=self.program, trace=True) as run:
            rows = run.run_cycle()
            columns = {name: rows[:, i] for i, name in enumerate(rig.layout.names)}
            start = len(rig.layout.names)
            record = CircuitRows(columns, rig.packed, rows[:, start : start + len(rig.packed.names)])
            return record, run.true_values(self.device.name)

    def _uncompensated(self, commands: Mapping[str, Floats], start: Floats) -> Floats:
        """Values of the plant, from ``start`` on, when the real valves get these commands."""
        arrays: PlantArrays = self.rig.plants()[self.device.name]
        driven: dict[str, Floats] = {}
        for number, output in enumerate(self.device.outputs):
            for name, valve in self.rig.settings.valves.items():
                if (valve.device, valve.output) != (self.device.name, output):
                    continue
                line, actuator = self.rig.plan.valve[self.rig.layout.valves.index(name)], arrays.actuator[number]
                raw = np.array([raw_output(u, line) for u in commands[name]])
                late = int(actuator[TICKS_LATE])
                delayed = np.concatenate([np.full(late, raw_output(0.0, line)), raw])[: len(raw)]
                target = self.plant.names[int(actuator[TARGET])]
                driven[target] = np.clip(actuator[VALUE_ZERO] + actuator[FROM_RAW] * delayed, -1.0, 1.0)
        return run_signals(self.program, self.plant, self.dt, driven, start[: len(self.plant.values)])

    def _command(self, rows: Floats, port: str) -> Floats:
        """Command of the virtual valve at a port, signed for the real valve there: positive fills the port."""
        found = commanded_by(self.rig.circuit, port)
        assert found is not None
        signal, sign = found
        return sign * rows[:, self.reference.packed.names.index(signal)]
