"""A mass with its weight."""

from __future__ import annotations

from math import pi, sin

from pydantic import Field, model_validator

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Acceleration, Angle, Inertia, Length, Mass


class LoadMass(Component):
    r"""A mass on the rod, with its weight; an inertia that it rotates is reduced to the rod.

    .. math:: m_{eq}\,\dot v = \sum F - m\,g \sin\alpha, \qquad m_{eq} = m + J/r^2

    alpha is the angle between the direction of increasing position and the horizontal: 90° up, 0° level, -90° down.
    Source: theory §3; [Virtual hydraulics] ch. 4.2.
    """

    type_name = "load_mass"
    mechanical = ("rod",)

    mass: Mass = Field(gt=0, description="mass of the load, m")
    gravity: Acceleration = Field(default="9.81 m/s^2", description="gravitational acceleration, g; 0: no weight")
    direction: Angle = Field(
        default="90 deg",
        ge=-pi,
        le=pi,
        description="angle of increasing position above the horizontal; 90 deg: straight up",
    )
    inertia: Inertia = Field(default="0 kg*m^2", ge=0, description="moment of inertia rotated by the load's motion, J")
    radius: Length | None = Field(default=None, gt=0, description="radius at which the inertia is rotated, r")

    @model_validator(mode="after")
    def _inertia_has_a_radius(self) -> LoadMass:
        if self.inertia > 0 and self.radius is None:
            raise ValueError("inertia needs a radius: its effect at the rod is that of the mass inertia/radius²")
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        reduced = self.inertia / (self.radius * self.radius) if self.radius is not None else 0.0
        return {"m_eq": self.mass + reduced, "F_g": self.mass * self.gravity * sin(self.direction)}


@kernel(LoadMass)
def load_mass(m_eq, F_g):
    F_rod = -F_g
    m_rod = m_eq
    return F_rod, m_rod
