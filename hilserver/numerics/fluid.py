"""Elasticity of oil with free air."""

from __future__ import annotations

from hilserver.numerics.compilable import compilable

MIN_SHARE = 0.01
"""Minimum absolute pressure of the air as a fraction of p_0: it keeps all values finite near vacuum."""


@compilable
def capacitance(V: float, p: float, B_o: float, alpha_0: float, kappa: float, p_0: float) -> float:
    r"""Capacitance V/B_e of a volume of oil with free air: dp/dt = q/C.

    .. math:: \frac{1}{B_e} = \frac{1}{B_o} + \frac{V_{air}}{V_t}\,\frac{1}{\kappa\,p}, \qquad
       \frac{V_{air}}{V_t} = \alpha_0\left(\frac{p_0}{p}\right)^{1/\kappa}

    with p the absolute pressure, limited to at least 1 % of p_0. Units: V m³, p Pa gauge, B_o Pa, alpha_0 and kappa 1,
    p_0 Pa absolute (the atmosphere, at which alpha_0 is given); result m³/Pa. Elastic walls add their own V/B.
    Source: theory §2; [Virtual hydraulics] ch. 3.1.

    >>> f"{capacitance(1e-3, 100e5, 1.5e9, 0.0, 1.4, 101325.0):.4e}"
    '6.6667e-13'
    >>> f"{capacitance(1e-3, 0.0, 1.5e9, 0.01, 1.0, 101325.0):.4e}"  # at the atmosphere: V/B_o + V·alpha_0/p_0
    '9.9359e-11'
    """
    compliance = 1.0 / B_o
    if alpha_0 > 0.0:
        p_air = max(p + p_0, MIN_SHARE * p_0)
        compliance += alpha_0 * (p_0 / p_air) ** (1.0 / kappa) / (kappa * p_air)
    return V * compliance
