"""Orifice: a fixed restriction."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Datasheet, Fluid, Parameters, kernel
from hilserver.numerics.flow import root_of_drop
from hilserver.units import Flow, Pressure


class FlowAtDrop(Datasheet):
    """A point of a restriction's datasheet: Q_N at dp_N."""

    flow: Flow = Field(gt=0, description="nominal flow, Q_N")
    drop: Pressure = Field(gt=0, description="pressure drop at which it flows, dp_N")

    def coefficient(self, p_tr: float) -> float:
        """K of Q = K·g(dp), m³/(s·sqrt(Pa)): the curve passes through this point also where it is laminar."""
        return self.flow / root_of_drop(self.drop, p_tr)


class Orifice(Component):
    r"""A sharp-edged restriction between A and B, the same in both directions.

    .. math:: Q = Q_N\,\frac{g(\Delta p)}{g(\Delta p_N)}, \qquad \Delta p = p_A - p_B

    with g the square root law, laminar below p_tr. Source: THEORY §3; seeds/004; Ellman & Piché 1999.
    """

    type_name = "orifice"
    hydraulic = ("A", "B")

    nominal_flow: FlowAtDrop = Field(description='a point of the datasheet, like { flow = "10 l/min", drop = "5 bar" }')
    transition_pressure: Pressure = Field(default="1 bar", gt=0, description="laminar below this drop, p_tr")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"K": self.nominal_flow.coefficient(self.transition_pressure), "p_tr": self.transition_pressure}


@kernel(Orifice)
def orifice(p_A, p_B, K, p_tr):
    q_B = K * root_of_drop(p_A - p_B, p_tr)
    q_A = -q_B
    return q_A, q_B
