"""A bridged rig over its work cycle, judged from outside: by the reference simulation, and by the machine's own oil.

What the real valve has delivered is measured at the simulated machine: the volume swept by the piston, plus what the
change of pressure in the chamber holds. The bridge's own estimate of it is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import numpy as np

from hilserver.circuit.program import Program
from hilserver.fidelity.measures import rms_above
from hilserver.fidelity.reference import ReferenceSimulation, reference_simulation
from hilserver.fidelity.results import LIMITED
from hilserver.fidelity.segments import CircuitRows, passes
from hilserver.numerics.arrays import Floats
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.rig import Rig
from hilserver.rig.simulated import plant_circuit
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.machine import machine_of_device
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.codes import Mode, fault_text
from hilserver.tick.plan import plan_on

DEVICE = "rig"
MIN_RANGE = 50e5
"""Pa: a pressure that the circuit holds is compared by this range."""


@dataclass(frozen=True)
class Judgement:
    """A work cycle with one strategy. Shares of the reference's range, unless stated otherwise.

    ``tripped``: cause and time; then nothing else is judged. ``position``, ``pressure``: NRMSE, of the worst rod and of
    the worst driven port. ``noise``: RMS of the command above 100 Hz, of full command. ``drift``: change of the
    position's deviation during a standstill. ``unaccounted``: largest |virtual - delivered - kept - lost|; ``owed``:
    |virtual - delivered| at the end; ``late``: its largest value; all as shares of the delivered volume's range.
    ``lost``: the same of the volume given up. ``saturated``: share of the ticks in which a real valve was at a limit.
    ``cavitates``: whether a pressure of the reference reaches vacuum: then oil at the machine can't be counted.
    ``rough``: RMS above 100 Hz of the reference's own flow into the ports, of its range: the circuit's own oscillation.
    """

    tripped: str = ""
    position: float = nan
    pressure: float = nan
    noise: float = nan
    drift: float = nan
    unaccounted: float = nan
    owed: float = nan
    late: float = nan
    lost: float = nan
    saturated: float = nan
    cavitates: bool = False
    rough: float = nan


@dataclass(frozen=True)
class Run:
    """Rows of a work cycle, the true values of machine and drive, and those of the reference simulation."""

    rig: Rig
    record: CircuitRows
    true: Mapping[str, Floats]
    reference: Mapping[str, Floats]


def judge(
    rig: Rig,
    strategy: str,
    program: Program,
    standstills: Sequence[tuple[float, float]] = (),
    reference: ReferenceSimulation | None = None,
) -> Judgement:
    """Run the rig's work cycle with this strategy, and judge it. ``standstills``: begin and end in cycle time, s.

    ``reference``: `installed`, to be shared by several strategies.
    """
    run, trip = run_with(rig, strategy, program, reference)
    return Judgement(tripped=trip) if run is None else judged(run, standstills)


def installed(rig: Rig) -> ReferenceSimulation:
    """The rig's circuit as if it were installed at its machine."""
    (device,) = rig.devices
    return reference_simulation(machine_of_device(rig, device), rig.circuit, rig.library, "")


def run_with(
    rig: Rig, strategy: str, program: Program, reference: ReferenceSimulation | None = None
) -> tuple[Run | None, str]:
    """A work cycle, or why it was not completed."""
    plan = plan_on(rig.plan.block.copy())
    plan.valve["strategy_first"][:] = Strategy[strategy]
    with LockstepRun(replace(rig, plan=plan), program=program, trace=True) as lockstep:
        rows, true = lockstep.run_cycle(), lockstep.true_values(DEVICE)
    names = rig.layout.names
    columns = {name: rig.layout.values(rows, name) for name in names}
    record = CircuitRows(columns, rig.packed, rows[:, len(names) : len(names) + len(rig.packed.names)])
    if columns["mode"][-1] != Mode.RUNNING:
        last = int(np.flatnonzero(columns["mode"] == Mode.RUNNING)[-1])
        cause = fault_text(int(columns["fault"][last + 1]), rig.layout.limits)
        return None, f"{cause or 'stopped'} at {columns['cycle_time'][last]:.2f} s"
    tables = rig.sources["devices"][DEVICE]
    plant = plant_circuit(tables["machine"], tables["drive"], rig.library)
    rows_of_pass = passes(record)[0]
    begin = rows_of_pass.start - 1
    coupled = reference or installed(rig)
    start = coupled.start({}, (plant, true[begin]), (record.circuit, record.values[begin]))
    signals = record.inputs(rows_of_pass, list(rig.settings.inputs))
    wanted = coupled.run(program, float(rig.plan.loop[0].dt), signals, start)
    part = record.part(rows_of_pass)
    return (
        Run(
            rig,
            part,
            {name: true[rows_of_pass, i] for i, name in enumerate(plant.names)},
            {name: wanted[:, i] for i, name in enumerate(coupled.packed.names)},
        ),
        "",
    )


def judged(run: Run, standstills: Sequence[tuple[float, float]]) -> Judgement:
    """What a completed run is worth."""
    settings = run.rig.settings
    rods = [name for name in run.true if name.endswith(".x") and name in run.reference]
    ports = [valve.port for valve in settings.valves.values()]
    dt = float(run.rig.plan.loop[0].dt)
    commands = [run.record.columns[f"valve.{v}.command"] for v in settings.valves]
    flags = [run.record.columns[f"valve.{v}.saturation"].astype(np.int64) & LIMITED for v in settings.valves]
    accounts = [account(run, port) for port in ports]
    moved = [a for a in accounts if a is not None]
    lowest = min(float(run.reference[f"{port}.p"].min()) for port in settings.ports)
    return Judgement(
        position=max(_nrmse(run, name) for name in rods),
        pressure=max(_nrmse(run, f"{port}.p") for port in ports),
        noise=max(rms_above(u, 100.0, dt) for u in commands),
        drift=max((_drift(run, rod, *rest) for rod in rods for rest in standstills), default=nan),
        unaccounted=max((a["unaccounted"] for a in moved), default=nan),
        owed=max((a["owed"] for a in moved), default=nan),
        late=max((a["late"] for a in moved), default=nan),
        lost=max((a["lost"] for a in moved), default=nan),
        saturated=float(np.mean(np.any(flags, axis=0))),
        cavitates=lowest < -0.9e5,
        rough=max(_rough(run, port, dt) for port in ports),
    )


def _nrmse(run: Run, name: str) -> float:
    off, wanted = run.true[name] - run.reference[name], run.reference[name]
    least = MIN_RANGE if name.endswith(".p") else 1e-12
    return float(np.sqrt(np.mean(off * off)) / max(np.ptp(wanted), least))


def _rough(run: Run, port: str, dt: float) -> float:
    p = run.reference[f"{port}.p"]
    return rms_above(p, 100.0, dt) / max(float(np.ptp(p)), MIN_RANGE)


def _drift(run: Run, rod: str, begin: float, end: float) -> float:
    time = run.record.columns["cycle_time"]
    off = (run.true[rod] - run.reference[rod])[(time > begin) & (time <= end)]
    return float(np.ptp(off) / max(np.ptp(run.reference[rod]), 1e-12))


def delivered(run: Run, port: str) -> Floats | None:
    """Oil that has entered the chamber at a port since the first tick, m³; None where no cylinder is there.

    The volume swept by the piston, plus what the change of pressure holds, at the machine's bulk modulus (no air).
    """
    found = _cylinder_at(run.rig, port)
    if found is None:
        return None
    _, settings = found
    x = run.true[f"{_rod_of(run.rig, port)}.x"]
    area_A, area_B = settings.areas()
    if port == settings.port_A:
        area, volume = area_A, settings.dead_volume_A + area_A * x
    else:
        area, volume = -area_B, settings.dead_volume_B + area_B * (settings.stroke - x)
    p, bulk = run.true[f"{port}.p"], run.rig.circuit.fluid.bulk_modulus
    entered = np.diff(area * x) + np.diff(p) * 0.5 * (volume[1:] + volume[:-1]) / bulk
    return np.concatenate([[0.0], np.cumsum(entered)])


def account(run: Run, port: str) -> dict[str, float] | None:
    """The account of the valve at a port, by the oil that the machine has received."""
    real = delivered(run, port)
    if real is None:
        return None
    valve = next(name for name, v in run.rig.settings.valves.items() if v.port == port)
    columns = {what: run.record.columns[f"valve.{valve}.{what}"] for what in ("volume_error", "volume_lost")}
    virtual, flow = (run.record.columns[f"valve.{valve}.{what}"] for what in ("volume_virtual", "flow_virtual"))
    dt = float(run.rig.plan.loop[0].dt)
    until_now = virtual - dt * flow  # the virtual volume reaches to the end of the tick, the errors to its start
    booked = until_now - columns["volume_error"] - columns["volume_lost"]
    off = (booked[1:] - booked[1]) - (real[:-1] - real[0])
    behind = (virtual - virtual[0]) - (real - real[0]) + columns["volume_error"][1]
    size = max(float(np.ptp(real)), 1e-12)
    return {
        "unaccounted": float(np.abs(off).max() / size),
        "owed": float(abs(behind[-1]) / size),
        "late": float(np.abs(behind).max() / size),
        "lost": float(np.ptp(columns["volume_lost"]) / size),
    }


def unbalanced(run: Run, port: str, node: str, volume: float, source: Floats) -> float:
    """Largest |source - stored - virtual volume|, as a share of the virtual volume.

    ``source``: oil given to ``node`` (of ``volume``, m³) up to every tick, m³. What is neither in the node nor has
    passed the port is missing; between the two stands what the circuit has there, without a way out.
    """
    valve = next(name for name, v in run.rig.settings.valves.items() if v.port == port)
    names, bulk = list(run.record.circuit.names), run.rig.circuit.fluid.bulk_modulus
    stored = run.record.values[:, names.index(f"{node}.content")] * volume / bulk
    passed = run.record.columns[f"valve.{valve}.volume_virtual"]
    off = (source - source[0]) - (stored - stored[0]) - (passed - passed[0])
    return float(np.abs(off).max() / np.ptp(passed))


def _cylinder_at(rig: Rig, port: str) -> tuple[str, CylinderSettings] | None:
    return next(((n, c) for n, c in rig.settings.cylinders.items() if port in (c.port_A, c.port_B)), None)


def _rod_of(rig: Rig, port: str) -> str:
    """The mechanical node of the machine's cylinder at a port."""
    components: Mapping[str, Any] = rig.sources["devices"][DEVICE]["machine"]["components"]
    return next(
        str(c["ports"]["rod"]) for c in components.values() if port in c["ports"].values() and "rod" in c["ports"]
    )
