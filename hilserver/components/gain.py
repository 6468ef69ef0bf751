"""Gain and offset."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Number


class Gain(Component):
    r"""A signal scaled and shifted.

    .. math:: u = k\,u_{in} + u_0

    Signals are SI values: a gain from a pressure to a command is in 1/Pa.
    """

    type_name = "gain"
    inputs = ("input",)
    outputs = ("signal",)

    gain: Number = Field(default=1.0, description="gain, k; SI")
    offset: Number = Field(default=0.0, description="offset, u_0; SI")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"k": self.gain, "u_0": self.offset}


@kernel(Gain)
def gain(u_input, k, u_0):
    u_signal = k * u_input + u_0
    return u_signal
