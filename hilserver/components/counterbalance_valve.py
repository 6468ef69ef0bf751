"""Counterbalance (over-centre) valve."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.shared.loaded_poppet import ValveWithLoadedPoppet
from hilserver.components.shared.regulators import ReverseCheck
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.poppet import check_flow
from hilserver.numerics.regulator import lift_rate
from hilserver.units import Number


class CounterbalanceValve(ValveWithLoadedPoppet):
    r"""Holds a load at C and lowers it to V when load and pilot pressure open it; free flow from V to C.

    .. math:: Q = K\,g(p_C - p_V), \qquad \dot K = \frac{F - C\,K}{C_{dyn}}, \qquad
       F = p_C + R\,p_X - (1 + R)\,p_Y - p_{ref}

    with C = max(C_1 + C_2·(p_C - p_V), C_least), 0 ≤ K ≤ K_max. X is the pilot with its ratio R, Y the spring chamber:
    not vented, connect Y to the node of V (the back pressure then counts 1 + R times against opening); vented, to the
    tank. The pressures of the curve are those at C without pilot and back pressure: at rest it passes through the
    points given. C_1 and C_2 are those of ``relief_valve``; C_least is 20 % of C in the middle of the points; K_max is
    the coefficient of the fully open valve. There is no pilot flow: model the pilot line's damping orifice as an
    ``orifice`` followed by a small volume. Rules of thumb: opening pressure 1.2 … 1.3 times that of the largest load;
    ratio 2 … 4 for large and swinging loads, up to 10 for steady ones. As in reality, lowering oscillates with a high
    ratio, a steep p-Q curve (an oversized valve), a heavy load, or little oil on the pump's side.
    Source: balance of the poppet; opening as in theory §3, [Virtual hydraulics] ch. 4.2 (Handroos & Vilenius).
    """

    type_name = "counterbalance_valve"
    hydraulic = ("C", "V", "X", "Y")

    pilot_ratio: Number = Field(ge=0, le=30, description="pilot area over relief area, R; 0: a relief valve")
    check: ReverseCheck = Field(description='free direction V to C, like { flow = "60 l/min", drop = "5 bar" }')

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"R": self.pilot_ratio, **self.poppet_parameters(), **self.check_parameters(self.check)}


@kernel(CounterbalanceValve)
def counterbalance_valve(p_C, p_V, p_X, p_Y, K, R, p_ref, C_1, C_2, C_least, C_dyn, K_check, p_crack, p_full, p_tr):
    dp = p_C - p_V
    q_V = K * root_of_drop(dp, p_tr) - check_flow(-dp, K_check, p_crack, p_full, p_tr)
    q_C = -q_V
    dK = lift_rate(p_C + R * p_X - (1.0 + R) * p_Y - p_ref, dp, K, C_1, C_2, C_least, C_dyn)
    return q_C, q_V, dK
