"""Shape functions of the sources."""

from __future__ import annotations

from hilserver.numerics.compilable import compilable


@compilable
def step(x: float, x0: float, y0: float, x1: float, y1: float) -> float:
    """The cubic STEP from (x0, y0) to (x1, y1), flat outside. Source: [Asikainen] eq. 33.

    >>> step(0.5, 0.0, 0.0, 1.0, 2.0), step(-1.0, 0.0, 0.0, 1.0, 2.0), step(3.0, 0.0, 0.0, 1.0, 2.0)
    (1.0, 0.0, 2.0)
    """
    s = min(max((x - x0) / (x1 - x0), 0.0), 1.0)
    return y0 + (y1 - y0) * s * s * (3.0 - 2.0 * s)


@compilable
def clip(x: float, lower: float, upper: float) -> float:
    """x limited to the range from lower to upper.

    >>> clip(3.0, -1.0, 1.0)
    1.0
    """
    return min(max(x, lower), upper)
