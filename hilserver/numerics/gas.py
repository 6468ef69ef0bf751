"""Gas in a closed vessel."""

from __future__ import annotations

from numba.extending import register_jitable


@register_jitable
def polytropic_pressure(p_1: float, V_1: float, V_2: float, n: float) -> float:
    """Absolute pressure of a gas taken from the volume V_1 at p_1 (absolute) to V_2: p·V^n stays the same.

    n = 1: slow, at constant temperature; 1.4: nitrogen so fast that no heat is exchanged.

    >>> polytropic_pressure(1e5, 2.0, 1.0, 1.0), round(polytropic_pressure(1e5, 2.0, 1.0, 1.4))
    (200000.0, 263902)
    """
    return p_1 * float((V_1 / V_2) ** n)
