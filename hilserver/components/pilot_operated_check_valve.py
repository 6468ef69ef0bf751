"""Pilot-operated check valve."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.shared.poppets import ValveWithPoppet
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.poppet import poppet_opening
from hilserver.units import Number


class PilotOperatedCheckValve(ValveWithPoppet):
    r"""Check valve, free from A to B and opened from B to A by pilot pressure at X.

    .. math:: Q = K\,x\,g(\Delta p), \qquad \Delta p = p_A - p_B, \qquad
       x = \mathrm{clip}\left(\frac{\Delta p + R\langle p_X - p_A\rangle - p_{crack}}{p_{full} - p_{crack}}, 0, 1\right)

    The pilot piston has R times the area of the seat, A at its back, and can only push: it opens the valve against
    a load when R·(p_X - p_A) exceeds p_B - p_A by the cracking pressure. No flow goes into X. Poppet and piston follow
    without delay and don't leak; g is the square root law, laminar below p_tr.
    Source: balance of forces on poppet and piston; g as in ``orifice``.
    """

    type_name = "pilot_operated_check_valve"
    hydraulic = ("A", "B", "X")

    pilot_ratio: Number = Field(gt=0, le=100, description="ratio of the areas of pilot piston and seat, R")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"R": self.pilot_ratio, **self.poppet_parameters()}


@kernel(PilotOperatedCheckValve)
def pilot_operated_check_valve(p_A, p_B, p_X, R, K, p_crack, p_full, p_tr):
    dp = p_A - p_B
    opening = poppet_opening(dp + R * max(p_X - p_A, 0.0), p_crack, p_full)
    q_B = K * opening * root_of_drop(dp, p_tr)
    q_A = -q_B
    return q_A, q_B, opening
