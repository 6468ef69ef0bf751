"""Two-way flow control valve, pressure-compensated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Parameters, State, kernel, sampled
from hilserver.components.shared.regulators import ReverseCheck, ValveWithRegulator
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.poppet import check_flow
from hilserver.numerics.regulator import opening_for
from hilserver.numerics.shape import clip
from hilserver.units import Flow, Pressure, Time


class FlowControlValve2Way(ValveWithRegulator):
    r"""Passes a set flow from A to B at any drop above the minimum.

    .. math:: Q = K\,U\,g(\Delta p), \qquad \dot U = (U_{rest} - U)/\tau, \qquad
       U_{rest} = u\,\sqrt{\frac{p_{min}}{\max(\Delta p,\,p_{min})}}

    At rest Q = u·Q_set above p_min, and a fixed throttle below it and in reverse. The compensator follows with tau:
    after a sudden change it passes more than the set flow at first, as real valves do. u is the command, 0 … 1 (a
    proportional flow valve), 1 where it isn't connected. Optional check valve for the free direction B to A.
    Real valves control the flow to about 2 … 5 % over the drop; this one is exact.
    Source: quasi-static compensator with a lag; g as in ``orifice``.
    """

    type_name = "flow_control_valve_2_way"
    hydraulic = ("A", "B")
    inputs = ("command",)
    input_defaults: ClassVar[Mapping[str, float]] = {"command": 1.0}
    states = (State("U", "1", lower=0.0, upper=1.0),)

    flow: Flow = Field(gt=0, description="set flow at full command, Q_set")
    minimal_drop: Pressure = Field(
        default="8 bar", gt=0, description="minimum drop at which the flow is controlled, p_min"
    )
    reverse_check: ReverseCheck | None = Field(
        default=None, description='check valve B to A, like { flow = "60 l/min", drop = "5 bar" }; none if not given'
    )
    response_time: Time = Field(default="20 ms", gt=0, description="time constant of the compensator, tau")

    @model_validator(mode="after")
    def _datasheet_fits(self) -> FlowControlValve2Way:
        self.turbulent("minimal_drop", self.minimal_drop)
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        return {
            "K": self.flow / self.minimal_drop**0.5,
            "p_min": self.minimal_drop,
            **self.spool_parameters(self.response_time),
            **self.check_parameters(self.reverse_check),
        }


@sampled(FlowControlValve2Way)
def flow_control_valve_2_way_without_lag(p_A, p_B, u_command, p_min):
    next_U = opening_for(clip(u_command, 0.0, 1.0), p_A - p_B, p_min)
    return next_U


@kernel(FlowControlValve2Way)
def flow_control_valve_2_way(p_A, p_B, u_command, U, K, p_min, tau, ideal, K_check, p_crack, p_full, p_tr):
    dp = p_A - p_B
    settled = opening_for(clip(u_command, 0.0, 1.0), dp, p_min)
    dU = (settled - U) / tau
    spool = settled if ideal > 0.0 else U
    q_B = K * spool * root_of_drop(dp, p_tr) - check_flow(-dp, K_check, p_crack, p_full, p_tr)
    q_A = -q_B
    return q_A, q_B, dU
