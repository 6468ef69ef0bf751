"""Loops: where they are cut, which constraints are redundant, how they stay closed, what they cost."""

from __future__ import annotations

import tomllib
from typing import Any

import numpy as np
import pytest
from chain_bench import READY, G, body, constraints, joint, mechanism, pose_of, ring, run
from scipy.spatial.transform import Rotation

from hilserver.bench.generated_loop import generated_loop, loop_table
from hilserver.compiler import standard_program
from hilserver.mechanics.chain import PRISMATIC
from hilserver.mechanics.cutting import tree_of
from hilserver.mechanics.geometry import extent
from hilserver.mechanics.initial import start_of
from hilserver.mechanics.model import (
    GROUND,
    Mechanism,
)
from hilserver.mechanics.position import closure_jacobian, poses
from hilserver.mechanics.recursion import chain_energy
from hilserver.mechanics.tree import Tree
from hilserver.numerics.arrays import Floats


@pytest.fixture(scope="module")
def program() -> Any:
    return standard_program()


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


def test_a_hexapod(program: Any) -> None:
    """Six degrees of freedom, 15 rows; it falls turning for 1 s, with its energy (1e-6 J of hundreds) and closed."""
    tree = tree_of(hexapod())
    assert (tree.freedom, len(tree.rows), len(tree.cut), tree.redundant) == (6, 15, 5, ())
    y = start_of(tree)
    units = [extent(tree.mechanism) if link.kind == PRISMATIC else 1.0 for link in tree.links]
    y[tree.n_coordinates :] = 0.5 * np.linalg.svd(closure_jacobian(tree, y))[2][-1] * units
    states, gap = run(program, tree, y, 1.0, every=50)
    energies = [chain_energy(tree.chain(), at) for at in states]
    heights = [poses(tree, at)["platform"][1][2] for at in states]
    assert np.ptp(heights) * 20.0 * G > 50.0
    assert np.ptp(energies) < 1e-6
    assert gap < 1e-9
    assert max(np.abs(constraints(tree.mechanism, pose_of(tree, at))).max() for at in states) < 1e-9


def test_the_ready_loop_is_the_generated_one() -> None:
    assert tomllib.loads((READY / "loop.toml").read_text()) == loop_table(15)


@pytest.mark.parametrize("n", [5, 15])
def test_generated_loops_at_1_ms(program: Any, n: int) -> None:
    """5 s at 1 ms: within 1e-4 rad of a solution at an eighth of the step; energy to 1e-6 of what swings."""
    tree = tree_of(generated_loop(n))
    assert tree.freedom == n - 3
    coarse, gap = run(program, tree, tree.drawn(), 5.0, every=1000)
    fine, _ = run(program, tree, tree.drawn(), 5.0, 1.25e-4, every=8000)
    assert coarse[:, : tree.n_coordinates] == pytest.approx(fine[:, : tree.n_coordinates], abs=1e-4)
    assert np.abs(fine[-1, tree.n_coordinates :]).max() > 0.1
    assert gap < 1e-6
    energies = [chain_energy(tree.chain(), at) for at in coarse]
    assert np.ptp(energies) < 1e-6


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


def test_a_ring_falls_with_fourth_order(program: Any) -> None:
    """Ring of five bars, 0.3 s: half the step leaves 1/16 of the error."""
    tree = tree_of(ring(5))
    ends = [run(program, tree, tree.drawn(), 0.3, h)[0][-1] for h in (4e-3, 2e-3, 1.25e-4)]
    errors = [float(np.abs(end - ends[-1]).max()) for end in ends[:2]]
    assert 12.0 < errors[0] / errors[1] < 20.0


def test_gaps_close(program: Any) -> None:
    """Apart by 1 mm and opening at the start: closed a few steps later, in place and speed."""
    tree = tree_of(ring(7))
    y = tree.drawn()
    y[0] += 1e-3
    y[tree.n_coordinates] += 1e-2
    states, gap = run(program, tree, y, 0.003)
    assert gap > 1e-4
    pose = pose_of(tree, states[-1])
    assert np.abs(constraints(tree.mechanism, pose)).max() < 1e-11
    opening = (constraints(tree.mechanism, pose.later(1e-5)) - constraints(tree.mechanism, pose.later(-1e-5))) / 2e-5
    assert np.abs(opening).max() < 1e-6


def test_cost_grows_with_the_number_of_links_not_faster() -> None:
    """The scratch space, which each sweep runs through once or twice, is linear in the links."""
    sizes = [len(tree_of(ring(n)).chain().d) for n in (21, 41, 81)]
    assert sizes[2] - sizes[1] == pytest.approx(2 * (sizes[1] - sizes[0]), rel=0.01)
