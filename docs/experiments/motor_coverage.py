"""Coverage of the intervals that ``hilserver identify`` states of a hydraulic motor, on simulated rigs.

The rig is ``config/rigs/conveyor.toml`` with the unknowns of ``hilserver fidelity --vary``, drawn all at once by seed,
and with other volumes at the motor's ports. With ``--one-valve``, one spool serves both ports. The rig file states
neither the motor's leakages nor the true volumes and inertia::

    python docs/experiments/motor_coverage.py --rigs 8
    python docs/experiments/motor_coverage.py --rigs 8 --one-valve
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import pi
from typing import Any

import numpy as np
from identification_coverage import CONFIG, NOISE, Finding, compared, summary

from hilserver.components.base import Fluid
from hilserver.components.hydraulic_motor import HydraulicMotor
from hilserver.components.shaft_load import ShaftLoad
from hilserver.fidelity.unknowns import applicable, varied
from hilserver.identify.chamber import free_air
from hilserver.identify.excitation import Extent
from hilserver.identify.identification import Identified, identify_valve
from hilserver.identify.lateness import with_lateness
from hilserver.identify.machine import IdentifiedChamber, machine_findings
from hilserver.identify.recorded import Recording
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.identify.zeros import without_zero_errors
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.toml import copied
from hilserver.units import to_si

VOLUMES = 0.25
"""Tolerance of the volume at each port, as a fraction: as of the dead volumes of cylinders."""
NOT_STATED = "0 l/min/bar"
LATE = "delay of a pressure sensor against the speed"


def conveyor(one_valve: bool = False) -> Rig:
    """The shipped rig; with ``one_valve``, the spool of A serves port B, too."""
    rig = load_rig(CONFIG / "conveyor.toml")
    if not one_valve:
        return rig
    sources = copied(rig.sources)
    drive = sources["devices"]["rig"]["drive"]["components"]
    for name in ("plug_A", "plug_B", "valve_B"):
        del drive[name]
    drive["valve_A"]["ports"]["B"] = "B"
    settings = sources["rig"]
    del settings["valves"]["B"], settings["devices"]["rig"]["actuators"]["valve_B"]
    settings["valves"]["A"]["other_port"] = "B"
    return assemble(sources, rig.file, rig.library)


def changed_conveyor(seed: int, one_valve: bool = False, only: Iterable[str] | None = None) -> Rig:
    """With all unknowns of this seed, or ``only`` these, and volumes of its own; noise of its own."""
    rig = conveyor(one_valve)
    chosen = [u for u in applicable(rig, "rig") if only is None or u.name in only]
    sources = varied(rig, "rig", chosen, seed)
    sources["rig"]["devices"]["rig"]["seed"] = NOISE + seed
    sources["rig"]["motors"]["drive"] |= {"leakage": NOT_STATED, "case_leakage": NOT_STATED}
    draw = np.random.default_rng([seed, 1])
    for side in "AB" if only is None or "volume" in only else "":
        hose = sources["devices"]["rig"]["machine"]["components"][f"hose_{side}"]
        hose["volume"] = f"{to_si(hose['volume'], 'm^3') * draw.uniform(1.0 - VOLUMES, 1.0 + VOLUMES)!r} m^3"
    return assemble(sources, rig.file, rig.library)


class TrueMotor:
    """The simulated motor of a rig, with its oil and its load."""

    def __init__(self, rig: Rig) -> None:
        machine = rig.sources["devices"]["rig"]["machine"]
        self.parts: Mapping[str, Any] = machine["components"]
        self.fluid = Fluid.model_validate(machine.get("fluid", {}))
        motor = {key: value for key, value in self.parts["motor"].items() if key not in ("type", "ports")}
        load = {key: value for key, value in self.parts["belt"].items() if key not in ("type", "ports")}
        self.motor = HydraulicMotor.model_validate(motor).parameters(self.fluid)
        self.load = ShaftLoad.model_validate(load).parameters(self.fluid)

    def values(self) -> dict[str, float]:
        """By the keys and names of the findings."""
        drum = to_si(self.parts["drum"]["inertia"], "kg*m^2")
        return {
            "leakage": self.motor["C_i"],
            "case_leakage": self.motor["C_e"],
            "inertia": self.motor["J"] + drum,
            "friction by the pressure, of the torque": self.motor["loss"],
        }

    def friction(self, speed: float) -> float:
        """The torque at a speed (1/s), N·m, without the part by the pressure."""
        omega = 2.0 * pi * speed
        return float(self.load["T_0"] * np.tanh(omega / self.load["w_0"]) + (self.load["b"] + self.motor["b"]) * omega)

    def compliance(self, side: str, c: IdentifiedChamber) -> Floats:
        """Of the oil at a port, at the pressures of an identified chamber, m³/Pa."""
        oil = self.fluid
        softness = 1.0 / oil.bulk_modulus + oil.air_fraction * free_air(c.p, c.chamber.line)
        return np.asarray(to_si(self.parts[f"hose_{side}"]["volume"], "m^3") * softness)


def true_late(rig: Rig, channel: str) -> float:
    """By how much more than the sensor of the speed a sensor is later than stated, s."""
    sensors, channels = rig.sources["rig"]["devices"]["rig"]["sensors"], rig.settings.channels
    own, of_speed = (to_si(sensors[name]["delay"], "s") - channels[name].delay for name in (channel, "n"))
    return own - of_speed


def motor_compared(rig: Rig, results: list[Identified], recording: Recording) -> Iterator[Finding]:
    """Every identified property of the motor and its oil whose true value is known."""
    true, values = TrueMotor(rig), TrueMotor(rig).values()
    for f in machine_findings(results, recording).get("motors.drive", ()):
        name, expected = f.key or f.name, values.get(f.key or f.name)
        if f.name.startswith("friction torque at "):
            name, expected = "friction torque", true.friction(float(f.name.split()[3]) / 60.0)
        if expected is not None:
            yield Finding(name, expected, f.estimate.value - expected, f.estimate.deviation)
    for found in results:
        for each in found.experiment.chambers:
            c, late = IdentifiedChamber.of(each, found), found.estimate(f"delay {each.pressure}")
            middle = len(c.p) // 2
            there = float(true.compliance(each.port, c)[middle])
            here = float(c.compliance(found.values)[middle])
            yield Finding("compliance of the oil", there, here - there, c.uncertainty * here)
            if late.is_known:
                expected = true_late(rig, each.pressure)
                yield Finding(LATE, expected, late.value - expected, late.deviation)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rigs", type=int, default=8, help="number of seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seconds", type=float, default=60.0, help="least duration; the longest is 3 times that")
    parser.add_argument("--one-valve", action="store_true", help="for both ports")
    parser.add_argument("--only", action="append", help="these unknowns alone; 'volume': those at the ports")
    parser.add_argument("--verbose", action="store_true", help="every value")
    options = parser.parse_args()
    results: dict[str, list[Finding]] = defaultdict(list)
    for seed in range(options.seed, options.seed + options.rigs):
        rig = changed_conveyor(seed, options.one_valve, options.only)
        valves, extent = list(rig.settings.valves), Extent(options.seconds, 0.6, longest=3.0 * options.seconds)
        recording = without_zero_errors(rig, recorded_excitation(rig, valves, extent))
        found = with_lateness([identify_valve(rig, recording, valve) for valve in valves])
        by_valve = [f for each in found for f in compared(rig, each)]
        for f in [*by_valve, *motor_compared(rig, found, recording)]:
            results[f.name].append(f)
            if options.verbose:
                print(
                    f"{seed} {f.name:42s} {f.true:.6g} {f.error:+.3g} ± {f.deviation:.2g} {f.error / f.deviation:+7.1f}"
                )
    print(summary(results), flush=True)


if __name__ == "__main__":
    main()
