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
def orifice_flow(C: float, dp: float, p_tr: float) -> float:
    """C·g(dp), the flow of an orifice. Of one that is shut, no root is taken; its 0 has the sign of the drop, too.

    >>> orifice_flow(2.0, 4e6, 1e5), orifice_flow(0.0, -4e6, 1e5)
    (4000.0, -0.0)
    """
    return C * dp if C == 0.0 else C * root_of_drop(dp, p_tr)
