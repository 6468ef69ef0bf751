"""The four cases of the benchmark of hybrid simulation as rigs, with plants that deviate as the benchmark prescribes.

    python docs/experiments/frame_plants.py --plants 6

Each plant is simulated in ``config/rigs/frame.toml`` with the virtual part of the case; the rig file is not told how
the plant deviates. Printed, for the nominal plant and as the worst of the others: error of the displacement (J2) and
its error against the reference simulation (J4), both with the true displacement, RMS error of the third floor (J6), and
delay (J1).
"""

from __future__ import annotations

import argparse
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.displacement.actuator import Actuator
from hilserver.hybrid.benchmark import CASES, SPECIMEN, BenchmarkCase, plants
from hilserver.hybrid.rig_runs import HybridRig
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig

RIG = Path(__file__).parents[2] / "config/rigs/frame.toml"
NODES = ("rig.table", "floor_2", "floor_3")


def circuit_of(case: BenchmarkCase, plant: Actuator) -> dict[str, Any]:
    """The virtual part of a case: the whole frame without the specimen of this plant."""
    virtual = case.structure().without(SPECIMEN)
    stiffness, damping = virtual.stiffness.copy(), virtual.damping
    stiffness[0, 0] -= plant.specimen.stiffness - SPECIMEN.stiffness
    parts: dict[str, Any] = {"ground": {"type": "velocity_source", "ports": {"rod": "ground"}}}

    def coupling(node: str, base: str, k: float, c: float) -> dict[str, Any]:
        values = {"stiffness": f"{float(k)!r} N/m", "damping": f"{float(c)!r} N*s/m"}
        return {"type": "elastic_coupling", "ports": {"rod": node, "base": base}, **values}

    for i, node in enumerate(NODES):
        mass = f"{float(virtual.mass[i, i])!r} kg"
        parts[f"floor_{i}"] = {"type": "load_mass", "ports": {"rod": node}, "mass": mass, "gravity": "0 m/s^2"}
        push = {"command": "ground_acceleration", "force": f"{-case.floor_mass!r} N"}
        parts[f"earthquake_{i}"] = {"type": "force_source", "ports": {"rod": node}, **push}
        parts[f"ground_{i}"] = coupling(node, "ground", stiffness[i].sum(), damping[i].sum())
        for j in range(i):
            parts[f"floors_{j}_{i}"] = coupling(node, NODES[j], -stiffness[i, j], -damping[i, j])
    return {"solver": {"integrator": "rk4", "substeps": 2}, "components": parts}


def rig_with(base: Rig, case: BenchmarkCase, plant: Actuator) -> Rig:
    """The rig with the virtual part of a case and this simulated plant."""
    sources = deepcopy(dict(base.sources))
    sources["circuit"] = circuit_of(case, plant)
    omega = float(np.sqrt(plant.beta2))
    sources["devices"]["lab"]["drive"]["components"]["actuator"] |= {
        "velocity_gain": f"{plant.a1_beta0 / plant.beta2 / plant.a2!r} 1/s",
        "f90": f"{omega / (2.0 * np.pi)!r} Hz",
        "damping": plant.beta1 / (2.0 * omega),
        "force_decay": f"{max(plant.a3, 0.0)!r} 1/s",
    }
    specimen = sources["devices"]["lab"]["machine"]["components"]
    specimen["specimen_columns"]["stiffness"] = f"{plant.specimen.stiffness!r} N/m"
    return assemble(sources, base.file, base.library)


def figures(base: Rig, case: BenchmarkCase, plant: Actuator) -> list[float]:
    """J2, J4 and J6 in %, J1 in ms."""
    run = HybridRig.of(rig_with(base, case, plant)).run({"table": "prediction"})
    if run.trip:
        raise SystemExit(f"case {case.name}: {run.trip}")
    found = run.actuators["table"]
    return [1e2 * found.error, 1e2 * found.off, 1e2 * run.positions["floor_3"], 1e3 * found.delay]


def main() -> None:
    """Print a line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plants", type=int, default=6, help="number of deviating plants per case")
    parser.add_argument("--seed", type=int, default=1, help="of the first plant")
    given = parser.parse_args()
    base = load_rig(RIG)
    for case in CASES:
        nominal, *others = (figures(base, case, plant) for plant in plants(given.plants, given.seed))
        worst = np.max(others, axis=0).tolist() if others else []
        shown = [", ".join(f"{value:.3f}" for value in values) for values in (nominal, worst)]
        print(f"case {case.name}: J2, J4, J6, J1 nominal {shown[0]}; worst of {given.plants}: {shown[1]}", flush=True)


if __name__ == "__main__":
    main()
