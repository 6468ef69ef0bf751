"""Runs per minute of a study, and the share of time in compiled code: ``python tests/benchmarks/studies.py``.

With ``--study FILE`` that of any study, before its circuits are compiled for themselves. Without, the verification
circuit over 8 s, with values that are written in place, and with values for which it is packed again.
Of one process the CPU time is measured, which other programs on the machine hardly change; of several, the time by the
clock, which they do. Accuracy: the largest deviation of a pressure from a run with 16 times as many steps.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any
from unittest.mock import patch

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.library import standard_library
from hilserver.circuit.program import Function
from hilserver.compiler.circuit_code import SWITCH
from hilserver.simulation.circuit_run import read_circuit_file, read_cycle
from hilserver.simulation.packed_run import solved_by
from hilserver.studies.circuit_runs import CircuitRuns, CircuitSubject
from hilserver.studies.execution import evaluate, evaluated_by
from hilserver.studies.figures import read_figures
from hilserver.studies.quantities import changeable
from hilserver.studies.settings import load_study
from hilserver.studies.study import plan_of, prepared
from hilserver.studies.subject import EvaluateTogether
from hilserver.units import unit_of_value

CONFIG = Path(__file__).parents[2] / "config"
IN_PLACE = ("load.mass", "supply.volume", "pump.max_flow", "main_valve.nominal_flow.flow")
PACKED_AGAIN = (*IN_PLACE, "cylinder.bore", "main_valve.f45", "relief.opening_pressure")
FIGURES = {"peak": "max(supply.p)", "final": "final(rod.x)", "deviation": "nrmse(rod.x)"}
SECONDS = 8.0


def subject(keys: tuple[str, ...], substeps: int) -> CircuitSubject:
    """The circuit with ± 5 % of each of these values."""
    file = CONFIG / "circuits/verification.toml"
    circuit = read_circuit_file(file, standard_library())
    table = {**circuit.written, "solver": {"integrator": "rk4", "substeps": substeps}}
    known = changeable(circuit)
    ranges = tuple((0.95 * known[key].value, 1.05 * known[key].value) for key in keys)
    cycle = read_cycle(CONFIG / "cycles/verification.toml")
    found = CircuitSubject(str(file), table, (), cycle, SECONDS, 1e-3, keys, ranges)
    units = {name: unit_of_value(name) for name in found.prepare().names}
    return replace(found, figures=read_figures(FIGURES, units, SECONDS, "benchmark"))


def error(runs: CircuitRuns) -> float:
    """The largest deviation of a pressure from a much finer run, Pa."""
    names = ("A.p", "B.p", "supply.p")
    packed = runs.varied.packed
    finer = solved_by(packed, 16 * int(packed.index[e.SUBSTEPS]), "rk4", 0)
    return float(np.abs(runs.series(packed, names) - runs.series(finer, names)).max())


@contextmanager
def timed_calls() -> Iterator[list[float]]:
    """The CPU time, s, of each call of compiled code in programs that are loaded within this context."""
    spent, make = list[float](), Function.__init__

    def made(function: Any, *given: Any) -> None:
        make(function, *given)
        call: Callable[[int], int] = function._call

        def timed(place: int) -> int:
            begun = thread_time()
            result = call(place)
            spent.append(thread_time() - begun)
            return result

        function._call = timed

    with patch.object(Function, "__init__", made):
        yield spent


def measure_study(file: Path) -> None:
    """The least time of its runs outside compiled code, of three, and that within; of those that are run together."""
    os.environ[SWITCH] = "off"
    with timed_calls() as spent:
        study = load_study(file)
        runs, values, outside, compiled = prepared(study), plan_of(study), 0.0, 0.0
        plain = [not each.choices for each in study.varied]
        together = runs.most_together if isinstance(runs, EvaluateTogether) else 1
        for first in range(0, len(values), together):
            found = []
            for k in range(3):  # other values each time, because what was read lately is known
                rows = values[first : first + together] * np.where(plain, 1.0 + 1e-9 * k, 1.0)
                spent.clear()
                begun = thread_time()
                evaluated_by(runs, rows, 0, len(study.figures))
                found.append((thread_time() - begun - sum(spent), sum(spent)))
            outside, compiled = (total + least for total, least in zip((outside, compiled), min(found), strict=True))
    total, n = outside + compiled, len(values)
    times = f"{1e3 * total / n:.1f} ms, {1e3 * outside / n:.2f} ms of it outside"
    print(f"{n} runs, {together} together: {times}, {compiled / total:.1%} compiled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="runs of each measurement")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--study", type=Path, help="measure this one")
    given = parser.parse_args()
    if given.study is not None:
        measure_study(given.study)
        return
    print(f"{SECONDS:g} s per run; load of this computer: {os.getloadavg()[0]:.1f}")
    print("steps/ms  values        error    CPU ms/run  compiled  runs/min on 1  runs/min on", given.workers)
    for substeps in (2, 3, 4, 10):
        for name, keys in (("in place", IN_PLACE), ("packed again", PACKED_AGAIN)):
            of = subject(keys, substeps)
            low, high = np.array(of.ranges).T
            values = low + (high - low) * np.random.default_rng(1).random((given.runs, len(keys)))
            runs = of.prepare()
            runs.computed, begun = 0.0, process_time()
            for row in values:
                runs(row)
            one = process_time() - begun
            share, spent = runs.computed / one, perf_counter()
            for k, _ in enumerate(evaluate(of, values, len(FIGURES), 0, given.workers, 25)):
                spent = perf_counter() if k == 0 else spent  # without the start of the processes
            many = (perf_counter() - spent) / (1.0 - 25.0 / given.runs)
            rates = (60.0 * given.runs / seconds for seconds in (one, many))
            text = f"{substeps:8d}  {name:12s} {error(runs):6.0f} Pa  {1e3 * one / given.runs:10.1f}  {share:8.1%}"
            print(text, *(f"{rate:14.0f}" for rate in rates))


if __name__ == "__main__":
    main()
