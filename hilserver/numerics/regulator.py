"""Spools and poppets that control a pressure or a flow."""

from __future__ import annotations

from math import sqrt

from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip


@compilable
def rounded_ramp(x: float, width: float) -> float:
    """max(x, 0) with its corner rounded: 0 below -width, x above width, a smoothly joining parabola between.

    >>> rounded_ramp(-2.0, 1.0), rounded_ramp(-1.0, 1.0), rounded_ramp(0.0, 1.0), rounded_ramp(1.0, 1.0)
    (0.0, 0.0, 0.25, 1.0)
    """
    if x >= width:
        return x
    reach = max(x + width, 0.0)
    return reach * reach / (4.0 * width)


@compilable
def opening_for(flow: float, dp: float, drop: float) -> float:
    """Opening, 0 … 1, that passes a flow (share of the nominal one) at dp; fully open it passes 1 at the nominal drop.

    >>> opening_for(0.5, 4e6, 1e6), opening_for(1.5, 4e6, 1e6), opening_for(3.0, 4e6, 1e6), opening_for(0.5, -1e5, 1e6)
    (0.25, 0.75, 1.0, 0.5)
    """
    return clip(flow * sqrt(drop / max(dp, drop)), 0.0, 1.0)


@compilable
def compensator_opening(
    p_P: float, p_A: float, p_X: float, p_N: float, p_set: float, p_range: float, upstream: float
) -> float:
    """Opening at which a pressure compensator settles: see ``pressure_compensator``.

    >>> compensator_opening(1e7, 6e6, 5e6, 4e6, 1e6, 2e5, 1.0), compensator_opening(1e7, 6e6, 9e6, 4e6, 1e6, 2e5, 0.0)
    (1.0, 1.0)
    """
    e = p_range + (p_set - (p_A - p_X) if upstream > 0.0 else (p_P - p_X) - p_set)
    return opening_for(e / p_range, p_P - p_A, p_N)


@compilable
def reducing_opening(
    p_P: float,
    p_A: float,
    p_T: float,
    p_set: float,
    p_N: float,
    p_range: float,
    p_NT: float,
    p_step: float,
    p_range_T: float,
) -> float:
    """Position at which the spool of a reducing valve settles, 1 … -1 (A to T): see ``reducing_valve``.

    >>> reducing_opening(1e7, 48e5, 0.0, 5e6, 8e5, 5e5, 1.0, 3e5, 1e99) == opening_for(0.4, 52e5, 8e5)
    True
    """
    e = p_set - (p_A - p_T)
    return opening_for(e / p_range, p_P - p_A, p_N) - opening_for((-e - p_step) / p_range_T, p_A - p_T, p_NT)


@compilable
def lift_rate(over: float, dp: float, K: float, C_1: float, C_2: float, C_least: float, C_dyn: float) -> float:
    """dK/dt of a poppet opened by the pressure ``over``, against its spring (C_1) and flow forces (C_2·dp).

    The relief valve's law with an opening force of its own; C_1 + C_2·dp, fitted near the opening pressure, is kept
    at C_least or more at other drops. Units: Pa, K m³/(s·sqrt(Pa)).
    Source: theory §3; [Virtual hydraulics] ch. 4.2 (Handroos & Vilenius).

    >>> lift_rate(3e5, 1e7, 1e-7, 1e12, 2e5, 6e11, 1e10)
    0.0
    """
    return (over - max(C_1 + C_2 * dp, C_least) * K) / C_dyn
