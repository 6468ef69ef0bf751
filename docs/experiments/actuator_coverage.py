"""Do the 95 % intervals of identified actuators contain the truth? Rigs like frame.toml whose file is wrong.

With --prediction, the work cycle of each rig is also simulated with the file as it is, and with the identified values:
errors of displacement against the reference simulation.

Usage: python docs/experiments/actuator_coverage.py [--rigs 12] [--rates 1000 2000 4096] [--prediction]
"""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

import numpy as np
import tomlkit

from hilserver.hybrid.rig_runs import simulate
from hilserver.identify.actuator_fit import IdentifiedActuator, identify_actuator
from hilserver.identify.actuator_report import actuator_fragment
from hilserver.identify.actuator_sweep import recorded_sweep
from hilserver.rig.actuator_settings import spread_of
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.merge import merged
from hilserver.rig.rig import Rig
from hilserver.toml import copied

FRAME = Path(__file__).parents[2] / "config/rigs/frame.toml"
SERVO = {"velocity_gain": "1/s", "f90": "Hz", "damping": "", "oil_stiffness": "N/m", "force_decay": "1/s"}
SPECIMEN = {"mass": "kg", "damping": "N*s/m", "stiffness": "N/m"}
WRONG = 0.25
"""Logarithm of the errors in the file: 0.8 to 1.2 times this."""


def wrong_rig(right: Rig, seed: int, rate: float, late: float, force_late: float) -> Rig:
    """The rig with a file whose values are wrong, and with delays that it does not state."""
    draw, source = np.random.default_rng(seed), copied(right.sources["rig"])
    table, model = source["actuators"]["table"], right.settings.actuators["table"].model()
    for part, names, owner in (("servo", SERVO, model), ("specimen", SPECIMEN, model.specimen)):
        for name, unit in names.items():
            share = float(np.exp(draw.choice([-1, 1]) * draw.uniform(0.8, 1.2) * WRONG))
            value = getattr(owner, name) * share
            table[part][name] = f"{value!r} {unit}" if unit else value
    table["servo"]["position_gain"] = model.position_gain * float(np.exp(draw.uniform(-0.05, 0.05)))
    source["loop"]["rate"] = f"{rate} Hz"
    lab = source["devices"]["lab"]
    lab["seed"] = seed + 1
    lab["actuators"]["command"]["delay"], lab["sensors"]["F"]["delay"] = f"{late} s", f"{force_late} s"
    return assemble({**right.sources, "rig": source}, right.file, right.library)


def identified(rig: Rig, found: IdentifiedActuator) -> Rig:
    """The rig with what is identified merged into its file."""
    text = merged(tomlkit.dumps(rig.sources["rig"]), actuator_fragment([found]), {}, date(2026, 1, 1))
    return assemble({**rig.sources, "rig": tomlkit.parse(text).unwrap()}, rig.file, rig.library)


def off_reference(rig: Rig) -> str:
    """Error of the displacement with `prediction`, or how the run ended."""
    (run,) = simulate(rig, ["prediction"]).runs
    return run.trip or f"{run.actuators['table'].off:.2%}"


def main() -> None:
    """Identify the rigs and print errors in standard deviations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rigs", type=int, default=12)
    parser.add_argument("--rates", type=float, nargs="+", default=[1000.0, 2000.0, 4096.0])
    parser.add_argument("--prediction", action="store_true")
    arguments = parser.parse_args()
    right = load_rig(FRAME)
    model = right.settings.actuators["table"].model()
    names = [*SERVO, "position_gain", *(f"specimen_{name}" for name in SPECIMEN)]
    errors: dict[str, list[float]] = {}
    relative: dict[str, list[float]] = {}
    for seed in range(arguments.rigs):
        late, force_late = np.random.default_rng(100 + seed).uniform(0.0, 2e-3, 2) * (1.0, 0.3)
        rate = arguments.rates[seed % len(arguments.rates)]
        rig = wrong_rig(right, seed, rate, late, force_late)
        found = identify_actuator(recorded_sweep(rig, "table"))
        if arguments.prediction:
            print(f"{rate:g} Hz: {off_reference(rig)} -> {off_reference(identified(rig, found))}", flush=True)
        truth = {name: spread_of(model, name) for name in names} | {"delay": late, "force delay": force_late}
        for name, value in truth.items():
            estimate = found.estimate(name)
            errors.setdefault(name, []).append((estimate.value - value) / estimate.deviation)
            relative.setdefault(name, []).append(abs(estimate.value - value) / (1.0 if "delay" in name else value))
    for name, each in errors.items():
        inside, rms = np.mean(np.abs(each) < 1.96), np.sqrt(np.mean(np.square(each)))
        most = f"{max(relative[name]):.1e}{' s' if 'delay' in name else ''}"
        print(f"{name:20} in the interval {inside:4.0%}  rms {rms:.2f} deviations  largest error {most}")
    every = np.concatenate([np.array(each) for each in errors.values()])
    print(f"all {np.sum(np.abs(every) < 1.96)} of {len(every)}")


if __name__ == "__main__":
    main()
