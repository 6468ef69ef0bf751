"""Vectors, inertia tensors and the size of a drawn mechanism."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hilserver.mechanics.model import Mechanism, Revolute
from hilserver.numerics.arrays import Floats


def extent(mechanism: Mechanism) -> float:
    """Size of a mechanism in m: the largest distance of a joint or a centre of mass from the mean of all of them."""
    points = [
        *(joint.point for joint in mechanism.joints.values()),
        *(body.centre for body in mechanism.bodies.values()),
    ]
    places = np.array([in_space(point) for point in points])
    return float(np.linalg.norm(places - places.mean(axis=0), axis=1).max()) or 1.0


def in_space(vector: Iterable[float]) -> Floats:
    """A vector as three components; a planar one lies in the plane z = 0."""
    found = np.zeros(3)
    for number, component in enumerate(vector):
        found[number] = component
    return found


def axis_of(joint: Revolute) -> Floats:
    """Unit vector of a revolute joint's axis; in a plane the normal of the plane."""
    return np.array([0.0, 0.0, 1.0]) if joint.axis is None else in_space(joint.axis)


def tensor(moments: tuple[float, ...]) -> Floats:
    """The inertia matrix of [xx, yy, zz, xy, xz, yz]; a planar body has one moment, and the others have no effect.

    >>> tensor((1.0, 2.0, 3.0, 0.1, 0.2, 0.3)).tolist()
    [[1.0, 0.1, 0.2], [0.1, 2.0, 0.3], [0.2, 0.3, 3.0]]
    """
    if len(moments) == 1:
        return moments[0] * np.eye(3)
    xx, yy, zz, xy, xz, yz = (*moments, 0.0, 0.0, 0.0)[:6]
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def direction_name(direction: Floats) -> str:
    """Name of a direction: x, y or z, or its components.

    >>> direction_name(np.array([0.0, -1.0, 0.0])), direction_name(np.array([0.6, 0.8, 0.0]))
    ('y', '(0.6, 0.8, 0)')
    """
    for name, axis in zip("xyz", np.eye(3), strict=True):
        if abs(abs(direction @ axis) - 1.0) < 1e-9:
            return name
    return "(" + ", ".join(f"{component:.3g}" for component in direction) + ")"
