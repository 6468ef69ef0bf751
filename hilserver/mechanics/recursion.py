"""Dynamics of closed kinematic chains in joint coordinates: articulated bodies, with multipliers at the cut joints.

Three sweeps over the links, so that the cost grows linearly with their number and not with its cube:

1. outward: positions, velocities and inertias of the links (:mod:`kinematics`, :mod:`articulated`);
2. inward: each link with everything attached to it is reduced to its parent (:mod:`articulated`), and with it the
   reactions at the cuts, one column per multiplier; the result determines the multipliers (:mod:`closure`);
3. outward: accelerations (:mod:`articulated`).

All vectors are spatial vectors in world axes, with moments and velocities about the world's origin: (rotation,
translation), (moment, force). So nothing has to be transformed from link to link, and articulated inertias simply add.

Sources: Featherstone, Rigid Body Dynamics Algorithms, Springer 2008, ch. 2, 7 (articulated bodies) and 8 (loops);
Bae & Haug, Mech. Struct. & Mach. 15 (1987) 481 (cut joints, reduction to the base); [Closed chains] eqs. 2-7;
Baumgarte, Comp. Meth. Appl. Mech. Eng. 1 (1972) 1.
"""

from __future__ import annotations

from hilserver.mechanics.articulated import (
    accelerate_links,
    apply_reactions,
    reduce_links,
    set_inertias,
    start_reactions,
)
from hilserver.mechanics.chain import (
    ARMATURE,
    CLOSURE,
    GRAVITY,
    INERTIA,
    LINK_CENTRE,
    LINK_MASS,
    LINK_NUMBERS,
    MOTION,
    ROW_EFFORT,
    ROW_MASS,
    TORQUE,
    VELOCITY,
    Chain,
)
from hilserver.mechanics.closure import close_loops, require_accelerations
from hilserver.mechanics.kinematics import coordinate_rates, in_world, measure_rows, move_links, place_links
from hilserver.numerics.arrays import Floats, signed
from hilserver.numerics.spatial import (
    dot,
    vector,
)


def chain_rates(c: Chain, y: Floats, rate: Floats) -> None:
    """d/dt of y = (coordinates, speeds) under the efforts of ``load_chain``.

    Loops are stabilised after Baumgarte: the acceleration of a gap is -2·alpha·gap' - beta²·gap.
    """
    q, u = y[: c.n_coordinates], y[c.n_coordinates :]
    place_links(c, q, 1, c.n)
    move_links(c, u, 1, c.n)
    set_inertias(c, 1, c.n)
    measure_rows(c, 0, c.n_rows)
    start_reactions(c)
    reduce_links(c, 1, c.n)
    require_accelerations(c)
    close_loops(c, 1.0)
    apply_reactions(c, 1, c.n)
    accelerate_links(c, rate[c.n_coordinates :], 1, c.n)
    coordinate_rates(c, q, u, rate, 1, c.n)


def load_chain(c: Chain, effort: Floats, mass: Floats) -> None:
    """Set force or torque of each actuator, the linear ones first, and the mass or moment of inertia that it moves."""
    unload_chain(c)
    for j in range(c.n_linear + c.n_rotary):
        load_actuator(c, j, effort[j], mass[j])


def unload_chain(c: Chain) -> None:
    """Clear the efforts of the rotary actuators, which are summed."""
    for i in range(c.n):
        c.d[c.motion + MOTION * i + TORQUE], c.d[c.motion + MOTION * i + ARMATURE] = 0.0, 0.0


def load_actuator(c: Chain, j: int, effort: float, mass: float) -> None:
    """Set force or torque of one actuator, and the mass or moment of inertia that it moves."""
    if j < c.n_linear:
        row = c.closure + CLOSURE * (c.n_closures + j)
        c.d[row + ROW_EFFORT], c.d[row + ROW_MASS] = effort, mass
    else:
        m = c.motion + MOTION * signed(c.ix, c.rotaries + j - c.n_linear)
        c.d[m + TORQUE] += effort
        c.d[m + ARMATURE] += mass


def chain_energy(c: Chain, y: Floats) -> float:
    """Kinetic and potential energy in J; the latter is 0 if all masses are at the world's origin."""
    place_links(c, y[: c.n_coordinates], 1, c.n)
    move_links(c, y[c.n_coordinates :], 1, c.n)
    set_inertias(c, 1, c.n)
    energy, gravity = 0.0, vector(c.val, c.common + GRAVITY)
    for i in range(1, c.n):
        link, m = c.link + LINK_NUMBERS * i, c.motion + MOTION * i
        energy -= c.val[link + LINK_MASS] * dot(gravity, in_world(c, m, vector(c.val, link + LINK_CENTRE)))
        for a in range(6):
            for b in range(6):
                energy += 0.5 * c.d[m + VELOCITY + a] * c.d[m + INERTIA + 6 * a + b] * c.d[m + VELOCITY + b]
    return energy
