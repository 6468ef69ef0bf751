"""Integrator of a chain by itself, compiled together with the equations of motion."""

from __future__ import annotations

from hilserver.mechanics.chain import Chain
from hilserver.mechanics.closure import settle_chain
from hilserver.mechanics.kinematics import normalise_chain
from hilserver.mechanics.recursion import chain_rates, load_chain
from hilserver.numerics.arrays import Floats


def advance_chain(
    c: Chain, y: Floats, effort: Floats, mass: Floats, h: float, n_steps: int, every: int, states: Floats
) -> float:
    """Integrate ``n_steps`` of ``h`` s by the classical Runge-Kutta method; returns the largest gap that a step opened.

    ``effort``: one row of all actuators per half step, from the start; the last row holds to the end. ``mass``: of each
    actuator. ``states``: receives y at the start and after each ``every`` steps.
    """
    largest, last = 0.0, len(effort) - 1
    size = len(y)
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
        largest = max(largest, settle_chain(c, y))
        for j in range(size):
            state[j] = y[j]
            if (step + 1) % every == 0:
                states[(step + 1) // every, j] = y[j]
    return largest
