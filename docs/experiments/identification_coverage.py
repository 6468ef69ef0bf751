"""Coverage of the intervals that ``hilserver identify`` states, on simulated rigs with unknown properties.

The unknowns are those of ``hilserver fidelity --vary`` that are constant, drawn all at once by seed. Each rig is moved
by the identification sequence; the identified values are compared with the true ones of the simulated valve::

    python docs/experiments/identification_coverage.py --rigs 20
"""

from __future__ import annotations

import argparse
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.components.shared.edges import Leakage
from hilserver.fidelity.unknowns import Unknown, applicable, varied
from hilserver.identify.excitation import Extent
from hilserver.identify.findings import findings, leakage_point
from hilserver.identify.identification import Identified, identify_valve
from hilserver.identify.lateness import with_lateness
from hilserver.identify.recorded import Recording
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.identify.zeros import without_zero_errors
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.units import to_si

CONFIG = Path(__file__).parents[2] / "config" / "rigs"
VALVES = {
    "lift": {"A": "valve_A", "B": "valve_B"},
    "demo": {"main": "servo_valve"},
    "conveyor": {"A": "valve_A", "B": "valve_B"},
}
"""Valves of each rig, with their components in the circuit of the drive."""
DAMPING = 0.8
"""Of a servo valve that does not state it."""
NOISE = 100
"""Each rig has noise of its own, with the seed of the rig and this: with the same noise, all err in one direction."""
QUANTILE = 1.96
"""Half width of the interval that contains 95 % of a normal distribution, in standard deviations."""


@dataclass(frozen=True)
class Finding:
    """An identified property: its error and its standard deviation, SI."""

    name: str
    true: float
    error: float
    deviation: float

    @property
    def covered(self) -> bool:
        """Whether the stated 95 % interval contains the true value."""
        return abs(self.error) <= QUANTILE * self.deviation


def constant_unknowns(rig: Rig) -> Iterator[Unknown]:
    """The unknowns that are constant during a recording; the others have no true value to be compared with."""
    return (unknown for unknown in applicable(rig, "rig") if unknown.name != "changing oil")


def changed_rig(
    name: str, seed: int, only: Iterable[str] | None = None, noise: int = 1, position_noise: float | None = None
) -> Rig:
    """A rig of ``config/rigs`` whose simulated device has all unknowns of this seed, or ``only`` these.

    ``noise``: seed of the noise of its sensors; ``position_noise``: that of the position sensor, of its range.
    """
    rig = load_rig(CONFIG / f"{name}.toml")
    chosen: list[Unknown] = [u for u in constant_unknowns(rig) if only is None or u.name in only]
    sources = varied(rig, "rig", chosen, seed)
    device = sources["rig"]["devices"]["rig"]
    device["seed"] = noise
    if position_noise is not None:
        device["sensors"]["x"]["noise"] = position_noise
    return assemble(sources, rig.file, rig.library)


def true_f45(part: Mapping[str, Any]) -> float:
    """Frequency, Hz, at which the spool of a simulated servo valve lags 45°."""
    damping: float = part.get("damping", DAMPING)
    return to_si(part["f90"], "1/s") * (sqrt(damping**2 + 1.0) - damping)


def true_values(rig: Rig, found: Identified) -> dict[str, float]:
    """The true properties of a valve, by the names of the findings."""
    valve, settings = found.experiment.valve, found.experiment.settings
    device = rig.sources["devices"]["rig"]
    part: dict[str, Any] = device["drive"]["components"][VALVES[rig.settings.name][valve]]
    flow = to_si(part["nominal_flow"]["flow"], "m^3/s")
    f45 = true_f45(part)
    actuator = rig.sources["rig"]["devices"]["rig"]["actuators"][settings.output]
    edges = part.get("edges", {})
    values = {
        "flow P to port, full command": edges.get("PA", 1.0) * flow,
        "flow port to T, full command": edges.get("AT", 1.0) * flow,
        "-90° frequency": to_si(part["f90"], "1/s"),
        "damping": part.get("damping", DAMPING),
        "-45° frequency": f45,
        "-45° frequency (first order)": f45,
        "delay": to_si(actuator.get("delay", "0 s"), "s"),
        "overlap": part.get("overlap", 0.0),
        "null": settings.null - settings.polarity * part.get("null_offset", 0.0),
        "hysteresis": part.get("hysteresis", 0.0),
    }
    leakage = Leakage.model_validate(part["leakage"]) if "leakage" in part else None
    values["leakage at null"] = leakage_point(found).flow_of(leakage.coefficient()) if leakage else 0.0
    if leakage:
        values["opening at which leakage ends"] = leakage.gone_at
    return values


def compared(rig: Rig, found: Identified) -> Iterator[Finding]:
    """Every identified property whose true value is known."""
    true = true_values(rig, found)
    for f in findings(found):
        if f.name in true and f.estimate.is_known:
            yield Finding(f.name, true[f.name], f.estimate.value - true[f.name], f.estimate.deviation)


def recording_of(rig: Rig, name: str, seconds: float, kept: Path | None) -> Recording:
    """The recording of the sequence, from the folder ``kept`` if it exists there."""
    file = kept / f"{name}.pickle" if kept else None
    if file and file.exists():
        loaded: Recording = pickle.loads(file.read_bytes())
        return loaded
    valves = list(VALVES[rig.settings.name])
    recording = without_zero_errors(rig, recorded_excitation(rig, valves, Extent(seconds, 0.6, longest=3.0 * seconds)))
    if file:
        file.write_bytes(pickle.dumps(recording))
    return recording


def summary(results: dict[str, list[Finding]]) -> str:
    """A line per property: coverage, largest error in standard deviations, median error and deviation."""
    lines = ["| property | n | covered | median &#124;error&#124;/dev | largest | median error | median deviation |"]
    lines.append("|---|--:|--:|--:|--:|--:|--:|")
    for name, found in results.items():
        off = np.array([abs(f.error) / f.deviation for f in found])
        covered = np.mean([f.covered for f in found])
        error, deviation = (float(np.median(v)) for v in ([abs(f.error) for f in found], [f.deviation for f in found]))
        figures = f"{np.median(off):.2f} | {off.max():.1f} | {error:.3g} | {deviation:.3g} |"
        lines.append(f"| {name} | {len(found)} | {covered:.0%} | {figures}")
    return "\n".join(lines)


def main() -> None:
    """Print a table per rig."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rig", action="append", choices=list(VALVES), help="default: both")
    parser.add_argument("--rigs", type=int, default=20, help="number of seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="least duration of the sequence; the longest is 3 times that"
    )
    parser.add_argument("--only", action="append", help="these unknowns alone; 'none': the rig as described")
    parser.add_argument("--position-noise", type=float, help="of the position sensor, as a fraction of its range")
    parser.add_argument("--recordings", type=Path, help="folder that keeps the recordings for the next time")
    parser.add_argument("--verbose", action="store_true", help="every value")
    options = parser.parse_args()
    if options.recordings:
        options.recordings.mkdir(parents=True, exist_ok=True)
    for name in options.rig or VALVES:
        results: dict[str, list[Finding]] = defaultdict(list)
        for seed in range(options.seed, options.seed + options.rigs):
            rig = changed_rig(name, seed, options.only, NOISE + seed, options.position_noise)
            label = f"{name}-{'+'.join(options.only or ['all'])}-{seed}-{options.seconds:g}"
            recording = recording_of(rig, label, options.seconds, options.recordings)
            for found in with_lateness([identify_valve(rig, recording, valve) for valve in VALVES[name]]):
                for f in compared(rig, found):
                    results[f.name].append(f)
                    if options.verbose:
                        off, where = f"{f.error / f.deviation:+7.1f}", f"{seed} {found.experiment.valve}"
                        print(f"{where} {f.name:30s} {f.true:.6g} {f.error:+.3g} ± {f.deviation:.2g} {off}")
        print(f"\n{name}\n\n{summary(results)}", flush=True)


if __name__ == "__main__":
    main()
