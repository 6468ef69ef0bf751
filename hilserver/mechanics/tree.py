"""From the drawing of a mechanism to its chain: which joints become the tree, which are cut, which rows close them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from hilserver.errors import ConfigurationError, Problem
from hilserver.mechanics.chain import (
    ANGLE,
    BALL_X,
    BALL_Y,
    BALL_Z,
    CHAIN_HEAD,
    CLOSURE,
    DISTANCE,
    FREEDOM,
    LINK_ENTRIES,
    LINK_NUMBERS,
    LINK_PLACE,
    MOTION,
    ORIGIN,
    POINT,
    PRISMATIC,
    REVOLUTE,
    ROTATION,
    ROW_GAP,
    ROW_T,
    Chain,
    chain_alone,
)
from hilserver.mechanics.model import (
    GROUND,
    Joint,
    Linear,
    Mechanism,
    Prismatic,
    Revolute,
    Rotary,
    Spherical,
    Universal,
)
from hilserver.mechanics.recursion import measure_gaps, measure_rows
from hilserver.numerics.arrays import Floats, Indices

STABILISATION = (10.0, 10.0, 1e-12)
"""alpha and beta in 1/s ([Closed chains]: usually equal, 1 to 20), and the gap that is closed after a step, in m."""
BALLS = (BALL_X, BALL_Y, BALL_Z)
INDEPENDENT = 1e-9
"""Of the largest: what a row of the closure must add to be counted."""
CLOSED, NEWTON_STEPS, START_STEPS = 1e-12, 25, 40
"""When a loop counts as closed, in units of the mechanism's size; how many steps Newton's method gets; into how many
parts the way from the drawing to the start is divided."""


@dataclass(frozen=True)
class Link:
    """A body with one degree of freedom against its parent; without a mass inside a joint of more freedom."""

    joint: str
    body: str | None
    parent: int
    kind: int
    axis: Floats
    point: Floats


@dataclass(frozen=True)
class Row:
    """One scalar condition that closes a loop at a cut joint."""

    joint: str
    kind: int
    point: Floats
    first: Floats
    second: Floats

    @property
    def name(self) -> str:
        """What it prevents, in words."""
        if self.kind == POINT:
            return f"{self.joint}: shift along {direction_name(self.first)}"
        return f"{self.joint}: turn about {direction_name(np.cross(self.second, self.first))}"


@dataclass(frozen=True)
class Tree:
    """A mechanism as a tree of links with cuts; ``entries`` and ``numbers`` are the same as tables.

    ``rows`` close the loops; ``redundant`` say nothing that the others don't say and are left out.
    """

    mechanism: Mechanism
    links: tuple[Link, ...]
    cut: tuple[str, ...]
    rows: tuple[Row, ...]
    redundant: tuple[Row, ...]
    entries: Indices = field(repr=False)
    numbers: Floats = field(repr=False)

    @property
    def n_coordinates(self) -> int:
        """Length of q: a spherical joint has the four numbers of a quaternion."""
        return sum(4 if link.kind == BALL_X else link.kind not in BALLS for link in self.links)

    @property
    def n_speeds(self) -> int:
        """Length of u."""
        return len(self.links)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the mechanism."""
        return self.n_speeds - len(self.rows)

    def link_of(self, body: str) -> int:
        """Number of the link that moves with a body; 0 is the ground."""
        return next((i for i, link in enumerate(self.links, 1) if link.body == body), 0)

    def coordinate_names(self) -> list[str]:
        """The joint of each entry of q, numbered where a joint has several."""
        return [name.removesuffix(".angle").removesuffix(".position") for name, _ in self.state_names()][
            : self.n_coordinates
        ]

    def state_names(self) -> list[tuple[str, str]]:
        """Name and unit of each entry of y: ``pin.angle``, ``slide.position``, ``pin.speed``, …

        A universal joint's are numbered (``cross.angle_1``), a spherical joint has a quaternion ``ball.w`` … ``ball.z``
        and speeds ``ball.speed_x`` … about the axes of the outer body.
        """
        places: list[tuple[str, str]] = []
        speeds: list[tuple[str, str]] = []
        for number, link in enumerate(self.links):
            several = [k for k, other in enumerate(self.links) if other.joint == link.joint]
            count = f"_{several.index(number) + 1}" if len(several) > 1 else ""
            if link.kind == BALL_X:
                places += [(f"{link.joint}.{part}", "") for part in ("w", "x", "y", "z")]
            if link.kind in BALLS:
                speeds.append((f"{link.joint}.speed_{'xyz'[BALLS.index(link.kind)]}", "rad/s"))
            elif link.kind == PRISMATIC:
                places.append((f"{link.joint}.position{count}", "m"))
                speeds.append((f"{link.joint}.speed{count}", "m/s"))
            else:
                places.append((f"{link.joint}.angle{count}", "rad"))
                speeds.append((f"{link.joint}.speed{count}", "rad/s"))
        return places + speeds

    def row_bodies(self) -> list[tuple[str, str]]:
        """The two bodies of each row of the closure, then of each linear actuator."""
        linears = [a for a in self.mechanism.actuators.values() if isinstance(a, Linear)]
        return [*(self.mechanism.joints[row.joint].between for row in self.rows), *(a.between for a in linears)]

    def drawn(self) -> Floats:
        """The state y = (q, u) as drawn, at rest."""
        y = np.zeros(self.n_coordinates + self.n_speeds)
        for i, link in enumerate(self.links, 1):
            if link.kind == BALL_X:
                y[self.place(i)] = 1.0
        return y

    def place(self, i: int) -> int:
        """Where link i has its coordinate, or where its quaternion begins."""
        return int(self.entries[CHAIN_HEAD + LINK_ENTRIES * i + LINK_PLACE])

    def split(self) -> int | None:
        """The link at which a second group of branches begins that is as large as the first, if there are branches."""
        roots = [i for i, link in enumerate(self.links, 1) if link.parent == 0][1:]
        return min(roots, key=lambda i: abs(2 * i - len(self.links) - 2), default=None)

    def chain(self) -> Chain:
        """The tables as compiled functions take them, with scratch space of their own."""
        return chain_alone(self.entries, self.numbers)


def tree_of(
    mechanism: Mechanism,
    stabilisation: tuple[float, float, float] = STABILISATION,
    *,
    file: str = "",
    prefix: str = "",
) -> Tree:
    """Cut the mechanism's loops and write it as a chain.

    Raises ConfigurationError where a loop has no joint to cut. ``prefix``: where the mechanism stands in ``file``.
    """
    parents, cut = spanning_tree(mechanism)
    for name, actuator in mechanism.actuators.items():
        if isinstance(actuator, Rotary) and actuator.joint in cut:
            text = "every joint of this loop is turned by an actuator: leave one free, where the loop can be cut."
            key = ".".join(part for part in (prefix, f"actuators.{name}.joint") if part)
            raise ConfigurationError([Problem(text, key, file)])
    links, ends = _links(mechanism, parents)
    rows = [row for name in cut for row in _rows(name, mechanism.joints[name], mechanism.planar)]
    whole = Tree(
        mechanism, tuple(links), tuple(cut), tuple(rows), (), *_tables(mechanism, links, ends, rows, stabilisation)
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
        *_tables(mechanism, links, ends, rows, stabilisation),
    )


def spanning_tree(mechanism: Mechanism) -> tuple[dict[str, str], list[str]]:
    """The joints of the tree with the body that each one leads to, outward from the ground, and the joints to cut.

    Joints whose coordinate is needed (an actuator turns it, its start is given) stay in the tree; then those with less
    freedom, since a cut costs a multiplier for each freedom that the joint takes; then the nearest to the ground, so
    that a loop is cut in its middle.
    """
    driven = {a.joint for a in mechanism.actuators.values() if isinstance(a, Rotary)}
    touching: dict[str, list[int]] = {}
    names = list(mechanism.joints)
    for number, joint in enumerate(mechanism.joints.values()):
        for body in joint.between:
            touching.setdefault(body, []).append(number)
    reached, leads_to = {GROUND: 0}, dict[str, str]()
    frontier: list[tuple[bool, int, int, int]] = []

    def look_around(body: str) -> None:
        for number in touching.get(body, ()):
            joint = mechanism.joints[names[number]]
            needed = names[number] in driven or getattr(joint, "start", None) is not None
            heapq.heappush(frontier, (not needed, joint.freedom, reached[body], number))

    look_around(GROUND)
    while frontier:
        *_, depth, number = heapq.heappop(frontier)
        new = [body for body in mechanism.joints[names[number]].between if body not in reached]
        if new:
            leads_to[names[number]] = new[0]
            reached[new[0]] = depth + 1
            look_around(new[0])
    return leads_to, [name for name in names if name not in leads_to]


def _links(mechanism: Mechanism, leads_to: Mapping[str, str]) -> tuple[list[Link], dict[str, int]]:
    """The links of the tree, parents first, branch after branch; and the number of each body's link."""
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
    """Kind and axis of each link of a joint, from the parent outward; signs such that coordinates are the joint's."""
    sign = 1.0 if forward else -1.0
    if isinstance(joint, Revolute):
        yield REVOLUTE, sign * _axis(joint)
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
    """The conditions that a cut joint puts on its two bodies; in a plane those within it."""
    point = in_space(joint.point)
    if isinstance(joint, Revolute | Prismatic):
        axis = _axis(joint) if isinstance(joint, Revolute) else in_space(joint.axis)
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
    """Two directions normal to an axis and to each other, along the drawing's axes where possible."""
    if planar and abs(axis[2]) < 0.5:
        one = np.array([-axis[1], axis[0], 0.0])
    else:
        nearest = np.eye(3)[int(np.argmin(np.abs(axis)))]
        one = nearest - (nearest @ axis) * axis
        one /= np.linalg.norm(one)
    return one, np.cross(axis, one)


def _tables(
    mechanism: Mechanism,
    links: list[Link],
    ends: Mapping[str, int],
    rows: list[Row],
    stabilisation: tuple[float, float, float],
) -> tuple[Indices, Floats]:
    """Indices and numbers, as :mod:`hilserver.mechanics.chain` lays them out."""
    linears = [a for a in mechanism.actuators.values() if isinstance(a, Linear)]
    turning = [a.joint for a in mechanism.actuators.values() if isinstance(a, Rotary)]
    pairs = [*(mechanism.joints[row.joint].between for row in rows), *(a.between for a in linears)]
    row_links = [[ends[body] for body in pair] for pair in pairs]
    entries, felt, coordinates = [0, REVOLUTE, 0, 0], list(range(len(row_links))), 0
    numbers = [*in_space(mechanism.gravity), *stabilisation, *[0.0] * LINK_NUMBERS]
    for i, link in enumerate(links, 1):
        place = coordinates - (4 if link.kind in (BALL_Y, BALL_Z) else 0)
        entries += [link.parent, link.kind, place, len(felt)]
        felt += [r for r, pair in enumerate(row_links) if any(_is_on_the_way(links, i, end) for end in pair)]
        coordinates += 4 if link.kind == BALL_X else link.kind not in BALLS
        numbers += [*link.axis, *link.point, *_mass_numbers(mechanism, link)]
    entries += [0, 0, 0, len(felt)]
    entries += [next(i for i, link in enumerate(links, 1) if link.joint == joint) for joint in turning]
    for row, between in zip([*(row.kind for row in rows), *[DISTANCE] * len(linears)], row_links, strict=True):
        entries += [row, *between]
    numbers += [number for row in rows for number in (*row.point, *row.first, *row.second, 0.0)]
    for a in linears:
        numbers += [0.0, 0.0, 0.0, *in_space(a.pins[0]), *in_space(a.pins[1]), a.retracted]
    head = [len(links) + 1, coordinates, len(rows), len(linears), len(turning)]
    return np.array([*head, *entries, *felt], dtype=np.uint64), np.array(numbers)


def _mass_numbers(mechanism: Mechanism, link: Link) -> list[float]:
    """Centre, mass and inertia of a link's body; none inside a joint."""
    if link.body is None:
        return [0.0] * 13
    body = mechanism.bodies[link.body]
    return [*in_space(body.centre), body.mass, *tensor(body.inertia).flat]


def _is_on_the_way(links: list[Link], i: int, end: int) -> bool:
    """Whether link i is on the way from ``end`` to the ground."""
    while end > i:  # parents come first
        end = links[end - 1].parent
    return end == i


def independent_rows(tree: Tree) -> list[int]:
    """The rows of the closure that count: as many as are independent wherever the mechanism may stand.

    Looked at as drawn and at a few positions nearby, since the drawing may show a dead centre. Of rows that depend on
    each other the shifts stay, then the first ones.
    """
    best: list[int] = []
    order = sorted(range(len(tree.rows)), key=lambda r: tree.rows[r].kind)
    for y in positions_nearby(tree) if order else ():
        J, found = closure_jacobian(tree, y), list[int]()
        for r in order:
            if _rank(J[[*found, r]]) > len(found):
                found.append(r)
        if len(found) > len(best):
            best = sorted(found)
    return best


def _rank(J: Floats) -> int:
    """Of rows in units of the order of 1."""
    return int(np.linalg.matrix_rank(J, tol=INDEPENDENT * max(1.0, float(np.linalg.norm(J, 2)))))


def positions_nearby(tree: Tree, count: int = 3) -> Iterator[Floats]:
    """The drawing, and positions around it at which the loops are closed too."""
    yield tree.drawn()
    chance = np.random.default_rng(1)
    for _ in range(count):
        y = tree.drawn()
        displace(tree, y, 0.1 * chance.standard_normal(tree.n_speeds))
        if close(tree, y):
            yield y


def close(tree: Tree, y: Floats) -> bool:
    """Close the loops by small displacements, in place; whether they are closed to 1e-12 of the mechanism's size."""
    return _reach(tree, y, [], [])


@dataclass(frozen=True)
class Given:
    """A place or speed that a file prescribes at the start: of a link's coordinate, or of a linear actuator's row."""

    key: str
    link: int | None
    row: int | None
    start: float | None
    speed: float | None


def start_of(tree: Tree, file: str = "", prefix: str = "") -> Floats:
    """The state y at the start: from the drawing to the places and speeds that the file gives, loops closed.

    What is not given follows, with the smallest displacements and speeds. Raises ConfigurationError where the start
    can't be reached, or is a dead centre. ``prefix``: where the mechanism stands in ``file``, put before every key.
    """
    given = list(_given(tree, file, prefix))
    y = tree.drawn()
    places = [g for g in given if g.start is not None]
    drawn = _values(tree, y, places)
    goal = np.array([g.start for g in places], dtype=float)
    for step in range(1, START_STEPS + 1) if places else ():
        if not _reach(tree, y, places, list(drawn + (goal - drawn) * step / START_STEPS)):
            keys = ", ".join(f"{g.key}.start" for g in places)
            text = f"the mechanism can't reach this start: it stops {step - 1} of {START_STEPS} steps from the drawing."
            raise ConfigurationError([Problem(text, keys, file)])
    J = closure_jacobian(tree, y)
    if len(tree.rows) and _rank(J) < len(tree.rows):
        text = f"at the start the mechanism stands at a dead centre of {tree.rows[0].joint}: start it a little beside."
        raise ConfigurationError([Problem(text, prefix, file)])
    fast = [g for g in given if g.speed is not None]
    if fast:
        matrix = np.vstack([J, _slopes(tree, y, fast)])
        wanted = np.concatenate(
            [np.zeros(len(J)), [g.speed / unit for g, unit in zip(fast, _units(tree, fast), strict=True)]]
        )
        found = np.linalg.lstsq(matrix, wanted, rcond=1e-9)[0]
        if np.abs(matrix @ found - wanted).max() > 1e-9 * max(1.0, np.abs(wanted).max()):
            keys = ", ".join(f"{g.key}.start_speed" for g in fast)
            raise ConfigurationError([Problem("the mechanism can't have these speeds together.", keys, file)])
        size = extent(tree.mechanism)
        y[tree.n_coordinates :] = found * [size if link.kind == PRISMATIC else 1.0 for link in tree.links]
    return y


def _given(tree: Tree, file: str, prefix: str) -> Iterator[Given]:
    """What the file prescribes. Raises ConfigurationError where it prescribes every joint of a loop."""
    where = ".".join(part for part in (prefix, "{}") if part)
    for name, joint in tree.mechanism.joints.items():
        if isinstance(joint, Revolute | Prismatic) and (joint.start is not None or joint.start_speed is not None):
            key = where.format(f"joints.{name}")
            if name in tree.cut:
                text = "the start is given for every joint of this loop: leave one to follow from the others."
                raise ConfigurationError([Problem(text, key, file)])
            number = next(i for i, link in enumerate(tree.links, 1) if link.joint == name)
            turns = 2.0 * np.pi if isinstance(joint, Revolute) and joint.start_speed is not None else 1.0
            yield Given(
                key, number, None, joint.start, None if joint.start_speed is None else turns * joint.start_speed
            )
    linears = [(name, a) for name, a in tree.mechanism.actuators.items() if isinstance(a, Linear)]
    for row, (name, actuator) in enumerate(linears, len(tree.rows)):
        if actuator.start is not None or actuator.start_speed is not None:
            yield Given(where.format(f"actuators.{name}"), None, row, actuator.start, actuator.start_speed)


def _units(tree: Tree, given: list[Given]) -> Floats:
    """The unit of each prescribed value: 1 rad, or the mechanism's size."""
    turning = [g.link is not None and tree.links[g.link - 1].kind != PRISMATIC for g in given]
    return np.where(turning, 1.0, extent(tree.mechanism))


def _values(tree: Tree, y: Floats, given: list[Given]) -> Floats:
    """Coordinates of the prescribed links, positions of the prescribed actuators."""
    c = seen(tree, y)
    measure_rows(c, 0, c.n_rows)
    gaps = _rows_of(c)[:, ROW_GAP]
    return np.array([gaps[g.row] if g.link is None else y[tree.place(g.link)] for g in given])


def _slopes(tree: Tree, y: Floats, given: list[Given]) -> Floats:
    """How they change with the speeds, in units."""
    J, size = row_jacobian(tree, y), extent(tree.mechanism)
    unit = np.eye(tree.n_speeds)
    return np.array([J[g.row] / size if g.link is None else unit[g.link - 1] for g in given]).reshape(-1, tree.n_speeds)


def _reach(tree: Tree, y: Floats, given: list[Given], goal: list[float]) -> bool:
    """Displace y until the loops are closed and the prescribed places reached; whether that works."""
    units = _units(tree, given)
    for _ in range(NEWTON_STEPS):
        missing = np.concatenate([-scaled_gaps(tree, y), (np.array(goal) - _values(tree, y, given)) / units])
        if np.abs(missing).max(initial=0.0) < CLOSED:
            return True
        matrix = np.vstack([closure_jacobian(tree, y), _slopes(tree, y, given)])
        displace(tree, y, np.asarray(np.linalg.lstsq(matrix, missing, rcond=1e-9)[0], dtype=float))
    return False


def displace(tree: Tree, y: Floats, change: Floats) -> None:
    """Move the coordinates by rotations in rad and shifts in units of the mechanism's size, in place."""
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


def closure_jacobian(tree: Tree, y: Floats) -> Floats:
    """Rates of the gaps per speed, lengths in units of the mechanism's size; row per row, column per speed."""
    return row_jacobian(tree, y)[: len(tree.rows)] / _row_units(tree)[:, None]


def row_jacobian(tree: Tree, y: Floats) -> Floats:
    """Rates of the gaps, then of the linear actuators' positions (m/s), per rad/s or size/s of each link."""
    c, size = seen(tree, y), extent(tree.mechanism)
    measure_rows(c, 0, c.n_rows)
    T = _rows_of(c)[:, ROW_T : ROW_T + 6]
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


def scaled_gaps(tree: Tree, y: Floats) -> Floats:
    """The gaps of the cuts, lengths in units of the mechanism's size."""
    gaps: Floats = _rows_of(seen(tree, y))[: len(tree.rows), ROW_GAP] / _row_units(tree)
    return gaps


def _row_units(tree: Tree) -> Floats:
    size = extent(tree.mechanism)
    return np.array([size if row.kind == POINT else 1.0 for row in tree.rows])


def _rows_of(c: Chain) -> Floats:
    return c.d[c.closure : c.flexibility].reshape(-1, CLOSURE)


def poses(tree: Tree, y: Floats) -> dict[str, tuple[Floats, Floats]]:
    """Where each body is: the rotation from its drawing, and where the drawing's origin would be if it moved along."""
    c = seen(tree, y)
    motion = c.d[c.motion : c.reaction].reshape(-1, MOTION)
    found = {}
    for body in tree.mechanism.bodies:
        line = motion[tree.link_of(body)]
        found[body] = line[ROTATION : ROTATION + 9].reshape(3, 3).copy(), line[ORIGIN : ORIGIN + 3].copy()
    return found


def seen(tree: Tree, y: Floats) -> Chain:
    """The chain with its links placed and moved and its gaps measured."""
    c = tree.chain()
    measure_gaps(c, y)
    return c


def extent(mechanism: Mechanism) -> float:
    """Size of a mechanism, m: the largest distance of a joint or a centre of mass from their mean."""
    points = [
        *(joint.point for joint in mechanism.joints.values()),
        *(body.centre for body in mechanism.bodies.values()),
    ]
    places = np.array([in_space(point) for point in points])
    return float(np.linalg.norm(places - places.mean(axis=0), axis=1).max()) or 1.0


def in_space(vector: Iterable[float]) -> Floats:
    """A vector with three components; one of a plane lies in z = 0."""
    found = np.zeros(3)
    for number, component in enumerate(vector):
        found[number] = component
    return found


def tensor(moments: tuple[float, ...]) -> Floats:
    """The matrix of [xx, yy, zz, xy, xz, yz]; a body in a plane has one moment, the others don't matter.

    >>> tensor((1.0, 2.0, 3.0, 0.1, 0.2, 0.3)).tolist()
    [[1.0, 0.1, 0.2], [0.1, 2.0, 0.3], [0.2, 0.3, 3.0]]
    """
    if len(moments) == 1:
        return moments[0] * np.eye(3)
    xx, yy, zz, xy, xz, yz = (*moments, 0.0, 0.0, 0.0)[:6]
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def direction_name(direction: Floats) -> str:
    """x, y or z, or the components.

    >>> direction_name(np.array([0.0, -1.0, 0.0])), direction_name(np.array([0.6, 0.8, 0.0]))
    ('y', '(0.6, 0.8, 0)')
    """
    for name, axis in zip("xyz", np.eye(3), strict=True):
        if abs(abs(direction @ axis) - 1.0) < 1e-9:
            return name
    return "(" + ", ".join(f"{component:.3g}" for component in direction) + ")"


def _axis(joint: Revolute) -> Floats:
    return np.array([0.0, 0.0, 1.0]) if joint.axis is None else in_space(joint.axis)
