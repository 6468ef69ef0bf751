"""Flow sensor in a line."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.components.orifice import FlowAtDrop
from hilserver.numerics.flow import root_of_drop
from hilserver.units import Pressure, Time


class FlowSensor(Component):
    r"""Flow from A to B as a signal in m³/s, with a first-order lag; the sensor itself is a small restriction.

    .. math:: Q = Q_N\,\frac{g(\Delta p)}{g(\Delta p_N)}, \qquad u = y, \qquad \dot y = (Q - y)/\tau

    It is part of a line: both its nodes need a volume. The smaller its drop and these volumes, the stiffer the circuit.
    Source: the restriction as in ``orifice`` (theory §3).
    """

    type_name = "flow_sensor"
    hydraulic = ("A", "B")
    outputs = ("signal",)
    states = (State("y", "m^3/s", scale="Q_N"),)

    nominal_flow: FlowAtDrop = Field(
        description='pressure loss of the sensor, like { flow = "40 l/min", drop = "2 bar" }'
    )
    transition_pressure: Pressure = Field(default="1 bar", gt=0, description="laminar below this drop, p_tr")
    time_constant: Time = Field(default="1 ms", gt=0, description="time constant of the lag, tau")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {
            "K": self.nominal_flow.coefficient(self.transition_pressure),
            "p_tr": self.transition_pressure,
            "tau": self.time_constant,
            "Q_N": self.nominal_flow.flow,
        }


@kernel(FlowSensor)
def flow_reading(y):
    u_signal = y
    return u_signal


@kernel(FlowSensor)
def flow_through(p_A, p_B, y, K, p_tr, tau):
    q_B = K * root_of_drop(p_A - p_B, p_tr)
    q_A = -q_B
    dy = (q_B - y) / tau
    return q_A, q_B, dy
