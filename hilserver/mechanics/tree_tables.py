"""A tree as the tables that the compiled code reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hilserver.mechanics.chain import BALL_X, BALL_Y, BALL_Z, DISTANCE, LINK_NUMBERS, REVOLUTE
from hilserver.mechanics.geometry import in_space, tensor
from hilserver.mechanics.model import Linear, Mechanism, Rotary
from hilserver.mechanics.tree import BALLS, Link, Row
from hilserver.numerics.arrays import Floats, Indices


def tree_tables(
    mechanism: Mechanism,
    links: list[Link],
    ends: Mapping[str, int],
    rows: list[Row],
    stabilisation: tuple[float, float, float],
) -> tuple[Indices, Floats]:
    """Indices and numbers in the layout of :mod:`hilserver.mechanics.chain`.

    ``ends``: link of each body; ``stabilisation``: alpha, beta and the gap of :data:`STABILISATION`.
    """
    linears = [a for a in mechanism.actuators.values() if isinstance(a, Linear)]
    turning = [a.joint for a in mechanism.actuators.values() if isinstance(a, Rotary)]
    pairs = [*(mechanism.joints[row.joint].between for row in rows), *(a.between for a in linears)]
    row_links = [[ends[body] for body in pair] for pair in pairs]
    entries, felt, coordinates = [0, REVOLUTE, 0, 0], list(range(len(row_links))), 0
    numbers = [*in_space(mechanism.gravity), *stabilisation, *[0.0] * LINK_NUMBERS]
    for i, link in enumerate(links, 1):
        place = coordinates - (4 if link.kind in (BALL_Y, BALL_Z) else 0)
        entries += [link.parent, link.kind, place, len(felt)]
        felt += [r for r, pair in enumerate(row_links) if any(_supports(links, i, end) for end in pair)]
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
    """Centre, mass and inertia of a link's body; zeros for a link inside a joint."""
    if link.body is None:
        return [0.0] * 13
    body = mechanism.bodies[link.body]
    return [*in_space(body.centre), body.mass, *tensor(body.inertia).flat]


def _supports(links: list[Link], i: int, end: int) -> bool:
    """Whether link i lies between link ``end`` and the ground."""
    while end > i:  # parents come first
        end = links[end - 1].parent
    return end == i
