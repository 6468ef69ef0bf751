"""What the datasheets of valves that open at a pressure share: opening pressure and p-Q curve."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from hilserver.components.base import Component
from hilserver.components.fitting import PressureFlowPoint, fit_relief
from hilserver.units import Pressure


class ValveWithReliefCurve(Component):
    """A valve that opens at a pressure, with the p-Q curve of its datasheet; its type adds ports and motion."""

    opening_pressure: Pressure = Field(gt=0, description="pressure drop at which the valve starts to open")
    override: tuple[PressureFlowPoint, ...] = Field(
        description="two or more points of the datasheet's p-Q curve: pressure above opening, flow",
    )
    max_pressure: Pressure = Field(default="400 bar", gt=0, description="working range of the curve")

    opens_at_any_drop: ClassVar[bool] = False
    """Whether something else than the drop over the valve may open it: its curve must hold from no drop on."""

    @field_validator("override")
    @classmethod
    def _enough_points(cls, override: tuple[PressureFlowPoint, ...]) -> tuple[PressureFlowPoint, ...]:
        if len(override) < 2:
            raise ValueError("give at least two points of the p-Q curve: pressure above opening, flow")
        return override

    @model_validator(mode="after")
    def _curve_fits(self) -> ValveWithReliefCurve:
        try:
            c_1, c_2, _ = self._fit()
        except ValueError as error:
            raise ValueError(f"override: {error}") from None
        for p in self._range():
            if c_1 + c_2 * p <= 0:
                raise ValueError(
                    f"override: C1 + C2·p is not positive at {p / 1e5:.0f} bar: the curve bends too much; "
                    "give points closer to a straight line" + (", or a lower max_pressure" if p > 0 else "")
                )
        return self

    def _last_point(self) -> float:
        return self.opening_pressure + self.override[-1][0]

    def _range(self) -> tuple[float, float]:
        lowest = 0.0 if self.opens_at_any_drop else self.opening_pressure
        return lowest, max(self.max_pressure, self._last_point())

    def _fit(self) -> tuple[float, float, float]:
        return fit_relief(self.opening_pressure, self.override, self._range())

    def curve_parameters(self) -> dict[str, float]:
        """p_ref, C_1, C_2 of the curve; p_end: the end of its range; fit_error: largest relative error at a point."""
        c_1, c_2, error = self._fit()
        return {
            "p_ref": self.opening_pressure,
            "C_1": c_1,
            "C_2": c_2,
            "p_end": self._range()[1],
            "fit_error": error,
        }

    def damping(self, settling_time: float) -> float:
        """C_dyn for a time constant at the last point."""
        curve = self.curve_parameters()
        return settling_time * (curve["C_1"] + curve["C_2"] * self._last_point())
