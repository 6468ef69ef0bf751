"""Hydraulic motor, and pump with a shaft."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import ClassVar

from pydantic import Field, model_validator

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.components.shared.suction import Suction
from hilserver.numerics.motion import smooth_sign
from hilserver.numerics.pump import filling
from hilserver.numerics.shape import clip
from hilserver.units import RPM, Displacement, Inertia, Number, Pressure, Speed


class HydraulicMotor(Suction, Component):
    r"""Displacement machine with a shaft: motor or pump, in both directions of speed and pressure.

    .. math:: Q_A = -\varphi\,u\,V\,\omega - C_i (p_A - p_B) - C_e (p_A - p_L), \qquad
       Q_B = \varphi\,u\,V\,\omega + C_i (p_A - p_B) - C_e (p_B - p_L)

    .. math:: T = \varphi\,u\,V\,(p_A - p_B) - \tanh(\omega/\omega_0)\,\lambda\,V\,|p_A - p_B| - b\,\omega, \qquad
       V = V_{rev}/(2\pi)

    Pressure at A turns it forwards; driven forwards it pumps from A to B. ``displacement`` is the size; for variable
    machines the signal ``setting`` is the fraction of it, -1 to 1. The losses meet both datasheet efficiencies exactly
    at the rated point as a motor: leakage V_rev·n·(1/eta_v - 1), lost torque V·dp·(1 - eta_hm). Leakage grows with
    pressure, the lost torque partly with pressure (lambda), partly with speed (b), at any setting. So the hydraulic
    input power equals mechanical output power plus losses, which are positive in all four quadrants. The filling phi of
    the port that it draws from is 1 above the minimum inlet pressure, and 0 at the vapour pressure; it moves from one
    port to the other with the sign of u·omega, within omega_0. No pulsation; starting
    friction equals running friction. Source: the linear loss model of Wilson, Rotary-Pump Theory, Trans. ASME 68
    (1946).
    """

    type_name = "hydraulic_motor"
    hydraulic = ("A", "B", "L")
    rotational = ("shaft",)
    inputs = ("setting",)
    input_defaults: ClassVar[Mapping[str, float]] = {"setting": 1.0}

    displacement: Displacement = Field(gt=0, description="volume per revolution, V_rev")
    volumetric_efficiency: Number = Field(
        default=0.95,
        gt=0,
        le=1,
        description="volumetric efficiency as a motor at the rated point, eta_v; 1: no leakage",
    )
    hydromechanical_efficiency: Number = Field(
        default=0.92,
        gt=0,
        le=1,
        description="hydromechanical efficiency as a motor at the rated point, eta_hm; 1: no friction",
    )
    rated_pressure: Pressure = Field(default="200 bar", gt=0, description="pressure drop of the rated point, dp")
    rated_speed: Speed = Field(default="1500 rpm", gt=0, description="speed of the rated point, n")
    case_share: Number = Field(
        default=0.5, ge=0, le=1, description="share of the leakage at the rated point that flows to the case port L"
    )
    viscous_share: Number = Field(
        default=0.3, ge=0, le=1, description="share of the lost torque at the rated point that is proportional to speed"
    )
    reversal_speed: Speed = Field(
        default="10 rpm", gt=0, description="the friction's sign is tanh(omega/omega_0), as angular speed omega_0"
    )
    inertia: Inertia = Field(gt=0, description="moment of inertia of the rotating parts, J")

    @model_validator(mode="after")
    def _rated_point_is_past_the_reversal(self) -> HydraulicMotor:
        if self.rated_speed < 5 * self.reversal_speed:
            raise ValueError(
                f"rated_speed {self.rated_speed / RPM:g} rpm must be at least 5 times the reversal_speed of "
                f"{self.reversal_speed / RPM:g} rpm: below it the friction is not yet that of the datasheet"
            )
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        leakage = self.displacement * self.rated_speed * (1.0 / self.volumetric_efficiency - 1.0) / self.rated_pressure
        V, lost = self.displacement / (2.0 * pi), 1.0 - self.hydromechanical_efficiency
        return {
            "V": V,
            "C_i": leakage * (1.0 - self.case_share),
            "C_e": leakage * self.case_share,
            "loss": lost * (1.0 - self.viscous_share),
            "b": lost * self.viscous_share * V * self.rated_pressure / (2.0 * pi * self.rated_speed),
            "w_0": 2.0 * pi * self.reversal_speed,
            "J": self.inertia,
            **self.suction_parameters(fluid),
        }


@kernel(HydraulicMotor)
def hydraulic_motor(p_A, p_B, p_L, w_shaft, u_setting, V, C_i, C_e, loss, b, w_0, J, p_v, p_in):
    dp = p_A - p_B
    setting = clip(u_setting, -1.0, 1.0)
    from_A = 0.5 + 0.5 * smooth_sign(setting * w_shaft, w_0)
    unfilled = from_A * (1.0 - filling(p_A, p_v, p_in)) + (1.0 - from_A) * (1.0 - filling(p_B, p_v, p_in))
    V_set = (1.0 - unfilled) * setting * V
    q_B = V_set * w_shaft + C_i * dp - C_e * (p_B - p_L)
    q_A = -V_set * w_shaft - C_i * dp - C_e * (p_A - p_L)
    q_L = -q_A - q_B
    T_shaft = V_set * dp - smooth_sign(w_shaft, w_0) * loss * V * abs(dp) - b * w_shaft
    J_shaft = J
    return q_A, q_B, q_L, T_shaft, J_shaft
