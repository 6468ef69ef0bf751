"""Pressure compensator."""

from __future__ import annotations

from math import inf
from typing import Literal

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Parameters, State, kernel, sampled
from hilserver.components.orifice import FlowAtDrop
from hilserver.components.shared.regulators import ValveWithRegulator
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.regulator import compensator_opening
from hilserver.units import BAR, Pressure, Time


class PressureCompensator(ValveWithRegulator):
    r"""Throttles from P to A so that a pressure difference to X stays constant: the drop over a metering edge.

    .. math:: Q = K\,U\,g(p_P - p_A), \qquad \dot U = (U_{rest} - U)/\tau, \qquad
       e = \left\{p_{set} - (p_A - p_X) \;|\; (p_P - p_X) - p_{set}\right\} + p_{range}

    The spool settles where it passes, at the present drop, a flow proportional to e: the nominal flow at
    e = ``control_range``, where the difference has the set value; up to its full opening.
    ``place = "upstream"`` (first form of e): before the metering edge, X is the load pressure behind it; closes as
    p_A - p_X rises. ``place = "downstream"`` (second form): behind the edge or as a bypass; P is the pressure behind
    the edge, X the highest load pressure (flow sharing), or P the pump, A the tank and X the load-sensing line (inlet
    compensator of a fixed pump); opens as p_P - p_X rises.
    With a volume V of oil at the controlled node the loop's damping ratio is about
    0.5·sqrt(V·control_range/(B·Q_N·tau)). Source: quasi-static spool with a lag; g as in ``orifice``.
    """

    type_name = "pressure_compensator"
    hydraulic = ("P", "A", "X")
    states = (State("U", "1", initial="U_0", lower=0.0, upper=1.0),)

    drop: Pressure = Field(gt=0, description="controlled difference to X at the nominal flow, p_set")
    nominal_flow: FlowAtDrop = Field(description='fully open, like { flow = "60 l/min", drop = "5 bar" }')
    place: Literal["upstream", "downstream"] = Field(
        default="upstream", description="position relative to the metering edge; a bypass to the tank is downstream"
    )
    control_range: Pressure = Field(
        default="2 bar", gt=0, description="change of the difference from no flow to nominal flow, p_range"
    )
    blocks_reverse_flow: bool = Field(default=False, description="load-holding check function: no flow from A to P")
    response_time: Time = Field(default="10 ms", gt=0, description="time constant of the spool, tau")

    @model_validator(mode="after")
    def _datasheet_fits(self) -> PressureCompensator:
        self.turbulent("nominal_flow.drop", self.nominal_flow.drop)
        if self.place == "downstream" and self.control_range > self.drop:
            raise ValueError(
                f"control_range {self.control_range / BAR:g} bar must not be more than the drop of "
                f"{self.drop / BAR:g} bar: the compensator would be open at zero difference"
            )
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        upstream = self.place == "upstream"
        return {
            "K": self.nominal_flow.coefficient(self.transition_pressure),
            "p_N": self.nominal_flow.drop,
            "p_set": self.drop,
            "p_range": self.control_range,
            "upstream": float(upstream),
            "U_0": float(upstream),  # at rest the spring opens an upstream compensator and closes a downstream one
            "g_least": 0.0 if self.blocks_reverse_flow else -inf,
            **self.spool_parameters(self.response_time),
            "p_tr": self.transition_pressure,
        }


@sampled(PressureCompensator)
def pressure_compensator_without_lag(p_P, p_A, p_X, p_N, p_set, p_range, upstream):
    next_U = compensator_opening(p_P, p_A, p_X, p_N, p_set, p_range, upstream)
    return next_U


@kernel(PressureCompensator)
def pressure_compensator(p_P, p_A, p_X, U, K, p_N, p_set, p_range, upstream, g_least, tau, ideal, p_tr):
    settled = compensator_opening(p_P, p_A, p_X, p_N, p_set, p_range, upstream)
    dU = (settled - U) / tau
    spool = settled if ideal > 0.0 else U
    q_A = K * spool * max(root_of_drop(p_P - p_A, p_tr), g_least)
    q_P = -q_A
    return q_P, q_A, dU
