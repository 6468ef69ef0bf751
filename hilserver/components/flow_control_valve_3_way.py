"""Three-way flow control valve, pressure-compensated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Parameters, State, kernel, sampled
from hilserver.components.orifice import FlowAtDrop
from hilserver.components.shared.regulators import ReverseCheck, ValveWithRegulator
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.poppet import check_flow
from hilserver.numerics.regulator import opening_for
from hilserver.numerics.shape import clip
from hilserver.units import BAR, Flow, Pressure, Time


class FlowControlValve3Way(ValveWithRegulator):
    r"""Passes a set flow from P to A and the rest of the pump's flow to T, at a pressure just above the load's.

    .. math:: Q_{PA} = u\,Q_{set}\,\frac{g(p_P - p_A)}{g(\Delta p)}, \qquad Q_{PT} = K\,U\,g(p_P - p_T), \qquad
       \dot U = (U_{rest} - U)/\tau

    The bypass spool settles where it passes, at the present drop, a flow proportional to the excess of p_P - p_A over
    Δp - ``control_range``: ``bypass_flow`` at Δp, up to its full opening. So the set flow is reached at that bypass
    flow and is slightly smaller at a smaller one. u is the command, 0 … 1, which the throttle follows without delay; 1
    where it isn't connected. Optional check valve for the free direction A to P. With A blocked nothing limits the
    pressure at P: add a relief valve. Source: quasi-static compensator with a lag; g as in ``orifice``.
    """

    type_name = "flow_control_valve_3_way"
    hydraulic = ("P", "A", "T")
    inputs = ("command",)
    input_defaults: ClassVar[Mapping[str, float]] = {"command": 1.0}
    states = (State("U", "1", lower=0.0, upper=1.0),)

    flow: Flow = Field(gt=0, description="set flow at full command, Q_set")
    drop: Pressure = Field(default="8 bar", gt=0, description="drop controlled between P and A, Δp")
    bypass_flow: FlowAtDrop = Field(description='P to T fully open, like { flow = "60 l/min", drop = "6 bar" }')
    control_range: Pressure = Field(default="2 bar", gt=0, description="reduction of the drop at zero flow to T")
    reverse_check: ReverseCheck | None = Field(
        default=None, description='check valve A to P, like { flow = "60 l/min", drop = "5 bar" }; none if not given'
    )
    response_time: Time = Field(default="10 ms", gt=0, description="time constant of the bypass spool, tau")

    @model_validator(mode="after")
    def _datasheet_fits(self) -> FlowControlValve3Way:
        self.turbulent("drop", self.drop)
        self.turbulent("bypass_flow.drop", self.bypass_flow.drop)
        if self.control_range >= self.drop:
            raise ValueError(
                f"control_range {self.control_range / BAR:g} bar must be less than the drop of {self.drop / BAR:g} bar"
            )
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        return {
            "K_A": self.flow / self.drop**0.5,
            "K": self.bypass_flow.coefficient(self.transition_pressure),
            "p_N": self.bypass_flow.drop,
            "p_least": self.drop - self.control_range,
            "p_range": self.control_range,
            **self.spool_parameters(self.response_time),
            **self.check_parameters(self.reverse_check),
        }


@sampled(FlowControlValve3Way)
def flow_control_valve_3_way_without_lag(p_P, p_A, p_T, p_N, p_least, p_range):
    next_U = opening_for((p_P - p_A - p_least) / p_range, p_P - p_T, p_N)
    return next_U


@kernel(FlowControlValve3Way)
def flow_control_valve_3_way(
    p_P, p_A, p_T, u_command, U, K_A, K, p_N, p_least, p_range, tau, ideal, K_check, p_crack, p_full, p_tr
):
    dp = p_P - p_A
    u = clip(u_command, 0.0, 1.0)
    q_A = u * K_A * root_of_drop(dp, p_tr) - check_flow(-dp, K_check, p_crack, p_full, p_tr)
    settled = opening_for((dp - p_least) / p_range, p_P - p_T, p_N)
    dU = (settled - U) / tau
    spool = settled if ideal > 0.0 else U
    q_T = K * spool * root_of_drop(p_P - p_T, p_tr)
    q_P = -q_A - q_T
    return q_P, q_A, q_T, dU
