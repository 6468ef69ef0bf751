"""A chain by itself, without a circuit: an integrator with fixed steps, and the gaps of a run."""

from __future__ import annotations

from hilserver.mechanics.chain import Chain
from hilserver.mechanics.closure import settle_chain
from hilserver.mechanics.kinematics import measure_gaps, normalise_chain
from hilserver.mechanics.recursion import chain_rates, load_chain
from hilserver.numerics.arrays import Floats, Matrix


def advance_chain(
    c: Chain,
    y: Floats,
    effort: Matrix,
    mass: Floats,
    h: float,
    n_steps: int,
    every: int,
    states: Matrix,
    gap: Floats,
) -> None:
    """Integrate ``n_steps`` of ``h`` s by the classical Runge-Kutta method.

    ``effort``: one row of all actuators per half step, from the start; the last row holds to the end. ``mass``: of each
    actuator. ``states``: receives y at the start and after each ``every`` steps. ``gap``: receives the largest gap
    that a step opened.
    """
    size, last = len(y), len(effort) - 1
    gap[0] = 0.0
    rate = c.d[c.stages : c.stages + size]
    total, state = c.d[c.stages + size : c.stages + 2 * size], c.d[c.stages + 2 * size : c.stages + 3 * size]
    for j in range(size):
        state[j] = states[0, j] = y[j]
    for step in range(n_steps):
        for j in range(size):
            total[j] = 0.0
        for stage in range(4):
            load_chain(c, effort[min(2 * step + (stage + 1) // 2, last)], mass)
            chain_rates(c, state, rate)
            weight = 1.0 if stage == 0 or stage == 3 else 2.0
            reach = h if stage == 2 else 0.5 * h
            for j in range(size):
                total[j] += weight * rate[j]
                state[j] = y[j] + reach * rate[j]
        for j in range(size):
            y[j] += h / 6.0 * total[j]
        normalise_chain(c, y, 1, c.n)
        gap[0] = max(gap[0], settle_chain(c, y))
        for j in range(size):
            state[j] = y[j]
            if (step + 1) % every == 0:
                states[(step + 1) // every, j] = y[j]


def measure_all_gaps(c: Chain, states: Matrix, gaps: Floats) -> None:
    """The largest gap of each state, one row per state."""
    for k in range(len(states)):
        gaps[k] = measure_gaps(c, states[k])
