"""Position sensor."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.units import Length, Time


class PositionSensor(Component):
    r"""Position of a mechanical node as a signal in m, with a first-order lag.

    .. math:: u = y, \qquad \dot y = (x_{rod} - y)/\tau

    Because of the lag, a signal may lead from a sensor back to a valve. The lag starts at ``initial``; the range is
    unlimited.
    """

    type_name = "position_sensor"
    mechanical = ("rod",)
    outputs = ("signal",)
    states = (State("y", "m", initial="y_0", scale=1e-3),)

    time_constant: Time = Field(default="1 ms", gt=0, description="time constant of the lag, tau")
    initial: Length = Field(default="0 m", description="reading at the start")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"tau": self.time_constant, "y_0": self.initial}


@kernel(PositionSensor)
def position_reading(y):
    u_signal = y
    return u_signal


@kernel(PositionSensor)
def position_lag(x_rod, y, tau):
    dy = (x_rod - y) / tau
    return dy
