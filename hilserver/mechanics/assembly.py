"""A planar mechanism as a whole: its lines as tables, its start, its degrees of freedom, redundant constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hilserver.errors import ConfigurationError, Problem
from hilserver.mechanics import columns as c
from hilserver.mechanics import planar
from hilserver.mechanics.model import GROUND, Linear, Mechanism, Prismatic, Revolute, Rotary, Vector
from hilserver.numerics.arrays import Floats, Indices

RANK = 1e-8
"""Singular values below this share of the largest count as 0: lines are scaled to lengths of the order of 1 m."""
CLOSED = 1e-11
_STEPS, _TRIES = 40, 25
_NUDGE = 0.05
"""m or rad: how far a mechanism is moved to see whether a constraint is redundant everywhere."""


@dataclass(frozen=True)
class Line:
    """A quantity of two bodies: what it belongs to, kind (see :mod:`planar`), bodies, points as drawn, direction."""

    owner: str
    kind: int
    between: tuple[str, str]
    points: tuple[Vector, Vector]
    direction: Vector = (0.0, 0.0)
    zero: float = 0.0


@dataclass(frozen=True)
class Mobility:
    """How a mechanism can move: its degrees of freedom, and joints whose constraints are redundant (how many)."""

    freedom: int
    redundant: dict[str, int]


def closures(m: Mechanism) -> list[Line]:
    """The lines that the joints keep at 0, joint by joint."""
    return [line for name in m.joints for line in joint_lines(m, name)]


def joint_lines(m: Mechanism, name: str) -> Iterator[Line]:
    """The constraints of a joint: a pin two, a slide two."""
    joint = m.joints[name]
    points = (joint.point, joint.point)
    if isinstance(joint, Prismatic):
        normal = (-joint.axis[1], joint.axis[0])
        yield Line(name, planar.TURN, joint.between, points)
        yield Line(name, planar.CARRIED, joint.between, points, normal)
    else:
        yield Line(name, planar.LEVEL, joint.between, points, (1.0, 0.0))
        yield Line(name, planar.LEVEL, joint.between, points, (0.0, 1.0))


def actuator_lines(m: Mechanism) -> list[Line]:
    """The lines of the actuators; their values are the positions."""
    found = []
    for name, actuator in m.actuators.items():
        if isinstance(actuator, Rotary):
            joint = m.joints[actuator.joint]
            found.append(Line(name, planar.TURN, joint.between, (joint.point, joint.point)))
        else:
            found.append(Line(name, planar.LENGTH, actuator.between, actuator.pins, zero=actuator.retracted))
    return found


def start_lines(m: Mechanism) -> Iterator[tuple[Line, str, float | None, float | None]]:
    """Prescriptions of the start: line, key in the file, position and speed (None: not given)."""
    for name, joint in m.joints.items():
        points = (joint.point, joint.point)
        if isinstance(joint, Revolute):
            speed = 2.0 * np.pi * joint.start_speed if joint.start_speed is not None else None
            yield Line(name, planar.TURN, joint.between, points), f"joints.{name}", joint.start, speed
        elif isinstance(joint, Prismatic):
            line = Line(name, planar.CARRIED, joint.between, points, joint.axis)
            yield line, f"joints.{name}", joint.start, joint.start_speed
    for line in actuator_lines(m):
        actuator = m.actuators[line.owner]
        if isinstance(actuator, Linear):
            yield line, f"actuators.{line.owner}", actuator.start, actuator.start_speed


# --- as tables --------------------------------------------------------------------------------------------------------


def block(m: Mechanism, lines: Sequence[Line]) -> tuple[list[int], list[float]]:
    """The method's own index entries, and the numbers, of these lines; the last lines belong to the actuators."""
    names = [*m.bodies, GROUND]
    between = [(names.index(line.between[0]), names.index(line.between[1])) for line in lines]
    entries = [entry for line, bodies in zip(lines, between, strict=True) for entry in (line.kind, *bodies)]
    entries += planar.pairs(between, names.index(GROUND))
    values = [*m.gravity]
    for body in m.bodies.values():
        values += [1.0 / body.mass, 1.0 / body.inertia[0]]
    for line in lines:
        for name, point in zip(line.between, line.points, strict=True):
            centre = m.bodies[name].centre if name != GROUND else (0.0, 0.0)
            values += [point[0] - centre[0], point[1] - centre[1]]
        values += [*line.direction, line.zero]
    return entries, values


class Assembly:
    """A mechanism's lines as functions of its states: per body X, Y, angle and their speeds."""

    def __init__(self, m: Mechanism, lines: Sequence[Line]) -> None:
        self.n, self.lines = len(m.bodies), tuple(lines)
        entries, values = block(m, lines)
        head = [0] * c.NODES
        head[planar.N_BODIES], head[planar.N_CLOSURES] = self.n, len(lines)
        self._ix: Indices = np.array(head + entries, dtype=np.uint64)
        self._val = np.array(values)
        self._d = np.zeros(planar.planar_work(self.n, len(lines), 0))
        self.drawn = np.zeros(6 * self.n)
        for i, body in enumerate(m.bodies.values()):
            self.drawn[6 * i : 6 * i + 2] = body.centre

    def of(self, states: Floats) -> tuple[Floats, Floats, Floats]:
        """Values, speeds and derivatives (by X, Y, angle of each body) of all lines."""
        planar.planar_poses(self._ix, states, self._d, 0, 0.0)
        planar.planar_lines(self._ix, self._val, self._d, 0, 0, len(self.lines))
        first = 1 + planar.POSE * (self.n + 1)
        terms = self._d[first : first + planar.TERMS * len(self.lines)].reshape(-1, planar.TERMS)
        matrix = np.zeros((len(self.lines), 3 * self.n + 3))
        for k in range(len(self.lines)):
            a, b = (3 * int(entry) for entry in self._ix[c.NODES + 3 * k + 1 : c.NODES + 3 * k + 3])
            matrix[k, a : a + 3] += terms[k, 3:6]
            matrix[k, b : b + 3] += terms[k, 6:9]
        return terms[:, 0].copy(), terms[:, 1].copy(), matrix[:, : 3 * self.n]

    def moved(self, states: Floats, wanted: Floats) -> tuple[Floats, float]:
        """The states nearby in which the lines have these values, and the largest remaining error."""
        states = states.copy()
        for _ in range(_TRIES):
            value, _, matrix = self.of(states)
            if np.abs(value - wanted).max(initial=0.0) < CLOSED:
                break
            change, *_ = np.linalg.lstsq(matrix, wanted - value, rcond=RANK)
            states.reshape(-1, 6)[:, :3] += change.reshape(-1, 3)
        return states, float(np.abs(self.of(states)[0] - wanted).max(initial=0.0))


def start(m: Mechanism, file: str = "", prefix: str = "") -> Floats:
    """The states at the start: the positions and speeds that the file gives, reached from the drawing.

    Raises ConfigurationError if they can't be reached at the same time.
    """
    asked = [(line, key, x, v) for line, key, x, v in start_lines(m) if x is not None or v is not None]
    closed = closures(m)
    places = [(line, key, x) for line, key, x, _ in asked if x is not None]
    speeds = [(line, key, v) for line, key, _, v in asked if v is not None]
    where = ".".join(part for part in (prefix, "{}") if part)
    assembly = Assembly(m, [*closed, *(line for line, _, _ in places)])
    states = assembly.drawn.copy()
    drawn, goal = assembly.of(states)[0], np.array([0.0] * len(closed) + [x for _, _, x in places])
    for step in range(1, _STEPS + 1) if places else ():
        states, off = assembly.moved(states, drawn + (goal - drawn) * step / _STEPS)
        if off > 1e-9:
            keys = ", ".join(key for _, key, _ in places)
            text = f"the mechanism can't reach this start: it fails at step {step} of {_STEPS} from the drawing."
            raise ConfigurationError([Problem(text, where.format(f"{keys}.start"), file)])
    moving = Assembly(m, [*closed, *(line for line, _, _ in speeds)])
    wanted = np.array([0.0] * len(closed) + [v for _, _, v in speeds])
    matrix = moving.of(states)[2]
    found, *_ = np.linalg.lstsq(matrix, wanted, rcond=RANK)
    if np.abs(matrix @ found - wanted).max(initial=0.0) > 1e-9 * max(1.0, np.abs(wanted).max(initial=0.0)):
        keys = ", ".join(key for _, key, _ in speeds)
        text = "the mechanism can't have these speeds at the same time."
        raise ConfigurationError([Problem(text, where.format(f"{keys}.start_speed"), file)])
    states.reshape(-1, 6)[:, 3:] = found.reshape(-1, 3)
    return states


# --- mobility ---------------------------------------------------------------------------------------------------------


def mobility(m: Mechanism) -> Mobility:
    """Degrees of freedom, and the number of redundant constraints of each joint, in the order of the file.

    A constraint that depends on others in one pose only (a crank at its dead centre) is not redundant.
    """
    lines = closures(m)
    assembly = Assembly(m, lines)
    _, everywhere = _redundant(assembly, assembly.drawn)
    found: dict[str, int] = {}
    for k in everywhere:
        found[lines[k].owner] = found.get(lines[k].owner, 0) + 1
    return Mobility(3 * len(m.bodies) - (len(lines) - len(everywhere)), found)


def needed(m: Mechanism, states: Floats, file: str = "", prefix: str = "") -> list[Line]:
    """The constraints without the redundant ones.

    Raises ConfigurationError in a pose in which the mechanism is locked or its motion branches.
    """
    lines = closures(m)
    here, everywhere = _redundant(Assembly(m, lines), states)
    if odd := [lines[k].owner for k in here if k not in everywhere]:
        text = f"the start is a dead centre of {odd[0]}: choose a start slightly away from it."
        raise ConfigurationError([Problem(text, prefix, file)])
    return [line for k, line in enumerate(lines) if k not in everywhere]


def _redundant(assembly: Assembly, states: Floats) -> tuple[list[int], list[int]]:
    """The lines that depend on earlier ones: in this pose, and in all poses around it."""
    independent = _independent(assembly.of(states)[2])
    here = [k for k in range(len(assembly.lines)) if k not in independent]
    everywhere = here
    if here:
        for pose in _neighbours(assembly, independent, states):
            value, _, matrix = assembly.of(pose)
            again = _independent(matrix)
            everywhere = [k for k in everywhere if k not in again and abs(value[k]) < 1e-9]
    return here, everywhere


def _independent(matrix: Floats) -> list[int]:
    """Rows that do not depend on earlier rows."""
    kept: list[int] = []
    basis = np.zeros((0, matrix.shape[1]))
    for k, row in enumerate(matrix):
        rest = row - basis.T @ (basis @ row)
        rest -= basis.T @ (basis @ rest)
        size = float(np.linalg.norm(rest))
        if size > RANK * max(float(np.linalg.norm(row)), 1e-300):
            kept.append(k)
            basis = np.vstack([basis, rest / size])
    return kept


def _neighbours(assembly: Assembly, kept: Sequence[int], states: Floats) -> Iterator[Floats]:
    """Poses nearby in which these lines keep their values, along each direction in which the mechanism can move."""
    value, _, matrix = assembly.of(states)
    _, _, ways = np.linalg.svd(matrix[kept])
    for way in ways[len(kept) :]:
        pose = states.copy()
        pose.reshape(-1, 6)[:, :3] += (_NUDGE * way / max(np.abs(way).max(), 1e-12)).reshape(-1, 3)
        for _ in range(_TRIES):
            value, _, matrix = assembly.of(pose)
            change, *_ = np.linalg.lstsq(matrix[kept], -value[kept], rcond=RANK)
            pose.reshape(-1, 6)[:, :3] += change.reshape(-1, 3)
        if np.abs(assembly.of(pose)[0][kept]).max(initial=0.0) < 1e-9:
            yield pose
