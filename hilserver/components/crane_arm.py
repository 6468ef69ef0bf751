"""An arm on a pivot, lifted by a cylinder."""

from __future__ import annotations

from math import acos, cos, pi, sin, sqrt

from pydantic import Field, model_validator

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.numerics.shape import clip
from hilserver.units import Acceleration, Angle, Length, Mass, shown_value

SHARPEST = 0.9999
"""Largest cosine of the triangle's angle: beyond that the cylinder is in line with the pivot and has no arm."""


class CraneArm(Component):
    r"""An arm of one degree of freedom with a load at its tip, reduced to the cylinder that lifts it.

    Pivot, cylinder's base and rod pin form a triangle with the sides p (pivot to base), q (pivot to rod pin on the arm)
    and the cylinder's length L = L_0 + x; the angle gamma between p and q gives the arm's angle over the horizontal,
    theta = gamma - gamma_0.

    .. math:: L^2 = p^2 + q^2 - 2pq\cos\gamma, \qquad a = \frac{dL}{d\gamma} = \frac{pq\sin\gamma}{L}, \qquad
       \frac{da}{d\gamma} = \frac{pq\cos\gamma - a^2}{L}

    .. math:: J = (m_{arm}/3 + m)\,l^2, \qquad \tau = (m_{arm}/2 + m)\,g\,l\cos\theta, \qquad J\ddot\theta = aF - \tau

    With v = a·omega this is the mass J/a² on the rod and the force

    .. math:: F_{rod} = -\frac{\tau}{a} + \frac{J}{a^2}\frac{da}{d\gamma}\,\omega^2

    The logged ``theta`` and ``w`` are the arm's. For other mechanisms see ``[mechanisms]`` in the circuit file.
    Source: [Linjama] (crane arm: J, a(theta), x(theta)).
    """

    type_name = "crane_arm"
    mechanical = ("rod",)

    length: Length = Field(gt=0, description="length of the arm from pivot to load, l")
    arm_mass: Mass = Field(gt=0, description="mass of the arm, a slender bar, m_arm")
    load_mass: Mass = Field(default="0 kg", ge=0, description="mass at the tip, m")
    base_distance: Length = Field(gt=0, description="distance from the pivot to the cylinder's base, p")
    rod_distance: Length = Field(gt=0, description="distance from the pivot to the rod's pin on the arm, q")
    level_angle: Angle = Field(
        gt=0, lt=pi, description="angle between p and q with the arm horizontal, gamma_0; increases as the arm rises"
    )
    retracted: Length = Field(gt=0, description="length of the cylinder, pin to pin, at position 0, L_0")
    gravity: Acceleration = Field(default="9.81 m/s^2", description="gravitational acceleration, g")

    @model_validator(mode="after")
    def _triangle_closes(self) -> CraneArm:
        p, q = self.base_distance, self.rod_distance
        shortest, longest = (sqrt(p * p + q * q - 2 * p * q * c) for c in (SHARPEST, -SHARPEST))
        if not shortest < self.retracted < longest:
            raise ValueError(
                f"retracted {shown_value(self.retracted, 'm')} does not fit between its pins, which are "
                f"{shown_value(shortest, 'm')} to {shown_value(longest, 'm')} apart"
            )
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        l, m = self.length, self.load_mass  # noqa: E741 (the source's name)
        return {
            "p": self.base_distance,
            "q": self.rod_distance,
            "gamma_0": self.level_angle,
            "L_0": self.retracted,
            "J": (self.arm_mass / 3.0 + m) * l * l,
            "weight": (0.5 * self.arm_mass + m) * self.gravity * l,
        }


@kernel(CraneArm)
def crane_arm(x_rod, v_rod, p, q, gamma_0, L_0, J, weight):
    L = L_0 + x_rod
    cosine = clip((p * p + q * q - L * L) / (2.0 * p * q), -SHARPEST, SHARPEST)
    gamma = acos(cosine)
    a = p * q * sin(gamma) / L
    bend = (p * q * cosine - a * a) / L
    theta = gamma - gamma_0
    w = v_rod / a
    m_rod = J / (a * a)
    F_rod = -weight * cos(theta) / a + m_rod * bend * w * w
    return F_rod, m_rod, theta, w
