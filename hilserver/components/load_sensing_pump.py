"""Load-sensing pump."""

from __future__ import annotations

from pydantic import Field, model_validator

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.shared.variable_pump import VariablePump
from hilserver.numerics.pump import controlled_flow, filling, power_limit
from hilserver.units import BAR, Pressure


class LoadSensingPump(VariablePump):
    r"""Variable pump that keeps its pressure a margin above the load's, up to a cut-off, from T to P.

    .. math:: \dot Q = \frac{k\,\min(p_{LS} + \Delta p_{LS} - p_P,\; p_{max} - \Delta p) - Q}{\tau}, \qquad
       0 \le Q \le Q_{lim} = \min\left(Q_{max},\; \frac{P_{max}\,\eta_{tot}}{\Delta p}\right)

    LS senses the highest load pressure and draws no flow. At rest the margin is ``margin`` at no flow (standby) and
    ``control_range`` less at full flow, k = Q_max/control_range; in the cut-off likewise. A controller that
    integrates, without this droop, is not modelled. Limits, power, filling and ``drive`` as in
    ``pressure_compensated_pump``. With a small supply volume the control oscillates, as on the machine; the consumers'
    orifices, leakage, and a wider control_range damp it. Source: theory §3 (lag and limits); the law is the datasheets'
    p-Q diagram.
    """

    type_name = "load_sensing_pump"
    hydraulic = ("P", "T", "LS")

    margin: Pressure = Field(default="20 bar", gt=0, description="pump pressure above the load's at no flow, dp_LS")
    max_pressure: Pressure = Field(gt=0, description="cut-off: the flow is zero from this pressure upwards, p_max")
    control_range: Pressure = Field(
        default="5 bar",
        gt=0,
        description="reduction of the margin at full flow; also the control range below max_pressure",
    )

    @model_validator(mode="after")
    def _pressures_in_order(self) -> LoadSensingPump:
        self.refuse_range_from(self.margin, "margin")
        if self.margin >= self.max_pressure:
            raise ValueError(
                f"margin {self.margin / BAR:g} bar must be less than max_pressure {self.max_pressure / BAR:g} bar: "
                "it is the pressure above the load's, typically 10 to 30 bar"
            )
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"dp_LS": self.margin, "p_max": self.max_pressure, **self.pump_parameters(fluid)}


@kernel(LoadSensingPump)
def load_sensing_pump(p_P, p_T, p_LS, u_drive, Q, k, dp_LS, p_max, tau, Q_max, P_max, eta_tot, p_v, p_in):
    dp = p_P - p_T
    target = k * min(p_LS + dp_LS - p_P, p_max - dp)
    q, dQ = controlled_flow(Q, target, min(Q_max, power_limit(P_max * eta_tot, dp)), tau)
    q_P = filling(p_T, p_v, p_in) * max(u_drive, 0.0) * q
    q_T = -q_P
    return q_P, q_T, dQ
