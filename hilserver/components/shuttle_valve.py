"""Shuttle valve."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.components.orifice import FlowAtDrop
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.shape import step
from hilserver.units import Pressure


class ShuttleValve(Component):
    r"""Shuttle valve: connects X to the higher of A and B and closes the other; the load-sensing circuit's OR.

    .. math:: Q_{AX} = K\,s\,g(p_A - p_X), \qquad Q_{BX} = K\,(1 - s)\,g(p_B - p_X), \qquad
       s = \mathrm{STEP}(p_A - p_B,\,-p_s,\,0,\,p_s,\,1)

    The ball follows without delay. Within the changeover pressure p_s it is between its seats, and both are partly
    open. g is the square root law, laminar below p_tr. Source: geometry of the ball; g as in ``orifice``.
    """

    type_name = "shuttle_valve"
    hydraulic = ("A", "B", "X")

    nominal_flow: FlowAtDrop = Field(description='of one side, open, like { flow = "10 l/min", drop = "3 bar" }')
    changeover_pressure: Pressure = Field(
        default="0.5 bar", gt=0, description="difference of A and B that holds the ball on its seat, p_s"
    )
    transition_pressure: Pressure = Field(default="1 bar", gt=0, description="laminar below this drop, p_tr")

    def parameters(self, fluid: Fluid) -> Parameters:
        p_tr = self.transition_pressure
        return {"K": self.nominal_flow.coefficient(p_tr), "p_s": self.changeover_pressure, "p_tr": p_tr}


@kernel(ShuttleValve)
def shuttle_valve(p_A, p_B, p_X, K, p_s, p_tr):
    q_A = -K * step(p_A - p_B, -p_s, 0.0, p_s, 1.0) * root_of_drop(p_A - p_X, p_tr)
    q_B = -K * step(p_B - p_A, -p_s, 0.0, p_s, 1.0) * root_of_drop(p_B - p_X, p_tr)
    q_X = -q_A - q_B
    return q_A, q_B, q_X
