"""The four edges of a directional valve."""

from __future__ import annotations

from numba.extending import register_jitable

from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.shape import step


@register_jitable
def leakage_fade(opening: float, gone: float) -> float:
    """Share of the leakage at null left at a spool opening (>= 0): 1 at null, 0 from ``gone`` on, a STEP between.

    Source: THEORY §3; seeds/001 eq. 4.4.

    >>> leakage_fade(0.0, 0.1), leakage_fade(0.05, 0.1), leakage_fade(0.1, 0.1), leakage_fade(1.0, 0.1)
    (1.0, 0.5, 0.0, 0.0)
    """
    return step(opening, 0.0, 1.0, gone, 0.0)


@register_jitable
def opening_past_overlap(U: float, overlap: float) -> float:
    """Opening of the edges at spool position U: nothing within the overlap, full at full stroke.

    >>> opening_past_overlap(0.05, 0.1), opening_past_overlap(-1.0, 0.1), opening_past_overlap(0.625, 0.25)
    (0.0, -1.0, 0.5)
    """
    if U >= 0.0:
        return max(U - overlap, 0.0) / (1.0 - overlap)
    return min(U + overlap, 0.0) / (1.0 - overlap)


@register_jitable
def edge_flow(opening: float, dp: float, C_v: float, leak: float, p_tr: float) -> float:
    """Flow over one edge that is open by ``opening`` (negative: closed) and leaks by the coefficient ``leak``.

    Q = (C_v·opening + leak)·g(dp), g of :func:`hilserver.numerics.flow.root_of_drop`.
    Units: C_v, leak m³/(s·sqrt(Pa)); dp, p_tr Pa; result m³/s. Source: THEORY §3; seeds/001 eqs. 3.44-3.46, 4.4.

    >>> f"{edge_flow(1.0, 4e6, 1e-7, 0.0, 1e5):.3g}, {edge_flow(-1.0, 4e6, 1e-7, 1e-9, 1e5):.3g}"
    '0.0002, 2e-06'
    """
    return (C_v * max(opening, 0.0) + leak) * root_of_drop(dp, p_tr)
