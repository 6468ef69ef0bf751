"""A prescribed position."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.units import Length, Time


class PositionSource(Component):
    r"""Moves a mechanical node after a signal whatever the forces: a testing machine, a hand on a lever.

    .. math:: \tau^2\,\dot r = u\,x_{full} - s - 2\tau\,r, \qquad \dot s = r, \quad x = s, \quad v = r

    A lag of second order without overshoot: position and velocity fit each other however the signal jumps. A ramp is
    followed 2·tau late. Masses at this node don't matter.
    """

    type_name = "position_source"
    mechanical = ("rod",)
    inputs = ("command",)
    states = (State("s", "m", initial="x_0", scale=1e-3), State("r", "m/s", scale=1e-3))

    travel: Length = Field(description="position at command 1, x_full")
    time_constant: Time = Field(default="10 ms", gt=0, description="of both its lags, tau")
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
