"""Check valve."""

from __future__ import annotations

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.shared.poppets import ValveWithPoppet
from hilserver.numerics.poppet import check_flow


class CheckValve(ValveWithPoppet):
    r"""Check valve, plain or spring-loaded: free from A to B, closed from B to A.

    .. math:: Q = K\,x\,g(\Delta p), \qquad
       x = \mathrm{clip}\left(\frac{\Delta p - p_{crack}}{p_{full} - p_{crack}},\,0,\,1\right), \qquad
       \Delta p = p_A - p_B

    Fully open it passes its nominal flow at the nominal drop; without a spring (p_crack = 0) it is fully open at any
    drop in its free direction. g is the square root law, laminar below p_tr. The poppet follows without delay (real
    ones take some milliseconds) and does not leak.
    Source: poppet and spring in balance, as in Merritt, Hydraulic Control Systems (1967), ch. 5; g as in ``orifice``.
    """

    type_name = "check_valve"
    hydraulic = ("A", "B")

    def parameters(self, fluid: Fluid) -> Parameters:
        return self.poppet_parameters()


@kernel(CheckValve)
def check_valve(p_A, p_B, K, p_crack, p_full, p_tr):
    q_B = check_flow(p_A - p_B, K, p_crack, p_full, p_tr)
    q_A = -q_B
    return q_A, q_B
