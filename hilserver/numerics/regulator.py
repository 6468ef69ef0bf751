"""Spools and poppets that hold a pressure or a flow."""

from __future__ import annotations

from math import sqrt

from numba.extending import register_jitable


@register_jitable
def rounded_ramp(x: float, width: float) -> float:
    """max(x, 0) with its corner rounded: 0 up to -width, x from width on, a parabola that joins smoothly between.

    >>> rounded_ramp(-2.0, 1.0), rounded_ramp(-1.0, 1.0), rounded_ramp(0.0, 1.0), rounded_ramp(1.0, 1.0)
    (0.0, 0.0, 0.25, 1.0)
    """
    if x >= width:
        return x
    reach = max(x + width, 0.0)
    return reach * reach / (4.0 * width)


@register_jitable
def coefficient_for(Q: float, dp: float, p_full: float) -> float:
    """Flow coefficient that a spool takes to pass Q at the drop dp; Q/sqrt(p_full) is all that it has: fully open.

    Units: m³/s, Pa; result m³/(s·sqrt(Pa)).

    >>> coefficient_for(1e-3, 4e6, 1e6), coefficient_for(1e-3, 1e5, 1e6), coefficient_for(1e-3, -1e5, 1e6)
    (5e-07, 1e-06, 1e-06)
    """
    return Q / sqrt(max(dp, p_full))
