"""Directional valve 2/2."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.orifice import FlowAtDrop
from hilserver.components.shared.edges import OpeningOfP, linear
from hilserver.components.shared.spool import with_spool
from hilserver.components.shared.two_position import TwoPositionValve
from hilserver.numerics.valve import curve_flow
from hilserver.units import Number


@with_spool
class DirectionalValve22(TwoPositionValve):
    r"""Directional valve 2/2, on/off or proportional: closes or opens the flow path from P to A.

    .. math:: Q = \max(C_v\,w(U),\; C_{leak})\;g(p_P - p_A)

    Passes in both directions. U is the spool's position, 0 at rest and 1 at full command; w is its opening: linear
    beyond the overlap, or a given curve (``openings``). The edge always passes at least its leakage. The spool moves
    as in ``directional_valve_4_3``. Source: theory §3; [Linjama]; Ellman & Piché 1999 for g.
    """

    type_name = "directional_valve_2_2"
    hydraulic = ("P", "A")

    nominal_flow: FlowAtDrop = Field(
        description='a point of the datasheet, fully open, like { flow = "40 l/min", drop = "5 bar" }'
    )
    rest: Literal["closed", "open"] = Field(default="closed", description="position without a command")
    overlap: Number = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="spool travel from the closed position to the opening of the edge, as a fraction of full stroke",
    )
    openings: OpeningOfP = Field(
        default_factory=OpeningOfP,
        description="opening over the spool's position as a curve, instead of rest and overlap",
    )

    def parameters(self, fluid: Fluid) -> Parameters:
        edge = linear(self.overlap, 1.0) if self.rest == "closed" else linear(1.0 - self.overlap, 0.0)
        return {
            "table_PA": self.openings.table("PA", edge),
            "C_v": self.nominal_flow.coefficient(self.transition_pressure),
            **self.shut_parameters(),
            **self.spool_parameters(),
        }


@kernel(DirectionalValve22)
def directional_valve_2_2(p_P, p_A, U, table_PA, C_v, C_leak, p_tr):
    q_A = curve_flow(table_PA, U, p_P - p_A, C_v, C_leak, p_tr)
    q_P = -q_A
    return q_P, q_A
