"""From the drawing of a mechanism to its tree: which joints are cut, and which constraints close them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

import numpy as np

from hilserver.errors import ConfigurationError, Problem
from hilserver.mechanics.chain import ANGLE, POINT, PRISMATIC, REVOLUTE
from hilserver.mechanics.geometry import axis_of, in_space
from hilserver.mechanics.model import (
    GROUND,
    Joint,
    Mechanism,
    Prismatic,
    Revolute,
    Rotary,
    Spherical,
    Universal,
)
from hilserver.mechanics.position import close, closure_jacobian, displace, rank
from hilserver.mechanics.tree import BALLS, Link, Row, Tree
from hilserver.mechanics.tree_tables import tree_tables
from hilserver.numerics.arrays import Floats

STABILISATION = (10.0, 10.0, 1e-12)
"""alpha and beta in 1/s ([Closed chains]: usually equal, 1 to 20), and the gap in m above which a step closes it."""


def tree_of(
    mechanism: Mechanism,
    stabilisation: tuple[float, float, float] = STABILISATION,
    *,
    file: str = "",
    prefix: str = "",
) -> Tree:
    """Cut the loops of a mechanism and build its tree.

    ``prefix``: key of the mechanism in ``file``. Raises ConfigurationError if a loop has no joint that can be cut.
    """
    parents, cut = spanning_tree(mechanism)
    for name, actuator in mechanism.actuators.items():
        if isinstance(actuator, Rotary) and actuator.joint in cut:
            text = (
                "every joint of this loop is driven by an actuator: leave one free, so that the loop can be cut there."
            )
            key = ".".join(part for part in (prefix, f"actuators.{name}.joint") if part)
            raise ConfigurationError([Problem(text, key, file)])
    links, ends = _links(mechanism, parents)
    rows = [row for name in cut for row in _rows(name, mechanism.joints[name], mechanism.planar)]
    whole = Tree(
        mechanism, tuple(links), tuple(cut), tuple(rows), (), *tree_tables(mechanism, links, ends, rows, stabilisation)
    )
    kept = independent_rows(whole)
    if len(kept) == len(rows):
        return whole
    left = [rows[r] for r in range(len(rows)) if r not in kept]
    rows = [rows[r] for r in kept]
    return Tree(
        mechanism,
        tuple(links),
        tuple(cut),
        tuple(rows),
        tuple(left),
        *tree_tables(mechanism, links, ends, rows, stabilisation),
    )


def spanning_tree(mechanism: Mechanism) -> tuple[dict[str, str], list[str]]:
    """The joints of the tree, each with the body that it leads to, outward from the ground; and the joints to cut.

    Preferred in the tree are joints whose coordinate is needed (an actuator drives it, its start is given); then those
    with fewer degrees of freedom, since a cut costs a multiplier for each one that the joint removes; then the nearest
    to the ground, so that a loop is cut in its middle.
    """
    driven = {a.joint for a in mechanism.actuators.values() if isinstance(a, Rotary)}
    touching: dict[str, list[int]] = {}
    names = list(mechanism.joints)
    for number, joint in enumerate(mechanism.joints.values()):
        for body in joint.between:
            touching.setdefault(body, []).append(number)
    reached, leads_to = {GROUND: 0}, dict[str, str]()
    frontier: list[tuple[bool, int, int, int]] = []

    def add_joints(body: str) -> None:
        for number in touching.get(body, ()):
            joint = mechanism.joints[names[number]]
            needed = names[number] in driven or getattr(joint, "start", None) is not None
            heapq.heappush(frontier, (not needed, joint.freedom, reached[body], number))

    add_joints(GROUND)
    while frontier:
        *_, depth, number = heapq.heappop(frontier)
        new = [body for body in mechanism.joints[names[number]].between if body not in reached]
        if new:
            leads_to[names[number]] = new[0]
            reached[new[0]] = depth + 1
            add_joints(new[0])
    return leads_to, [name for name in names if name not in leads_to]


def _links(mechanism: Mechanism, leads_to: Mapping[str, str]) -> tuple[list[Link], dict[str, int]]:
    """The links of the tree, parents first and branch after branch; and the number of each body's link."""
    hanging: dict[str, list[str]] = {}
    for name, body in leads_to.items():
        first, second = mechanism.joints[name].between
        hanging.setdefault(first if second == body else second, []).append(name)
    ends, links = {GROUND: 0}, list[Link]()
    waiting = hanging.get(GROUND, [])[::-1]
    while waiting:
        name = waiting.pop()
        joint, body = mechanism.joints[name], leads_to[name]
        forward = joint.between[1] == body
        parent = ends[joint.between[0 if forward else 1]]
        freedoms = list(_freedoms(joint, forward))
        for number, (kind, axis) in enumerate(freedoms):
            last = number == len(freedoms) - 1
            links.append(Link(name, body if last else None, parent, kind, axis, in_space(joint.point)))
            parent = len(links)
        ends[body] = parent
        waiting += hanging.get(body, [])[::-1]
    return links, ends


def _freedoms(joint: Joint, forward: bool) -> Iterator[tuple[int, Floats]]:
    """Kind and axis of each link of a joint, from the parent outward, with the sign of the joint's own coordinates."""
    sign = 1.0 if forward else -1.0
    if isinstance(joint, Revolute):
        yield REVOLUTE, sign * axis_of(joint)
    elif isinstance(joint, Prismatic):
        yield PRISMATIC, sign * in_space(joint.axis)
    elif isinstance(joint, Universal):
        for axis in joint.axes if forward else reversed(joint.axes):
            yield REVOLUTE, sign * in_space(axis)
    elif isinstance(joint, Spherical):
        yield from zip(BALLS, np.eye(3), strict=True)
    else:
        raise TypeError(f"a joint of type {joint.type_name} has no links")


def _rows(name: str, joint: Joint, planar: bool) -> Iterator[Row]:
    """The constraints of a cut joint on its two bodies; of a planar mechanism, those within the plane."""
    point = in_space(joint.point)
    if isinstance(joint, Revolute | Prismatic):
        axis = axis_of(joint) if isinstance(joint, Revolute) else in_space(joint.axis)
        one, two = _across(axis, planar)
    else:
        axis, one, two = np.eye(3)
    if isinstance(joint, Prismatic):
        shifts, turns = [one, two], [(one, axis), (two, axis), (one, two)]
        if planar:
            shifts, turns = [one], [(one, axis)]
    else:
        shifts, turns = [one, two, axis], []
        if isinstance(joint, Revolute):
            turns = [(one, axis), (two, axis)]
        if isinstance(joint, Universal):
            turns = [(in_space(joint.axes[0]), in_space(joint.axes[1]))]
        if planar:
            shifts, turns = [one, two], []
    yield from (Row(name, POINT, point, shift, shift) for shift in shifts)
    yield from (Row(name, ANGLE, point, first, second) for first, second in turns)


def _across(axis: Floats, planar: bool) -> tuple[Floats, Floats]:
    """Two directions perpendicular to an axis and to each other, along the drawing's axes where possible."""
    if planar and abs(axis[2]) < 0.5:
        one = np.array([-axis[1], axis[0], 0.0])
    else:
        nearest = np.eye(3)[int(np.argmin(np.abs(axis)))]
        one = nearest - (nearest @ axis) * axis
        one /= np.linalg.norm(one)
    return one, np.cross(axis, one)


def independent_rows(tree: Tree) -> list[int]:
    """Indices of a largest set of independent rows.

    The rank is determined as drawn and in a few positions nearby, since the drawing may show a dead centre. Among
    dependent rows, those of translations are preferred, then the earlier ones.
    """
    best: list[int] = []
    order = sorted(range(len(tree.rows)), key=lambda r: tree.rows[r].kind)
    for y in positions_nearby(tree) if order else ():
        J, found = closure_jacobian(tree, y), list[int]()
        for r in order:
            if rank(J[[*found, r]]) > len(found):
                found.append(r)
        if len(found) > len(best):
            best = sorted(found)
    return best


def positions_nearby(tree: Tree) -> Iterator[Floats]:
    """The drawn position, and up to three nearby in which the loops are closed as well."""
    yield tree.drawn()
    chance = np.random.default_rng(1)
    for _ in range(3):
        y = tree.drawn()
        displace(tree, y, 0.1 * chance.standard_normal(tree.n_speeds))
        if close(tree, y):
            yield y
