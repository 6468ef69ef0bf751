"""What the datasheets of all 4/3 valves share: nominal flow, leakage, ports."""

from __future__ import annotations

from math import sqrt
from typing import Literal

from pydantic import Field, model_validator

from hilserver.components.base import Component, Datasheet
from hilserver.units import Flow, Number, Pressure


class NominalFlow(Datasheet):
    """A point of a valve's datasheet at full opening."""

    flow: Flow = Field(gt=0, description="flow at full opening")
    drop: Pressure = Field(gt=0, description="pressure drop at which it flows")
    per: Literal["edge", "loop"] = Field(
        description="the drop is over one edge (P-A), or over both edges of the loop (P-A and B-T): sqrt(2) in flow"
    )

    def coefficient(self) -> float:
        """C_v of one edge at full opening, m³/(s·sqrt(Pa)): an edge takes half the loop's drop."""
        return self.flow / sqrt(self.edge_drop())

    def edge_drop(self) -> float:
        """The drop over one edge, Pa."""
        return self.drop if self.per == "edge" else 0.5 * self.drop


class Leakage(Datasheet):
    """Leakage of a valve with its spool at null."""

    flow: Flow = Field(ge=0, description="leakage with the spool at null")
    drop: Pressure = Field(gt=0, description="pressure drop at which it leaks")
    per: Literal["edge", "valve"] = Field(
        description="flow and drop of one edge, or of the whole valve P to T (A, B blocked)"
    )
    gone_at: Number = Field(default=0.1, gt=0, le=1, description="spool opening at which the leakage is gone")

    def coefficient(self) -> float:
        """Leakage coefficient of one edge, m³/(s·sqrt(Pa)).

        Per valve: with A and B blocked, each of the paths P-A-T and P-B-T takes half the flow, each edge half the drop.
        """
        if self.per == "edge":
            return self.flow / sqrt(self.drop)
        return 0.5 * self.flow / sqrt(0.5 * self.drop)

    def edge_drop(self) -> float:
        """The drop over one edge, Pa."""
        return self.drop if self.per == "edge" else 0.5 * self.drop


class ValveWithEdges(Component):
    """A 4/3 spool valve with four equal edges P-A, P-B, A-T, B-T; a type of its own adds how the spool moves."""

    hydraulic = ("P", "T", "A", "B")
    inputs = ("command",)

    nominal_flow: NominalFlow = Field(
        description='datasheet flow, like { flow = "40 l/min", drop = "35 bar", per = "edge" }',
    )
    leakage: Leakage | None = Field(
        default=None,
        description='at null, like { flow = "0.6 l/min", drop = "70 bar", per = "edge" }; none if not given',
    )
    transition_pressure: Pressure = Field(default="1 bar", gt=0, description="laminar below this drop, p_tr")

    @model_validator(mode="after")
    def _turbulent_datasheet(self) -> ValveWithEdges:
        for name, point in (("nominal_flow", self.nominal_flow), ("leakage", self.leakage)):
            if point is not None and point.edge_drop() < self.transition_pressure:
                raise ValueError(
                    f"{name}.drop is {point.edge_drop() / 1e5:g} bar over one edge, below the transition_pressure of "
                    f"{self.transition_pressure / 1e5:g} bar: give a point above it, or a lower transition_pressure"
                )
        return self

    def edge_parameters(self) -> dict[str, float]:
        """Kernel parameters of the edges."""
        return {
            "C_v": self.nominal_flow.coefficient(),
            "C_leak": self.leakage.coefficient() if self.leakage else 0.0,
            "U_leak": self.leakage.gone_at if self.leakage else 1.0,
            "p_tr": self.transition_pressure,
        }
