"""Shared by the datasheets of valves that open at a pressure: opening pressure and p-Q curve."""

from __future__ import annotations

import functools

from pydantic import Field, field_validator, model_validator

from hilserver.components.base import Component
from hilserver.components.shared.fitting import MIN_SHARE, PressureFlowPoint, fit_relief
from hilserver.units import Pressure

fitted_relief = functools.lru_cache(maxsize=64)(fit_relief)
"""The same, calculated once: its valve is validated with it, and has parameters from it."""


class ValveWithReliefCurve(Component):
    """A valve that opens at a pressure, with the p-Q curve of its datasheet; subclasses add ports and motion."""

    opening_pressure: Pressure = Field(gt=0, description="pressure drop at which the valve starts to open")
    override: tuple[PressureFlowPoint, ...] = Field(
        description="two or more points of the datasheet's p-Q curve: pressure above opening, flow",
    )

    @field_validator("override")
    @classmethod
    def _enough_points(cls, override: tuple[PressureFlowPoint, ...]) -> tuple[PressureFlowPoint, ...]:
        if len(override) < 2:
            raise ValueError("give at least two points of the p-Q curve: pressure above opening, flow")
        return override

    @model_validator(mode="after")
    def _curve_fits(self) -> ValveWithReliefCurve:
        try:
            self.curve_parameters()
        except ValueError as error:
            raise ValueError(f"override: {error}") from None
        return self

    def working_range(self) -> tuple[float, ...]:
        """Pressures at which C_1 + C_2·p has to be positive."""
        return ()

    def last_point(self) -> float:
        """Pressure at the last point of the curve, Pa."""
        return self.opening_pressure + self.override[-1][0]

    def curve_parameters(self) -> dict[str, float]:
        """p_ref, C_1, C_2 of the curve; a floor for C_1 + C_2·p; fit_error: maximum relative error at a point."""
        c_1, c_2, error = fitted_relief(self.opening_pressure, self.override, self.working_range())
        middle = self.opening_pressure + 0.5 * (self.override[0][0] + self.override[-1][0])
        return {
            "p_ref": self.opening_pressure,
            "C_1": c_1,
            "C_2": c_2,
            "C_least": MIN_SHARE * (c_1 + c_2 * middle),
            "fit_error": error,
        }

    def damping(self, settling_time: float) -> float:
        """C_dyn for a time constant at the last point."""
        curve = self.curve_parameters()
        return settling_time * (curve["C_1"] + curve["C_2"] * self.last_point())
