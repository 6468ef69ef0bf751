"""Chains in a circuit: a node's motion from the chain's state, the state's derivatives from the forces at the nodes.

All is in the packed circuit's arrays; ``m`` is where a mechanism's block begins in ``ix`` (:mod:`columns`). Behind the
table of the nodes: for each actuator its number in the chain, then the chain's own tables. In the scratch space: how
far ahead the next solution is that steps share (negative: it is solved), the chain's own scratch, then that solution:
accelerations without efforts, and per unit of each actuator's effort.
"""

from __future__ import annotations

from hilserver.mechanics.chain import Chain, chain_at
from hilserver.mechanics.columns import FIRST_STATE, N_ACTUATORS, NODES, PARAMETERS, SCRATCH
from hilserver.mechanics.recursion import (
    actuator_motion,
    chain_rates,
    close_gaps,
    coordinate_rates,
    load_actuator,
    measure_gaps,
    measure_rows,
    move_links,
    normalise_chain,
    place_links,
    reduce_links,
    start_reactions,
    unload_chain,
    weigh_links,
)
from hilserver.numerics.arrays import Floats, Indices, signed

CHAIN_CLOSED = 1e-10
"""m or a sine: gaps that are smaller are left alone."""
ALL = -2
"""Efforts of all actuators."""


def recursive_chain(ix: Indices, val: Floats, d: Floats, m: int) -> Chain:
    """The chain of a block."""
    entry = m + NODES + 3 * signed(ix, m + N_ACTUATORS)
    return chain_at(ix, entry, val, signed(ix, m + PARAMETERS), d, signed(ix, m + SCRATCH) + 1)


def recursive_state(c: Chain, ix: Indices, z: Floats, m: int) -> Floats:
    """The chain's state in z, or its derivative in d."""
    first = signed(ix, m + FIRST_STATE)
    return z[first : first + c.n_coordinates + c.n - 1]


def recursive_motion(ix: Indices, val: Floats, z: Floats, d: Floats, m: int) -> None:
    """Position and speed of each actuator into its node."""
    c, actuators = recursive_chain(ix, val, d, m), signed(ix, m + N_ACTUATORS)
    y = recursive_state(c, ix, z, m)
    place_links(c, y, 1, c.n)
    move_links(c, y[c.n_coordinates :], 1, c.n)
    measure_rows(c, c.n_closures, c.n_rows)
    for k in range(actuators):
        node = signed(ix, m + NODES + 2 * k)
        z[node], z[node + 1] = actuator_motion(c, signed(ix, m + NODES + 2 * actuators + k), y)


def recursive_rates(ix: Indices, val: Floats, z: Floats, d: Floats, m: int, held: bool) -> None:
    """Derivatives of the states under the forces and masses at the actuators' nodes.

    ``held``: with accelerations per force as they were solved last, for the middle of the steps that share them; anew
    where ``recursive_settle`` says so.
    """
    c, actuators = recursive_chain(ix, val, d, m), signed(ix, m + N_ACTUATORS)
    y, rate = recursive_state(c, ix, z, m), recursive_state(c, ix, d, m)
    if not held:
        recursive_load(c, ix, d, m, ALL)
        chain_rates(c, y, rate)
        return
    if d[signed(ix, m + SCRATCH)] >= 0.0:
        recursive_solve(c, ix, y, d, m)
    coordinate_rates(c, y, y[c.n_coordinates :], rate, 1, c.n)
    speeds, solution = c.n - 1, c.stages + 3 * (c.n_coordinates + c.n - 1)
    for i in range(speeds):
        total = d[solution + i]
        for k in range(actuators):
            total += d[solution + speeds * (1 + k) + i] * d[signed(ix, m + NODES + 2 * k + 1)]
        rate[c.n_coordinates + i] = total


def recursive_solve(c: Chain, ix: Indices, y: Floats, d: Floats, m: int) -> None:
    """The accelerations without efforts, and per unit of each, where the chain will be in the middle of the steps."""
    size, speeds, scratch = len(y), c.n - 1, signed(ix, m + SCRATCH)
    ahead, rate = d[c.stages : c.stages + size], d[c.stages + size : c.stages + 2 * size]
    coordinate_rates(c, y, y[c.n_coordinates :], rate, 1, c.n)
    for j in range(size):
        ahead[j] = y[j] + (d[scratch] * rate[j] if j < c.n_coordinates else 0.0)
    solution = c.stages + 3 * size
    for k in range(-1, signed(ix, m + N_ACTUATORS)):
        recursive_load(c, ix, d, m, k)
        chain_rates(c, ahead, rate)
        for i in range(speeds):
            without = d[solution + i] if k >= 0 else 0.0
            d[solution + speeds * (1 + k) + i] = rate[c.n_coordinates + i] - without
    d[scratch] = -1.0


def recursive_load(c: Chain, ix: Indices, d: Floats, m: int, only: int) -> None:
    """Masses at the nodes, and ALL forces, or a unit effort of the actuator ``only``, or (-1) none."""
    actuators = signed(ix, m + N_ACTUATORS)
    unload_chain(c)
    for k in range(actuators):
        sums = signed(ix, m + NODES + 2 * k + 1)
        effort = d[sums] if only == ALL else (1.0 if k == only else 0.0)
        load_actuator(c, signed(ix, m + NODES + 2 * actuators + k), effort, d[sums + 1])


def recursive_settle(ix: Indices, val: Floats, z: Floats, d: Floats, m: int, ahead: float) -> None:
    """Close what has drifted apart, in place and speed; the next solution that is held is for ``ahead`` s from now."""
    c = recursive_chain(ix, val, d, m)
    y = recursive_state(c, ix, z, m)
    normalise_chain(c, y, 1, c.n)
    for _ in range(3):
        if not measure_gaps(c, y) > CHAIN_CLOSED:
            break
        measure_rows(c, 0, c.n_rows)
        weigh_links(c, 1, c.n)
        start_reactions(c)
        reduce_links(c, 1, c.n)
        close_gaps(c, y, 1, c.n)
    d[signed(ix, m + SCRATCH)] = ahead
