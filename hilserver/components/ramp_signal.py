"""Ramp of a signal."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.numerics.shape import clip
from hilserver.units import Number, Time


class RampSignal(Component):
    r"""A signal that changes linearly from one value to another.

    .. math:: u = u_0 + (u_1 - u_0)\,\mathrm{clip}\left(\frac{t - t_0}{T},\,0,\,1\right)

    t counts from the start of the circuit.
    """

    type_name = "ramp_signal"
    outputs = ("signal",)

    start: Time = Field(default="0 s", description="start of the ramp, t_0")
    duration: Time = Field(gt=0, description="duration of the ramp, T")
    before: Number = Field(default=0.0, description="value before, u_0; SI")
    after: Number = Field(default=1.0, description="value after, u_1; SI")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"t_0": self.start, "T_r": self.duration, "u_0": self.before, "u_1": self.after}


@kernel(RampSignal)
def ramp_signal(t, t_0, T_r, u_0, u_1):
    u_signal = u_0 + (u_1 - u_0) * clip((t - t_0) / T_r, 0.0, 1.0)
    return u_signal
