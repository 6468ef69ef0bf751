"""Positions of a tree: where its bodies are, how far its loops are open, and Newton's method to close them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hilserver.mechanics.chain import (
    BALL_X,
    CLOSURE,
    FREEDOM,
    MOTION,
    ORIGIN,
    POINT,
    PRISMATIC,
    REVOLUTE,
    ROTATION,
    ROW_GAP,
    ROW_T,
    Chain,
)
from hilserver.mechanics.geometry import extent
from hilserver.mechanics.kinematics import measure_gaps, measure_rows
from hilserver.mechanics.tree import Tree
from hilserver.numerics.arrays import Floats

INDEPENDENT = 1e-9
"""Smallest singular value, relative to the largest, at which a constraint counts as independent."""
CLOSED, NEWTON_STEPS = 1e-12, 25
"""Gap at which a loop counts as closed, in units of the mechanism's size; limit of Newton's iterations."""


def kinematics_of(tree: Tree, y: Floats) -> Chain:
    """The chain with the positions and velocities of its links and the gaps of its rows at the state y."""
    c = tree.chain()
    measure_gaps(c, y)
    return c


def poses(tree: Tree, y: Floats) -> dict[str, tuple[Floats, Floats]]:
    """Rotation of each body from its drawn orientation, and position of the drawing's origin as moved with the body."""
    c = kinematics_of(tree, y)
    motion = c.d[c.motion : c.reaction].reshape(-1, MOTION)
    found = {}
    for body in tree.mechanism.bodies:
        line = motion[tree.link_of(body)]
        found[body] = line[ROTATION : ROTATION + 9].reshape(3, 3).copy(), line[ORIGIN : ORIGIN + 3].copy()
    return found


def row_jacobian(tree: Tree, y: Floats) -> Floats:
    """Rates of the gaps, then of the linear actuators' positions in m/s, per rad/s or size/s of each link."""
    c, size = kinematics_of(tree, y), extent(tree.mechanism)
    measure_rows(c, 0, c.n_rows)
    T = rows_of(c)[:, ROW_T : ROW_T + 6]
    S = c.d[c.motion : c.reaction].reshape(-1, MOTION)[:, FREEDOM : FREEDOM + 6]
    J = np.zeros((c.n_rows, tree.n_speeds))
    for r, between in enumerate(tree.row_bodies()):
        for sign, body in zip((-1.0, 1.0), between, strict=True):
            i = tree.link_of(body)
            while i > 0:
                link = tree.links[i - 1]
                J[r, i - 1] += sign * (T[r] @ S[i]) * (size if link.kind == PRISMATIC else 1.0)
                i = link.parent
    return J


def closure_jacobian(tree: Tree, y: Floats) -> Floats:
    """Rates of the gaps per speed, with lengths in units of the mechanism's size; one row per constraint."""
    return row_jacobian(tree, y)[: len(tree.rows)] / _row_units(tree)[:, None]


def scaled_gaps(tree: Tree, y: Floats) -> Floats:
    """Gaps at the cut joints, with lengths in units of the mechanism's size."""
    gaps: Floats = rows_of(kinematics_of(tree, y))[: len(tree.rows), ROW_GAP] / _row_units(tree)
    return gaps


def rows_of(c: Chain) -> Floats:
    """Scratch space of the rows as a matrix."""
    return c.d[c.closure : c.flexibility].reshape(-1, CLOSURE)


def _row_units(tree: Tree) -> Floats:
    size = extent(tree.mechanism)
    return np.array([size if row.kind == POINT else 1.0 for row in tree.rows])


def rank(J: Floats) -> int:
    """Rank of a matrix whose rows are scaled to the order of 1."""
    return int(np.linalg.matrix_rank(J, tol=INDEPENDENT * max(1.0, float(np.linalg.norm(J, 2)))))


def displace(tree: Tree, y: Floats, change: Floats) -> None:
    """Displace the coordinates in place, by rotations in rad and translations in units of the mechanism's size."""
    size = extent(tree.mechanism)
    for i, link in enumerate(tree.links, 1):
        at = tree.place(i)
        if link.kind == BALL_X:
            w, v = y[at], y[at + 1 : at + 4].copy()
            half = 0.5 * change[i - 1 : i + 2]
            y[at] = w - v @ half
            y[at + 1 : at + 4] = v + w * half + np.cross(v, half)
            y[at : at + 4] /= np.linalg.norm(y[at : at + 4])
        elif link.kind == REVOLUTE:
            y[at] += change[i - 1]
        elif link.kind == PRISMATIC:
            y[at] += size * change[i - 1]


@dataclass(frozen=True)
class Given:
    """A position or speed that a file prescribes at the start, of a link's coordinate or a linear actuator's row."""

    key: str
    link: int | None
    row: int | None
    start: float | None
    speed: float | None


def prescribed_units(tree: Tree, given: list[Given]) -> Floats:
    """Unit of each prescribed value: 1 rad, or the mechanism's size."""
    turning = [g.link is not None and tree.links[g.link - 1].kind != PRISMATIC for g in given]
    return np.where(turning, 1.0, extent(tree.mechanism))


def prescribed_values(tree: Tree, y: Floats, given: list[Given]) -> Floats:
    """Present coordinates of the prescribed links and positions of the prescribed actuators."""
    c = kinematics_of(tree, y)
    measure_rows(c, 0, c.n_rows)
    gaps = rows_of(c)[:, ROW_GAP]
    return np.array([gaps[g.row] if g.link is None else y[tree.place(g.link)] for g in given])


def prescribed_rates(tree: Tree, y: Floats, given: list[Given]) -> Floats:
    """Derivatives of the prescribed values with respect to the speeds, in units."""
    J, size = row_jacobian(tree, y), extent(tree.mechanism)
    unit = np.eye(tree.n_speeds)
    return np.array([J[g.row] / size if g.link is None else unit[g.link - 1] for g in given]).reshape(-1, tree.n_speeds)


def reach(tree: Tree, y: Floats, given: list[Given], goal: list[float]) -> bool:
    """Displace y in place until the loops are closed and ``goal`` is reached; False if that fails."""
    units = prescribed_units(tree, given)
    for _ in range(NEWTON_STEPS):
        missing = np.concatenate([-scaled_gaps(tree, y), (np.array(goal) - prescribed_values(tree, y, given)) / units])
        if np.abs(missing).max(initial=0.0) < CLOSED:
            return True
        matrix = np.vstack([closure_jacobian(tree, y), prescribed_rates(tree, y, given)])
        displace(tree, y, np.asarray(np.linalg.lstsq(matrix, missing, rcond=1e-9)[0], dtype=float))
    return False


def close(tree: Tree, y: Floats) -> bool:
    """Close the loops in place to 1e-12 of the mechanism's size by small displacements; False if that fails."""
    return reach(tree, y, [], [])
