"""Pressure sensor."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.units import Pressure, Time


class PressureSensor(Component):
    r"""Pressure of a node as a signal in Pa (gauge), with a first-order lag.

    .. math:: u = y, \qquad \dot y = (p_P - y)/\tau

    Because of the lag, a signal may lead from a sensor back to a valve. The lag starts at ``initial``; the range is
    unlimited.
    """

    type_name = "pressure_sensor"
    hydraulic = ("P",)
    outputs = ("signal",)
    states = (State("y", "Pa", initial="y_0", scale=1e5),)

    time_constant: Time = Field(default="1 ms", gt=0, description="time constant of the lag, tau")
    initial: Pressure = Field(default="0 bar", description="reading at the start")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"tau": self.time_constant, "y_0": self.initial}


@kernel(PressureSensor)
def pressure_reading(y):
    u_signal = y
    return u_signal


@kernel(PressureSensor)
def pressure_lag(p_P, y, tau):
    dy = (p_P - y) / tau
    return dy
