"""Shared by the datasheets of sequence and counterbalance valves: p-Q curve, full opening, settling time."""

from __future__ import annotations

from math import sqrt
from typing import Any

from pydantic import Field, model_validator

from hilserver.components.base import State
from hilserver.components.orifice import FlowAtDrop
from hilserver.components.shared.regulators import ValveWithThrottle, refuse_no_lag
from hilserver.components.shared.relief_curve import ValveWithReliefCurve
from hilserver.units import L_MIN, Time


class ValveWithLoadedPoppet(ValveWithReliefCurve, ValveWithThrottle):
    """A spring-loaded poppet that pilot pressures also open, up to its stop; subclasses add ports and balance."""

    states = (State("K", "m^3/(s*sqrt(Pa))", lower=0.0, upper="K_max", scale="K_max"),)
    closed = {"K": 0.0}

    nominal_flow: FlowAtDrop = Field(description='fully open, like { flow = "60 l/min", drop = "8 bar" }')
    settling_time: Time = Field(default="20 ms", gt=0, description="time constant of the opening at the last point")

    @model_validator(mode="before")
    @classmethod
    def _has_a_lag(cls, data: Any) -> Any:
        return refuse_no_lag(data, 'Give a short settling_time, such as "1 ms".')

    @model_validator(mode="after")
    def _curve_within_full_opening(self) -> ValveWithLoadedPoppet:
        flow = self.override[-1][1]
        full = self.nominal_flow.coefficient(self.transition_pressure) * sqrt(self.last_point())
        if flow > full:
            raise ValueError(
                f"override: {flow / L_MIN:g} l/min at the last point is more than the fully open valve passes at "
                f"that pressure, {full / L_MIN:.0f} l/min according to nominal_flow: give fewer points or a smaller "
                f"drop in "
                "nominal_flow"
            )
        return self

    def poppet_parameters(self) -> dict[str, float]:
        """Kernel parameters of the poppet."""
        return {
            **self.curve_parameters(),
            "C_dyn": self.damping(self.settling_time),
            "K_max": self.nominal_flow.coefficient(self.transition_pressure),
        }
