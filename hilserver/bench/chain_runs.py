"""Runs of a chain by itself, without a circuit.

:func:`run_fixed` takes fixed Runge-Kutta steps, as in real time; :func:`run_bdf` integrates with backward
differentiation formulas of variable order and step; :func:`run_halves` shares a long loop between two threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from hilserver.circuit.program import Program
from hilserver.errors import HilserverError
from hilserver.mechanics.chain_halves import COUNTER, Half
from hilserver.mechanics.tree import Tree
from hilserver.numerics.arrays import Floats

Efforts = Callable[[Floats], Floats]
"""Times in s -> efforts of the actuators in N or N·m, one row per time; the linear actuators come first."""


@dataclass(frozen=True)
class ChainRun:
    """Result of a run: states over time, and what they cost."""

    time: Floats
    """In s."""
    states: Floats
    """y = (coordinates, speeds), one row per time."""
    gap: float
    """Largest gap found at a cut, in m or as a sine."""
    cpu: float
    """Processor seconds; of two threads the elapsed seconds."""
    evaluations: int
    """Evaluations of the equations of motion."""


def run_fixed(
    program: Program, tree: Tree, y: Floats, seconds: float, h: float, every: int = 1, effort: Efforts | None = None
) -> ChainRun:
    """Integrate by the classical Runge-Kutta method with steps of ``h`` s, as in real time.

    The states are stored after each ``every`` steps. Raises HilserverError if the run diverges.
    """
    steps = round(seconds / h)
    efforts = _no_efforts(tree) if effort is None else np.array(effort(0.5 * h * np.arange(2.0 * steps + 1.0)))
    none, states, gap = np.zeros(len(tree.mechanism.actuators)), np.zeros((steps // every + 1, len(y))), np.zeros(1)
    advance = program.advance_chain.bound(tree.chain(), y.copy(), efforts, none, h, steps, every, states, gap)
    begin = time.process_time()
    advance()
    cpu = time.process_time() - begin
    if not np.isfinite(states).all():
        raise HilserverError(f"the run diverged with steps of {h:g} s: choose a smaller step.")
    return ChainRun(_times(h * every, len(states)), states, float(gap[0]), cpu, 4 * steps)


def run_bdf(
    program: Program,
    tree: Tree,
    y: Floats,
    seconds: float,
    output_step: float,
    effort: Efforts | None = None,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> ChainRun:
    """Integrate by backward differentiation formulas of variable order (1 to 5) and step.

    The loops are kept closed by Baumgarte stabilisation alone. Raises HilserverError if the integrator gives up.

    Source: [Closed chains] ch. 2.3; the integrator is scipy's (Shampine & Reichelt, SIAM J. Sci. Comput. 18 (1997) 1).
    """
    c, rate, none = tree.chain(), np.zeros_like(y), np.zeros(len(tree.mechanism.actuators))
    efforts, state = _no_efforts(tree)[0].copy(), np.zeros_like(y)
    load, evaluate = program.load_chain.bound(c, efforts, none), program.chain_rates.bound(c, state, rate)

    def rates(t: float, at: Floats) -> Floats:
        if effort is not None:
            efforts[:] = effort(np.array([t]))[0]
        state[:] = at
        load()
        evaluate()
        return rate.copy()

    times = _times(output_step, round(seconds / output_step) + 1)
    begin = time.process_time()
    found: Any = solve_ivp(rates, (0.0, times[-1]), y, method="BDF", t_eval=times, rtol=rtol, atol=atol)
    cpu = time.process_time() - begin
    if not found.success:
        raise HilserverError(f"BDF failed at {found.t[-1]:g} s: {found.message}")
    states = np.ascontiguousarray(found.y.T)
    gaps = np.zeros(len(states))
    program.measure_all_gaps(c, states, gaps)
    return ChainRun(times, states, float(gaps.max()), cpu, int(found.nfev))


def run_halves(program: Program, tree: Tree, y: Floats, seconds: float, h: float, every: int = 1) -> ChainRun:
    """Integrate as ``run_fixed`` does, in two threads, one per half of the loop.

    Raises HilserverError if only one branch starts at the ground, the run diverges, or a thread is starved of
    processor time.
    """
    split = tree.split()
    if split is None:
        raise HilserverError("the mechanism has only one branch from the ground: two threads need two.")
    chains, steps, none = [tree.chain(), tree.chain()], round(seconds / h), np.zeros(len(tree.mechanism.actuators))
    states, exchange = np.zeros((steps // every + 1, len(y))), np.zeros(2 * chains[0].n_rows * (chains[0].n_rows + 1))
    states[0] = y
    flags = np.zeros(2 * COUNTER, dtype=np.int64)
    n, places = chains[0].n, [tree.place(1), tree.place(split), tree.n_coordinates]
    largest = np.zeros((2, 1))

    def half(side: int) -> None:
        begin, end = (1, split) if side == 0 else (split, n)
        own = [places[side], places[side + 1], tree.n_coordinates + begin - 1, tree.n_coordinates + end - 1]
        share = Half(side, begin, end, np.array(own), chains[1 - side].d, flags, exchange)
        program.advance_half(chains[side], share, y.copy(), h, steps, every, states, largest[side])

    for c in chains:
        program.load_chain(c, none, none)
    threads = [threading.Thread(target=half, args=(side,)) for side in (0, 1)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - begun
    if largest.min() < 0.0 or not np.isfinite(states).all():
        raise HilserverError(f"the run diverged with steps of {h:g} s, or a thread was starved of processor time.")
    return ChainRun(_times(h * every, len(states)), states, float(largest.max()), elapsed, 4 * steps)


def _times(step: float, count: int) -> Floats:
    return step * np.arange(float(count))


def _no_efforts(tree: Tree) -> Floats:
    return np.zeros((1, len(tree.mechanism.actuators)))
