"""Shared by the datasheets of check valves: nominal flow, cracking pressure, full opening."""

from __future__ import annotations

from pydantic import Field, model_validator

from hilserver.components.base import Component
from hilserver.components.orifice import FlowAtDrop
from hilserver.units import BAR, Pressure

WITHOUT_SPRING = 1e-6
"""Pa; the least drop lifts a poppet without a spring off its seat."""


class ValveWithPoppet(Component):
    """A poppet on a seat, opened by pressure against a spring, without mass; subclasses add the ports."""

    nominal_flow: FlowAtDrop = Field(
        description='free flow, fully open, like { flow = "40 l/min", drop = "3 bar" }',
    )
    cracking_pressure: Pressure = Field(default="0 bar", ge=0, description="drop at which it opens; 0: no spring")
    full_open_pressure: Pressure | None = Field(
        default=None,
        gt=0,
        description="drop at which it is fully open; default: the drop of nominal_flow, without a spring at once",
    )
    transition_pressure: Pressure = Field(default="1 bar", gt=0, description="laminar below this drop, p_tr")

    @model_validator(mode="after")
    def _opens_by_its_nominal_point(self) -> ValveWithPoppet:
        if not self.cracking_pressure < self._full_open() <= self.nominal_flow.drop:
            raise ValueError(
                f"opens from {self.cracking_pressure / BAR:g} bar (cracking_pressure) to {self._full_open() / BAR:g} "
                f"bar (full_open_pressure), its nominal flow is given at {self.nominal_flow.drop / BAR:g} bar: "
                "these must increase in this order"
            )
        return self

    def _full_open(self) -> float:
        if self.full_open_pressure is not None:
            return self.full_open_pressure
        return self.nominal_flow.drop if self.cracking_pressure > 0.0 else WITHOUT_SPRING

    def poppet_parameters(self) -> dict[str, float]:
        """Kernel parameters of the poppet."""
        return {
            "K": self.nominal_flow.coefficient(self.transition_pressure),
            "p_crack": self.cracking_pressure,
            "p_full": self._full_open(),
            "p_tr": self.transition_pressure,
        }
