"""Pressure relief valve, semi-empirical (Handroos & Vilenius)."""

from __future__ import annotations

from math import sqrt
from typing import Any

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Parameters, State, kernel
from hilserver.components.shared.regulators import refuse_no_lag
from hilserver.components.shared.relief_curve import ValveWithReliefCurve
from hilserver.units import BAR, Pressure, Time


class ReliefValve(ValveWithReliefCurve):
    r"""Direct-acting or pilot-operated relief valve, from P to T.

    .. math:: Q = K\sqrt{\Delta p}, \qquad \dot K = \frac{(\Delta p - p_{ref}) - (C_1 + C_2\,\Delta p)\,K}{C_{dyn}},
       \quad K \ge 0

    At rest Q = (dp - p_ref)/(C_1 + C_2 dp)·sqrt(dp): C_1 and C_2 fit this curve to two datasheet points exactly,
    or to more by least squares of the relative errors of the flow (each at most 15 %; ``parameters()`` gives the
    maximum as ``fit_error``). C_1 + C_2·dp must stay positive up to ``max_pressure``.
    Source: theory §3; [Virtual hydraulics] ch. 4.2 (Handroos & Vilenius).
    """

    type_name = "relief_valve"
    hydraulic = ("P", "T")
    states = (State("K", "m^3/(s*sqrt(Pa))", lower=0.0, scale=1e-8),)
    closed = {"K": 0.0}

    settling_time: Time = Field(default="20 ms", gt=0, description="time constant of the opening at the last point")
    max_pressure: Pressure = Field(default="400 bar", gt=0, description="working range of the curve")

    @model_validator(mode="before")
    @classmethod
    def _has_a_lag(cls, data: Any) -> Any:
        return refuse_no_lag(data, 'Use type = "static_relief_valve", which has none.')

    @model_validator(mode="after")
    def _curve_rises_to_its_end(self) -> ReliefValve:
        curve = self.curve_parameters()
        for p in self.working_range():
            if curve["C_1"] + curve["C_2"] * p <= 0:
                raise ValueError(
                    f"override: C1 + C2·p is not positive at {p / BAR:.0f} bar: the curve bends too much; "
                    "give points closer to a straight line, more than two points, or a lower max_pressure"
                )
        return self

    def working_range(self) -> tuple[float, ...]:
        return self.opening_pressure, max(self.max_pressure, self.last_point())

    def parameters(self, fluid: Fluid) -> Parameters:
        return {**self.curve_parameters(), "C_dyn": self.damping(self.settling_time)}


@kernel(ReliefValve)
def relief_valve(p_P, p_T, K, p_ref, C_1, C_2, C_dyn):
    dp = p_P - p_T
    q_T = K * sqrt(max(dp, 0.0)) if K != 0.0 else 0.0  # closed most of the time: it takes no root then
    q_P = -q_T
    dK = ((dp - p_ref) - (C_1 + C_2 * dp) * K) / C_dyn
    return q_P, q_T, dK
