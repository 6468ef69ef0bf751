r"""Bodies in a plane in absolute coordinates: the compiled part.

Each body has the coordinates of its centre of mass and its angle, (X, Y, phi), 0 as drawn, and their speeds. What
connects two bodies is a number of *lines*: a quantity c of both bodies that a joint keeps at 0, or that is an
actuator's position:

- ``TURN``: the angle of the second body against the first,
- ``LEVEL``, ``CARRIED``, ``LENGTH``: the distance from a point of the first body to one of the second along a direction
  e, which is fixed, turns with the first body, or is that of the line between the points.

A pin is two LEVEL lines, a slide a TURN and a CARRIED one, a cylinder a LENGTH. With C_q the lines of the joints, A
those of the actuators (x' = A q') and b what of c'' does not come from accelerations, c'' = C_q q'' + b:

.. math::
    \begin{bmatrix} M & C_q^T & A^T \\ C_q & 0 & 0 \\ A & 0 & -1/m \end{bmatrix}
    \begin{bmatrix} \ddot q \\ -\lambda \\ -\mu \end{bmatrix} =
    \begin{bmatrix} M g + A^T F \\ -b_C - 2\alpha \dot c - \alpha^2 c \\ -b_A \end{bmatrix}

by Gaussian elimination; m is the mass of the circuit at the actuator's node (a piston), and mu the force that
accelerates it. M is diagonal, so its rows are eliminated directly; the remaining equations, one per line, are solved
with partial pivoting. An actuator's line is multiplied by sqrt(m), which allows any mass, including none.
Source: [Asikainen] eqs. 1-14; [Linjama] (x' = A z', Q = A^T F).

Constraints at acceleration level drift. After a step that leaves an error above CLOSED, positions and speeds are
corrected by the smallest change in the metric of the mass matrix (``planar_settle``). So in a run Baumgarte's terms
with alpha are negligible; they serve linearisation: without them every constraint would add an undamped mode of zero
frequency, and a circuit would have no equilibrium.

Everything is in the packed circuit's arrays; ``m`` is the start of a mechanism's block in ``ix`` (:mod:`columns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, sin, sqrt

import numpy as np

from hilserver.mechanics.columns import FIRST_STATE, N_ACTUATORS, NODES, OWN, PARAMETERS, SCRATCH
from hilserver.mechanics.stroke import NODE_ENTRIES, move_node
from hilserver.numerics.arrays import Floats, Indices
from hilserver.numerics.linear import factorise, solve

TURN, LEVEL, CARRIED, LENGTH = 0, 1, 2, 3
N_BODIES, N_CLOSURES, N_PAIRS = OWN, OWN + 1, OWN + 2
GRAVITY_WIDTH, BODY_WIDTH, LINE_WIDTH = 2, 2, 7
"""Numbers in val: gravity; 1/mass and 1/inertia of a body; of a line its points in both bodies, direction, zero.

The ground is the last body. It has no numbers, since its accelerations are 0.
"""
LINE_ENTRIES, PAIR_ENTRIES = 3, 3
"""Entries in ix behind the actuators' table: of a line kind and bodies; of two lines that share a body, see `pairs`."""
POSE, TERMS, J, W = 8, 15, 3, 9
"""Numbers in d: of a body X, Y, phi, cos, sin and speeds; of a line c, c', b, its line J of C_q or A, and J M^-1."""
ALPHA = 20.0
"""1/s, of Baumgarte's terms."""
CLOSED = 1e-10
"""Error in m or rad (per s) below which a constraint is not corrected."""
MAX_CORRECTIONS = 5
"""Limit of position corrections after one step: one is sufficient in a run, more after a switch of the mechanism."""


def entry(ix: Indices, place: int) -> int:
    """An entry of the index as a signed number, for further arithmetic."""
    return int(np.int64(ix[place]))


def planar_work(bodies: int, closures: int, actuators: int) -> int:
    """Length of the scratch space: look-ahead; poses; lines; weights, matrix, pivots, forces; accelerations."""
    n = closures + actuators
    return 1 + POSE * (bodies + 1) + TERMS * n + n + n * n + 2 * n + 3 * (bodies + 1) * (1 + actuators)


def pairs(between: Sequence[tuple[int, int]], ground: int) -> list[int]:
    """For each body that two lines k >= j share: k·n + j, and where J_k and J_j M^-1 of it are among the terms."""
    n, found = len(between), []
    for k, one in enumerate(between):
        for j, other in enumerate(between[: k + 1]):
            for side, body in enumerate(one):
                for turned, same in enumerate(other):
                    if body == same != ground:
                        found += [k * n + j, TERMS * k + J + 3 * side, TERMS * j + W + 3 * turned]
    return found


def planar_terms(ix: Indices, m: int) -> int:
    """Start of the lines' terms in d; the poses precede them."""
    return entry(ix, m + SCRATCH) + 1 + POSE * (entry(ix, m + N_BODIES) + 1)


def planar_accelerations(ix: Indices, m: int, column: int) -> int:
    """Start of accelerations in d: column 0 those of the mechanism, 1 + k those per newton of actuator k."""
    n = entry(ix, m + N_CLOSURES) + entry(ix, m + N_ACTUATORS)
    return planar_terms(ix, m) + TERMS * n + n + n * n + 2 * n + 3 * (entry(ix, m + N_BODIES) + 1) * column


def planar_poses(ix: Indices, z: Floats, d: Floats, m: int, ahead: float) -> None:
    """Poses and speeds of all bodies, the ground last, predicted ``ahead`` s from now."""
    state, p = entry(ix, m + FIRST_STATE), entry(ix, m + SCRATCH) + 1
    for _ in range(entry(ix, m + N_BODIES)):
        vx, vy, w = z[state + 3], z[state + 4], z[state + 5]
        angle = z[state + 2] + ahead * w
        d[p], d[p + 1], d[p + 2] = z[state] + ahead * vx, z[state + 1] + ahead * vy, angle
        d[p + 3], d[p + 4] = cos(angle), sin(angle)
        d[p + 5], d[p + 6], d[p + 7] = vx, vy, w
        state += 6
        p += POSE
    for k in range(POSE):
        d[p + k] = 0.0
    d[p + 3] = 1.0


def planar_lines(ix: Indices, val: Floats, d: Floats, m: int, first: int, end: int) -> None:
    """The terms of the lines ``first`` to ``end``, from the poses."""
    bodies, poses = entry(ix, m + N_BODIES), entry(ix, m + SCRATCH) + 1
    masses = entry(ix, m + PARAMETERS) + GRAVITY_WIDTH
    row = m + NODES + NODE_ENTRIES * entry(ix, m + N_ACTUATORS) + LINE_ENTRIES * first
    v, t = masses + BODY_WIDTH * bodies + LINE_WIDTH * first, planar_terms(ix, m) + TERMS * first
    for _ in range(first, end):
        kind, one, other = ix[row], entry(ix, row + 1), entry(ix, row + 2)
        p, q = poses + POSE * one, poses + POSE * other
        c, s, w = d[p + 3], d[p + 4], d[p + 7]
        if kind == TURN:
            x, rate, b, ex, ey, turn, turned = d[q + 2] - d[p + 2], d[q + 7] - w, 0.0, 0.0, 0.0, -1.0, 1.0
        else:
            o = d[q + 7]
            sx, sy = c * val[v] - s * val[v + 1], s * val[v] + c * val[v + 1]
            rx, ry = d[q + 3] * val[v + 2] - d[q + 4] * val[v + 3], d[q + 4] * val[v + 2] + d[q + 3] * val[v + 3]
            # distance of the points, its rate, its centripetal acceleration
            dx, dy = d[q] + rx - d[p] - sx, d[q + 1] + ry - d[p + 1] - sy
            vx, vy = d[q + 5] - o * ry - d[p + 5] + w * sy, d[q + 6] + o * rx - d[p + 6] - w * sx
            ex, ey = val[v + 4], val[v + 5]
            if kind == CARRIED:
                ex, ey = c * ex - s * ey, s * ex + c * ey
            elif kind == LENGTH:
                length = sqrt(dx * dx + dy * dy)
                ex, ey = dx / length, dy / length
            x, rate = ex * dx + ey * dy, ex * vx + ey * vy
            b = w * w * (ex * sx + ey * sy) - o * o * (ex * rx + ey * ry)
            turn, turned = ex * sy - ey * sx, ey * rx - ex * ry
            if kind == CARRIED:
                across = ex * dy - ey * dx
                b += 2.0 * w * (ex * vy - ey * vx) - w * w * x
                rate += w * across
                turn += across
            elif kind == LENGTH:
                b += (vx * vx + vy * vy - rate * rate) / x
        d[t], d[t + 1], d[t + 2] = x - val[v + 6], rate, b
        d[t + 3], d[t + 4], d[t + 5], d[t + 6], d[t + 7], d[t + 8] = -ex, -ey, turn, ex, ey, turned
        planar_times_inverse_mass(val, d, t, 0, masses + BODY_WIDTH * one, one < bodies)
        planar_times_inverse_mass(val, d, t, 3, masses + BODY_WIDTH * other, other < bodies)
        row += LINE_ENTRIES
        v += LINE_WIDTH
        t += TERMS


def planar_times_inverse_mass(val: Floats, d: Floats, t: int, side: int, mass: int, moves: bool) -> None:
    """J M^-1 of one body's part of a line; 0 for the ground."""
    per_mass, per_inertia = (val[mass], val[mass + 1]) if moves else (0.0, 0.0)
    d[t + W + side] = d[t + J + side] * per_mass
    d[t + W + side + 1] = d[t + J + side + 1] * per_mass
    d[t + W + side + 2] = d[t + J + side + 2] * per_inertia


def planar_matrix(ix: Indices, d: Floats, m: int, loaded: bool) -> None:
    """Matrix that remains after the elimination of M, factorised: sums of J_k M^-1 J_l over the bodies two lines share.

    ``loaded``: with the masses at the actuators' nodes; otherwise without the actuators' lines.
    """
    closures, actuators = entry(ix, m + N_CLOSURES), entry(ix, m + N_ACTUATORS)
    n, t = closures + actuators, planar_terms(ix, m)
    weights, matrix = t + TERMS * n, t + TERMS * n + n
    for i in range(matrix, matrix + n * n):
        d[i] = 0.0
    row = m + NODES + NODE_ENTRIES * actuators + LINE_ENTRIES * n
    for _ in range(entry(ix, m + N_PAIRS)):
        p, q = t + entry(ix, row + 1), t + entry(ix, row + 2)
        d[matrix + entry(ix, row)] += d[p] * d[q] + d[p + 1] * d[q + 1] + d[p + 2] * d[q + 2]
        row += PAIR_ENTRIES
    for k in range(n):
        d[weights + k] = 1.0
        if k >= closures:
            weight = sqrt(d[entry(ix, m + NODES + NODE_ENTRIES * (k - closures) + 1) + 1]) if loaded else 0.0
            d[weights + k] = weight
            for j in range(k):
                d[matrix + k * n + j] *= weight * d[weights + j]
            d[matrix + k * n + k] = 1.0 + weight * weight * d[matrix + k * n + k]
        for j in range(k):
            d[matrix + j * n + k] = d[matrix + k * n + j]
    factorise(d[matrix : matrix + n * n], n, d[matrix + n * n :])


def planar_push(ix: Indices, d: Floats, m: int, acc: int, k: int, force: float) -> None:
    """Add the effect of a force along line k, M^-1 J^T F, to the accelerations that begin at ``acc``."""
    row = m + NODES + NODE_ENTRIES * entry(ix, m + N_ACTUATORS) + LINE_ENTRIES * k + 1
    w = planar_terms(ix, m) + TERMS * k + W
    one, other = acc + 3 * entry(ix, row), acc + 3 * entry(ix, row + 1)
    for i in range(3):
        d[one + i] += force * d[w + i]
        d[other + i] += force * d[w + 3 + i]


def planar_constrain(ix: Indices, d: Floats, m: int, acc: int, own: float, far: float, fast: float) -> None:
    """Turn the accelerations of free bodies at ``acc`` into those of the mechanism: add the forces along the lines.

    Closures are accelerated by -own·b - far·c - fast·c', the masses at the nodes by -own·b.
    """
    closures, actuators = entry(ix, m + N_CLOSURES), entry(ix, m + N_ACTUATORS)
    n, row, t = closures + actuators, m + NODES + NODE_ENTRIES * actuators + 1, planar_terms(ix, m)
    weights, matrix = t + TERMS * n, t + TERMS * n + n
    forces = matrix + n * n + n
    for k in range(n):
        p = t + TERMS * k
        one, other = acc + 3 * entry(ix, row), acc + 3 * entry(ix, row + 1)
        missing = -own * d[p + 2]
        if k < closures:
            missing -= far * d[p] + fast * d[p + 1]
        for i in range(3):
            missing -= d[p + J + i] * d[one + i] + d[p + J + 3 + i] * d[other + i]
        d[forces + k] = d[weights + k] * missing
        row += LINE_ENTRIES
    solve(d[matrix : matrix + n * n], d[forces:], n, d[matrix + n * n :])
    for k in range(n):
        planar_push(ix, d, m, acc, k, d[weights + k] * d[forces + k])


def planar_motion(ix: Indices, val: Floats, z: Floats, d: Floats, m: int) -> None:
    """Move the node of each actuator."""
    closures, actuators = entry(ix, m + N_CLOSURES), entry(ix, m + N_ACTUATORS)
    planar_poses(ix, z, d, m, 0.0)
    planar_lines(ix, val, d, m, closures, closures + actuators)
    t = planar_terms(ix, m) + TERMS * closures
    for k in range(actuators):
        move_node(ix, z, d, m, k, d[t], d[t + 1])
        t += TERMS


def planar_rates(ix: Indices, val: Floats, z: Floats, d: Floats, m: int, held: bool) -> None:
    """Derivatives of the states under the forces and masses at the actuators' nodes; after ``planar_motion``.

    ``held``: with the latest solution of accelerations per force, which is valid for the middle of the steps that share
    it; solved anew after ``planar_settle``.
    """
    bodies, closures, actuators = entry(ix, m + N_BODIES), entry(ix, m + N_CLOSURES), entry(ix, m + N_ACTUATORS)
    scratch, acc, width = entry(ix, m + SCRATCH), planar_accelerations(ix, m, 0), 3 * (bodies + 1)
    if held and d[scratch] >= 0.0:
        planar_poses(ix, z, d, m, d[scratch])
        planar_lines(ix, val, d, m, 0, closures + actuators)
        planar_matrix(ix, d, m, True)
        for k in range(actuators):
            part = acc + width * (1 + k)
            for i in range(part, part + width):
                d[i] = 0.0
            planar_push(ix, d, m, part, closures + k, 1.0)
            planar_constrain(ix, d, m, part, 0.0, 0.0, 0.0)
        planar_fall(ix, val, d, m)
        planar_constrain(ix, d, m, acc, 1.0, ALPHA * ALPHA, 2.0 * ALPHA)
        d[scratch] = -1.0
    if not held:
        planar_lines(ix, val, d, m, 0, closures)
        planar_matrix(ix, d, m, True)
        planar_fall(ix, val, d, m)
        for k in range(actuators):
            planar_push(ix, d, m, acc, closures + k, d[entry(ix, m + NODES + NODE_ENTRIES * k + 1)])
        planar_constrain(ix, d, m, acc, 1.0, ALPHA * ALPHA, 2.0 * ALPHA)
    s = entry(ix, m + FIRST_STATE)
    for i in range(bodies):
        for place in range(3):
            rate = d[acc + 3 * i + place]
            if held:
                for k in range(actuators):
                    rate += d[acc + width * (1 + k) + 3 * i + place] * d[entry(ix, m + NODES + NODE_ENTRIES * k + 1)]
            d[s + place], d[s + 3 + place] = z[s + 3 + place], rate
        s += 6


def planar_fall(ix: Indices, val: Floats, d: Floats, m: int) -> None:
    """Accelerations of free bodies under gravity."""
    acc, v, bodies = planar_accelerations(ix, m, 0), entry(ix, m + PARAMETERS), entry(ix, m + N_BODIES)
    for _ in range(bodies):
        d[acc], d[acc + 1], d[acc + 2] = val[v], val[v + 1], 0.0
        acc += 3
    d[acc], d[acc + 1], d[acc + 2] = 0.0, 0.0, 0.0


def planar_settle(ix: Indices, val: Floats, z: Floats, d: Floats, m: int, ahead: float) -> None:
    """Correct the drift of positions, then of speeds; the next shared solution is valid ``ahead`` s from now."""
    for _ in range(MAX_CORRECTIONS):
        if planar_gap(ix, val, z, d, m, 0) <= CLOSED:
            break
        planar_correct(ix, z, d, m, 0)
    if planar_gap(ix, val, z, d, m, 1) > CLOSED:
        planar_correct(ix, z, d, m, 1)
    d[entry(ix, m + SCRATCH)] = ahead


def planar_gap(ix: Indices, val: Floats, z: Floats, d: Floats, m: int, what: int) -> float:
    """Largest error of a constraint (``what`` = 0) or of its rate (1); updates the terms."""
    closures, t = entry(ix, m + N_CLOSURES), planar_terms(ix, m) + what
    planar_poses(ix, z, d, m, 0.0)
    planar_lines(ix, val, d, m, 0, closures + entry(ix, m + N_ACTUATORS))
    worst = 0.0
    for k in range(closures):
        worst = max(worst, abs(d[t + TERMS * k]))
    return worst


def planar_correct(ix: Indices, z: Floats, d: Floats, m: int, what: int) -> None:
    """One Newton step that makes the constraints (``what`` = 0) or their rates (1) zero."""
    bodies, change = entry(ix, m + N_BODIES), planar_accelerations(ix, m, 0)
    for i in range(change, change + 3 * (bodies + 1)):
        d[i] = 0.0
    planar_matrix(ix, d, m, False)
    planar_constrain(ix, d, m, change, 0.0, 1.0 - what, float(what))
    s = entry(ix, m + FIRST_STATE) + 3 * what
    for i in range(bodies):
        for place in range(3):
            z[s + 6 * i + place] += d[change + 3 * i + place]
