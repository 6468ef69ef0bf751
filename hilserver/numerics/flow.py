"""Flow through a restriction, smooth from laminar to turbulent."""

from __future__ import annotations

from math import sqrt

from hilserver.numerics.compilable import compilable


@compilable
def root_of_drop(dp: float, p_tr: float) -> float:
    r"""The orifice law g(dp): the signed square root of a pressure drop, laminar below the transition pressure.

    .. math:: g = \mathrm{sign}(\Delta p)\sqrt{|\Delta p|}, \qquad
       g = \sqrt{p_{tr}}\,\frac{\Delta p}{p_{tr}}\,\frac{3 - |\Delta p|/p_{tr}}{2} \quad (|\Delta p| < p_{tr})

    Value and slope are continuous at the transition. Units: Pa -> sqrt(Pa).
    Source: Ellman & Piché, A two regime orifice flow formula for numerical simulation, ASME JDSMC 121 (1999).

    >>> root_of_drop(4e6, 1e5), root_of_drop(-4e6, 1e5)
    (2000.0, -2000.0)
    >>> root_of_drop(0.0, 1e5)
    0.0
    """
    if dp >= p_tr:
        return sqrt(dp)
    if dp <= -p_tr:
        return -sqrt(-dp)
    r = dp / p_tr
    return sqrt(p_tr) * r * (3.0 - abs(r)) * 0.5


@compilable
def drop_of_root(g: float, p_tr: float) -> float:
    r"""The pressure drop at which the orifice law has this value: the inverse of :func:`root_of_drop`.

    .. math:: \Delta p = g\,|g|, \qquad \Delta p = \mathrm{sign}(g)\,\frac{p_{tr}}{2}
       \left(3 - \sqrt{9 - 8\,|g| / \sqrt{p_{tr}}}\right) \quad (|g| < \sqrt{p_{tr}})

    Units: sqrt(Pa) -> Pa.

    >>> round(drop_of_root(root_of_drop(-2e4, 1e5), 1e5), 6), drop_of_root(2000.0, 1e5)
    (-20000.0, 4000000.0)
    """
    r = abs(g) / sqrt(p_tr)
    if r >= 1.0:
        return g * abs(g)
    drop = 0.5 * p_tr * (3.0 - sqrt(9.0 - 8.0 * r))
    return drop if g > 0.0 else -drop


@compilable
def slope_of_drop(g: float, p_tr: float) -> float:
    """The derivative of :func:`drop_of_root`, sqrt(Pa).

    >>> slope_of_drop(500.0, 1e5), round(slope_of_drop(1e5**0.5, 1e5) / 1e5**0.5, 9)
    (1000.0, 2.0)
    """
    r = abs(g) / sqrt(p_tr)
    return 2.0 * abs(g) if r >= 1.0 else 2.0 * sqrt(p_tr) / sqrt(9.0 - 8.0 * r)


@compilable
def orifice_flow(C: float, dp: float, p_tr: float) -> float:
    """C·g(dp), the flow of an orifice. Of one that is shut, no root is taken; its 0 has the sign of the drop, too.

    >>> orifice_flow(2.0, 4e6, 1e5), orifice_flow(0.0, -4e6, 1e5)
    (4000.0, -0.0)
    """
    return C * dp if C == 0.0 else C * root_of_drop(dp, p_tr)
