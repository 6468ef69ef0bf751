"""A servo-hydraulic actuator with a position loop: the real actuator of a simulated rig."""

from __future__ import annotations

from math import pi

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, State, kernel
from hilserver.units import Frequency, Length, Number, Rate, Stiffness

TYPICAL_SPEED = 0.02
"""m/s, of the rod: it gives the states their typical sizes."""


class PositionActuator(Component):
    r"""A position-controlled servo-hydraulic actuator, linear: servo valve, oil column, proportional position loop.

    .. math:: F_{rod} = F, \qquad \dot F = s - K_h\,v_{rod} - a\,F, \qquad \dot s = r, \qquad
       \dot r = \omega^2\left(K_h K_v\,(g\,u\,x_{full} - (x_{rod} - x_{mid})) - s\right) - 2 d\,\omega\,r

    The valve passes a flow in proportion to the position error and lags as a second order; s is this flow as a rate of
    force. The flow that the moving piston takes, K_h v, is missing in the oil column: the natural velocity feedback. So
    the rod follows a slow ramp with an error of v/K_v, and yields to a constant force F by a F/(K_h K_v). A mass on the
    oil column is damped only by leakage and by what it is connected to: alone it is stable for K_v < a, while its
    natural frequency is far below f90. Nothing is limited; a real actuator has a stroke, a largest force and a largest
    flow. The mass of piston and table is that of a ``load_mass`` at the node. Source: Carrion & Spencer, NSEL report 6,
    2007; Silva, Gomez, Maghareh, Dyke & Spencer, Mech. Syst. Signal Process. 135 (2020) 106381, sec. 4.2.
    """

    type_name = "position_actuator"
    mechanical = ("rod",)
    inputs = ("command",)
    states = (
        State("F", "N", scale="F_typical"),
        State("s", "N/s", scale="s_typical"),
        State("r", "N/s^2", scale="r_typical"),
    )

    travel: Length = Field(gt=0, description="position at command 1, relative to the middle, x_full")
    middle: Length = Field(default="0 m", description="position at command 0, x_mid")
    velocity_gain: Rate = Field(
        gt=0,
        description="velocity gain of the position loop: speed of the free rod per position error, K_v",
        examples=["50 1/s"],
    )
    f90: Frequency = Field(gt=0, description="-90° frequency of the servo valve's Bode plot, omega/(2·pi)")
    damping: Number = Field(
        default=0.7, gt=0, le=5, description="damping ratio of the servo valve, d; its gain at f90 is 1/(2·d)"
    )
    oil_stiffness: Stiffness = Field(
        gt=0, description="stiffness of the oil column, force per displacement of the rod with closed valve, K_h"
    )
    force_decay: Rate = Field(
        default="0 1/s",
        ge=0,
        description="rate at which leakage lets the force decay while rod and valve are at rest, a",
        examples=["3 1/s"],
    )
    position_gain: Number = Field(
        default=1.0, gt=0, description="position at rest per commanded position, g: 1 if the loop is adjusted"
    )

    def parameters(self, fluid: Fluid) -> Parameters:
        omega = 2.0 * pi * self.f90
        s_typical = self.oil_stiffness * TYPICAL_SPEED
        return {
            "x_goal": self.position_gain * self.travel,
            "x_mid": self.middle,
            "K_h": self.oil_stiffness,
            "K_s": self.oil_stiffness * self.velocity_gain,
            "a": self.force_decay,
            "omega": omega,
            "d": self.damping,
            "F_typical": s_typical / self.velocity_gain,
            "s_typical": s_typical,
            "r_typical": omega * s_typical,
        }


@kernel(PositionActuator)
def position_actuator(x_rod, v_rod, u_command, F, s, r, x_goal, x_mid, K_h, K_s, a, omega, d):
    F_rod = F
    dF = s - K_h * v_rod - a * F
    ds = r
    dr = omega * (omega * (K_s * (u_command * x_goal - (x_rod - x_mid)) - s) - 2.0 * d * r)
    return F_rod, dF, ds, dr
