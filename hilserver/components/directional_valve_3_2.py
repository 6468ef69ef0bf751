"""Directional valve 3/2."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.orifice import FlowAtDrop
from hilserver.components.shared.edges import OpeningsOfA, OverlappedEdges, linear
from hilserver.components.shared.spool import with_spool
from hilserver.components.shared.two_position import TwoPositionValve
from hilserver.numerics.valve import curve_flow


@with_spool
class DirectionalValve32(TwoPositionValve, OverlappedEdges):
    r"""Directional valve 3/2, on/off or proportional: connects A with T or with P.

    .. math:: Q_{PA} = \max(C_v\,w_{PA}(U),\; C_{leak})\;g(p_P - p_A), \qquad
       Q_{AT} = \max(C_v\,w_{AT}(U),\; C_{leak})\;g(p_A - p_T)

    U is the spool's position, 0 at rest and 1 at full command; null, where the edges change over, is at 0.5. They open
    linearly from the overlap (both are closed at null) or from the underlap (both are open at null), or follow given
    curves (``openings``). An edge always passes at least its leakage. The spool moves as in
    ``directional_valve_4_3``. Source: theory §3; [Linjama]; Ellman & Piché 1999 for g.
    """

    type_name = "directional_valve_3_2"
    hydraulic = ("P", "A", "T")

    nominal_flow: FlowAtDrop = Field(
        description='a point of the datasheet over one open edge, like { flow = "40 l/min", drop = "5 bar" }'
    )
    rest: Literal["A-T", "P-A"] = Field(default="A-T", description="connection without a command")
    openings: OpeningsOfA = Field(
        default_factory=OpeningsOfA,
        description="openings over the spool's position as curves, instead of rest and overlap",
    )

    def parameters(self, fluid: Fluid) -> Parameters:
        of_P, of_T = self.overlaps()
        if self.rest == "A-T":
            PA, AT = linear(0.5 + of_P, 1.0), linear(0.5 - of_T, 0.0)
        else:
            PA, AT = linear(0.5 - of_P, 0.0), linear(0.5 + of_T, 1.0)
        return {
            "table_PA": self.openings.table("PA", PA),
            "table_AT": self.openings.table("AT", AT),
            "C_v": self.nominal_flow.coefficient(self.transition_pressure),
            **self.shut_parameters(),
            **self.spool_parameters(),
        }


@kernel(DirectionalValve32)
def directional_valve_3_2(p_P, p_A, p_T, U, table_PA, table_AT, C_v, C_leak, p_tr):
    q_PA = curve_flow(table_PA, U, p_P - p_A, C_v, C_leak, p_tr)
    q_T = curve_flow(table_AT, U, p_A - p_T, C_v, C_leak, p_tr)
    q_P = -q_PA
    q_A = q_PA - q_T
    return q_P, q_A, q_T
