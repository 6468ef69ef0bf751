"""Pressure reducing valve."""

from __future__ import annotations

from math import inf

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Parameters, State, kernel, sampled
from hilserver.components.orifice import FlowAtDrop
from hilserver.components.shared.regulators import ValveWithRegulator
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.regulator import reducing_opening
from hilserver.units import BAR, LeakageCoefficient, Pressure, Time


class ReducingValve(ValveWithRegulator):
    r"""Controls the pressure at A, relative to the drain T, below that at P; 3-way: also relieves A to T.

    .. math:: Q_{PA} = K\,\langle U\rangle\,g(p_P - p_A), \quad
       Q_{AT} = K_T\,\langle -U\rangle\,g(p_A - p_T) + C\,(p_A - p_T), \quad
       \dot U = (U_{rest} - U)/\tau

    The spool settles where it passes, at the present drop, a flow from P to A proportional to e = p_set - (p_A - p_T):
    the nominal flow at e = ``control_range``, up to its full opening. So the reduced pressure falls linearly with the
    flow, at any supply pressure that leaves the drop. Above the set pressure by ``relief_step`` the spool opens A to T
    in the same way. The spool's position is the value ``<name>.U``, 1 … -1.
    ``leakage`` from A to the drain lets the pressure at A sink to the set pressure where nothing else takes oil from A,
    as after the start-up of a 2-way valve. The default, 50 cm³/min at 100 bar, is usual for spools of this kind.
    With a volume V of oil at A the loop's damping ratio is about 0.5·sqrt(V·control_range/(B·Q_N·tau)).
    Source: quasi-static spool with a lag, droop and times as on datasheets; g as in ``orifice``.
    """

    type_name = "reducing_valve"
    hydraulic = ("P", "A", "T")
    states = (State("U", "1", lower=-1.0, upper=1.0),)

    set_pressure: Pressure = Field(gt=0, description="pressure at A without flow, p_set")
    nominal_flow: FlowAtDrop = Field(description='P to A fully open, like { flow = "40 l/min", drop = "8 bar" }')
    control_range: Pressure = Field(
        default="5 bar", gt=0, description="decrease of the pressure at A from zero to nominal flow"
    )
    relief_flow: FlowAtDrop | None = Field(
        default=None, description='A to T fully open (3-way), like { flow = "20 l/min", drop = "8 bar" }; none: 2-way'
    )
    relief_step: Pressure = Field(
        default="3 bar", ge=0, description="excess over set_pressure above which A is relieved to T"
    )
    relief_range: Pressure = Field(
        default="5 bar", gt=0, description="further rise of the pressure at A up to relief_flow"
    )
    leakage: LeakageCoefficient = Field(
        default="0.0005 l/min/bar", ge=0, description="from A to T, past the spool to the drain, flow per pressure, C"
    )
    response_time: Time = Field(default="10 ms", gt=0, description="time constant of the spool, tau")

    @model_validator(mode="after")
    def _datasheet_fits(self) -> ReducingValve:
        self.turbulent("nominal_flow.drop", self.nominal_flow.drop)
        if self.relief_flow is not None:
            self.turbulent("relief_flow.drop", self.relief_flow.drop)
        if self.control_range >= self.set_pressure:
            raise ValueError(
                f"control_range {self.control_range / BAR:g} bar must be less than set_pressure "
                f"{self.set_pressure / BAR:g} bar: it is the decrease of the pressure at A at the nominal flow"
            )
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        relief = self.relief_flow
        return {
            "p_set": self.set_pressure,
            "K": self.nominal_flow.coefficient(self.transition_pressure),
            "p_N": self.nominal_flow.drop,
            "p_range": self.control_range,
            "K_T": relief.coefficient(self.transition_pressure) if relief else 0.0,
            "p_NT": relief.drop if relief else 1.0,
            "p_step": self.relief_step,
            "p_range_T": self.relief_range if relief else inf,  # 2-way: the spool doesn't move beyond closed
            **self.spool_parameters(self.response_time),
            "p_tr": self.transition_pressure,
            "C": self.leakage,
        }


@sampled(ReducingValve)
def reducing_valve_without_lag(p_P, p_A, p_T, p_set, p_N, p_range, p_NT, p_step, p_range_T):
    next_U = reducing_opening(p_P, p_A, p_T, p_set, p_N, p_range, p_NT, p_step, p_range_T)
    return next_U


@kernel(ReducingValve)
def reducing_valve(p_P, p_A, p_T, U, p_set, K, p_N, p_range, K_T, p_NT, p_step, p_range_T, tau, ideal, p_tr, C):
    settled = reducing_opening(p_P, p_A, p_T, p_set, p_N, p_range, p_NT, p_step, p_range_T)
    dU = (settled - U) / tau
    spool = settled if ideal > 0.0 else U
    q_PA = K * max(spool, 0.0) * root_of_drop(p_P - p_A, p_tr)
    q_AT = K_T * max(-spool, 0.0) * root_of_drop(p_A - p_T, p_tr) + C * (p_A - p_T)
    q_P = -q_PA
    q_A = q_PA - q_AT
    q_T = q_AT
    return q_P, q_A, q_T, dU
