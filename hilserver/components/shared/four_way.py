"""Shared by valves with P, T, A and B and opening curves: centre positions, the kernel of their flows."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from hilserver.components.base import Table
from hilserver.components.shared.edges import Openings, OverlappedEdges, ValveWithEdges, larger, linear, mirrored
from hilserver.components.shared.fitting import SignalPoint, flow_signal_table
from hilserver.components.shared.spool import SpoolValve
from hilserver.numerics.valve import four_way_flow, leakage_fade
from hilserver.units import Number

SHUT = Table((0.0,), (0.0,))
"""An edge that does not exist."""
CENTRES = {"closed": (), "open": ("PA", "PB", "AT", "BT"), "tandem": ("PT",), "float": ("AT", "BT")}
"""Edges that are open in the centre position."""


class CentredValve(SpoolValve, ValveWithEdges, OverlappedEdges):
    """A 4/3 valve with springs that centre its spool; subclasses define the rest."""

    least: ClassVar[float] = -1.0

    centre: Literal["closed", "open", "tandem", "float"] = Field(
        default="closed",
        description="what is connected in the centre position: closed: nothing, open: all, tandem: P-T, float: A-B-T",
    )
    centre_opening: Number = Field(
        default=1.0,
        gt=0,
        le=1,
        description="opening of the edges that the centre position connects, of full opening; 1 is common for on/off "
        "valves, 0.03 for proportional valves with float centre",
    )
    centre_travel: Number = Field(
        default=0.3,
        gt=0,
        le=1,
        description="spool travel at which a connection of the centre position has closed again, linearly",
    )
    openings: Openings = Field(
        default_factory=Openings,
        description="openings over the spool's position as curves, like { PA = [[0.05, 0], [0.5, 0.2], [1, 1]] }; "
        "edges without a curve open according to centre and overlap",
    )

    flow_signal: tuple[SignalPoint, ...] | None = Field(
        default=None,
        description='flow-signal curve of the datasheet at the drop of nominal_flow, like [[0.1, "0 l/min"], '
        '[0.5, "12 l/min"], [1, "40 l/min"]]: the opening of every edge over the signal, instead of overlap',
    )

    @model_validator(mode="after")
    def _flow_signal_is_a_curve(self) -> CentredValve:
        if self.flow_signal is not None:
            if self.overlap != 0.0 or self.overlap_T is not None:
                raise ValueError("flow_signal: the curve already contains the overlap; give one or the other")
            self._opening(0.0)
        return self

    def _opening(self, overlap: float) -> Table:
        """Opening of an edge over the spool's travel: the flow-signal curve, otherwise linear beyond the overlap."""
        if self.flow_signal is None:
            return linear(overlap, 1.0)
        coefficients = flow_signal_table(self.flow_signal, self.nominal_flow.edge_drop())
        full = self.nominal_flow.coefficient()
        return Table(coefficients.x, tuple(value / full for value in coefficients.y))

    def four_way_parameters(self) -> dict[str, float | Table]:
        """Kernel parameters of the edges: their curves, flow coefficients, leakage."""
        of_P, of_T = self.overlaps()
        edges = {
            "PA": self._edge("PA", self._opening(of_P)),
            "PB": mirrored(self._edge("PB", self._opening(of_P))),
            "AT": mirrored(self._edge("AT", self._opening(of_T))),
            "BT": self._edge("BT", self._opening(of_T)),
            "PT": SHUT,
        }
        if self.centre == "tandem":
            edges["PT"] = Table((-self.centre_travel, 0.0, self.centre_travel), (0.0, self.centre_opening, 0.0))
        tables = {f"table_{name}": self.openings.table(name, edge) for name, edge in edges.items()}
        return {**tables, **self.edge_parameters()}

    def _edge(self, name: str, alone: Table) -> Table:
        """An edge that opens towards U = 1, with its opening in the centre position."""
        if name not in CENTRES[self.centre]:
            return alone
        opening = self.centre_opening
        return larger(alone, Table((-self.centre_travel, 0.0, 1.0), (0.0, opening, opening)))


def four_way_valve(
    p_P,
    p_T,
    p_A,
    p_B,
    U,
    table_PA,
    table_PB,
    table_AT,
    table_BT,
    table_PT,
    C_v,
    C_leak,
    U_leak,
    p_tr,
):
    leak = C_leak * leakage_fade(abs(U), U_leak)
    q_P, q_T, q_A, q_B = four_way_flow(
        U, p_P, p_T, p_A, p_B, table_PA, table_PB, table_AT, table_BT, table_PT, C_v, leak, p_tr
    )
    return q_P, q_T, q_A, q_B
