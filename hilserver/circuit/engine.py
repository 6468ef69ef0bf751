"""The compiled core: derivatives of a packed circuit, voids, hard limits.

These functions are linked to the generated ``evaluate`` and compiled by :mod:`hilserver.compiler`.
A packed circuit is two arrays, ``ix`` (uint64) and ``val`` (float64); the header of ``ix`` locates its tables.
``z`` holds the circuit's values (states first, then time, boundary pressures, signals), ``y`` the recorded results,
``d`` the derivatives and, behind them, the sums of flow, capacitance, force and mass at the nodes.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from hilserver.mechanics.equations import move_mechanism, push_mechanism
from hilserver.numerics.arrays import Floats, Indices, Integers

# header of ix
N_STATES, N_VALUES, N_RECORDED, N_SUMS = 0, 1, 2, 3
N_CALLS, CALLS = 4, 5
N_HYDRAULIC, HYDRAULIC = 6, 7
N_MECHANICAL, MECHANICAL = 8, 9
N_FLOWS, FLOWS = 10, 11
N_BOUND, BOUND = 12, 13
N_PORTS, PORTS = 14, 15
INTEGRATOR, SUBSTEPS = 16, 17
LOWER, UPPER, SCALE, INITIAL = 18, 19, 20, 21
N_SAMPLED, SAMPLED = 22, 23
VAPOUR, N_LIMITED, LIMITED = 24, 25, 26
N_MECHANISMS, MECHANISMS, SOLUTION_STEPS = 27, 28, 29  # steps that share a solution of a mechanism's equations, or 0
N_CLEARED, HALVINGS = 30, 31  # of the sums: those at nodes; behind them the explicit step, cells, mechanisms' scratch
N_MEANS = 32  # of the flows: means over some steps; behind them accounts, which add up what has passed since the start
N_GROUPED, GROUPED = 33, 34  # cells of the groups of states whose columns of the Jacobian are found together
N_ELIMINATION, ELIMINATION = 35, 36  # cells of the structure of a step's matrix; none: eliminated as a whole
N_PORT_CALLS, PORT_CALLS = 37, 38  # calls on which the flows into the machine's ports depend
PORTS_MOVED = 39  # whether these read what mechanisms move
CODE = 40  # address of the code that is compiled for this circuit alone, in the process that has loaded it; otherwise 0
N_FOLLOWED, FOLLOWED = 41, 42  # places of position and velocity at the nodes that actuators of the rig follow
MOBILITIES = 43  # place of the mobilities of the nodes that they follow: acceleration by a force, 1/kg
HEADER = 44
ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)  # unsigned plus signed would be signed
FOUR, FIVE = np.uint64(4), np.uint64(5)


class Integrator(IntEnum):
    """The methods of integration; their names in lower case are those of ``solver.integrator``."""

    EULER = 0
    RK4 = 1
    ROSENBROCK = 2


class Purpose(IntEnum):
    """What the integration of a circuit is for."""

    ALL = 0
    """The next tick: all values and results."""
    PORTS = 1
    """States and flows into the machine's ports are all that is needed; signals and results are not refreshed."""
    AHEAD = 2
    """All values, in longer steps than those that the circuit states: by the L-stable method, whatever its own is, and
    with signals of time held in a step, as inputs are."""


VOID_CAPACITANCE = 1e-11
"""m³/Pa: below the vapour pressure the state of a node counts its void by this, 1 bar for each millilitre."""
HELD, FLOWN, BEFORE, AT_START = (np.uint64(k) for k in range(4))  # of a node in a step, see hold_voids
NODE_CELLS = 4


def evaluate(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats) -> None:
    """Run every kernel of the circuit; the real one is generated from the component library."""
    raise NotImplementedError


def evaluate_ports(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats) -> None:
    """Run only the kernels on which the flows into the machine's ports depend; the real one is generated, too."""
    raise NotImplementedError


def evaluate_sampled(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats) -> None:
    """Run the circuit's sampled kernels; the real one is generated from the component library."""
    raise NotImplementedError


def run_code(
    ix: Indices,
    val: Floats,
    z: Floats,
    y: Floats,
    work: Floats,
    chambers: Floats,
    n_steps: int,
    h: float,
    purpose: int,
) -> None:
    """Integrate with the code at the address CODE, which is compiled for this circuit; the real one calls it."""
    raise NotImplementedError


def derivatives(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats) -> None:
    """Fill ``d`` with the time derivatives of the states at ``z``; states at a hard limit don't move beyond it."""
    release_voids(ix, d)
    rates_within_step(ix, val, z, y, d, False)
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        if z[ix[row]] < val[ix[row + FOUR]]:
            d[ix[row]] = d[ix[row + ONE]] / VOID_CAPACITANCE
        row += FIVE


def rates_within_step(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats, shared: bool) -> None:
    """The same; ``shared``: with the shared solution of a mechanism's equations of motion, if steps share one."""
    expose_pressures(ix, val, z)
    clear_sums(ix, d)
    for k in range(ix[N_MECHANISMS]):
        move_mechanism(ix, val, z, d, int(ix[ix[MECHANISMS] + k]))
    evaluate(ix, val, z, y, d)
    share = int(shared and ix[SOLUTION_STEPS] > 0)
    for k in range(ix[N_MECHANISMS]):
        push_mechanism(ix, val, z, d, int(ix[ix[MECHANISMS] + k]), share)
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        total, C_held = ix[row + ONE], d[ix[row + THREE] + HELD]
        C = C_held if C_held > 0.0 else d[total + ONE]
        d[ix[row]] = d[total] / C  # dp/dt = sum of flows / sum of capacitances
        row += FIVE
    row = ix[MECHANICAL]
    for _ in range(ix[N_MECHANICAL]):
        i, total = ix[row], ix[row + ONE]
        d[i] = z[i + ONE]
        d[i + ONE] = d[total] / d[total + ONE]  # dv/dt = sum of forces / sum of masses
        row += TWO
    lower, upper, row = ix[LOWER], ix[UPPER], ix[LIMITED]
    for _ in range(ix[N_LIMITED]):
        i = ix[row]
        if (z[i] <= val[lower + i] and d[i] < 0.0) or (z[i] >= val[upper + i] and d[i] > 0.0):
            d[i] = 0.0
        row += ONE


def flows_into_ports(ix: Indices, val: Floats, z: Floats, y: Floats, d: Floats) -> None:
    """Fill the sums of flow at the machine's ports only; other sums, rates, signals and results are not valid then."""
    expose_pressures(ix, val, z)
    clear_sums(ix, d)
    if ix[PORTS_MOVED] > 0:
        for k in range(ix[N_MECHANISMS]):
            move_mechanism(ix, val, z, d, int(ix[ix[MECHANISMS] + k]))
    evaluate_ports(ix, val, z, y, d)


def clear_sums(ix: Indices, d: Floats) -> None:
    """Set the sums at the nodes to 0."""
    n = ix[N_STATES]
    for i in range(n, n + ix[N_CLEARED]):
        d[i] = 0.0


def set_explicit_step(ix: Indices, d: Floats, h: float) -> None:
    """Tell the kernels the step, s, with which an explicit method integrates them (``h_explicit``); otherwise 0."""
    d[ix[N_STATES] + ix[N_CLEARED]] = 0.0 if ix[INTEGRATOR] == Integrator.ROSENBROCK else h


def expose_pressures(ix: Indices, val: Floats, z: Floats) -> None:
    """Expose each node's pressure: its state, but never below the vapour pressure."""
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        z[ix[row + TWO]] = max(z[ix[row]], val[ix[row + FOUR]])
        row += FIVE


def hold_voids(ix: Indices, val: Floats, z: Floats, d: Floats) -> None:
    """At the start of a step, with its sums in ``d``: the void of a node becomes a pressure below the vapour pressure.

    A state below the vapour pressure p_v counts the void, V = VOID_CAPACITANCE·(p_v - state): so it has the same
    meaning in any circuit, whatever moves in the meantime. Within the step V = C·(p_v - state), with the node's
    capacitance C at the start: what flows is integrated as a volume, exactly. To the integrator the node is one that
    empties and fills at constant capacitance.

    For each node ``d`` has four cells behind the sums: the capacitance that is held, or 0 without a void; the volume
    that has flown in; the state at the start, and the capacitance there.
    """
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        i, cell, vapour = ix[row], ix[row + THREE], val[ix[row + FOUR]]
        C = d[ix[row + ONE] + ONE]
        if z[i] < vapour:
            d[cell + HELD] = C
            z[i] = vapour + (z[i] - vapour) * VOID_CAPACITANCE / C
        d[cell + FLOWN], d[cell + BEFORE], d[cell + AT_START] = 0.0, z[i], C
        row += FIVE


def count_voids(ix: Indices, val: Floats, z: Floats, d: Floats) -> bool:
    """At the end of a step: the state of a node below the vapour pressure counts its void again; whether there was any.

    Where a void has opened or closed within the step, a part of the volume flown has expanded or compressed the oil,
    at the node's mean capacitance in this part of the step. (That volume is integrated; in a Rosenbrock step it follows
    from the change of the state, exactly while the capacitance is constant, and to second order otherwise.)
    """
    found = False
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        i, total, cell, vapour = ix[row], ix[row + ONE], ix[row + THREE], val[ix[row + FOUR]]
        row += FIVE
        if z[i] >= vapour and d[cell + HELD] == 0.0:
            continue
        found = True
        before, flown, C = d[cell + BEFORE], d[cell + FLOWN], d[cell + AT_START]
        if z[i] < vapour and d[cell + HELD] > 0.0:
            z[i] = vapour + (z[i] - vapour) * C / VOID_CAPACITANCE
        elif z[i] < vapour:
            share, C_mean = (before - vapour) / (before - z[i]), flown / (z[i] - before)
            expanded = (C + share * (C_mean - C)) * (before - vapour)
            z[i] = vapour - max(-flown - expanded, 0.0) / VOID_CAPACITANCE
        elif d[cell + HELD] > 0.0:
            share, C_end = (vapour - before) / (z[i] - before), d[total + ONE]
            z[i] = vapour + (z[i] - vapour) * C / (C + 0.5 * (1.0 + share) * (C_end - C))
        d[cell + HELD] = 0.0
    return found


def carry_voids(ix: Indices, val: Floats, z: Floats, source: Integers) -> None:
    """After a switch, with states carried over from ``source`` (-1: new): oil of another vapour pressure keeps voids.

    The exposed pressure is still that of the circuit before: above the state, it was the vapour pressure of a void.
    """
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        i, exposed, vapour = ix[row], ix[row + TWO], val[ix[row + FOUR]]
        if source[i] >= 0 and source[exposed] >= 0 and z[exposed] != vapour:
            z[i] = vapour + (z[i] - z[exposed]) if z[i] < z[exposed] else max(z[i], vapour)
        row += FIVE


def release_voids(ix: Indices, d: Floats) -> None:
    """Before a step: no node's capacitance is held."""
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        d[ix[row + THREE] + HELD] = 0.0
        row += FIVE


def clip_states(ix: Indices, val: Floats, z: Floats) -> None:
    """Limit every state to its hard limits."""
    lower, upper, row = ix[LOWER], ix[UPPER], ix[LIMITED]
    for _ in range(ix[N_LIMITED]):
        i = ix[row]
        z[i] = min(max(z[i], val[lower + i]), val[upper + i])
        row += ONE


def flow(ix: Indices, z: Floats, d: Floats, row: int) -> float:
    """Rate of a row of the table FLOWS: a sum at a node, in some rows times a value (a power)."""
    factor = ix[row + TWO]
    return float(d[ix[row + ONE]] * z[factor] if factor < ix[N_VALUES] else d[ix[row + ONE]])


def pass_volumes(ix: Indices, z: Floats, d: Floats, time: float) -> None:
    """Add what flows at these rates in ``time`` seconds to what `advance` and `count_voids` count."""
    row = ix[FLOWS]
    for _ in range(ix[N_FLOWS]):
        z[ix[row]] += time * flow(ix, z, d, row)
        row += THREE
    row = ix[HYDRAULIC]
    for _ in range(ix[N_HYDRAULIC]):
        d[ix[row + THREE] + FLOWN] += time * d[ix[row + ONE]]
        row += FIVE


def load(ix: Indices, val: Floats, z: Floats) -> None:
    """Set all values to the circuit's initial values."""
    for i in range(ix[N_VALUES]):
        z[i] = val[ix[INITIAL] + i]
