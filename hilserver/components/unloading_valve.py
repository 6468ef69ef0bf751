"""Unloading valve: accumulator charging."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Memory, Parameters, State, kernel, sampled
from hilserver.components.orifice import FlowAtDrop
from hilserver.components.shared.regulators import ReverseCheck, ValveWithThrottle, refuse_no_lag
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.poppet import check_flow
from hilserver.units import BAR, Number, Pressure, Time


class UnloadingValve(ValveWithThrottle):
    r"""Unloads a pump at P to the tank T while the accumulator at A is charged; recharges it when the pressure falls.

    .. math:: Q_{PT} = K\,g(p_P - p_T), \qquad \dot K = (s\,K_{max} - K)/\tau

    s becomes 1 when p_A - p_T reaches the cut-out pressure, 0 when it has fallen to the cut-in pressure, and keeps
    its value in between: the pilot's hysteresis, sampled once per integration step. The pump fills A through the
    built-in check valve; without ``check`` A is only sensed. For unloading in proportion to a pilot pressure use a
    ``sequence_valve`` with A and Y at the tank.
    Source: function of accumulator charging valves as on their datasheets; lag and orifice as in theory §3.
    """

    type_name = "unloading_valve"
    hydraulic = ("P", "T", "A")
    states = (State("K", "m^3/(s*sqrt(Pa))", lower=0.0, upper="K_max", scale="K_max"),)
    closed = {"K": 0.0}
    memories = (Memory("unloads"),)

    cut_out_pressure: Pressure = Field(gt=0, description="rising pressure at A at which the pump is unloaded")
    cut_in_pressure: Pressure | None = Field(
        default=None,
        gt=0,
        description="falling pressure at A at which charging resumes; or switching_difference",
    )
    switching_difference: Number = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="cut-out minus cut-in pressure as a fraction of cut_out_pressure, instead of cut_in_pressure",
    )
    nominal_flow: FlowAtDrop = Field(description='P to T while unloading, like { flow = "40 l/min", drop = "4 bar" }')
    check: ReverseCheck | None = Field(
        default=None, description='built-in check valve P to A, like { flow = "40 l/min", drop = "3 bar" }'
    )
    response_time: Time = Field(default="20 ms", gt=0, description="time constant of opening and closing, tau")

    @model_validator(mode="before")
    @classmethod
    def _has_a_lag(cls, data: Any) -> Any:
        return refuse_no_lag(data, 'Give a short response_time, such as "1 ms".')

    @model_validator(mode="after")
    def _band(self) -> UnloadingValve:
        if self.cut_in_pressure is None:
            return self
        if "switching_difference" in self.model_fields_set:
            raise ValueError("give either cut_in_pressure or switching_difference: each follows from the other")
        if self.cut_in_pressure >= self.cut_out_pressure:
            raise ValueError(
                f"cut_in_pressure {self.cut_in_pressure / BAR:g} bar must be below cut_out_pressure "
                f"{self.cut_out_pressure / BAR:g} bar, typically by 10 to 20 %"
            )
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        below = self.cut_out_pressure * (1.0 - self.switching_difference)
        return {
            "p_out": self.cut_out_pressure,
            "p_in": below if self.cut_in_pressure is None else self.cut_in_pressure,
            "K_max": self.nominal_flow.coefficient(self.transition_pressure),
            "tau": self.response_time,
            **self.check_parameters(self.check),
        }


@sampled(UnloadingValve)
def unloading_pilot(p_A, p_T, unloads, p_out, p_in):
    p = p_A - p_T
    next_unloads = 1.0 if p >= p_out else (0.0 if p <= p_in else unloads)
    return next_unloads


@kernel(UnloadingValve)
def unloading_valve(p_P, p_T, p_A, K, unloads, K_max, tau, K_check, p_crack, p_full, p_tr):
    q_T = K * root_of_drop(p_P - p_T, p_tr)
    q_A = check_flow(p_P - p_A, K_check, p_crack, p_full, p_tr)
    q_P = -q_T - q_A
    dK = (unloads * K_max - K) / tau
    return q_P, q_T, q_A, dK
