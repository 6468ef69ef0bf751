"""Pressure relief valve without dynamics."""

from __future__ import annotations

from math import sqrt

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.shared.relief_curve import ValveWithReliefCurve
from hilserver.numerics.regulator import rounded_ramp
from hilserver.units import BAR, Pressure


class StaticReliefValve(ValveWithReliefCurve):
    r"""Relief valve from P to T by its p-Q curve alone: it follows the pressure at once.

    .. math:: Q = \frac{\langle\Delta p - p_{ref}\rangle}{\max(C_1 + C_2\,\Delta p,\,C_{least})}\sqrt{\Delta p}

    with C_1 and C_2 as in ``relief_valve``; C_least, 20 % of the denominator amid the points, keeps it positive far
    from them. The brackets are max(…, 0), rounded by a parabola within ±``rounding``, so that the flow begins smoothly,
    a little below the opening pressure. Use it where the valve's time constant doesn't matter, in circuits with large
    volumes: in a small one it is stiffer than ``relief_valve`` and wants the integrator rosenbrock, which fails too if
    the pressure would rise by many times the opening pressure in one step with the valve shut.
    Source: theory §3; [Virtual hydraulics] ch. 4.2 (Handroos & Vilenius).
    """

    type_name = "static_relief_valve"
    hydraulic = ("P", "T")

    rounding: Pressure = Field(default="1 bar", gt=0, description="half-width of the rounded corner at opening")

    @model_validator(mode="after")
    def _corner_below_points(self) -> StaticReliefValve:
        limit = min(self.override[0][0], self.opening_pressure)
        if self.rounding > limit:
            raise ValueError(
                f"rounding {self.rounding / BAR:g} bar reaches beyond the first point of the curve or below zero: "
                f"at most {limit / BAR:g} bar"
            )
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        return {**self.curve_parameters(), "w": self.rounding}


@kernel(StaticReliefValve)
def static_relief_valve(p_P, p_T, p_ref, C_1, C_2, C_least, w):
    dp = max(p_P - p_T, 0.0)
    q_T = rounded_ramp(dp - p_ref, w) / max(C_1 + C_2 * dp, C_least) * sqrt(dp)
    q_P = -q_T
    return q_P, q_T
