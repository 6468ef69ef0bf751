"""Gas in a closed vessel."""

from __future__ import annotations

from hilserver.numerics.compilable import compilable


@compilable
def polytropic_pressure(p_1: float, V_1: float, V_2: float, n: float) -> float:
    """Absolute pressure of a gas after a change from the volume V_1 at p_1 (absolute) to V_2: p·V^n is constant.

    n = 1: isothermal (slow); 1.4: adiabatic (fast) for nitrogen.

    >>> polytropic_pressure(1e5, 2.0, 1.0, 1.0), round(polytropic_pressure(1e5, 2.0, 1.0, 1.4))
    (200000.0, 263902)
    """
    return p_1 * float((V_1 / V_2) ** n)
