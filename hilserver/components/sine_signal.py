"""Sine as a signal."""

from __future__ import annotations

from math import pi, sin

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Angle, Frequency, Number, Time


class SineSignal(Component):
    r"""A sine around an offset; before the start the offset alone.

    .. math:: u = u_0 + a\,\sin(2\pi f\,(t - t_0) + \varphi), \qquad t \ge t_0

    t counts from the start of the circuit.
    """

    type_name = "sine_signal"
    outputs = ("signal",)

    frequency: Frequency = Field(gt=0, description="frequency, f")
    amplitude: Number = Field(default=1.0, description="amplitude, a; SI")
    offset: Number = Field(default=0.0, description="offset, u_0; SI")
    phase: Angle = Field(default="0 deg", description="phase at the start, phi")
    start: Time = Field(default="0 s", description="start of the sine, t_0")

    def parameters(self, fluid: Fluid) -> Parameters:
        omega = 2.0 * pi * self.frequency
        return {"a": self.amplitude, "omega": omega, "phi": self.phase, "t_0": self.start, "u_0": self.offset}


@kernel(SineSignal)
def sine_signal(t, a, omega, phi, t_0, u_0):
    u_signal = u_0 + (a * sin(omega * (t - t_0) + phi) if t >= t_0 else 0.0)
    return u_signal
