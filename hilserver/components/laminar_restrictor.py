"""Laminar restrictor: flow proportional to the drop."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.components.orifice import FlowAtDrop


class LaminarRestrictor(Component):
    r"""A long, narrow restriction between A and B (capillary, gap, filter): the flow is proportional to the drop.

    .. math:: Q = Q_N\,\frac{\Delta p}{\Delta p_N}, \qquad \Delta p = p_A - p_B

    Valid for laminar flow (Reynolds number below about 2000), at the viscosity at which the datasheet's point was
    measured. A capillary of diameter d and length l passes Q = pi d^4 dp/(128 mu l).
    Source: Hagen-Poiseuille; Merritt, Hydraulic Control Systems (1967), eq. 3-33.
    """

    type_name = "laminar_restrictor"
    hydraulic = ("A", "B")

    nominal_flow: FlowAtDrop = Field(description='a point of the datasheet, like { flow = "2 l/min", drop = "10 bar" }')

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"G": self.nominal_flow.flow / self.nominal_flow.drop}


@kernel(LaminarRestrictor)
def laminar_restrictor(p_A, p_B, G):
    q_B = G * (p_A - p_B)
    q_A = -q_B
    return q_A, q_B
