"""Poppets lifted off their seat by a pressure against a spring."""

from __future__ import annotations

from hilserver.numerics.compilable import compilable
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.shape import clip


@compilable
def poppet_opening(drive: float, p_crack: float, p_full: float) -> float:
    """Opening of a poppet, 0 … 1, under the lifting pressure ``drive``, in balance with a linear spring.

    >>> poppet_opening(0.5e5, 0.5e5, 1.5e5), poppet_opening(1.25e5, 0.5e5, 1.5e5), poppet_opening(9e5, 0.5e5, 1.5e5)
    (0.0, 0.75, 1.0)
    """
    return clip((drive - p_crack) / (p_full - p_crack), 0.0, 1.0)


@compilable
def check_flow(dp: float, K: float, p_crack: float, p_full: float, p_tr: float) -> float:
    """Flow through a check valve under the drop dp in its free direction; none against it.

    Units: Pa, K m³/(s·sqrt(Pa)); result m³/s, >= 0.

    >>> check_flow(-9e5, 1e-7, 0.5e5, 1.5e5, 1e5), f"{check_flow(4e6, 1e-7, 0.5e5, 1.5e5, 1e5):.3g}"
    (0.0, '0.0002')
    """
    return K * poppet_opening(dp, p_crack, p_full) * root_of_drop(max(dp, 0.0), p_tr)
