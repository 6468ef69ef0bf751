"""Vectors in space as tuples of three floats, matrices and unit quaternions as parts of an array."""

from __future__ import annotations

from math import cos, sin, sqrt
from typing import TypeAlias

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable

Vector: TypeAlias = tuple[float, float, float]


@compilable
def plus(a: Vector, b: Vector) -> Vector:
    """a + b.

    >>> plus((1.0, 2.0, 3.0), (1.0, 0.0, 1.0))
    (2.0, 2.0, 4.0)
    """
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@compilable
def minus(a: Vector, b: Vector) -> Vector:
    """a - b.

    >>> minus((1.0, 2.0, 3.0), (1.0, 0.0, 1.0))
    (0.0, 2.0, 2.0)
    """
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


@compilable
def times(s: float, a: Vector) -> Vector:
    """s·a.

    >>> times(2.0, (1.0, 2.0, 3.0))
    (2.0, 4.0, 6.0)
    """
    return s * a[0], s * a[1], s * a[2]


@compilable
def dot(a: Vector, b: Vector) -> float:
    """a·b.

    >>> dot((1.0, 2.0, 3.0), (1.0, 0.0, 1.0))
    4.0
    """
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@compilable
def cross(a: Vector, b: Vector) -> Vector:
    """a × b.

    >>> cross((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    (0.0, 0.0, 1.0)
    """
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@compilable
def vector(a: Floats, at: int) -> Vector:
    """The vector at a[at…]."""
    return a[at], a[at + 1], a[at + 2]


@compilable
def store(a: Floats, at: int, v: Vector) -> None:
    """Store a vector at a[at…]."""
    a[at], a[at + 1], a[at + 2] = v


@compilable
def store_pair(a: Floats, at: int, first: Vector, second: Vector) -> None:
    """Store a spatial vector (rotation and translation, or moment and force) at a[at…]."""
    store(a, at, first)
    store(a, at + 3, second)


@compilable
def turned(a: Floats, at: int, v: Vector) -> Vector:
    """The matrix at a[at…], row by row, times v: a rotation matrix takes v from its frame's axes to the outer ones."""
    return dot(vector(a, at), v), dot(vector(a, at + 3), v), dot(vector(a, at + 6), v)


@compilable
def store_columns(a: Floats, at: int, x: Vector, y: Vector, z: Vector) -> None:
    """Store the matrix with the columns x, y, z at a[at…]: of a rotation matrix, the axes of the rotated frame."""
    for k in range(3):
        store(a, at + 3 * k, (x[k], y[k], z[k]))


@compilable
def axes_about(axis: Vector, angle: float) -> tuple[Vector, Vector, Vector]:
    """The axes of a frame rotated about a unit axis (Rodrigues' formula).

    >>> x, y, z = axes_about((0.0, 0.0, 1.0), 0.5)
    >>> x == (cos(0.5), sin(0.5), 0.0), z
    (True, (0.0, 0.0, 1.0))
    """
    c, s = cos(angle), sin(angle)
    a, b, d = axis
    e = 1.0 - c
    return (
        (c + e * a * a, e * a * b + s * d, e * a * d - s * b),
        (e * a * b - s * d, c + e * b * b, e * b * d + s * a),
        (e * a * d + s * b, e * b * d - s * a, c + e * d * d),
    )


@compilable
def axes_of_quaternion(w: float, x: float, y: float, z: float) -> tuple[Vector, Vector, Vector]:
    """The axes of the rotated frame, from a quaternion of any length but zero.

    Source: Shuster, A survey of attitude representations, J. Astronautical Sciences 41 (1993) 439.

    >>> axes_of_quaternion(1.0, 0.0, 0.0, 1.0)  # a rotation by 90° about z
    ((0.0, 1.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    """
    s = 2.0 / (w * w + x * x + y * y + z * z)
    return (
        (1.0 - s * (y * y + z * z), s * (x * y + w * z), s * (x * z - w * y)),
        (s * (x * y - w * z), 1.0 - s * (x * x + z * z), s * (y * z + w * x)),
        (s * (x * z + w * y), s * (y * z - w * x), 1.0 - s * (x * x + y * y)),
    )


@compilable
def quaternion_rate(q: Floats, at: int, omega: Vector, rate: Floats) -> None:
    """d/dt of the quaternion at q[at…]: half of q ⊗ (0, omega), omega in the axes of the rotated frame, rad/s."""
    w, x, y, z = q[at], q[at + 1], q[at + 2], q[at + 3]
    rate[at] = 0.5 * (-x * omega[0] - y * omega[1] - z * omega[2])
    rate[at + 1] = 0.5 * (w * omega[0] + y * omega[2] - z * omega[1])
    rate[at + 2] = 0.5 * (w * omega[1] + z * omega[0] - x * omega[2])
    rate[at + 3] = 0.5 * (w * omega[2] + x * omega[1] - y * omega[0])


@compilable
def normalise_quaternion(q: Floats, at: int) -> None:
    """Normalise the quaternion at q[at…]."""
    length = sqrt(q[at] * q[at] + q[at + 1] * q[at + 1] + q[at + 2] * q[at + 2] + q[at + 3] * q[at + 3])
    for k in range(4):
        q[at + k] /= length
