"""The experiment of [Asikainen]: the boom over its work cycle against an independent solution; cost and steps.

    python tests/benchmarks/boom_experiment.py [FOLDER [SECONDS]]

Writes a plot into FOLDER (default: reports) and prints what docs/mechanics.md shows, for the whole cycle of 4 s or only
SECONDS of it. The independent solution is one
angle after Lagrange with scipy's DOP853 (tests/support/boom_reference.py), where the source has Adams.
"""

from __future__ import annotations

import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from boom_reference import HEAVY, LIGHT, Boom
from component_bench import Bench, program

from hilserver.numerics.arrays import Floats
from hilserver.report.plots import plot_panels

CONFIG = Path(__file__).parents[2] / "config"
BOOMS = {"boom": LIGHT, "boom_heavy_cylinder": HEAVY}
MASSES = {"boom": "without mass", "boom_heavy_cylinder": "with mass"}
CYCLE = 4.0  # s
WHAT = ("boom.boom.angle", "A.p", "B.p")


def circuit(name: str, **solver: Any) -> dict[str, Any]:
    """config/circuits/boom.toml with the source's command as signals, which are not held over a tick."""
    source = tomllib.loads((CONFIG / "circuits/boom.toml").read_text())
    for k, (begin, rise, height) in enumerate([(0.3, 0.4, 0.5), (1, 0.2, -0.5), (2, 0.3, -0.8), (2.5, 0.5, 0.8)]):
        step = {"signal": f"u{k}", "start": f"{begin} s", "rise_time": f"{rise} s", "after": height}
        source["components"][f"step{k}"] = {"type": "step_signal", **step}
    for a, b, both in (("u0", "u1", "up"), ("u2", "u3", "down"), ("up", "down", "joystick")):
        source["components"][both] = {"type": "sum", "a": a, "b": b, "signal": both}
    definition = tomllib.loads((CONFIG / f"mechanisms/{name}.toml").read_text())
    source["mechanisms"]["boom"] = {"definition": definition, "nodes": {"lift": "rod"}}
    return {**source, "solver": solver}


def milliseconds(seconds: float) -> Floats:
    return np.arange(1.0, round(seconds / 1e-3) + 1) * 1e-3


def course(name: str, seconds: float, step: float, **solver: Any) -> Floats:
    """Angle and pressures at every millisecond (every step, where that is longer)."""
    found = Bench(circuit(name, **solver)).record(WHAT, seconds, step, max(step, 1e-3))
    return np.array([found[what] for what in WHAT])


def cost(name: str, seconds: float, step: float, **solver: Any) -> tuple[float, float, float]:
    """Time of a step in µs while the boom moves: median, 99.9 %, and seconds of the cycle per second of computing."""
    bench = Bench(circuit(name, **solver))
    bench.run(0.5, step)
    times = []
    clock, advance = time.perf_counter_ns, program().advance
    for _ in range(20_000):
        begin = clock()
        advance(bench.packed.index, bench.packed.value, bench.z, bench.y, bench.work, 1, step)
        times.append(clock() - begin)
    micro = np.array(times) / 1e3
    whole = Bench(circuit(name, **solver))
    started = time.process_time()
    whole.run(seconds, step)
    return float(np.median(micro)), float(np.quantile(micro, 0.999)), seconds / (time.process_time() - started)


def differences(boom: Boom, name: str, seconds: float, step: float, **solver: Any) -> tuple[float, float, float]:
    """Largest differences from the independent solution: rad, Pa, Pa."""
    found = course(name, seconds, step, **solver)
    every = round(max(step, 1e-3) / 1e-3)
    expected = boom.run(milliseconds(seconds))[:, every - 1 :: every]
    angle, p_A, p_B = (float(np.abs(found[i] - expected[k]).max()) for i, k in ((0, 0), (1, 2), (2, 3)))
    return angle, p_A, p_B


def main(folder: Path, seconds: float) -> None:
    """Print the tables and write the plot."""
    print("barrel and rod   step      mechanics   angle, rad   p_A, Pa   p_B, Pa")
    for name, boom in BOOMS.items():
        runs: tuple[tuple[float, dict[str, Any], str], ...] = (
            (2e-3, {}, "every stage"),
            (1e-3, {}, "every stage"),
            (5e-4, {}, "every stage"),
            (1e-4, {"substeps": 10}, "every stage"),
            (1e-4, {"substeps": 10, "mechanics_substeps": 1}, "every 1 ms"),
            (1e-3, {"integrator": "rosenbrock"}, "every stage"),
        )
        for step, solver, shown in runs:
            label = f"{step * 1e3:g} ms" + (" R" if "integrator" in solver else "")
            angle, p_A, p_B = differences(boom, name, seconds, step, **solver)
            print(f"{MASSES[name]:14s}   {label:8s}  {shown:11s} {angle:10.1e} {p_A:9.0f} {p_B:9.0f}")
    print("\nbarrel and rod   step      median of a step   99.9 %     faster than real time")
    for name in BOOMS:
        for step in (1e-3, 1e-4, 2e-5):
            median, high, factor = cost(name, seconds, step)
            print(
                f"{MASSES[name]:14s}   {step * 1e3:4g} ms   {median:8.1f} µs      {high:8.1f} µs   {factor:8.0f} times"
            )
    times = milliseconds(seconds)
    found, expected = course("boom", seconds, 1e-3), LIGHT.run(times)
    panels = [
        ("rotation of the boom", "rad", {"1 ms, RK4": found[0], "reference": expected[0]}),
        ("its difference", "rad", {"1 ms, RK4": found[0] - expected[0]}),
        ("pressure A", "Pa", {"1 ms, RK4": found[1], "reference": expected[2]}),
        ("its difference", "Pa", {"1 ms, RK4": found[1] - expected[2]}),
    ]
    print(f"\nWritten: {plot_panels(times, panels, 'The boom of Asikainen', folder / 'boom_experiment.png')}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "reports"), float(sys.argv[2]) if len(sys.argv) > 2 else CYCLE)
