"""The lift rig (config/rigs/lift.toml) with changes: what is true of the simulated rig, and what the bridge knows."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
from longer_steps import SUBSTEPS
from rig_bench import merged

from hilserver.circuit.library import standard_library
from hilserver.compiler import standard_program
from hilserver.fidelity.comparison import Comparison
from hilserver.fidelity.segments import CycleSegment, passes, trip_in
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.rig.simulated import plant_circuit
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind
from hilserver.toml import read_toml

FILE = Path(__file__).parents[2] / "config" / "rigs" / "lift.toml"
LEAKAGE = {"flow": "0.6 l/min", "drop": "70 bar", "per": "edge"}
FULL = 250.0  # bar, range of the pressure sensors
STEPS = {"solver": {"substeps": SUBSTEPS}}
"""Of machine and drive, 0.25 ms each, by the implicit method: as close to the reference as with the 10 of the files.

(The position's NRMSE of `errors_of` differs by 0.05 % of itself, a pressure's by less.)
"""
SMALL: dict[str, Any] = {  # a virtual valve and chambers small enough that nothing cavitates at 20 Hz
    "circuit": {"components": {"main_valve": {"nominal_flow": {"flow": "20 l/min", "drop": "35 bar", "per": "edge"}}}},
    "devices": {"rig": {"machine": {"components": {"cylinder": {"dead_volume_A": "0.1 l", "dead_volume_B": "0.1 l"}}}}},
    "rig": {"cylinders": {"lift": {"dead_volume_A": "0.1 l", "dead_volume_B": "0.1 l"}}},
}


@functools.cache
def _sources() -> dict[str, Any]:
    rig = read_toml(FILE)
    folder = FILE.parent
    device = {part: read_toml(folder / rig["devices"]["rig"][part]) for part in ("machine", "drive")}
    circuit, cycle = read_toml(folder / rig["circuit"]), read_toml(folder / rig["cycle"])
    files = {"rig": rig, "circuit": circuit, "cycle": cycle, "devices": {"rig": device}}
    return merged(files, {"devices": {"rig": {"machine": STEPS, "drive": STEPS}}})


def lift(changes: dict[str, Any] | None = None) -> Rig:
    """The rig with changes of its source tables: rig, circuit, cycle, devices."""
    return assemble(merged(_sources(), changes or {}), FILE, standard_library())


def of_valves(**changes: Any) -> dict[str, Any]:
    """What the bridge knows of both real valves."""
    return {"rig": {"valves": {name: copy.deepcopy(changes) for name in ("A", "B")}}}


def true_valves(**changes: Any) -> dict[str, Any]:
    """What both real valves are."""
    components = {name: copy.deepcopy(changes) for name in ("valve_A", "valve_B")}
    return {"devices": {"rig": {"drive": {"components": components}}}}


def delays(sensors: str, valves: str) -> dict[str, Any]:
    """Delays of sensors and valves, true and known."""
    names, actuators = ("p_A", "p_B", "p_S", "p_T", "x"), ("valve_A", "valve_B")
    device = {
        "sensors": {name: {"delay": sensors} for name in names},
        "actuators": {name: {"delay": valves} for name in actuators},
    }
    channels = {name: {"delay": sensors} for name in names}
    return {"rig": {"devices": {"rig": device}, "channels": channels, "valves": {v: {"delay": valves} for v in "AB"}}}


def hard(flow: float = 0.98, frequency: float = 72.0, noise: float = 0.25) -> dict[str, Any]:
    """C_v and frequency off, leakage, 3 % overlap, noise in bar, 16 bits."""
    valve = {"overlap": 0.03, "leakage": LEAKAGE}
    nominal = {"flow": f"{60 * flow} l/min", "drop": "35 bar", "per": "edge"}
    pressures = ("p_A", "p_B", "p_S", "p_T")
    sensors = {name: {"noise": noise / FULL, "bits": 16} for name in pressures} | {"x": {"bits": 16}}
    channels = {name: {"noise": f"{max(noise, 0.01)} bar"} for name in pressures} | {"x": {"noise": "0.01 mm"}}
    rig = {"rig": {"devices": {"rig": {"sensors": sensors}}, "channels": channels}}
    return merged(merged(rig, of_valves(**valve)), true_valves(nominal_flow=nominal, f90=f"{frequency} Hz", **valve))


def both(*changes: dict[str, Any]) -> dict[str, Any]:
    """All of these changes."""
    result: dict[str, Any] = {}
    for change in changes:
        result = merged(result, change)
    return result


def sines(frequencies: tuple[float, ...], amplitude: float = 0.3) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """A work cycle of sines, one after the other, and the ticks of each after its first period."""
    points, spans, t = [["0 s", 0.0]], [], 0.3
    for f in frequencies:
        n = max(4, round(f))
        k = np.arange(round(n / f / 1e-3) + 1)
        points += [[f"{t + j * 1e-3:.4f} s", float(amplitude * np.sin(2 * np.pi * f * j * 1e-3))] for j in k]
        spans.append((round(1e3 * (t + 1.0 / f)), round(1e3 * (t + (n - 1) / f))))
        t += n / f + 0.3
        points.append([f"{t - 0.1:.4f} s", 0.0])
    return {"cycle": {"inputs": {"joystick": {"shape": "linear", "points": points}}}}, spans


def ratio(got: Floats, wanted: Floats, frequency: float) -> complex:
    """Amplitude ratio and phase of two signals over whole periods at 1 kHz."""
    turn = np.exp(-2j * np.pi * frequency * 1e-3 * np.arange(len(got)))
    return complex(np.sum(got * turn) / np.sum(wanted * turn))


def errors_of(rig: Rig, strategy: str = "feedback") -> dict[str, float]:
    """NRMSE over the work cycle, by quantity."""
    comparison = Comparison.of(rig, standard_program())
    record, true_values = comparison.bridged(rig, strategy)
    assert trip_in(record, rig) is None
    segment, _ = comparison.evaluated(record, true_values, CycleSegment(passes(record)[0], 0.0))
    return {name: deviation.nrmse for name, deviation in segment.deviations.items()}


def start(run: LockstepRun) -> None:
    """From the first sample to RUNNING, without the work cycle."""
    run.run(1)
    run.command(CommandKind.ARM)
    run.command(CommandKind.START)
    run.run(2)
    assert run.mode == "RUNNING"


def true_value(run: LockstepRun, name: str) -> Floats:
    """A value of the simulated rig at the end of every tick."""
    tables = run.rig.sources["devices"]["rig"]
    names = plant_circuit(tables["machine"], tables["drive"], run.rig.library).names
    return run.true_values("rig")[:, list(names).index(name)]
