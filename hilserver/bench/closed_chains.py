"""The experiments of [Closed chains], repeated on this computer: ``hilserver experiment slider-crank`` and ``loop``.

The first simulates a spatial slider-crank and compares the cost with that of the source; the second measures how cost,
accuracy and speed-up by two threads depend on the number of joints of a generated loop. docs/closed-chains.md discusses
the results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hilserver.bench.chain_runs import ChainRun, run_bdf, run_fixed, run_halves
from hilserver.bench.generated_loop import generated_loop
from hilserver.circuit.program import Program
from hilserver.compiler import standard_program
from hilserver.errors import HilserverError
from hilserver.mechanics.cutting import tree_of
from hilserver.mechanics.initial import start_of
from hilserver.mechanics.model import read_mechanism
from hilserver.mechanics.tree import Tree
from hilserver.numerics.arrays import Floats
from hilserver.report.document import Document, Grid, Heading, Listing, Picture
from hilserver.report.plots import new_figure
from hilserver.toml import read_toml

SOURCE = {
    1: (0.058, 0.165),
    5: (0.368, 0.912),
    10: (0.792, 1.865),
    20: (1.594, 3.766),
    30: (2.412, 5.690),
    40: (3.229, 7.572),
    50: (3.985, 9.370),
    60: (4.768, 11.180),
}
"""[Closed chains] Table 1: simulated seconds -> seconds of one processor with steps of 0.01 s and 0.001 s."""
JOINTS = (5, 15, 25, 51, 101, 151, 251)
LOOP_SECONDS = 10.0
LARGEST_FOR_BDF = 51
"""Joints above which BDF and the converged solution are not computed, because they take too long."""
BURST, BURSTS = 2e-3, 25
"""Length in s and number of the runs with which one thread and two are compared; the fastest run counts."""
LONG_ENOUGH = 1.0
"""Seconds after which no more of these runs begin: threads that wait for each other take long on a busy machine."""


def torque(times: Floats) -> Floats:
    """Torque on the crank in the source: 0.01·exp(-t) N·m (the exponent is partly illegible there)."""
    return 0.01 * np.exp(-times)[:, None]


@dataclass(frozen=True)
class Cost:
    """Processor seconds of one run, its largest gap, and the error of its last coordinates."""

    seconds: float
    cpu: float
    gap: float
    error: float | None = None


def slider_crank(file: Path, durations: Sequence[int] = tuple(SOURCE)) -> Document:
    """Cost of the spatial slider-crank of a mechanism file over simulated time, compared with the source."""
    program, tree = standard_program(), tree_of(read_mechanism(read_toml(file), str(file)))
    y = start_of(tree)
    steps = (1e-2, 1e-3)
    run_bdf(program, tree, y, 0.1, 1e-2, torque)  # loads scipy
    fixed = {h: [run_fixed(program, tree, y, t, h, round(t / h), torque) for t in durations] for h in steps}
    bdf = {h: [run_bdf(program, tree, y, t, h, torque) for t in durations] for h in steps}
    rows = [
        (f"{t}", *_texts([*SOURCE.get(t, (None, None)), *(runs[h][i].cpu for runs in (fixed, bdf) for h in steps)]))
        for i, t in enumerate(durations)
    ]
    head = ("simulated, s", *(f"{who}\n{h:g} s" for who in ("source, 1 CPU", "RK4", "BDF") for h in steps))
    shaft = tree.coordinate_names().index("shaft")
    exact = run_fixed(program, tree, y, 5.0, 1.25e-4, 40_000, torque).states[-1, shaft]
    accuracy = [
        _accuracy(name, run, shaft, float(exact))
        for name, run in (
            ("RK4, 0.01 s", run_fixed(program, tree, y, 5.0, 1e-2, 500, torque)),
            ("RK4, 0.001 s", run_fixed(program, tree, y, 5.0, 1e-3, 5000, torque)),
            ("BDF, relative tolerance 1e-6", run_bdf(program, tree, y, 5.0, 1e-2, torque)),
            ("BDF, relative tolerance 1e-9", run_bdf(program, tree, y, 5.0, 1e-2, torque, rtol=1e-9, atol=1e-11)),
        )
    ]
    return Document(
        "Slider-crank in space: cost over simulated time",
        (
            "Revolute, spherical, universal and prismatic joint; cut at the spherical joint; crank torque "
            "0.01·exp(-t) N·m and gravity; starts at rest with the crank up.",
            Grid(
                head,
                tuple(rows),
                "Processor seconds. RK4: fixed steps of this size; BDF: variable order and step, output at this step.",
            ),
            Grid(
                ("after 5 s", "crank angle, rad", "error, rad", "largest gap", "CPU, s"),
                tuple(accuracy),
                "Error: difference from RK4 with steps of 0.125 ms. Gap: at the cut, in m.",
            ),
        ),
    )


def _accuracy(name: str, run: ChainRun, shaft: int, exact: float) -> tuple[str, ...]:
    angle = float(run.states[-1, shaft])
    return name, f"{angle:.6f}", f"{abs(angle - exact):.1e}", f"{run.gap:.1e}", _seconds(run.cpu)


def generated_loops(joints: Iterable[int] = JOINTS, seconds: float = LOOP_SECONDS, bursts: int = BURSTS) -> Document:
    """Cost, accuracy, closure and speed-up by two threads of the generated loop over the number of its joints."""
    program, numbers = standard_program(), sorted(set(joints))
    costs = {n: _costs(program, tree_of(generated_loop(n)), seconds) for n in numbers}
    per_second = {n: found[1].cpu / seconds for n, found in costs.items() if found[1] is not None}
    pairs = {n: one_and_two(program, tree_of(generated_loop(n)), bursts) for n in numbers}
    cost_rows = [(f"{n}", *(_cpu(cost) for cost in costs[n]), *_quality(costs[n][1])) for n in numbers]
    pair_rows = [
        (f"{n}", f"{1e6 * one:.1f}", f"{1e6 * two:.1f}", f"{one / two:.2f}") for n, (one, two) in pairs.items()
    ]
    head = ("joints", "RK4 10 ms", "RK4 1 ms", "BDF", "gap, m", "error, rad")
    caption = (
        f"CPU seconds for {seconds:g} s. Gap: the largest that opened in a step of 1 ms. Error: after 5 s with "
        "steps of 1 ms, compared with steps of 0.125 ms. Dash: the run diverged, or was not made."
    )
    return Document(
        "Generated loop of n revolute joints",
        (
            "Bars of 0.1 m on a semicircle, suspended at both ends, oscillating under gravity; cut in the middle.",
            Grid(head, tuple(cost_rows), caption),
            Grid(
                ("joints", "one thread", "two threads", "speed-up"),
                tuple(pair_rows),
                "µs per evaluation; the fastest of several runs.",
            ),
            Listing(tuple(_sentences(per_second, pairs))),
            Heading("Cost and speed-up"),
            Picture("cost", _figure(per_second, pairs), "CPU per simulated second at 1 ms; speed-up by two threads"),
        ),
    )


def _costs(program: Program, tree: Tree, seconds: float) -> tuple[Cost | None, Cost | None, Cost | None]:
    """Costs of RK4 with steps of 10 ms and 1 ms, and of BDF; None if a run diverged or was not made."""
    y = start_of(tree)

    def attempt(run: Callable[[], ChainRun], error: float | None = None) -> Cost | None:
        try:
            found = run()
        except HilserverError:
            return None
        return Cost(seconds, found.cpu, found.gap, error)

    error = None
    if len(tree.links) < LARGEST_FOR_BDF:
        ends = [run_fixed(program, tree, y, 5.0, h, round(5.0 / h)).states[-1] for h in (1e-3, 1.25e-4)]
        error = float(np.abs(ends[1] - ends[0])[: tree.n_coordinates].max())
    return (
        attempt(lambda: run_fixed(program, tree, y, seconds, 1e-2, round(seconds / 1e-2))),
        attempt(lambda: run_fixed(program, tree, y, seconds, 1e-3, round(seconds / 1e-3)), error),
        attempt(lambda: run_bdf(program, tree, y, seconds, 1e-2)) if len(tree.links) < LARGEST_FOR_BDF else None,
    )


def one_and_two(program: Program, tree: Tree, bursts: int) -> tuple[float, float]:
    """Seconds per evaluation with one thread, and with two."""
    y, h = start_of(tree), 1e-3
    once = run_fixed(program, tree, y, 20 * h, h, 20)
    steps = max(10, int(BURST / (once.cpu / 20 + 1e-9)))
    one = _least(lambda: run_fixed(program, tree, y, steps * h, h, steps), bursts)
    return one, _least(lambda: run_halves(program, tree, y, steps * h, h, steps), bursts)


def _least(run: Callable[[], ChainRun], bursts: int) -> float:
    """Seconds per evaluation in the fastest of several runs."""
    found: list[float] = []
    end = time.monotonic() + LONG_ENOUGH
    while not found or (len(found) < bursts and time.monotonic() < end):
        result = run()
        found.append(result.cpu / result.evaluations)
    return min(found)


def _sentences(per_second: dict[int, float], pairs: dict[int, tuple[float, float]]) -> Iterable[str]:
    numbers = list(per_second)
    if len(numbers) > 1:
        slope = np.polyfit(np.log(numbers[-3:]), np.log([per_second[n] for n in numbers[-3:]]), 1)[0]
        yield f"The cost grows with the number of joints to the power of {slope:.2f}."
    last = numbers[-1]
    yield f"{last} joints with steps of 1 ms take {per_second[last]:.3f} s of one core per simulated second."
    paying = [n for n, (one, two) in pairs.items() if two < one]
    if paying:
        gain = pairs[last][0] / pairs[last][1]
        yield f"Two threads are faster from {paying[0]} joints; with {last} joints the speed-up is {gain:.2f}."
    else:
        yield "Two threads are not faster: they synchronise ten times per step, which requires two idle cores."


def _figure(per_second: dict[int, float], pairs: dict[int, tuple[float, float]]) -> Figure:
    figure = new_figure(2, "Generated loop")
    cost, speed_up = figure.subplots(2, 1, sharex=True)
    cost.loglog(list(per_second), list(per_second.values()), "o-")
    cost.set_ylabel("CPU, s per s")
    speed_up.semilogx(list(pairs), [one / two for one, two in pairs.values()], "o-")
    speed_up.axhline(1.0, color="0.6", lw=0.8)
    speed_up.set_ylabel("speed-up")
    speed_up.set_xlabel("joints")
    for axis in (cost, speed_up):
        axis.grid(alpha=0.3)
    return figure


def _cpu(cost: Cost | None) -> str:
    return "–" if cost is None else _seconds(cost.cpu)


def _quality(cost: Cost | None) -> tuple[str, str]:
    if cost is None:
        return "–", "–"
    return f"{cost.gap:.0e}", "–" if cost.error is None else f"{cost.error:.0e}"


def _texts(values: Iterable[float | None]) -> list[str]:
    return ["–" if value is None else _seconds(value) for value in values]


def _seconds(value: float) -> str:
    """To the millisecond; less than 10 ms with two significant digits."""
    return f"{value:.3f}" if value >= 0.01 else f"{value:.2g}"
