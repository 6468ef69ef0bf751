"""Rack and pinion with what it turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Inertia, Length, Mass, RotaryDamping, Torque


class RackAndPinion(Component):
    r"""A pinion that a rack turns, with all that turns with it, as felt at the rack: a swing drive, a rotary actuator.

    .. math:: \varphi = x/r, \qquad m = m_r + J/r^2, \qquad F = -\frac{u\,T + b\,\omega}{r}

    J is that of the pinion and of all that it drives. The signal ``command`` scales the torque T of the load, positive
    against growing angle. No play, no losses in the mesh. The logged ``phi`` and ``w`` are the pinion's.
    Source: [Linjama] (reduced inertia: m_eq = m_piston + (J_1 + J_2)/r²).
    """

    type_name = "rack_and_pinion"
    mechanical = ("rack",)
    inputs = ("command",)
    input_defaults: ClassVar[Mapping[str, float]] = {"command": 1.0}

    pitch_radius: Length = Field(gt=0, description="of the pinion, r")
    inertia: Inertia = Field(gt=0, description="of the pinion and all that turns with it, J")
    rack_mass: Mass = Field(default="0 kg", ge=0, description="of the rack, m_r")
    torque: Torque = Field(default="0 N*m", description="of the load at command 1, against growing angle, T")
    damping: RotaryDamping = Field(default="0 N*m*s", ge=0, description="torque per angular speed (rad/s), b")

    def parameters(self, fluid: Fluid) -> Parameters:
        r = self.pitch_radius
        return {"r": r, "m_eq": self.rack_mass + self.inertia / (r * r), "T": self.torque, "b": self.damping}


@kernel(RackAndPinion)
def rack_and_pinion(x_rack, v_rack, u_command, r, m_eq, T, b):
    phi = x_rack / r
    w = v_rack / r
    F_rack = -(u_command * T + b * w) / r
    m_rack = m_eq
    return F_rack, m_rack, phi, w
