"""Throttle check valve (one-way flow restrictor)."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.orifice import FlowAtDrop
from hilserver.components.shared.poppets import ValveWithPoppet
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.poppet import check_flow


class ThrottleCheckValve(ValveWithPoppet):
    r"""One-way flow restrictor: a throttle from A to B, with a parallel check valve that is free from B to A.

    .. math:: Q_{AB} = K_t\,g(\Delta p) - K\,x(-\Delta p)\,g(-\Delta p), \qquad \Delta p = p_A - p_B

    x is the opening of ``check_valve``, whose values are the same here; g is the square root law, laminar below p_tr.
    The throttle acts in both directions. Source: ``orifice`` and ``check_valve`` in parallel.
    """

    type_name = "throttle_check_valve"
    hydraulic = ("A", "B")

    throttle: FlowAtDrop = Field(description='throttled flow, like { flow = "5 l/min", drop = "50 bar" }')

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"K_t": self.throttle.coefficient(self.transition_pressure), **self.poppet_parameters()}


@kernel(ThrottleCheckValve)
def throttle_check_valve(p_A, p_B, K_t, K, p_crack, p_full, p_tr):
    dp = p_A - p_B
    q_B = K_t * root_of_drop(dp, p_tr) - check_flow(-dp, K, p_crack, p_full, p_tr)
    q_A = -q_B
    return q_A, q_B
