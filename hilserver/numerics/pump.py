"""Displacement control of pumps."""

from __future__ import annotations

from math import isinf

from hilserver.numerics.compilable import compilable


@compilable
def controlled_flow(Q: float, target: float, Q_lim: float, tau: float) -> tuple[float, float]:
    """Flow and dQ/dt of a pump whose displacement follows a required flow with the time constant tau, up to a limit.

    The limit stops Q itself, so nothing winds up; where the limit has fallen below Q, the pump delivers the limit and
    Q follows with tau. Units: m³/s, s. Source: theory §3; [Virtual hydraulics] ch. 4.2.

    >>> controlled_flow(1e-3, 2e-3, 4e-3, 0.5)
    (0.001, 0.002)
    >>> controlled_flow(4e-3, 9e-3, 4e-3, 0.5), controlled_flow(4e-3, 9e-3, 2e-3, 0.5)
    ((0.004, 0.0), (0.002, -0.004))
    """
    missing, room = target - Q, Q_lim - Q
    if room <= 0.0:
        missing = min(missing, room)
    return min(Q, Q_lim), missing / tau


@compilable
def filling(p: float, p_v: float, p_in: float) -> float:
    r"""Fraction of its displacement that a pump draws in at the pressure p of its suction port.

    .. math:: \varphi = r\,\frac{3 - r}{2}, \qquad r = \frac{p - p_v}{p_{in} - p_v}, \qquad 0 \le r \le 1

    The suction passage is an orifice in front of chambers at the vapour pressure p_v, and just fills them at the
    minimum inlet pressure p_in: its square root law in the form that ends with a finite slope at no drop (Ellman &
    Piché, ASME JDSMC 121 (1999), with the transition at p_in). Not above p_v, p_in limits nothing.

    >>> filling(0.0, -1e5, -2e4), filling(-1e5, -1e5, -2e4)
    (1.0, 0.0)
    >>> filling(-6e4, -1e5, -2e4)
    0.625
    """
    if p >= p_in:
        return 1.0
    r = max((p - p_v) / (p_in - p_v), 0.0)
    return 0.5 * r * (3.0 - r)


@compilable
def power_limit(P: float, dp: float) -> float:
    """Flow in m³/s that a power allows at a pressure; below 1 Pa the flow at 1 Pa.

    >>> power_limit(1e4, 1e7), power_limit(5.0, -1e5)
    (0.001, 5.0)
    """
    return P if isinf(P) else P / max(dp, 1.0)
