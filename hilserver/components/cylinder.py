"""Double-acting hydraulic cylinder."""

from __future__ import annotations

from math import pi
from typing import Literal

from pydantic import Field, model_validator

from hilserver.components.base import Component, Datasheet, Fluid, Parameters, kernel
from hilserver.components.line import LineSize
from hilserver.numerics.fluid import capacitance
from hilserver.numerics.motion import friction_factor, smooth_sign, stop_force
from hilserver.numerics.shape import clip
from hilserver.units import Damping, LeakageCoefficient, Length, Mass, Number, Pressure, Stiffness, Velocity, Volume


class SealFriction(Datasheet):
    """Friction of the seals, from the cylinder's efficiency."""

    efficiency: Number = Field(
        default=0.95, gt=0, le=1, description="share of the hydraulic force left at xi = 1, eta; 1: no friction"
    )
    factor: Literal["polynomial", "constant"] = Field(
        default="polynomial", description="xi over speed: polynomial 1 - 0.2 - 1 at 0 - 0.1 - 5 m/s, or the constant 1"
    )
    reversal_speed: Velocity = Field(
        default="0.01 m/s", gt=0, description="the friction's sign is tanh(v/v_0); v_0 must be passed in several steps"
    )


class EndStop(Datasheet):
    """What the piston meets at both ends of its stroke."""

    stiffness: Stiffness = Field(default="1e8 N/m", gt=0, description="spring, K_end")
    damping: Damping = Field(default="2e5 N*s/m", ge=0, description="damper, D_end")
    zone: Length = Field(
        default="0.1 mm", gt=0, description="depth over which both are switched on, no spike at contact"
    )


class Cylinder(Component):
    r"""Double-acting cylinder with one rod: two chambers and a piston. x = 0 is fully retracted; positive is extending.

    .. math:: C_A \dot p_A = \sum Q - A_A v - C\,(p_A - p_B), \qquad C_B \dot p_B = \sum Q + A_B v + C\,(p_A - p_B)

    .. math:: F = A_A p_A - A_B p_B - (A_A - A_B)\,p_{amb} - F_\mu - F_{end}, \qquad
       F_\mu = \xi(|v|)\,\tanh(v/v_0)\,|A_A p_A - A_B p_B|\,(1 - \eta)

    Chamber volumes V_0A + A_A·x and V_0B + A_B·(stroke - x), filled with the circuit's oil; the dead volumes include
    what is plumbed to the ports and is no component of its own. The oil in the lines moves faster than the piston; its
    kinetic energy is a mass at the rod, m_oA·(A_A/A_lineA)² + m_oB·(A_B/A_lineB)². Lines count here as mass only: their
    volume belongs to the dead volume or to a pipe or hose. Pressures are gauge, so p_amb is 0 unless the rod end is
    elsewhere than in the atmosphere. The logged ``F_mu`` and ``F_end`` are positive against growing position.
    Source: THEORY §3; seeds/001 eqs. 3.48, 4.7, 4.8, ch. 4.2.4.
    """

    type_name = "cylinder"
    hydraulic = ("A", "B")
    mechanical = ("rod",)

    bore: Length = Field(gt=0, description="diameter of the piston")
    rod_diameter: Length = Field(gt=0, description="diameter of the rod")
    stroke: Length = Field(gt=0, description="from fully retracted to fully extended")
    moving_mass: Mass = Field(gt=0, description="piston and rod")
    dead_volume_A: Volume = Field(gt=0, description="oil at port A with the piston fully retracted, V_0A")
    dead_volume_B: Volume = Field(gt=0, description="oil at port B with the piston fully extended, V_0B")
    line_A: LineSize | None = Field(default=None, description="line at port A: its oil's mass is felt at the rod")
    line_B: LineSize | None = Field(default=None, description="line at port B: its oil's mass is felt at the rod")
    leakage: LeakageCoefficient = Field(
        default="0 l/min/bar", ge=0, description="past the piston, flow per pressure, C"
    )
    friction: SealFriction = Field(default_factory=SealFriction, description="of the seals")
    end_stop: EndStop = Field(default_factory=EndStop, description="at both ends of the stroke")
    ambient_pressure: Pressure = Field(default="0 bar", description="gauge pressure on the rod, p_amb")

    @model_validator(mode="after")
    def _rod_fits(self) -> Cylinder:
        if self.rod_diameter >= self.bore:
            raise ValueError(
                f"rod_diameter {self.rod_diameter * 1e3:g} mm must be less than the bore of {self.bore * 1e3:g} mm"
            )
        return self

    def areas(self) -> tuple[float, float]:
        """Effective areas A_A and A_B, m²."""
        A_A = 0.25 * pi * self.bore * self.bore
        return A_A, A_A - 0.25 * pi * self.rod_diameter * self.rod_diameter

    def rod_mass(self, fluid: Fluid) -> float:
        """Moving mass and reduced mass of the oil in the lines, kg."""
        return self.moving_mass + sum(
            line.oil_mass(fluid) * (area / line.area()) ** 2
            for line, area in zip((self.line_A, self.line_B), self.areas(), strict=True)
            if line is not None
        )

    def parameters(self, fluid: Fluid) -> Parameters:
        A_A, A_B = self.areas()
        return {
            "A_A": A_A,
            "A_B": A_B,
            "stroke": self.stroke,
            "V_0A": self.dead_volume_A,
            "V_0B": self.dead_volume_B,
            "C": self.leakage,
            "loss": 1.0 - self.friction.efficiency,
            "polynomial": float(self.friction.factor == "polynomial"),
            "v_0": self.friction.reversal_speed,
            "K_end": self.end_stop.stiffness,
            "D_end": self.end_stop.damping,
            "zone": self.end_stop.zone,
            "p_amb": self.ambient_pressure,
            "m_moving": self.rod_mass(fluid),
            **fluid.parameters(),
        }


@kernel(Cylinder)
def chamber_A(p_A, p_B, x_rod, v_rod, A_A, stroke, V_0A, C, B_o, alpha_0, kappa, p_0):
    V = V_0A + A_A * clip(x_rod, 0.0, stroke)
    C_A = capacitance(V, p_A, B_o, alpha_0, kappa, p_0)
    q_A = -A_A * v_rod - C * (p_A - p_B)
    return q_A, C_A


@kernel(Cylinder)
def chamber_B(p_A, p_B, x_rod, v_rod, A_B, stroke, V_0B, C, B_o, alpha_0, kappa, p_0):
    V = V_0B + A_B * (stroke - clip(x_rod, 0.0, stroke))
    C_B = capacitance(V, p_B, B_o, alpha_0, kappa, p_0)
    q_B = A_B * v_rod + C * (p_A - p_B)
    return q_B, C_B


@kernel(Cylinder)
def piston(p_A, p_B, x_rod, v_rod, A_A, A_B, stroke, loss, polynomial, v_0, K_end, D_end, zone, p_amb, m_moving):
    F_p = A_A * p_A - A_B * p_B
    xi = friction_factor(abs(v_rod)) if polynomial > 0.0 else 1.0
    F_mu = xi * smooth_sign(v_rod, v_0) * abs(F_p) * loss
    F_end = stop_force(x_rod - stroke, v_rod, K_end, D_end, zone) - stop_force(-x_rod, -v_rod, K_end, D_end, zone)
    F_rod = F_p - (A_A - A_B) * p_amb - F_mu - F_end
    m_rod = m_moving
    return F_rod, m_rod, F_mu, F_end
