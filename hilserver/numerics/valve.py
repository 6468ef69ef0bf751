"""The edges of a directional valve."""

from __future__ import annotations

from typing import Any

from hilserver.numerics.compilable import compilable
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.shape import step
from hilserver.numerics.table import interpolate


@compilable
def leakage_fade(opening: float, gone: float) -> float:
    """Fraction of the null leakage that remains at a spool opening (>= 0): 1 at null, 0 from ``gone``, a STEP between.

    Source: theory §3; [Virtual hydraulics] eq. 4.4.

    >>> leakage_fade(0.0, 0.1), leakage_fade(0.05, 0.1), leakage_fade(0.1, 0.1), leakage_fade(1.0, 0.1)
    (1.0, 0.5, 0.0, 0.0)
    """
    return 0.0 if opening >= gone else step(opening, 0.0, 1.0, gone, 0.0)


@compilable
def opening_past_overlap(U: float, overlap: float) -> float:
    """Opening of the edges at spool position U: 0 within the overlap, full at full stroke.

    >>> opening_past_overlap(0.05, 0.1), opening_past_overlap(-1.0, 0.1), opening_past_overlap(0.625, 0.25)
    (0.0, -1.0, 0.5)
    """
    if U >= 0.0:
        return max(U - overlap, 0.0) / (1.0 - overlap)
    return min(U + overlap, 0.0) / (1.0 - overlap)


@compilable
def edge_flow(opening: float, dp: float, C_v: float, leak: float, p_tr: float) -> float:
    """Flow over one edge that is open by ``opening`` (negative: closed) and leaks by the coefficient ``leak``.

    Q = (C_v·opening + leak)·g(dp), g of :func:`hilserver.numerics.flow.root_of_drop`.
    Units: C_v, leak m³/(s·sqrt(Pa)); dp, p_tr Pa; result m³/s.
    Source: theory §3; [Virtual hydraulics] eqs. 3.44-3.46, 4.4.

    >>> f"{edge_flow(1.0, 4e6, 1e-7, 0.0, 1e5):.3g}, {edge_flow(-1.0, 4e6, 1e-7, 1e-9, 1e5):.3g}"
    '0.0002, 2e-06'
    """
    return (C_v * max(opening, 0.0) + leak) * root_of_drop(dp, p_tr)


@compilable
def ports_of_edges(q_PA: float, q_PB: float, q_AT: float, q_BT: float) -> tuple[float, float, float, float]:
    """Flows into the nodes at P, T, A, B from the flows over the four edges.

    >>> ports_of_edges(5.0, 0.0, 1.0, 3.0)
    (-5.0, 4.0, 4.0, -3.0)
    """
    return -q_PA - q_PB, q_AT + q_BT, q_PA - q_AT, q_PB - q_BT


@compilable
def equal_edges(
    w: float, leak: float, p_P: float, p_T: float, p_A: float, p_B: float, C_v: float, p_tr: float
) -> tuple[float, float, float, float]:
    """Flows into the nodes at P, T, A, B over four equal edges: w > 0 opens P-A and B-T, w < 0 opens P-B and A-T.

    >>> q_P, q_T, q_A, q_B = equal_edges(-1.0, 0.0, 4e6, 0.0, 3e6, 0.0, 1e-7, 1e5)
    >>> f"{q_P:.4g} {q_T:.4g} {q_A:.4g} {q_B:.4g}"
    '-0.0002 0.0001732 -0.0001732 0.0002'
    """
    return four_edges(w, leak, p_P, p_T, p_A, p_B, C_v, C_v, C_v, C_v, p_tr)


@compilable
def four_edges(
    w: float,
    leak: float,
    p_P: float,
    p_T: float,
    p_A: float,
    p_B: float,
    C_PA: float,
    C_PB: float,
    C_AT: float,
    C_BT: float,
    p_tr: float,
) -> tuple[float, float, float, float]:
    """The same over edges with coefficients of their own."""
    return ports_of_edges(
        edge_flow(w, p_P - p_A, C_PA, leak, p_tr),
        edge_flow(-w, p_P - p_B, C_PB, leak, p_tr),
        edge_flow(-w, p_A - p_T, C_AT, leak, p_tr),
        edge_flow(w, p_B - p_T, C_BT, leak, p_tr),
    )


@compilable
def curve_flow(table: Any, U: float, dp: float, C_v: float, leak: float, p_tr: float) -> float:
    """Flow over an edge whose opening is a curve over the spool's position, and that always passes at least leak.

    Q = max(C_v·w(U), leak)·g(dp). ``table`` as for :func:`hilserver.numerics.table.interpolate`, otherwise as
    :func:`edge_flow`.

    >>> import numpy as np
    >>> table = (np.array([2.0, 0.2, 1.0, 0.0, 1.0]), 0)
    >>> f"{curve_flow(table, 0.6, 4e6, 1e-7, 1e-9, 1e5):.3g}, {curve_flow(table, 0.2, 4e6, 1e-7, 1e-9, 1e5):.3g}"
    '0.0001, 2e-06'
    """
    return max(C_v * interpolate(table, U), leak) * root_of_drop(dp, p_tr)


@compilable
def four_way_flow(
    U: float,
    p_P: float,
    p_T: float,
    p_A: float,
    p_B: float,
    table_PA: Any,
    table_PB: Any,
    table_AT: Any,
    table_BT: Any,
    table_PT: Any,
    C_v: float,
    leak: float,
    p_tr: float,
) -> tuple[float, float, float, float]:
    """Flows into the nodes at P, T, A, B over edges with opening curves; P-T is closed where its curve has no opening.

    Source: theory §3 "Directional valve, more"; [Linjama].

    >>> import numpy as np
    >>> opens, shut = (np.array([2.0, 0.0, 1.0, 0.0, 1.0]), 0), (np.array([1.0, 0.0, 0.0]), 0)
    >>> q = four_way_flow(1.0, 5e6, 0.0, 1e6, 0.0, opens, shut, shut, opens, opens, 1e-7, 0.0, 1e5)
    >>> [round(1e6 * flow, 1) for flow in q]
    [-423.6, 223.6, 200.0, 0.0]
    """
    q_PT = curve_flow(table_PT, U, p_P - p_T, C_v, 0.0, p_tr)
    q_P, q_T, q_A, q_B = ports_of_edges(
        curve_flow(table_PA, U, p_P - p_A, C_v, leak, p_tr),
        curve_flow(table_PB, U, p_P - p_B, C_v, leak, p_tr),
        curve_flow(table_AT, U, p_A - p_T, C_v, leak, p_tr),
        curve_flow(table_BT, U, p_B - p_T, C_v, leak, p_tr),
    )
    return q_P - q_PT, q_T + q_PT, q_A, q_B
