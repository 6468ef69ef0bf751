"""For the tests of chains: mechanisms drawn in a few lines, their runs, and the poses and constraints of bodies."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from hilserver.circuit.program import Program
from hilserver.mechanics.chain import MOTION, ORIGIN, ROTATION, VELOCITY
from hilserver.mechanics.model import (
    GROUND,
    Mechanism,
    Prismatic,
    Revolute,
    Universal,
    read_mechanism,
)
from hilserver.mechanics.position import kinematics_of
from hilserver.mechanics.tree import Tree
from hilserver.numerics.arrays import Floats

G = 9.81
READY = Path(__file__).parents[2] / "config" / "mechanisms"


def metres(*vector: float) -> list[str]:
    return [f"{float(component)!r} m" for component in vector]


def body(mass: float, inertia: float | list[float], *centre: float) -> dict[str, Any]:
    moments = inertia if isinstance(inertia, list) else [inertia]
    return {"mass": f"{mass} kg", "inertia": [f"{float(J)!r} kg*m^2" for J in moments], "centre": metres(*centre)}


def joint(kind: str, first: str, second: str, *point: float, **more: Any) -> dict[str, Any]:
    return {"type": kind, "between": [first, second], "point": metres(*point), **more}


BALL = {
    "bodies": {"top": body(1.0, [0.02, 0.03, 0.05], 0.1, 0.0, 0.2)},
    "joints": {"ball": joint("spherical", "ground", "top", 0.0, 0.0, 0.0)},
}
"""A body on a ball joint."""


def mechanism(bodies: dict[str, Any], joints: dict[str, Any], **more: Any) -> Mechanism:
    return read_mechanism({"method": "recursive", "bodies": bodies, "joints": joints, **more})


def read(name: str, **joints: Any) -> Mechanism:
    """A ready mechanism; ``joints``: keys to add to a joint's table."""
    raw = tomllib.loads((READY / f"{name}.toml").read_text())
    for joint_name, more in joints.items():
        raw["joints"][joint_name] |= more
    return read_mechanism(raw, f"{name}.toml")


def bar_chain(*names: str, length: float, mass: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Bars in a row on the x-axis, pinned to each other and to the ground, moving in the plane of x and z."""
    bodies = {
        name: body(mass, [1e-9, mass * length**2 / 12, mass * length**2 / 12], (i + 0.5) * length, 0.0, 0.0)
        for i, name in enumerate(names)
    }
    joints = {
        f"pin_{name}": joint("revolute", before, name, i * length, 0.0, 0.0, axis=[0, -1, 0])
        for i, (before, name) in enumerate(zip((GROUND, *names), names, strict=False))
    }
    return bodies, joints


def ring(n: int, side: float = 0.2) -> Mechanism:
    """n equal bars in a regular polygon in the plane of x and z; the first is the ground."""
    angle = -np.pi / 2 + np.pi / n + 2.0 * np.pi / n * np.arange(n)
    radius = side / (2.0 * np.sin(np.pi / n))
    corner = radius * np.column_stack([np.cos(angle), np.zeros(n), np.sin(angle)])
    names = [GROUND, *(f"bar_{i}" for i in range(1, n))]
    J = side**2 / 12
    bodies = {names[i]: body(1.0, [J, J, J], *(corner[i - 1] + corner[i]) / 2) for i in range(1, n)}
    joints = {f"pin_{i}": joint("revolute", names[i], names[(i + 1) % n], *corner[i], axis=[0, 1, 0]) for i in range(n)}
    return mechanism(bodies, joints)


def run(
    program: Program,
    tree: Tree,
    y: Floats,
    seconds: float,
    h: float = 1e-3,
    effort: Floats | None = None,
    every: int = 1,
) -> tuple[Floats, float]:
    """States after each ``every`` steps, and the largest gap."""
    steps = round(seconds / h)
    states = np.zeros((steps // every + 1, len(y)))
    none, gap = np.zeros((1, len(tree.mechanism.actuators))), np.zeros(1)
    program.advance_chain(
        tree.chain(), y.copy(), none if effort is None else effort, none[0], h, steps, every, states, gap
    )
    return states, float(gap[0])


def rates(program: Program, tree: Tree, y: Floats, effort: Floats, mass: Floats | None = None) -> tuple[Floats, Floats]:
    """d/dt of the state, and the links' motion."""
    c, found = tree.chain(), np.zeros_like(y)
    program.load_chain(c, effort, np.zeros_like(effort) if mass is None else mass)
    program.chain_rates(c, y, found)
    return found, c.d[c.motion : c.reaction].reshape(-1, MOTION)


class Pose:
    """Rotation and centre of mass of each body, and their speeds."""

    def __init__(self, R: dict[str, Floats], x: dict[str, Floats], w: dict[str, Floats], v: dict[str, Floats]) -> None:
        self.R, self.x, self.w, self.v = R, x, w, v

    def later(self, t: float) -> Pose:
        """After t seconds at these speeds."""
        R = {name: Rotation.from_rotvec(t * self.w[name]).as_matrix() @ self.R[name] for name in self.R}
        return Pose(R, {name: self.x[name] + t * self.v[name] for name in self.x}, self.w, self.v)

    def at(self, w: Floats, v: Floats) -> Pose:
        """The same place at other speeds, three numbers per body."""
        return Pose(self.R, self.x, dict(zip(self.R, w, strict=True)), dict(zip(self.R, v, strict=True)))


def pose_of(tree: Tree, y: Floats) -> Pose:
    """Where the recursion's kinematics puts the bodies."""
    c = kinematics_of(tree, y)
    motion = c.d[c.motion : c.reaction].reshape(-1, MOTION)
    R, x, w, v = {}, {}, {}, {}
    for name, it in tree.mechanism.bodies.items():
        m = motion[tree.link_of(name)]
        R[name] = m[ROTATION : ROTATION + 9].reshape(3, 3).copy()
        x[name] = m[ORIGIN : ORIGIN + 3] + R[name] @ np.array(it.centre)
        w[name] = m[VELOCITY : VELOCITY + 3].copy()
        v[name] = m[VELOCITY + 3 : VELOCITY + 6] + np.cross(w[name], x[name])
    return Pose(R, x, w, v)


def constraints(m: Mechanism, pose: Pose) -> Floats:
    """What each joint keeps at zero, from the poses of its two bodies alone."""

    def place(name: str, point: Any) -> Floats:
        p = np.array(point)
        return p if name == GROUND else pose.x[name] + pose.R[name] @ (p - np.array(m.bodies[name].centre))

    def turned(name: str, direction: Any) -> Floats:
        return np.array(direction) if name == GROUND else pose.R[name] @ np.array(direction)

    found: list[float] = []
    for it in m.joints.values():
        one, two = it.between
        apart = place(two, it.point) - place(one, it.point)
        if isinstance(it, Prismatic):
            frames = [np.eye(3) if name == GROUND else pose.R[name] for name in it.between]
            found += [
                *Rotation.from_matrix(frames[0].T @ frames[1]).as_rotvec(),
                *np.cross(turned(one, it.axis), apart),
            ]
            continue
        found += [*apart]
        if isinstance(it, Revolute):
            found += [*np.cross(turned(one, it.axis), turned(two, it.axis))]
        if isinstance(it, Universal):
            found.append(float(turned(one, it.axes[0]) @ turned(two, it.axes[1])))
    return np.array(found)
