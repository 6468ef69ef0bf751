"""A load that resists the rotation of a shaft."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import ClassVar

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.numerics.motion import smooth_sign
from hilserver.units import RotaryDamping, Speed, Torque


class ShaftLoad(Component):
    r"""A torque against the motion, with a constant and a viscous part: a brake, a drill, a conveyor, a bearing.

    .. math:: T = -u\,T_0 \tanh(\omega/\omega_0) - b\,\omega

    It only dissipates energy. Under a torque it creeps instead of standing still, at the speed omega_0 under 76 % of
    T_0. The signal ``command`` scales T_0, not b; a negative value counts as 0. For a suspended load, which acts at
    rest too, use ``torque_source``.
    Source: theory §3 (the smooth sign).
    """

    type_name = "shaft_load"
    rotational = ("shaft",)
    inputs = ("command",)
    input_defaults: ClassVar[Mapping[str, float]] = {"command": 1.0}

    torque: Torque = Field(default="0 N*m", ge=0, description="torque against the motion at command 1, T_0")
    damping: RotaryDamping = Field(default="0 N*m*s", ge=0, description="torque per angular speed (rad/s), b")
    reversal_speed: Speed = Field(
        default="10 rpm", gt=0, description="the sign of T_0 is tanh(omega/omega_0), as angular speed omega_0"
    )

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"T_0": self.torque, "b": self.damping, "w_0": 2.0 * pi * self.reversal_speed}


@kernel(ShaftLoad)
def shaft_load(w_shaft, u_command, T_0, b, w_0):
    T_shaft = -max(u_command, 0.0) * T_0 * smooth_sign(w_shaft, w_0) - b * w_shaft
    return T_shaft
