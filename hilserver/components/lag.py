"""First-order lag of a signal."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.units import Number, Time


class Lag(Component):
    r"""A signal that follows another with a first-order lag; it may close a signal loop.

    .. math:: u = y, \qquad \dot y = (u_{in} - y)/\tau
    """

    type_name = "lag"
    inputs = ("input",)
    outputs = ("signal",)
    states = (State("y", "SI", initial="y_0"),)

    time_constant: Time = Field(gt=0, description="time to 63 % of a step, tau")
    initial: Number = Field(default=0.0, description="signal at the start; SI")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"tau": self.time_constant, "y_0": self.initial}


@kernel(Lag)
def lag_reading(y):
    u_signal = y
    return u_signal


@kernel(Lag)
def lag(u_input, y, tau):
    dy = (u_input - y) / tau
    return dy
