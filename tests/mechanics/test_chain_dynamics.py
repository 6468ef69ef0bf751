"""Chains against equations that contain neither recursion nor joint coordinates: Newton-Euler, Lagrange, Euler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from chain_bench import G, Pose, bar_chain, body, constraints, joint, mechanism, metres, pose_of, rates, read, run
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from hilserver.compiler import standard_program
from hilserver.mechanics.chain import ACCELERATION, PRISMATIC
from hilserver.mechanics.cutting import tree_of
from hilserver.mechanics.geometry import extent, tensor
from hilserver.mechanics.initial import start_of
from hilserver.mechanics.kinematics import measure_actuators
from hilserver.mechanics.model import (
    GROUND,
    Linear,
    Mechanism,
    Revolute,
    Spherical,
)
from hilserver.mechanics.position import close, closure_jacobian, displace, kinematics_of
from hilserver.mechanics.recursion import chain_energy
from hilserver.mechanics.tree import Tree
from hilserver.numerics.arrays import Floats


@pytest.fixture(scope="module")
def program() -> Any:
    return standard_program()


def spatial_mechanism() -> Mechanism:
    """All joints of the library in two loops and a branch; nothing is parallel to anything."""
    rng = np.random.default_rng(7)
    names = ["crank", "rod", "slider", "arm", "ram", "tail", "tip"]
    bodies = {}
    for name in names:
        M = rng.normal(size=(3, 3))
        S = 0.01 * (M @ M.T + np.eye(3))  # second moments of its mass
        J = np.trace(S) * np.eye(3) - S
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


def test_spatial_loops_follow_the_newton_euler_equations(program: Any, moving: tuple[Tree, Floats]) -> None:
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


def test_actuator_power_is_force_times_measured_speed(program: Any, moving: tuple[Tree, Floats]) -> None:
    """The power of force and torque is that of the speeds they are said to have; position against the poses."""
    tree, y = moving
    place, speed = np.zeros(2), np.zeros(2)
    with_force, _ = rates(program, tree, y, np.array([1.0, 0.0]))
    c = kinematics_of(tree, y)
    measure_actuators(c, y, place, speed)
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


def test_masses_at_the_actuators(program: Any, moving: tuple[Tree, Floats]) -> None:
    """A piston of mass m, a rotor of inertia J take m·x'', J·phi'' of the effort; x'' as difference of the speeds."""
    tree, y = moving
    effort, mass = np.array([37.0, -11.0]), np.array([100.0, 20.0])
    loaded, _ = rates(program, tree, y, effort, mass)

    def speeds(at: Floats) -> Floats:
        place, speed, c = np.zeros(2), np.zeros(2), kinematics_of(tree, at)
        measure_actuators(c, at, place, speed)
        return speed

    e = 1e-5
    acceleration = (speeds(y + e * loaded) - speeds(y - e * loaded)) / (2.0 * e)
    same, _ = rates(program, tree, y, effort - mass * acceleration)
    without, _ = rates(program, tree, y, effort)
    assert same == pytest.approx(loaded, abs=1e-6 * np.abs(loaded).max())
    assert np.abs(without - loaded).max() > 1e-2 * np.abs(loaded).max()


def test_spatial_loops_keep_their_energy_and_stay_closed(program: Any, moving: tuple[Tree, Floats]) -> None:
    tree, y = moving
    states, gap = run(program, tree, y, 2.0, every=100)
    energies = [chain_energy(tree.chain(), at) for at in states]
    assert gap < 1e-8
    assert np.ptp(energies) < 1e-5 * (max(energies) - min(0.0, *energies))
    quaternions = [at[tree.place(i) : tree.place(i) + 4] for at in states for i in balls(tree)]
    assert quaternions
    assert np.linalg.norm(quaternions, axis=1) == pytest.approx(1.0, abs=1e-14)
    assert max(np.abs(constraints(tree.mechanism, pose_of(tree, at))).max() for at in states) < 1e-7


def balls(tree: Tree) -> Iterator[int]:
    """Links that begin a spherical joint."""
    names = [link.joint for link in tree.links]
    for i, name in enumerate(names, 1):
        if isinstance(tree.mechanism.joints[name], Spherical) and names.index(name) == i - 1:
            yield i


def test_double_pendulum(program: Any) -> None:
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
    states, _ = run(program, tree, start, 3.0)
    assert states[-1] == pytest.approx(exact, abs=1e-7)


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


def test_slider_crank(program: Any) -> None:
    """One degree of freedom: d/dt(J·w) with J(angle) from the closed kinematics, DOP853; 1e-4 rad in 5 s (20 turns)."""
    r, rod, tree = 0.1, 0.3, tree_of(planar_slider_crank())
    assert tree.freedom == 1

    def places(a: Floats) -> Floats:
        """x and z of the centres of crank, rod and slider; angles of crank and rod: one row each."""
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

    e = 1e-3  # differences of sixth and fourth order
    sixth, fourth = e * np.array([1, 2, 3, -1, -2, -3]), e * np.array([0, 1, -1, 2, -2])
    slope_of = np.array([45.0, -9.0, 1.0, -45.0, 9.0, -1.0]) / (60.0 * e)

    def inertia(a: Floats) -> Floats:
        found: Floats = weights @ (places(a[:, None] + sixth) @ slope_of) ** 2
        return found

    def lagrange(t: float, s: Floats) -> list[float]:
        a, w = s[0], s[1]
        J, after, before, far_after, far_before = inertia(a + fourth)
        bend = (8 * (after - before) - (far_after - far_before)) / (12 * e)
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
    states, gap = run(program, tree, y, 5.0, effort=effort)
    assert 1.0 + states[-1, shaft] == pytest.approx(exact[0], abs=1e-4)
    assert exact[0] > 100.0
    assert gap < 1e-8


def test_spatial_slider_crank_of_the_source(program: Any) -> None:
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
    states, gap = run(program, tree, start_of(tree), 5.0, effort=effort)
    shaft = tree.coordinate_names().index("shaft")
    assert states[-1, shaft] == pytest.approx(exact[0], abs=1e-5)
    assert exact[0] > 40.0
    assert gap < 1e-9


def test_a_free_top_follows_eulers_equations(program: Any) -> None:
    """Held in its centre of mass, J = (A, A, C): the axis goes round the angular momentum L with the rate L/A."""
    A, C = 0.02, 0.035
    tree = tree_of(
        mechanism(
            {"top": body(1.0, [A, A, C], 0.0, 0.0, 0.0)}, {"ball": joint("spherical", GROUND, "top", 0.0, 0.0, 0.0)}
        )
    )
    y = tree.drawn()
    spin = np.array([3.0, 0.0, 40.0])
    y[4:] = spin
    L = np.array([A, A, C]) * spin
    states, _ = run(program, tree, y, 2.0)
    w, x, yy, z = states[-1, :4]
    axis = Rotation.from_quat([x, yy, z, w]).as_matrix()[:, 2]
    turned = Rotation.from_rotvec(2.0 / A * L).as_matrix() @ [0.0, 0.0, 1.0]
    assert axis == pytest.approx(turned, abs=2e-5)
