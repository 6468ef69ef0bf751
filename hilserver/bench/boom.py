"""The experiment of [Asikainen]: the boom over its work cycle against an independent solution; cost and steps.

The independent solution is one Lagrange equation solved with SciPy's DOP853 (`boom_reference`); the source used Adams.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.bench.boom_reference import HEAVY, LIGHT, Boom
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.compiler import compiled_program
from hilserver.numerics.arrays import Floats
from hilserver.report.plots import plot_panels
from hilserver.toml import read_toml

BOOMS = {"boom": LIGHT, "boom_heavy_cylinder": HEAVY}
MASSES = {"boom": "without mass", "boom_heavy_cylinder": "with mass"}
CYCLE = 4.0
"""s, the source's work cycle."""
VALUES = ("boom.boom.angle", "A.p", "B.p")
RUNS: tuple[tuple[float, dict[str, Any], str], ...] = (
    (2e-3, {}, "every stage"),
    (1e-3, {}, "every stage"),
    (5e-4, {}, "every stage"),
    (1e-4, {"substeps": 10}, "every stage"),
    (1e-4, {"substeps": 10, "mechanics_substeps": 1}, "every 1 ms"),
    (1e-3, {"integrator": "rosenbrock"}, "every stage"),
)
"""Step, s; solver; how often the mechanism is solved."""
STEPS = 20_000
"""Steps whose time is measured."""


class BoomRun:
    """A run of a circuit, step by step."""

    def __init__(self, table: dict[str, Any]) -> None:
        library = standard_library()
        self._program, self._packed = compiled_program(library), pack(read_circuit(table, library), library)
        self._values, self._recorded = np.zeros(len(self._packed.values)), np.zeros(len(self._packed.recorded))
        self._work = np.zeros(self._packed.work_size)
        self._program.load(self._packed.index, self._packed.value, self._values)
        self._places = [self._packed.values.index(name) for name in VALUES]

    def advance(self, count: int, step: float) -> Floats:
        """The values after this number of steps."""
        packed = self._packed
        self._program.advance(packed.index, packed.value, self._values, self._recorded, self._work, count, step)
        return self._values[self._places]

    def one_step(self, step: float) -> Callable[[], None]:
        """A function that advances by one step, to be timed: its arguments are not examined in each call."""
        packed = self._packed
        return self._program.advance.bound(
            packed.index, packed.value, self._values, self._recorded, self._work, 1, step
        )


@functools.lru_cache(maxsize=4)
def independent_solution(boom: Boom, seconds: float) -> Floats:
    """Rows of `Boom.run` at every millisecond: all steps and solvers are compared with it."""
    return boom.run(milliseconds(seconds))


def milliseconds(seconds: float) -> Floats:
    """The times of the comparison, s."""
    return np.arange(1.0, round(seconds / 1e-3) + 1) * 1e-3


@dataclass(frozen=True)
class BoomExperiment:
    """The boom of a circuit file, with one of the mechanisms of a folder, by name."""

    circuit: Path
    mechanisms: Path
    seconds: float = CYCLE

    def run(self, name: str, **solver: Any) -> BoomRun:
        """A run from the start, with the source's command as signals, which are not held over a tick."""
        source = read_toml(self.circuit)
        for k, (begin, rise, height) in enumerate([(0.3, 0.4, 0.5), (1, 0.2, -0.5), (2, 0.3, -0.8), (2.5, 0.5, 0.8)]):
            step = {"signal": f"u{k}", "start": f"{begin} s", "rise_time": f"{rise} s", "after": height}
            source["components"][f"step{k}"] = {"type": "step_signal", **step}
        for a, b, both in (("u0", "u1", "up"), ("u2", "u3", "down"), ("up", "down", "joystick")):
            source["components"][both] = {"type": "sum", "a": a, "b": b, "signal": both}
        definition = read_toml(self.mechanisms / f"{name}.toml")
        source["mechanisms"]["boom"] = {"definition": definition, "nodes": {"lift": "rod"}}
        return BoomRun({**source, "solver": solver})

    def course(self, name: str, step: float, **solver: Any) -> Floats:
        """Angle and pressures at every millisecond (every step, where that is longer)."""
        interval, run = max(step, 1e-3), self.run(name, **solver)
        rows = [run.advance(round(interval / step), step) for _ in range(round(self.seconds / interval))]
        return np.array(rows).T

    def cost(self, name: str, step: float) -> tuple[float, float, float]:
        """Time of a step in µs while the boom moves: median, 99.9 %, and seconds per second of computing."""
        run, times = self.run(name), []
        run.advance(round(0.5 / step), step)
        advance = run.one_step(step)
        for _ in range(STEPS):
            begin = time.perf_counter_ns()
            advance()
            times.append(time.perf_counter_ns() - begin)
        micro, whole = np.array(times) / 1e3, self.run(name)
        started = time.process_time()
        whole.advance(round(self.seconds / step), step)
        taken = time.process_time() - started
        return float(np.median(micro)), float(np.quantile(micro, 0.999)), self.seconds / taken

    def differences(self, boom: Boom, name: str, step: float, **solver: Any) -> tuple[float, float, float]:
        """Largest differences from the independent solution: rad, Pa, Pa."""
        found = self.course(name, step, **solver)
        every = round(max(step, 1e-3) / 1e-3)
        expected = independent_solution(boom, self.seconds)[:, every - 1 :: every]
        angle, p_A, p_B = (float(np.abs(found[i] - expected[k]).max()) for i, k in ((0, 0), (1, 2), (2, 3)))
        return angle, p_A, p_B

    def accuracy(self) -> Iterator[str]:
        """Lines of a table: the differences of several steps and solvers."""
        yield "barrel and rod   step      mechanics   angle, rad   p_A, Pa   p_B, Pa"
        for name, boom in BOOMS.items():
            for step, solver, shown in RUNS:
                label = f"{step * 1e3:g} ms" + (" R" if "integrator" in solver else "")
                angle, p_A, p_B = self.differences(boom, name, step, **solver)
                yield f"{MASSES[name]:14s}   {label:8s}  {shown:11s} {angle:10.1e} {p_A:9.0f} {p_B:9.0f}"

    def costs(self) -> Iterator[str]:
        """Lines of a table: the time of a step."""
        yield "barrel and rod   step      median of a step   99.9 %     faster than real time"
        for name in BOOMS:
            for step in (1e-3, 1e-4, 2e-5):
                median, high, factor = self.cost(name, step)
                times = f"{median:8.1f} µs      {high:8.1f} µs   {factor:8.0f} times"
                yield f"{MASSES[name]:14s}   {step * 1e3:4g} ms   {times}"

    def plot(self, folder: Path) -> Path:
        """Plot the boom and its differences from the independent solution. Raises HilserverError."""
        times = milliseconds(self.seconds)
        found, expected = self.course("boom", 1e-3), independent_solution(LIGHT, self.seconds)
        panels = [
            ("rotation of the boom", "rad", {"1 ms, RK4": found[0], "reference": expected[0]}),
            ("its difference", "rad", {"1 ms, RK4": found[0] - expected[0]}),
            ("pressure A", "Pa", {"1 ms, RK4": found[1], "reference": expected[2]}),
            ("its difference", "Pa", {"1 ms, RK4": found[1] - expected[2]}),
        ]
        return plot_panels(times, panels, "The boom of Asikainen", folder / "boom_experiment.png")
