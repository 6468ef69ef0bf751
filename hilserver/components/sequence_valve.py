"""Sequence valve."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.shared.loaded_poppet import ValveWithLoadedPoppet
from hilserver.components.shared.regulators import ReverseCheck
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.poppet import check_flow
from hilserver.numerics.regulator import lift_rate


class SequenceValve(ValveWithLoadedPoppet):
    r"""Opens from P to A when the pressure at X has risen above that in the spring chamber Y by the set pressure.

    .. math:: Q = K\,g(p_P - p_A), \qquad
       \dot K = \frac{p_X - p_Y - p_{ref} - C\,K}{C_{dyn}}, \qquad 0 \le K \le K_{max}

    with C = max(C_1 + C_2·(p_P - p_A), C_least). Internal pilot: connect X to the node of P; external: to any other.
    Internal drain: Y to the node of A; external: to the tank. With A and Y at the tank and X at a pilot line it is a
    proportional unloading valve. C_1 and C_2 are those of ``relief_valve``: with internal pilot and A at the tank the
    p-Q curve passes through the points given; C_least is 20 % of C in their middle. K_max is the coefficient of the
    fully open valve. Optional check valve for the free direction A to P.
    Source: theory §3; [Virtual hydraulics] ch. 4.2 (Handroos & Vilenius).
    """

    type_name = "sequence_valve"
    hydraulic = ("P", "A", "X", "Y")

    reverse_check: ReverseCheck | None = Field(
        default=None, description='check valve A to P, like { flow = "60 l/min", drop = "5 bar" }; none if not given'
    )

    def parameters(self, fluid: Fluid) -> Parameters:
        return {**self.poppet_parameters(), **self.check_parameters(self.reverse_check)}


@kernel(SequenceValve)
def sequence_valve(p_P, p_A, p_X, p_Y, K, p_ref, C_1, C_2, C_least, C_dyn, K_check, p_crack, p_full, p_tr):
    dp = p_P - p_A
    q_A = K * root_of_drop(dp, p_tr) - check_flow(-dp, K_check, p_crack, p_full, p_tr)
    q_P = -q_A
    dK = lift_rate(p_X - p_Y - p_ref, dp, K, C_1, C_2, C_least, C_dyn)
    return q_P, q_A, dK
