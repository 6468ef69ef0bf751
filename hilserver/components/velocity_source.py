"""A prescribed velocity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.units import Length, Velocity


class VelocitySource(Component):
    r"""Moves a mechanical node at a velocity independent of the forces; without a signal it holds the node at rest.

    .. math:: v = u\,v_{full}, \qquad \dot s = v, \quad x = s

    Masses at this node have no effect. The velocity jumps with the signal; use a ramp where that matters.
    """

    type_name = "velocity_source"
    mechanical = ("rod",)
    inputs = ("command",)
    input_defaults: ClassVar[Mapping[str, float]] = {"command": 0.0}
    states = (State("s", "m", initial="x_0", scale=1e-3),)

    velocity: Velocity = Field(default="1 m/s", description="velocity at command 1, v_full")
    initial: Length = Field(default="0 m", description="position at the start")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"v_full": self.velocity, "x_0": self.initial}


@kernel(VelocitySource)
def velocity_source(s, u_command, v_full):
    x_rod = s
    v_rod = u_command * v_full
    ds = v_rod
    return x_rod, v_rod, ds
