"""Directional valve 4/2."""

from __future__ import annotations

from math import inf
from typing import Literal

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Parameters, Table, kernel
from hilserver.components.shared.edges import NominalFlow, Openings, OverlappedEdges, linear, refuse_laminar
from hilserver.components.shared.four_way import SHUT, four_way_valve
from hilserver.components.shared.spool import with_spool
from hilserver.components.shared.two_position import TwoPositionValve


@with_spool
class DirectionalValve42(TwoPositionValve, OverlappedEdges):
    r"""Directional valve 4/2, on/off or proportional: P-A and B-T, or P-B and A-T.

    .. math:: Q_{edge} = \max(C_v\,w_{edge}(U),\; C_{leak})\;g(\Delta p)

    U is the spool's position, 0 at rest and 1 at full command; null, where the edges change over, is at 0.5. They open
    linearly from the overlap, or follow given curves (``openings``). An edge always passes at least its leakage. The
    spool moves as in ``directional_valve_4_3``.
    Source: theory §3; [Linjama]; Ellman & Piché 1999 for g.
    """

    type_name = "directional_valve_4_2"
    hydraulic = ("P", "T", "A", "B")

    nominal_flow: NominalFlow = Field(
        description='datasheet flow, like { flow = "60 l/min", drop = "5 bar", per = "edge" }'
    )
    rest: Literal["crossed", "parallel"] = Field(
        default="crossed", description="position without a command; crossed: P-B and A-T, parallel: P-A and B-T"
    )
    openings: Openings = Field(
        default_factory=Openings,
        description="openings over the spool's position as curves, instead of rest and overlap",
    )

    @model_validator(mode="after")
    def _turbulent_flow(self) -> DirectionalValve42:
        refuse_laminar("nominal_flow", self.nominal_flow.edge_drop(), self.transition_pressure)
        return self

    def _edges(self) -> dict[str, Table]:
        """The edges as given by rest and overlap."""
        of_P, of_T = self.overlaps()
        opening, closing = ("A", "B") if self.rest == "crossed" else ("B", "A")
        return {
            f"P{opening}": linear(0.5 + of_P, 1.0),
            f"P{closing}": linear(0.5 - of_P, 0.0),
            f"{closing}T": linear(0.5 + of_T, 1.0),
            f"{opening}T": linear(0.5 - of_T, 0.0),
            "PT": SHUT,
        }

    def parameters(self, fluid: Fluid) -> Parameters:
        return {
            **{f"table_{name}": self.openings.table(name, edge) for name, edge in self._edges().items()},
            "C_v": self.nominal_flow.coefficient(),
            "U_leak": inf,  # a shut edge leaks wherever the spool is
            **self.shut_parameters(),
            **self.spool_parameters(),
        }


kernel(DirectionalValve42)(four_way_valve)
