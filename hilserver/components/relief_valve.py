"""Pressure relief valve, semi-empirical (Handroos & Vilenius)."""

from __future__ import annotations

from math import sqrt

from pydantic import Field, model_validator

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.units import Flow, Pressure, Time


class ReliefValve(Component):
    r"""Direct-acting or pilot-operated relief valve, from P to T.

    .. math:: Q = K\sqrt{\Delta p}, \qquad \dot K = \frac{(\Delta p - p_{ref}) - (C_1 + C_2\,\Delta p)\,K}{C_{dyn}},
       \quad K \ge 0

    At rest Q = (dp - p_ref)/(C_1 + C_2 dp)·sqrt(dp): C_1 and C_2 put this curve through both datasheet points.
    C_1 + C_2·dp must stay positive up to ``max_pressure``. Source: THEORY §3; seeds/001 ch. 4.2 (Handroos & Vilenius).
    """

    type_name = "relief_valve"
    hydraulic = ("P", "T")
    states = (State("K", "m^3/(s*sqrt(Pa))", lower=0.0, scale=1e-8),)

    opening_pressure: Pressure = Field(gt=0, description="pressure drop at which the valve starts to open")
    override: tuple[tuple[Pressure, Flow], tuple[Pressure, Flow]] = Field(
        description="two points of the datasheet's p-Q curve: pressure above opening, flow"
    )
    settling_time: Time = Field(default="20 ms", gt=0, description="time constant of the opening at the second point")
    max_pressure: Pressure = Field(default="400 bar", gt=0, description="working range of the curve")

    @model_validator(mode="after")
    def _curve_rises(self) -> ReliefValve:
        (dp_1, q_1), (dp_2, q_2) = self.override
        if not (0 < dp_1 < dp_2 and 0 < q_1 < q_2):
            raise ValueError(
                "override: a relief curve rises from the opening pressure: "
                "give two points above it with rising pressure and flow"
            )
        c_1, c_2 = self._slope()
        for p in (self.opening_pressure, max(self.max_pressure, self.opening_pressure + dp_2)):
            if c_1 + c_2 * p <= 0:
                raise ValueError(
                    f"override: C1 + C2·p is not positive at {p / 1e5:.0f} bar: the curve bends too much; "
                    "give points closer to a straight line, or a lower max_pressure"
                )
        return self

    def _slope(self) -> tuple[float, float]:
        """C_1, C_2 from the two points: (p - p_ref)·sqrt(p)/Q = C_1 + C_2·p at both."""
        (over_1, q_1), (over_2, q_2) = self.override
        p_1, p_2 = self.opening_pressure + over_1, self.opening_pressure + over_2
        y_1, y_2 = over_1 * sqrt(p_1) / q_1, over_2 * sqrt(p_2) / q_2
        c_2 = (y_2 - y_1) / (p_2 - p_1)
        return y_1 - c_2 * p_1, c_2

    def parameters(self, fluid: Fluid) -> Parameters:
        c_1, c_2 = self._slope()
        p_2 = self.opening_pressure + self.override[1][0]
        return {"p_ref": self.opening_pressure, "C_1": c_1, "C_2": c_2, "C_dyn": self.settling_time * (c_1 + c_2 * p_2)}


@kernel(ReliefValve)
def relief_valve(p_P, p_T, K, p_ref, C_1, C_2, C_dyn):
    dp = p_P - p_T
    q_T = K * sqrt(max(dp, 0.0))
    q_P = -q_T
    dK = ((dp - p_ref) - (C_1 + C_2 * dp) * K) / C_dyn
    return q_P, q_T, dK
