"""Initial state of a tree: the positions and speeds that a file prescribes, with the loops closed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hilserver.errors import ConfigurationError, Problem
from hilserver.mechanics.chain import PRISMATIC
from hilserver.mechanics.geometry import extent
from hilserver.mechanics.model import Linear, Prismatic, Revolute
from hilserver.mechanics.position import (
    Given,
    closure_jacobian,
    prescribed_rates,
    prescribed_units,
    prescribed_values,
    rank,
    reach,
)
from hilserver.mechanics.tree import Tree
from hilserver.numerics.arrays import Floats

START_STEPS = 40
"""Number of steps from the drawn position to the start."""


def start_of(tree: Tree, file: str = "", prefix: str = "") -> Floats:
    """The state y at the start: the positions and speeds that the file gives, with the loops closed.

    What is not given follows from the smallest displacements and speeds. ``prefix``: key of the mechanism in ``file``,
    put before every key. Raises ConfigurationError if the start is out of reach, or is a dead centre.
    """
    given = list(_given(tree, file, prefix))
    y = tree.drawn()
    places = [g for g in given if g.start is not None]
    drawn = prescribed_values(tree, y, places)
    goal = np.array([g.start for g in places], dtype=float)
    for step in range(1, START_STEPS + 1) if places else ():
        if not reach(tree, y, places, list(drawn + (goal - drawn) * step / START_STEPS)):
            keys = ", ".join(f"{g.key}.start" for g in places)
            text = f"the mechanism can't reach this start: it fails at step {step} of {START_STEPS} from the drawing."
            raise ConfigurationError([Problem(text, keys, file)])
    J = closure_jacobian(tree, y)
    if len(tree.rows) and rank(J) < len(tree.rows):
        text = f"the start is a dead centre of {tree.rows[0].joint}: choose a start slightly away from it."
        raise ConfigurationError([Problem(text, prefix, file)])
    fast = [g for g in given if g.speed is not None]
    if fast:
        matrix = np.vstack([J, prescribed_rates(tree, y, fast)])
        wanted = np.concatenate(
            [np.zeros(len(J)), [g.speed / unit for g, unit in zip(fast, prescribed_units(tree, fast), strict=True)]]
        )
        found = np.linalg.lstsq(matrix, wanted, rcond=1e-9)[0]
        if np.abs(matrix @ found - wanted).max() > 1e-9 * max(1.0, np.abs(wanted).max()):
            keys = ", ".join(f"{g.key}.start_speed" for g in fast)
            raise ConfigurationError([Problem("the mechanism can't have these speeds at the same time.", keys, file)])
        size = extent(tree.mechanism)
        y[tree.n_coordinates :] = found * [size if link.kind == PRISMATIC else 1.0 for link in tree.links]
    return y


def _given(tree: Tree, file: str, prefix: str) -> Iterator[Given]:
    """The prescribed values. Raises ConfigurationError if the file prescribes every joint of a loop."""
    where = ".".join(part for part in (prefix, "{}") if part)
    for name, joint in tree.mechanism.joints.items():
        if isinstance(joint, Revolute | Prismatic) and (joint.start is not None or joint.start_speed is not None):
            key = where.format(f"joints.{name}")
            if name in tree.cut:
                text = "the start is given for every joint of this loop: leave out one, which follows from the others."
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
