"""Joystick: characteristic of an operator's lever."""

from __future__ import annotations

from pydantic import Field, model_validator

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.numerics.signal import lever_curve
from hilserver.units import Number


class Joystick(Component):
    r"""Characteristic of a lever: deadband around the middle, saturation before the end, low gain near the middle.

    .. math:: u = \mathrm{sign}(x)\left((1 - e)\,s + e\,s^3\right), \qquad
       s = \mathrm{clip}\left(\frac{|x| - x_d}{x_s - x_d},\,0,\,1\right)

    x is the lever's position, -1 … 1; so is the signal. Symmetrical in both directions.
    """

    type_name = "joystick"
    inputs = ("lever",)
    outputs = ("signal",)

    deadband: Number = Field(default=0.05, ge=0, lt=1, description="position up to which the signal is 0, x_d")
    saturation: Number = Field(default=1.0, gt=0, le=1, description="position from which the signal is 1, x_s")
    expo: Number = Field(
        default=0.0, ge=0, le=1, description="shape, e; 0: linear, 1: cubic with a low gain near the middle"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Joystick:
        if self.deadband >= self.saturation:
            raise ValueError(f"deadband {self.deadband:g} must be below saturation {self.saturation:g}")
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"deadband": self.deadband, "saturation": self.saturation, "expo": self.expo}


@kernel(Joystick)
def joystick(u_lever, deadband, saturation, expo):
    u_signal = lever_curve(u_lever, deadband, saturation, expo)
    return u_signal
