"""Closed chains in joint coordinates, against equations that know nothing of recursion or joint coordinates."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from hilserver.circuit.program import Program
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.mechanics.chain import ACCELERATION, MOTION, ORIGIN, PRISMATIC, ROTATION, VELOCITY
from hilserver.mechanics.generated import generated_loop, loop_table
from hilserver.mechanics.model import (
    GROUND,
    Linear,
    Mechanism,
    Prismatic,
    Revolute,
    Spherical,
    Universal,
    read_mechanism,
)
from hilserver.mechanics.tree import (
    Tree,
    close,
    closure_jacobian,
    displace,
    extent,
    poses,
    seen,
    start_of,
    tensor,
    tree_of,
)
from hilserver.numerics.arrays import Floats
from hilserver.report.document import Grid
from hilserver.simulation.chain_experiments import generated_loops, slider_crank
from hilserver.simulation.chains import chain_program, run_bdf, run_fixed, run_halves

G = 9.81


@pytest.fixture(scope="module")
def program() -> Program:
    return chain_program()


def metres(*vector: float) -> list[str]:
    return [f"{float(component)!r} m" for component in vector]


def body(mass: float, inertia: float | list[float], *centre: float) -> dict[str, Any]:
    moments = inertia if isinstance(inertia, list) else [inertia]
    return {"mass": f"{mass} kg", "inertia": [f"{float(J)!r} kg*m^2" for J in moments], "centre": metres(*centre)}


def joint(kind: str, first: str, second: str, *point: float, **more: Any) -> dict[str, Any]:
    return {"type": kind, "between": [first, second], "point": metres(*point), **more}


def mechanism(bodies: dict[str, Any], joints: dict[str, Any], **more: Any) -> Mechanism:
    return read_mechanism({"method": "recursive", "bodies": bodies, "joints": joints, **more})


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
    courses = np.zeros((steps // every + 1, len(y)))
    none = np.zeros((1, len(tree.mechanism.actuators)))
    gap = program.advance_chain(
        tree.chain(), y.copy(), none if effort is None else effort, none[0], h, steps, every, courses
    )
    return courses, gap


def rates(program: Program, tree: Tree, y: Floats, effort: Floats, mass: Floats | None = None) -> tuple[Floats, Floats]:
    """d/dt of the state, and the links' motion."""
    c, found = tree.chain(), np.zeros_like(y)
    program.load_chain(c, effort, np.zeros_like(effort) if mass is None else mass)
    program.chain_rates(c, y, found)
    return found, c.d[c.motion : c.reaction].reshape(-1, MOTION)


# --- against Newton's and Euler's equations of each body by itself ----------------------------------------------------


def spatial_mechanism() -> Mechanism:
    """All joints of the library in two loops and a branch; nothing is parallel to anything."""
    rng = np.random.default_rng(7)
    names = ["crank", "rod", "slider", "arm", "ram", "tail", "tip"]
    bodies = {}
    for name in names:
        M = rng.normal(size=(3, 3))
        J = 0.02 * (M @ M.T + np.eye(3))
        bodies[name] = body(
            float(rng.uniform(0.5, 2.0)), [J[0, 0], J[1, 1], J[2, 2], J[0, 1], J[0, 2], J[1, 2]], *rng.normal(size=3)
        )
    p = rng.normal(size=(8, 3))
    axes = [[1.0, 0.2, -0.3], [0.3, 1.0, 0.1], [0.2, -0.1, 1.0]]
    cross = [[1.0, 2.0, 0.0], [-2.0, 1.0, 1.0]]
    joints = {
        "pin": joint("revolute", GROUND, "crank", *p[0], axis=axes[0]),
        "ball": joint("spherical", "crank", "rod", *p[1]),
        "cross": joint("universal", "slider", "rod", *p[2], axes=cross),
        "guide": joint("prismatic", GROUND, "slider", *p[3], axis=axes[1]),
        "elbow": joint("spherical", "arm", "rod", *p[4]),
        "ram_slide": joint("prismatic", "arm", "ram", *p[5], axis=axes[2]),
        "shackle": joint("universal", GROUND, "ram", *p[6], axes=cross),
        "tail_ball": joint("spherical", "tail", "ram", *p[7]),
        "tip_pin": joint("revolute", "tip", "tail", *p[2], axis=axes[2]),
    }
    actuators = {
        "cylinder": {"between": ["arm", "crank"], "pins": [metres(*p[2]), metres(*p[6])]},
        "motor": {"type": "rotary", "joint": "pin"},
    }
    return mechanism(bodies, joints, actuators=actuators, gravity=["1 m/s^2", "-2 m/s^2", "-9.81 m/s^2"])


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
    c = seen(tree, y)
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


def newton_euler(m: Mechanism, pose: Pose, force: float, torque: float) -> tuple[Floats, Floats]:
    """Accelerations (angular, of the centre of mass) of each body: its own equations and the joints' constraints.

    The constraints' derivatives are differences along the motion: nothing of the recursion's algebra is in here.
    """
    names, n, e = list(m.bodies), len(m.bodies), 1e-4
    J = np.empty((len(constraints(m, pose)), 6 * n))
    for k in range(6 * n):
        unit = np.zeros(6 * n)
        unit[k] = 1.0
        moved = pose.at(unit.reshape(-1, 6)[:, :3], unit.reshape(-1, 6)[:, 3:])
        near = constraints(m, moved.later(e)) - constraints(m, moved.later(-e))
        far = constraints(m, moved.later(2 * e)) - constraints(m, moved.later(-2 * e))
        J[:, k] = (8.0 * near - far) / (12.0 * e)
    e = 1e-3
    values = [constraints(m, pose.later(k * e)) for k in (-2, -1, 0, 1, 2)]
    bend = (-values[0] + 16.0 * values[1] - 30.0 * values[2] + 16.0 * values[3] - values[4]) / (12.0 * e * e)
    cylinder, pin = m.actuators["cylinder"], m.joints["pin"]
    assert isinstance(cylinder, Linear)
    assert isinstance(pin, Revolute)
    M, load = np.zeros((6 * n, 6 * n)), np.zeros((n, 6))
    for i, name in enumerate(names):
        J_world = pose.R[name] @ tensor(m.bodies[name].inertia) @ pose.R[name].T
        M[6 * i : 6 * i + 3, 6 * i : 6 * i + 3] = J_world
        M[6 * i + 3 : 6 * i + 6, 6 * i + 3 : 6 * i + 6] = m.bodies[name].mass * np.eye(3)
        load[i, :3] = -np.cross(pose.w[name], J_world @ pose.w[name])
        load[i, 3:] = m.bodies[name].mass * np.array(m.gravity)

    def push(name: str, point: Any, direction: Floats) -> None:
        arm = pose.R[name] @ (np.array(point) - np.array(m.bodies[name].centre))
        load[names.index(name)] += [*np.cross(arm, direction), *direction]

    ends = [
        pose.x[name] + pose.R[name] @ (np.array(point) - np.array(m.bodies[name].centre))
        for name, point in zip(cylinder.between, cylinder.pins, strict=True)
    ]
    along = (ends[1] - ends[0]) / np.linalg.norm(ends[1] - ends[0])
    push(cylinder.between[1], cylinder.pins[1], force * along)
    push(cylinder.between[0], cylinder.pins[0], -force * along)
    load[names.index("crank"), :3] += torque * np.array(pin.axis)
    rows = len(J)
    matrix = np.block([[M, J.T], [J, np.zeros((rows, rows))]])
    found = np.linalg.lstsq(matrix, np.concatenate([load.ravel(), -bend]), rcond=1e-10)[0][: 6 * n].reshape(-1, 6)
    return found[:, :3], found[:, 3:]


@pytest.fixture(scope="module")
def moving() -> tuple[Tree, Floats]:
    """The spatial mechanism somewhere away from its drawing, moving as its loops allow."""
    tree = tree_of(spatial_mechanism())
    y, chance = tree.drawn(), np.random.default_rng(3)
    displace(tree, y, 0.15 * chance.standard_normal(tree.n_speeds))
    assert close(tree, y)
    _, _, ways = np.linalg.svd(closure_jacobian(tree, y))
    free = ways[len(tree.rows) :]
    speeds = chance.standard_normal(len(free)) @ free
    slides = [number for number, link in enumerate(tree.links) if link.kind == PRISMATIC]
    speeds[slides] *= extent(tree.mechanism)  # they count in units of it there
    y[tree.n_coordinates :] = 2.0 * speeds
    return tree, y


def test_spatial_loops_move_as_newton_and_euler_say(program: Program, moving: tuple[Tree, Floats]) -> None:
    """Reference: each body's own equations and the constraints in absolute coordinates; 1e-6 of the largest.

    That is how exact the differences are that stand for the constraints' derivatives.
    """
    tree, y = moving
    m, pose = tree.mechanism, pose_of(tree, y)
    assert np.abs(constraints(m, pose)).max() < 1e-9, "the joints hold together where the recursion puts the bodies"
    along = (constraints(m, pose.later(1e-5)) - constraints(m, pose.later(-1e-5))) / 2e-5
    assert np.abs(along).max() < 1e-7, "and go on doing so at its velocities"

    force, torque = 37.0, -11.0
    _, motion = rates(program, tree, y, np.array([force, torque]))
    alpha, acceleration = newton_euler(m, pose, force, torque)
    for i, name in enumerate(m.bodies):
        A = motion[tree.link_of(name), ACCELERATION : ACCELERATION + 6]
        ours = A[3:] + np.array(m.gravity) + np.cross(A[:3], pose.x[name]) + np.cross(pose.w[name], pose.v[name])
        assert A[:3] == pytest.approx(alpha[i], abs=1e-6 * np.abs(alpha).max())
        assert ours == pytest.approx(acceleration[i], abs=1e-6 * np.abs(acceleration).max())


def test_actuators_measure_what_they_push(program: Program, moving: tuple[Tree, Floats]) -> None:
    """The power of force and torque is that of the speeds they are said to have; position against the poses."""
    tree, y = moving
    place, speed = np.zeros(2), np.zeros(2)
    with_force, _ = rates(program, tree, y, np.array([1.0, 0.0]))
    c = seen(tree, y)
    program.measure_actuators(c, y, place, speed)
    cylinder, pose, m = tree.mechanism.actuators["cylinder"], pose_of(tree, y), tree.mechanism
    assert isinstance(cylinder, Linear)
    later = [
        [
            p.x[name] + p.R[name] @ (np.array(point) - np.array(m.bodies[name].centre))
            for name, point in zip(cylinder.between, cylinder.pins, strict=True)
        ]
        for p in (pose, pose.later(1e-5), pose.later(-1e-5))
    ]
    lengths = [float(np.linalg.norm(b - a)) for a, b in later]
    assert place[0] == pytest.approx(lengths[0], rel=1e-12)
    assert speed[0] == pytest.approx((lengths[1] - lengths[2]) / 2e-5, rel=1e-6)
    assert place[1] == y[tree.coordinate_names().index("pin")]
    assert speed[1] == y[tree.n_coordinates + [link.joint for link in tree.links].index("pin")]
    assert np.isfinite(with_force).all()


def test_masses_at_the_actuators(program: Program, moving: tuple[Tree, Floats]) -> None:
    """A piston of mass m, a rotor of inertia J take m·x'', J·phi'' of the effort; x'' as difference of the speeds."""
    tree, y = moving
    effort, mass = np.array([37.0, -11.0]), np.array([100.0, 20.0])
    loaded, _ = rates(program, tree, y, effort, mass)

    def speeds(at: Floats) -> Floats:
        place, speed, c = np.zeros(2), np.zeros(2), seen(tree, at)
        program.measure_actuators(c, at, place, speed)
        return speed

    e = 1e-5
    acceleration = (speeds(y + e * loaded) - speeds(y - e * loaded)) / (2.0 * e)
    same, _ = rates(program, tree, y, effort - mass * acceleration)
    without, _ = rates(program, tree, y, effort)
    assert same == pytest.approx(loaded, abs=1e-6 * np.abs(loaded).max())
    assert np.abs(without - loaded).max() > 1e-2 * np.abs(loaded).max()


def test_spatial_loops_keep_their_energy_and_stay_closed(program: Program, moving: tuple[Tree, Floats]) -> None:
    tree, y = moving
    courses, gap = run(program, tree, y, 2.0, every=100)
    energies = [program.chain_energy(tree.chain(), at) for at in courses]
    assert gap < 1e-8
    assert np.ptp(energies) < 1e-5 * (max(energies) - min(0.0, *energies))
    quaternions = [at[tree.place(i) : tree.place(i) + 4] for at in courses for i in balls(tree)]
    assert quaternions
    assert np.linalg.norm(quaternions, axis=1) == pytest.approx(1.0, abs=1e-14)
    assert max(np.abs(constraints(tree.mechanism, pose_of(tree, at))).max() for at in courses) < 1e-7


def balls(tree: Tree) -> Iterator[int]:
    """Links that begin a spherical joint."""
    names = [link.joint for link in tree.links]
    for i, name in enumerate(names, 1):
        if isinstance(tree.mechanism.joints[name], Spherical) and names.index(name) == i - 1:
            yield i


# --- against equations of one's own -----------------------------------------------------------------------------------


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


def test_double_pendulum(program: Program) -> None:
    """Two bars, Lagrange's equations (e.g. Goldstein, Classical Mechanics), DOP853 at 1e-12; 1e-7 rad over 3 s."""
    length, mass = 0.5, 2.0
    tree = tree_of(mechanism(*bar_chain("upper", "lower", length=length, mass=mass)))
    assert tree.coordinate_names() == ["pin_upper", "pin_lower"]

    def lagrange(_: float, s: Floats) -> list[float]:
        a, b, u, v = s[0], s[0] + s[1], s[2], s[2] + s[3]  # angles against the horizontal
        c, d = np.cos(b - a), np.sin(b - a)
        M = mass * length**2 * np.array([[4 / 3, c / 2], [c / 2, 1 / 3]])
        right = mass * length**2 / 2 * np.array([d * v * v, -d * u * u])
        right -= mass * G * length * np.array([1.5 * np.cos(a), 0.5 * np.cos(b)])
        du, dv = np.linalg.solve(M, right)
        return [s[2], s[3], du, dv - du]

    start = np.array([-0.4, 0.3, 1.0, -2.0])
    exact = solve_ivp(lagrange, (0.0, 3.0), start, method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    courses, _ = run(program, tree, start, 3.0)
    assert courses[-1] == pytest.approx(exact, abs=1e-7)


def planar_slider_crank() -> Mechanism:
    """Crank 0.1 m, rod 0.3 m, slider; drawn with the crank at 1 rad, in space: so with redundant rows."""
    r, rod, theta = 0.1, 0.3, 1.0
    pin, wrist = (r * np.cos(theta), r * np.sin(theta)), r * np.cos(theta) + np.sqrt(rod**2 - (r * np.sin(theta)) ** 2)
    bodies = {
        "crank": body(1.0, [1e-3, 1e-3, 2e-3], pin[0] / 2, 0.0, pin[1] / 2),
        "rod": body(0.5, [4e-3, 4e-3, 4e-3], (pin[0] + wrist) / 2, 0.0, pin[1] / 2),
        "slider": body(0.8, [1e-3, 1e-3, 1e-3], wrist, 0.0, 0.0),
    }
    joints = {
        "shaft": joint("revolute", GROUND, "crank", 0.0, 0.0, 0.0, axis=[0, -1, 0]),
        "crank_pin": joint("revolute", "crank", "rod", pin[0], 0.0, pin[1], axis=[0, -1, 0]),
        "wrist_pin": joint("revolute", "rod", "slider", wrist, 0.0, 0.0, axis=[0, -1, 0]),
        "guide": joint("prismatic", GROUND, "slider", wrist, 0.0, 0.0, axis=[1, 0, 0]),
    }
    return mechanism(bodies, joints, actuators={"torque": {"type": "rotary", "joint": "shaft"}})


def test_slider_crank(program: Program) -> None:
    """One degree of freedom: d/dt(J·w) with J(angle) from the closed kinematics, DOP853; 1e-4 rad in 5 s (20 turns)."""
    r, rod, tree = 0.1, 0.3, tree_of(planar_slider_crank())
    assert tree.freedom == 1

    def places(a: float) -> Floats:
        """x and z of the centres of crank, rod and slider; angles of crank and rod."""
        x = r * np.cos(a) + np.sqrt(rod**2 - (r * np.sin(a)) ** 2)
        return np.array(
            [
                r / 2 * np.cos(a),
                r / 2 * np.sin(a),
                (r * np.cos(a) + x) / 2,
                r / 2 * np.sin(a),
                x,
                a,
                np.arcsin(r / rod * np.sin(a)),
            ]
        )

    weights = np.array([1.0, 1.0, 0.5, 0.5, 0.8, 1e-3, 4e-3])

    def inertia(a: float) -> float:
        e = 1e-3  # differences of sixth order
        k = np.array([45.0, -9.0, 1.0]) / (60.0 * e)
        slope = sum(k[j - 1] * (places(a + j * e) - places(a - j * e)) for j in (1, 2, 3))
        return float(weights @ slope**2)

    def lagrange(t: float, s: Floats) -> list[float]:
        a, w, e = s[0], s[1], 1e-3
        J = inertia(a)
        bend = (8 * (inertia(a + e) - inertia(a - e)) - (inertia(a + 2 * e) - inertia(a - 2 * e))) / (12 * e)
        weight = G * r * np.cos(a) * (1.0 / 2 + 0.5 / 2)
        return [w, (0.3 * np.exp(-t) - weight - bend * w * w / 2) / J]

    exact = solve_ivp(lagrange, (0.0, 5.0), [1.0, 3.0], method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    y = tree.drawn()
    names = tree.coordinate_names()
    ways = np.linalg.svd(closure_jacobian(tree, y))[2][-1]
    ways[names.index("guide")] *= extent(tree.mechanism)
    shaft = names.index("shaft")
    y[tree.n_coordinates :] = 3.0 * ways / ways[shaft]
    effort = 0.3 * np.exp(-np.arange(10001) * 0.5e-3)[:, None]
    courses, gap = run(program, tree, y, 5.0, effort=effort)
    assert 1.0 + courses[-1, shaft] == pytest.approx(exact[0], abs=1e-4)
    assert exact[0] > 100.0
    assert gap < 1e-8


READY = Path(__file__).parents[2] / "config" / "mechanisms"


def read(name: str, **joints: Any) -> Mechanism:
    """A ready mechanism; ``joints``: keys to add to a joint's table."""
    raw = tomllib.loads((READY / f"{name}.toml").read_text())
    for joint_name, more in joints.items():
        raw["joints"][joint_name] |= more
    return read_mechanism(raw, f"{name}.toml")


def test_spatial_slider_crank_of_the_source(program: Program) -> None:
    """Torque 0.01·exp(-t) N·m ([Closed chains]): one degree of freedom again, rotations by closed kinematics; 1e-5 rad.

    The rod's frame: its own axis u, and one normal to u and to the slider's axis z, as the universal joint has it.
    """
    tree = tree_of(read("spatial_slider_crank"))
    assert (tree.freedom, tree.cut, tree.redundant) == (1, ("ball",), ())
    J_rod = np.array([[2.4e-3, 8e-4, 1.6e-3], [8e-4, 3.6e-3, -8e-4], [1.6e-3, -8e-4, 2.4e-3]])

    def pose(a: float) -> tuple[Floats, Floats, float]:
        """Rotation of the rod from its drawing, centre of the rod, place of the slider, at the crank angle a."""
        B = np.array([0.0, 0.1 - 0.08 * np.sin(a), 0.12 + 0.08 * np.cos(a)])
        x = float(np.sqrt(0.09 - B[1] ** 2 - B[2] ** 2))
        u = (np.array([x, 0.0, 0.0]) - B) / 0.3
        side = np.cross(u, [0.0, 0.0, 1.0]) / np.linalg.norm(np.cross(u, [0.0, 0.0, 1.0]))
        return np.column_stack([u, side, np.cross(u, side)]), (B + np.array([x, 0.0, 0.0])) / 2.0, x

    drawn = pose(0.0)[0]

    def slope(f: Any, a: float, e: float = 2e-3) -> Any:
        """d/da by differences of sixth order."""
        return sum(k * (f(a + j * e) - f(a - j * e)) for j, k in ((1, 45.0), (2, -9.0), (3, 1.0))) / (60.0 * e)

    def inertia(a: float) -> float:
        R = pose(a)[0]
        turning = slope(lambda b: pose(b)[0], a) @ R.T
        w = np.array([turning[2, 1], turning[0, 2], turning[1, 0]])
        J = R @ drawn.T @ J_rod @ drawn @ R.T
        centre, x = slope(lambda b: pose(b)[1], a), slope(lambda b: pose(b)[2], a)
        return float(0.12 * 0.04**2 + 1e-4 + w @ J @ w + 0.5 * centre @ centre + 2.0 * x * x)

    def potential(a: float) -> float:
        return float(G * (0.12 * 0.04 * np.cos(a) + 0.5 * pose(a)[1][2]))

    angles = 2.0 * np.pi / 256 * np.arange(256)
    waves = np.arange(129)
    series = np.fft.rfft([[f(a) for a in angles] for f in (inertia, potential)], axis=1) / 128
    series[:, [0, 128]] /= 2.0
    assert np.abs(series[:, 100:]).max() < 1e-9, "the Fourier series of both have all that counts"

    def lagrange(t: float, s: Floats) -> list[float]:
        J, _ = (series * np.exp(1j * waves * s[0])).real.sum(axis=1)
        J_slope, V_slope = (1j * waves * series * np.exp(1j * waves * s[0])).real.sum(axis=1)
        return [s[1], (0.01 * np.exp(-t) - V_slope - 0.5 * J_slope * s[1] ** 2) / J]

    exact = solve_ivp(lagrange, (0.0, 5.0), [0.0, 0.0], method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    effort = 0.01 * np.exp(-np.arange(10001) * 0.5e-3)[:, None]
    courses, gap = run(program, tree, start_of(tree), 5.0, effort=effort)
    shaft = tree.coordinate_names().index("shaft")
    assert courses[-1, shaft] == pytest.approx(exact[0], abs=1e-5)
    assert exact[0] > 40.0
    assert gap < 1e-9


def test_starts_are_reached(program: Program) -> None:
    """The crank at 100 degrees and 60 rpm: the slider where the closed kinematics has it, and as fast."""
    tree = tree_of(read("spatial_slider_crank", shaft={"start": "100 deg", "start_speed": "60 rpm"}))
    y, names = start_of(tree), tree.coordinate_names()

    def slider(a: float) -> float:
        return float(np.sqrt(0.09 - (0.1 - 0.08 * np.sin(a)) ** 2 - (0.12 + 0.08 * np.cos(a)) ** 2)) - 0.2

    a, w, e = np.radians(100.0), 2.0 * np.pi, 1e-5
    assert y[names.index("shaft")] == pytest.approx(a, abs=1e-12)
    assert y[names.index("guide")] == pytest.approx(slider(a), abs=1e-11)
    speed = w * (slider(a + e) - slider(a - e)) / (2.0 * e)
    assert y[tree.n_coordinates + names.index("guide")] == pytest.approx(speed, rel=1e-8)
    _, gap = run(program, tree, y, 0.01)
    assert gap < 1e-10


@pytest.mark.parametrize(
    ("joints", "text"),
    [
        ({"guide": {"start": "200 mm"}}, "joints.guide.start: the mechanism can't reach this start: it stops"),
        (
            {"shaft": {"start_speed": "60 rpm"}, "guide": {"start_speed": "5 m/s"}},
            "joints.guide.start_speed: the mechanism can't have these speeds together",
        ),
    ],
)
def test_starts_that_cannot_be(joints: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        start_of(tree_of(read("spatial_slider_crank", **joints)), "crank.toml")
    assert text in str(caught.value)


def test_a_start_for_every_joint_of_a_loop_is_refused() -> None:
    given = {name: {"start": "0 deg"} for name in ("pin_1", "pin_2", "pin_3", "pin_4")}
    raw = loop_table(4)
    for name, more in given.items():
        raw["joints"][name] |= more
    with pytest.raises(ConfigurationError, match="start is given for every joint of this loop"):
        start_of(tree_of(read_mechanism(raw)))


def test_a_dead_centre_is_named() -> None:
    """Three bars in a straight line between two pins: stretched as far as they go."""
    bodies, joints = bar_chain("a", "b", "c", length=0.5, mass=1.0)
    joints["end"] = joint("revolute", "c", GROUND, 1.5, 0.0, 0.0, axis=[0, -1, 0])
    with pytest.raises(ConfigurationError, match="at the start the mechanism stands at a dead centre"):
        start_of(tree_of(mechanism(bodies, joints)))


def test_a_free_top_wobbles_as_euler_says(program: Program) -> None:
    """Held in its centre of mass, J = (A, A, C): the axis goes round the angular momentum L with the rate L/A."""
    A, C = 0.02, 0.05
    tree = tree_of(
        mechanism(
            {"top": body(1.0, [A, A, C], 0.0, 0.0, 0.0)}, {"ball": joint("spherical", GROUND, "top", 0.0, 0.0, 0.0)}
        )
    )
    y = tree.drawn()
    spin = np.array([3.0, 0.0, 40.0])
    y[4:] = spin
    L = np.array([A, A, C]) * spin
    courses, _ = run(program, tree, y, 2.0)
    w, x, yy, z = courses[-1, :4]
    axis = Rotation.from_quat([x, yy, z, w]).as_matrix()[:, 2]
    turned = Rotation.from_rotvec(2.0 / A * L).as_matrix() @ [0.0, 0.0, 1.0]
    assert axis == pytest.approx(turned, abs=2e-5)


# --- loops ------------------------------------------------------------------------------------------------------------


def hexapod() -> Mechanism:
    """A platform on six legs of universal joint, slide and ball: five loops that share it."""
    bodies = {"platform": body(20.0, [0.5, 0.5, 1.0], 0.0, 0.0, 1.0)}
    joints = {}
    for k in range(6):
        side, sign = np.radians(120.0 * (k // 2) + 30.0), (-1.0) ** k
        low, high = side + sign * np.radians(10.0), side + sign * np.radians(50.0)
        foot = np.array([np.cos(low), np.sin(low), 0.0])
        leg = np.array([0.6 * np.cos(high), 0.6 * np.sin(high), 1.0]) - foot
        along = leg / np.linalg.norm(leg)
        across = np.cross(along, [0.0, 0.0, 1.0]) / np.linalg.norm(np.cross(along, [0.0, 0.0, 1.0]))
        barrel, rod = f"barrel_{k}", f"rod_{k}"
        bodies |= {
            barrel: body(2.0, [0.05] * 3, *(foot + 0.25 * leg)),
            rod: body(1.0, [0.03] * 3, *(foot + 0.75 * leg)),
        }
        axes = [[float(x) for x in axis] for axis in (across, np.cross(along, across))]
        joints[f"foot_{k}"] = joint("universal", GROUND, barrel, *foot, axes=axes)
        joints[f"slide_{k}"] = joint("prismatic", barrel, rod, *foot, axis=[float(x) for x in along])
        joints[f"head_{k}"] = joint("spherical", rod, "platform", *(foot + leg))
    return mechanism(bodies, joints)


def test_a_hexapod(program: Program) -> None:
    """Six degrees of freedom, 15 rows; it falls turning for 1 s, with its energy (1e-6 J of hundreds) and closed."""
    tree = tree_of(hexapod())
    assert (tree.freedom, len(tree.rows), len(tree.cut), tree.redundant) == (6, 15, 5, ())
    y = start_of(tree)
    units = [extent(tree.mechanism) if link.kind == PRISMATIC else 1.0 for link in tree.links]
    y[tree.n_coordinates :] = 0.5 * np.linalg.svd(closure_jacobian(tree, y))[2][-1] * units
    courses, gap = run(program, tree, y, 1.0, every=50)
    energies = [program.chain_energy(tree.chain(), at) for at in courses]
    heights = [poses(tree, at)["platform"][1][2] for at in courses]
    assert np.ptp(heights) * 20.0 * G > 50.0
    assert np.ptp(energies) < 1e-6
    assert gap < 1e-9
    assert max(np.abs(constraints(tree.mechanism, pose_of(tree, at))).max() for at in courses) < 1e-9


def test_the_ready_loop_is_the_generated_one() -> None:
    assert tomllib.loads((READY / "loop.toml").read_text()) == loop_table(15)


@pytest.mark.parametrize("n", [5, 15])
def test_generated_loops_at_1_ms(program: Program, n: int) -> None:
    """5 s at 1 ms: within 1e-4 rad of a solution at an eighth of the step; energy to 1e-6 of what swings."""
    tree = tree_of(generated_loop(n))
    assert tree.freedom == n - 3
    coarse, gap = run(program, tree, tree.drawn(), 5.0, every=1000)
    fine, _ = run(program, tree, tree.drawn(), 5.0, 1.25e-4, every=8000)
    assert coarse[:, : tree.n_coordinates] == pytest.approx(fine[:, : tree.n_coordinates], abs=1e-4)
    assert np.abs(fine[-1, tree.n_coordinates :]).max() > 0.1
    assert gap < 1e-6
    energies = [program.chain_energy(tree.chain(), at) for at in coarse]
    assert np.ptp(energies) < 1e-6


def test_two_threads_share_a_loop() -> None:
    """The halves of a loop at the same time: what one thread finds, to rounding."""
    program, tree = chain_program(), tree_of(generated_loop(16))
    one = run_fixed(program, tree, start_of(tree), 0.02, 1e-3, 5)
    two = run_halves(program, tree, start_of(tree), 0.02, 1e-3, 5)
    assert np.abs(one.states[-1]).max() > 0.001
    assert two.states == pytest.approx(one.states, abs=1e-9)
    assert two.time == pytest.approx(one.time)


def test_a_mechanism_without_two_branches_is_not_shared() -> None:
    tree = tree_of(mechanism(*bar_chain("a", "b", length=0.5, mass=1.0)))
    with pytest.raises(HilserverError, match="no two chains to share out"):
        run_halves(chain_program(), tree, tree.drawn(), 0.1, 1e-3)


def test_bdf_agrees_with_runge_kutta() -> None:
    """Offline integration of variable order, the loop of five, 1 s: both within what is asked of BDF."""
    program, tree = chain_program(), tree_of(generated_loop(5))
    fixed = run_fixed(program, tree, start_of(tree), 1.0, 1e-3, 100)
    bdf = run_bdf(program, tree, start_of(tree), 1.0, 0.1, rtol=1e-7, atol=1e-9)
    assert bdf.states == pytest.approx(fixed.states, abs=1e-4)
    assert bdf.gap < 1e-6
    assert bdf.time == pytest.approx(fixed.time)


def test_a_run_that_leaves_all_bounds_says_so() -> None:
    program, tree = chain_program(), tree_of(generated_loop(151))
    with pytest.raises(HilserverError, match="take smaller ones"):
        run_fixed(program, tree, start_of(tree), 5.0, 2e-2)


def test_the_experiments_of_the_source(tmp_path: Path) -> None:
    """Small ones: tables with a line per size, costs and accuracy as figures, the source's beside them; written."""
    crank = slider_crank(READY / "spatial_slider_crank.toml", (1, 5))
    cost, accuracy = (block for block in crank.blocks if isinstance(block, Grid))
    assert [row[:3] for row in cost.rows] == [("1", "0.058", "0.165"), ("5", "0.368", "0.912")]
    assert all(float(cell) > 0.0 for row in cost.rows for cell in row[3:])
    errors = [float(row[2]) for row in accuracy.rows]
    assert errors[1] < 1e-4 < errors[0]
    assert errors[3] < errors[2] < 0.1
    loops = generated_loops((5, 61), 0.2, bursts=1)
    cost, threads = (block for block in loops.blocks if isinstance(block, Grid))
    assert [row[0] for row in cost.rows] == ["5", "61"]
    assert all(float(row[4]) < 1e-5 for row in cost.rows)
    assert float(cost.rows[0][5]) < 1e-4
    assert cost.rows[1][5] == "–"
    assert all(float(cell) > 0.0 for row in threads.rows for cell in row[:3])
    assert {path.suffix for path in loops.write(tmp_path, "loop")} == {".html", ".md", ".png"}


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


def test_a_loop_is_cut_in_its_middle_and_redundant_rows_are_named() -> None:
    tree = tree_of(ring(7))
    assert tree.cut == ("pin_3",)
    assert [row.name for row in tree.rows] == ["pin_3: shift along x", "pin_3: shift along z"]
    assert [row.name for row in tree.redundant] == [
        "pin_3: shift along y",
        "pin_3: turn about z",
        "pin_3: turn about x",
    ]
    assert tree.freedom == 4


def test_bennett_linkage_moves() -> None:
    """Four skew pins can't move, except where a/sin(alpha) is equal (Bennett, Engineering 76, 1903)."""
    a, alpha = 1.0, 0.6
    beta = np.arcsin(2.0 * np.sin(alpha) / 3.0)  # b = 2/3
    assert bennett(a, alpha, 2.0 / 3.0, float(beta)).freedom == 1
    assert bennett(a, alpha, 2.0 / 3.0, float(beta) + 0.01).freedom == 0


def bennett(a: float, alpha: float, b: float, beta: float) -> Tree:
    """Drawn by its Denavit-Hartenberg parameters with the first angle 1 rad; closed by the angles that fit best."""
    from scipy.optimize import least_squares

    def frames(angles: Floats) -> list[Floats]:
        frame, found = np.eye(4), []
        for theta, length, twist in zip(angles, (a, b, a, b), (alpha, beta, alpha, beta), strict=True):
            step = np.eye(4)
            step[:3, :3] = (Rotation.from_rotvec([0, 0, theta]) * Rotation.from_rotvec([twist, 0, 0])).as_matrix()
            step[:3, 3] = length * np.array([np.cos(theta), np.sin(theta), 0.0])
            found.append(frame)
            frame = frame @ step
        return [*found, frame]

    fit = least_squares(
        lambda t: (frames(np.array([1.0, *t]))[-1] - np.eye(4))[:3].ravel(), [2.0, -1.0, -2.0], xtol=1e-15, ftol=1e-15
    )
    placed = frames(np.array([1.0, *fit.x]))
    names = [GROUND, "one", "two", "three"]
    bodies = {name: body(1.0, [0.1, 0.1, 0.1], *rng_point(name)) for name in names[1:]}
    joints = {
        f"pin_{i}": joint(
            "revolute", names[i - 1], names[i], *placed[i][:3, 3], axis=[float(c) for c in placed[i][:3, 2]]
        )
        for i in range(4)
    }
    return tree_of(mechanism(bodies, joints))


def rng_point(name: str) -> Floats:
    return np.random.default_rng(len(name)).normal(size=3)


def test_a_ring_falls_with_fourth_order(program: Program) -> None:
    """Ring of five bars, 0.3 s: half the step leaves 1/16 of the error."""
    tree = tree_of(ring(5))
    ends = [run(program, tree, tree.drawn(), 0.3, h)[0][-1] for h in (4e-3, 2e-3, 1.25e-4)]
    errors = [float(np.abs(end - ends[-1]).max()) for end in ends[:2]]
    assert 12.0 < errors[0] / errors[1] < 20.0


def test_gaps_close(program: Program) -> None:
    """Apart by 1 mm and opening at the start: closed a few steps later, in place and speed."""
    tree = tree_of(ring(7))
    y = tree.drawn()
    y[0] += 1e-3
    y[tree.n_coordinates] += 1e-2
    courses, gap = run(program, tree, y, 0.003)
    assert gap > 1e-4
    pose = pose_of(tree, courses[-1])
    assert np.abs(constraints(tree.mechanism, pose)).max() < 1e-11
    opening = (constraints(tree.mechanism, pose.later(1e-5)) - constraints(tree.mechanism, pose.later(-1e-5))) / 2e-5
    assert np.abs(opening).max() < 1e-6


def test_cost_grows_with_the_number_of_links_not_faster() -> None:
    """The scratch space, which each sweep runs through once or twice, is linear in the links."""
    sizes = [len(tree_of(ring(n)).chain().d) for n in (21, 41, 81)]
    assert sizes[2] - sizes[1] == pytest.approx(2 * (sizes[1] - sizes[0]), rel=0.01)
