"""A prescribed position."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.units import Length, Time


class PositionSource(Component):
    r"""Moves a mechanical node as a signal prescribes, at any force: a testing machine, a hand on a lever.

    .. math:: \tau^2\,\dot r = u\,x_{full} - s - 2\tau\,r, \qquad \dot s = r, \quad x = s, \quad v = r

    A second-order lag without overshoot: position and velocity are consistent even where the signal jumps. A ramp is
    followed with a delay of 2·tau. Masses at this node have no effect.
    """

    type_name = "position_source"
    mechanical = ("rod",)
    inputs = ("command",)
    states = (State("s", "m", initial="x_0", scale=1e-3), State("r", "m/s", scale=1e-3))

    travel: Length = Field(description="position at command 1, x_full")
    time_constant: Time = Field(default="10 ms", gt=0, description="time constant of both lags, tau")
    initial: Length = Field(default="0 m", description="position at the start")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"x_full": self.travel, "tau": self.time_constant, "x_0": self.initial}


@kernel(PositionSource)
def position_source(s, r, u_command, x_full, tau):
    x_rod = s
    v_rod = r
    ds = r
    dr = ((u_command * x_full - s) / tau - 2.0 * r) / tau
    return x_rod, v_rod, ds, dr
