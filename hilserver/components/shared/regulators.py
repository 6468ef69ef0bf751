"""Shared by the datasheets of pressure and flow valves: a check valve for the free direction, the fully open point."""

from __future__ import annotations

from pydantic import Field, model_validator

from hilserver.components.base import Component
from hilserver.components.orifice import FlowAtDrop
from hilserver.units import BAR, Pressure


class ReverseCheck(FlowAtDrop):
    """A built-in check valve: its free flow, fully open at this drop."""

    cracking_pressure: Pressure = Field(default="0.5 bar", ge=0, description="drop at which it opens")

    @model_validator(mode="after")
    def _opens_by_its_nominal_point(self) -> ReverseCheck:
        if self.cracking_pressure >= self.drop:
            raise ValueError(
                f"cracking_pressure {self.cracking_pressure / BAR:g} bar must be below the drop of "
                f"{self.drop / BAR:g} bar at which the check valve passes its nominal flow"
            )
        return self


class ValveWithThrottle(Component):
    """A valve whose flow is that of an adjustable restriction, with an optional check valve in parallel."""

    transition_pressure: Pressure = Field(default="1 bar", gt=0, description="laminar below this drop, p_tr")

    def check_parameters(self, check: ReverseCheck | None) -> dict[str, float]:
        """Kernel parameters of the check valve; K_check = 0 if there is none."""
        p_tr = self.transition_pressure
        if check is None:
            return {"K_check": 0.0, "p_crack": 0.0, "p_full": 1.0, "p_tr": p_tr}
        return {
            "K_check": check.coefficient(p_tr),
            "p_crack": check.cracking_pressure,
            "p_full": check.drop,
            "p_tr": p_tr,
        }

    def turbulent(self, name: str, drop: float) -> float:
        """``drop``; raises ValueError if the flow is not turbulent there, as the laws of these valves require."""
        if drop < self.transition_pressure:
            raise ValueError(
                f"{name} of {drop / BAR:g} bar is below the transition_pressure of "
                f"{self.transition_pressure / BAR:g} bar: give a point above it, or a lower transition_pressure"
            )
        return drop
