"""Hose: a volume of oil whose wall stiffens with pressure."""

from __future__ import annotations

from math import sqrt

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.components.shared.line import LineSize
from hilserver.numerics.fluid import capacitance
from hilserver.units import HoseModulus, Pressure


class Hose(LineSize, Component):
    r"""A hose as a volume at one node: its oil and its wall (no pressure loss, no waves).

    .. math:: C_P = \frac{V}{B_e} + \frac{V}{B_h}, \qquad B_h = B_{hc}\sqrt{\max(p, p_{min})}, \qquad
       V = \tfrac{\pi}{4} d^2 l

    p is the gauge pressure; below p_min the wall stays as stiff as there, so that B_h doesn't become 0 with p.
    ``oil_mass`` gives the mass of its oil. Source: theory §2; [Virtual hydraulics] ch. 3.1.
    """

    type_name = "hose"
    hydraulic = ("P",)

    wall_coefficient: HoseModulus = Field(
        gt=0, description="B_hc: the wall's bulk modulus at pressure p is B_hc·sqrt(p)"
    )
    least_pressure: Pressure = Field(
        default="1 bar", gt=0, description="pressure below which the wall's stiffness is constant, p_min"
    )

    def parameters(self, fluid: Fluid) -> Parameters:
        wall = {"B_hc": self.wall_coefficient, "p_min": self.least_pressure}
        return {"V": self.oil_volume(), **wall, **fluid.parameters()}


@kernel(Hose)
def hose(p_P, V, B_hc, p_min, B_o, alpha_0, kappa, p_0):
    B_h = B_hc * sqrt(max(p_P, p_min))
    C_P = capacitance(V, p_P, B_o, alpha_0, kappa, p_0) + V / B_h
    return C_P
