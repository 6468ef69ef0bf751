"""A motion that shows an actuator: a sweep of its displacement, from slow to faster than its servo valve.

The amplitude falls with the frequency, so that range, slew rate and the limits of the force channel are kept. The
command of an actuator follows the circuit: the sweep is a work cycle of an input that moves the node by a
``position_source``, and the actuator's strategy is `direct`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, pi
from typing import Any

import numpy as np
import tomlkit

from hilserver.circuit.model import RIG
from hilserver.displacement.actuator import SCALE
from hilserver.errors import HilserverError
from hilserver.identify.actuator_record import RecordedActuator, columns_of_actuator, record_of_columns
from hilserver.numerics.arrays import Floats
from hilserver.rig.actuator_settings import ActuatorSettings
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import BLOCK, LockstepRun
from hilserver.tick.codes import CommandKind
from hilserver.toml import copied

SLOWEST = 0.2
"""Hz, at which it begins."""
BEYOND = 1.5
"""Highest frequency, as a multiple of f90."""
FASTEST = 0.2
"""Highest frequency, as a fraction of the tick rate."""
USUAL_SECONDS = 20.0
"""Its duration, s."""
SHARE_OF_RANGE, SHARE_OF_SLEW, SHARE_OF_FORCE = 0.2, 0.5, 0.5
"""Largest deflection to both sides together, speed and force, as fractions of what is allowed."""
POINTS = 16
"""Per period."""
REST = 0.5
"""s before and after it."""
INPUT = "{}_displacement"
"""Name of the input that moves an actuator."""
LEFT_OUT = ("outputs", "triggers")
"""Tables of a rig file that may refer to signals of its circuit."""
MADE = "# hilserver identify: made"
"""How the files for a real rig begin."""
SMALLEST = 0.05
"""Fraction of the usual amplitude with which a sweep that tripped is repeated at last."""


@dataclass(frozen=True)
class DisplacementSweep:
    """A sweep of an actuator's command about ``middle``, m. ``time``, s, ``command``, m: its points."""

    name: str
    middle: float
    highest: float
    time: Floats
    command: Floats


def sweep_of(rig: Rig, name: str, seconds: float = USUAL_SECONDS, share: float = 1.0) -> DisplacementSweep:
    """The sweep for an actuator; ``share``: of the usual amplitude."""
    a = rig.settings.actuators[name]
    highest = min(BEYOND * a.servo.f90, FASTEST * rig.settings.loop.rate)
    growth = log(highest / SLOWEST) / seconds
    periods = (highest - SLOWEST) / growth
    phase = np.arange(int(periods) * POINTS + 1) / POINTS
    time = np.log1p(phase * growth / SLOWEST) / growth
    frequency = SLOWEST * np.exp(growth * time)
    low, high = a.range
    amplitude = 0.5 * SHARE_OF_RANGE * (high - low)
    middle = min(max(a.safe, low + amplitude), high - amplitude)
    most = np.minimum(amplitude, SHARE_OF_SLEW * a.slew / (2.0 * pi * frequency))
    most = share * np.minimum(most, SHARE_OF_FORCE * _force_limit(rig, a) / _force_per_command(a, frequency))
    command = middle + np.minimum.accumulate(most) * np.sin(2.0 * pi * phase)
    times = np.concatenate([[0.0], REST + time, [2.0 * REST + seconds]])
    return DisplacementSweep(name, middle, highest, times, np.concatenate([[middle], command, [middle]]))


def _force_per_command(a: ActuatorSettings, frequency: Floats) -> Floats:
    """Amplitude of the force per amplitude of the command, N/m, as the rig file states it."""
    A, B = a.model().motion().scaled(SCALE)
    inverse = np.linalg.inv(2j * pi * frequency[:, None, None] * np.eye(len(A)) - A)
    found: Floats = np.abs(inverse[:, 2] @ B[:, 0]) * SCALE[2]
    return found


def _force_limit(rig: Rig, a: ActuatorSettings) -> float:
    """The smallest force that a limit of its channel, or the range of its sensor, allows, N."""
    ends = [inf]
    for limit in rig.settings.limits.values():
        if limit.channel == a.force:
            ends += [abs(end.value) for end in (limit.min, limit.max) if end is not None]
    if (known := rig.settings.channels[a.force].measuring_range()) is not None:
        ends += [abs(end) for end in known if end != 0.0]
    return min(ends)


def sweep_circuit(rig: Rig, sweeps: Mapping[str, DisplacementSweep]) -> dict[str, Any]:
    """A circuit in which an input moves the node of each actuator; those without a sweep stay where they are safe."""
    parts: dict[str, Any] = {}
    for name, a in rig.settings.actuators.items():
        highest = sweeps[name].highest if name in sweeps else 1.0
        lag = max(1.0 / rig.settings.loop.rate, 1.0 / (4.0 * pi * highest))
        parts[name] = {
            "type": "position_source",
            "ports": {"rod": f"{RIG}{name}"},
            "travel": "1 m",
            "time_constant": f"{lag:.3g} s",
            "initial": f"{a.safe - a.offset:.6g} m",
            "command": INPUT.format(name) if name in sweeps else a.safe - a.offset,
        }
    return {"description": "Moves actuators by inputs: for hilserver identify", "components": parts}


def sweep_cycle(rig: Rig, sweeps: Mapping[str, DisplacementSweep]) -> dict[str, Any]:
    """The work cycle of these inputs."""
    inputs = {}
    for name, sweep in sweeps.items():
        offset = rig.settings.actuators[name].offset
        pairs = zip(sweep.time, sweep.command - offset, strict=True)
        inputs[INPUT.format(name)] = {"points": [[f"{t:.6f} s", float(f"{x:.6g}")] for t, x in pairs]}
    return {"description": "Sweep of displacements for hilserver identify, in m", "inputs": inputs}


def sweep_files(rig: Rig, sweeps: Mapping[str, DisplacementSweep]) -> dict[str, str]:
    """Texts of files with which a real rig makes the recording, by their names: rig file, circuit, work cycle."""
    stem = f"{rig.file.stem}-sweep"
    circuit, cycle = f"{stem}-circuit.toml", f"{stem}-cycle.toml"
    document: Any = tomlkit.parse(rig.file.read_text(encoding="utf-8"))
    document["circuit"], document["cycle"] = circuit, cycle
    source = rig_for_sweep(rig, sweeps).sources["rig"]
    for key in LEFT_OUT:
        document.pop(key, None)
    if "inputs" not in document:
        document["inputs"] = {}
    for name in rig.settings.actuators:
        for key in ("max_error", "bridge"):
            document["actuators"][name][key] = source["actuators"][name][key]
        if (signal := INPUT.format(name)) in source["inputs"]:
            document["inputs"][signal] = source["inputs"][signal]
    texts = {f"{stem}.toml": tomlkit.dumps(document), circuit: tomlkit.dumps(sweep_circuit(rig, sweeps))}
    texts[cycle] = _cycle_text(sweep_cycle(rig, sweeps))
    return {name: f"{MADE} for {rig.file.name}\n\n{text}" for name, text in texts.items()}


def _cycle_text(cycle: Mapping[str, Any]) -> str:
    lines = [f'description = "{cycle["description"]}"']
    for name, entry in cycle["inputs"].items():
        points = [f'["{t}", {x!r}], ' for t, x in entry["points"]]
        rows = ["    " + "".join(points[k : k + 4]).rstrip() for k in range(0, len(points), 4)]
        lines += ["", f"[inputs.{name}]", "points = [", *rows, "]"]
    return "\n".join(lines) + "\n"


def rig_for_sweep(rig: Rig, sweeps: Mapping[str, DisplacementSweep]) -> Rig:
    """The rig with circuit and work cycle of the sweeps, and strategy `direct`."""
    source = copied(rig.sources["rig"])
    for key in LEFT_OUT:
        source.pop(key, None)
    inputs = source.setdefault("inputs", {})
    for name, a in rig.settings.actuators.items():
        table = source["actuators"][name]
        table["max_error"] = f"{a.range[1] - a.range[0]:.6g} m"
        table["bridge"] = {**table.get("bridge", {}), "strategy": "direct"}
        if name in sweeps:
            ends = sweeps[name].command - a.offset
            inputs[INPUT.format(name)] = {"range": [float(ends.min()) - 1e-6, float(ends.max()) + 1e-6]}
            inputs[INPUT.format(name)]["initial"] = float(f"{ends[0]:.6g}")
    tables = {"circuit": sweep_circuit(rig, sweeps), "cycle": sweep_cycle(rig, sweeps)}
    return assemble({**rig.sources, "rig": source, **tables}, rig.file, rig.library)


def recorded_sweep(rig: Rig, name: str, seconds: float = USUAL_SECONDS) -> RecordedActuator:
    """Move an actuator of a simulated rig in lockstep. A sweep that trips is repeated with half the amplitude.

    Raises HilserverError if smaller ones trip, too.
    """
    share, names = 1.0, columns_of_actuator(rig, name)
    approach = rig.settings.actuators[name].bridge.approach
    while True:
        sweep = sweep_of(rig, name, seconds, share)
        moved = rig_for_sweep(rig, {name: sweep})
        with LockstepRun(moved) as run:
            parts = [_columns(moved, names, run.arm_and_start()), *_run(moved, run, names, approach)]
            run.command(CommandKind.CYCLE, 1.0)
            parts += _run(moved, run, names, sweep.time[-1])
            mode, fault = run.mode, run.fault
        if mode == "RUNNING":
            break
        share *= 0.5
        if share < SMALLEST:
            raise HilserverError(
                f"{rig.file}: the sweep of actuator {name} ends in mode {mode}, {fault}, also with small amplitudes. "
                "Its force must be positive where it pushes the specimen towards larger displacements (channel "
                f"{rig.settings.actuators[name].force}), and the range of the sensors must contain the motion."
            )
    columns = {column: np.concatenate([part[column] for part in parts]) for column in names}
    return record_of_columns(rig, name, columns, "a run of the simulated rig")


def _run(rig: Rig, run: LockstepRun, names: Sequence[str], seconds: float) -> list[dict[str, Floats]]:
    """These columns of the next ticks: of whole rows, minutes would take gigabytes."""
    ticks, parts = round(seconds / run.dt), []
    while ticks > 0:
        parts.append(_columns(rig, names, run.run(min(ticks, BLOCK))))
        ticks -= BLOCK
    return parts


def _columns(rig: Rig, names: Sequence[str], rows: Floats) -> dict[str, Floats]:
    return {name: rig.layout.values(rows, name).copy() for name in names}
