"""Chains in a circuit: a node's motion from the chain's state, the state's derivatives from the forces at the nodes.

Everything is in the packed circuit's arrays; ``m`` is the start of a mechanism's block in ``ix`` (:mod:`columns`).
Behind the table of nodes follow, for each actuator, its number in the chain, then the chain's own tables. The scratch
space holds the look-ahead time of the next shared solution (negative: already solved), the chain's own scratch space,
then that solution: accelerations without efforts, and per unit of each actuator's effort.
"""

from __future__ import annotations

from hilserver.mechanics.articulated import reduce_links, set_inertias, start_reactions
from hilserver.mechanics.chain import Chain, chain_at
from hilserver.mechanics.closure import close_gaps
from hilserver.mechanics.columns import FIRST_STATE, N_ACTUATORS, NODES, PARAMETERS, SCRATCH
from hilserver.mechanics.kinematics import (
    actuator_motion,
    coordinate_rates,
    measure_gaps,
    measure_rows,
    move_links,
    normalise_chain,
    place_links,
)
from hilserver.mechanics.recursion import chain_rates, load_actuator, unload_chain
from hilserver.mechanics.stroke import NODE_ENTRIES, move_node
from hilserver.numerics.arrays import Floats, Indices, signed

CHAIN_CLOSED = 1e-10
"""Gap, in m or as a sine, below which nothing is corrected."""
ALL = -2
"""All actuators, instead of the number of one."""


def recursive_chain(ix: Indices, val: Floats, d: Floats, m: int) -> Chain:
    """The chain of a block."""
    entry = m + NODES + (NODE_ENTRIES + 1) * signed(ix, m + N_ACTUATORS)
    return chain_at(ix, entry, val, signed(ix, m + PARAMETERS), d, signed(ix, m + SCRATCH) + 1)


def recursive_state(c: Chain, ix: Indices, z: Floats, m: int) -> Floats:
    """The chain's state in z, or the state's derivative in d."""
    first = signed(ix, m + FIRST_STATE)
    return z[first : first + c.n_coordinates + c.n - 1]


def recursive_motion(ix: Indices, val: Floats, z: Floats, d: Floats, m: int) -> None:
    """Move the node of each actuator."""
    c, actuators = recursive_chain(ix, val, d, m), signed(ix, m + N_ACTUATORS)
    y = recursive_state(c, ix, z, m)
    place_links(c, y, 1, c.n)
    move_links(c, y[c.n_coordinates :], 1, c.n)
    measure_rows(c, c.n_closures, c.n_rows)
    for k in range(actuators):
        x, v = actuator_motion(c, signed(ix, m + NODES + NODE_ENTRIES * actuators + k), y)
        move_node(ix, z, d, m, k, x, v)


def recursive_rates(ix: Indices, val: Floats, z: Floats, d: Floats, m: int, held: bool) -> None:
    """Derivatives of the states under the forces and masses at the actuators' nodes.

    ``held``: with the latest solution of accelerations per force, which is valid for the middle of the steps that share
    it; solved anew after ``recursive_settle``.
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
            total += d[solution + speeds * (1 + k) + i] * d[signed(ix, m + NODES + NODE_ENTRIES * k + 1)]
        rate[c.n_coordinates + i] = total


def recursive_solve(c: Chain, ix: Indices, y: Floats, d: Floats, m: int) -> None:
    """Accelerations without efforts, and per unit of each, at the state predicted for the middle of the steps.

    Positions and speeds are predicted by the present rates, so that steps that share a solution are of second order:
    accelerations depend on the squares of the speeds too (centripetal and Coriolis terms).
    """
    size, speeds, scratch = len(y), c.n - 1, signed(ix, m + SCRATCH)
    ahead, rate = d[c.stages : c.stages + size], d[c.stages + size : c.stages + 2 * size]
    recursive_load(c, ix, d, m, ALL)
    chain_rates(c, y, rate)
    for j in range(size):
        ahead[j] = y[j] + d[scratch] * rate[j]
    solution = c.stages + 3 * size
    for k in range(-1, signed(ix, m + N_ACTUATORS)):
        recursive_load(c, ix, d, m, k)
        chain_rates(c, ahead, rate)
        for i in range(speeds):
            without = d[solution + i] if k >= 0 else 0.0
            d[solution + speeds * (1 + k) + i] = rate[c.n_coordinates + i] - without
    d[scratch] = -1.0


def recursive_load(c: Chain, ix: Indices, d: Floats, m: int, only: int) -> None:
    """Load the masses at the nodes, and ALL forces, a unit effort of the actuator ``only``, or none (-1)."""
    actuators = signed(ix, m + N_ACTUATORS)
    unload_chain(c)
    for k in range(actuators):
        sums = signed(ix, m + NODES + NODE_ENTRIES * k + 1)
        effort = d[sums] if only == ALL else (1.0 if k == only else 0.0)
        load_actuator(c, signed(ix, m + NODES + NODE_ENTRIES * actuators + k), effort, d[sums + 1])


def recursive_settle(ix: Indices, val: Floats, z: Floats, d: Floats, m: int, ahead: float) -> None:
    """Correct the drift in position and speed; the next shared solution is valid ``ahead`` s from now."""
    c = recursive_chain(ix, val, d, m)
    y = recursive_state(c, ix, z, m)
    normalise_chain(c, y, 1, c.n)
    for _ in range(3):
        if not measure_gaps(c, y) > CHAIN_CLOSED:
            break
        measure_rows(c, 0, c.n_rows)
        set_inertias(c, 1, c.n)
        start_reactions(c)
        reduce_links(c, 1, c.n)
        close_gaps(c, y, 1, c.n)
    d[signed(ix, m + SCRATCH)] = ahead
