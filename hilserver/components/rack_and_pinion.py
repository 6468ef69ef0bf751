"""Rack and pinion with the load that it rotates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Inertia, Length, Mass, RotaryDamping, Torque


class RackAndPinion(Component):
    r"""A pinion driven by a rack, with the rotating load, reduced to the rack: a swing drive, a rotary actuator.

    .. math:: \varphi = x/r, \qquad m = m_r + J/r^2, \qquad F = -\frac{u\,T + b\,\omega}{r}

    J is the moment of inertia of the pinion and of everything that it drives. The signal ``command`` scales the torque
    T of the load, positive against increasing angle. No backlash, no losses in the mesh. The logged ``phi`` and ``w``
    are the pinion's.
    Source: [Linjama] (reduced inertia: m_eq = m_piston + (J_1 + J_2)/r²).
    """

    type_name = "rack_and_pinion"
    mechanical = ("rack",)
    inputs = ("command",)
    input_defaults: ClassVar[Mapping[str, float]] = {"command": 1.0}

    pitch_radius: Length = Field(gt=0, description="pitch radius of the pinion, r")
    inertia: Inertia = Field(gt=0, description="moment of inertia of the pinion and everything that rotates with it, J")
    rack_mass: Mass = Field(default="0 kg", ge=0, description="mass of the rack, m_r")
    torque: Torque = Field(default="0 N*m", description="torque of the load at command 1, against increasing angle, T")
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
