"""A shaft at a prescribed speed."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import ClassVar

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.units import Speed


class SpeedSource(Component):
    r"""Drives a shaft at a speed independent of the load: a large electric motor, a governed diesel engine.

    .. math:: \omega = u\,2\pi n, \qquad \dot\varphi = \omega

    Inertias at this shaft have no effect. The speed jumps with the signal; use a ramp where that matters.
    """

    type_name = "speed_source"
    rotational = ("shaft",)
    inputs = ("command",)
    input_defaults: ClassVar[Mapping[str, float]] = {"command": 1.0}
    states = (State("angle", "rad"),)

    speed: Speed = Field(description="speed at command 1, n")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"w_full": 2.0 * pi * self.speed}


@kernel(SpeedSource)
def speed_source(angle, u_command, w_full):
    phi_shaft = angle
    w_shaft = u_command * w_full
    dangle = w_shaft
    return phi_shaft, w_shaft, dangle
