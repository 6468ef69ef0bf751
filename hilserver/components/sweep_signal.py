"""Sweep: a sine of changing frequency."""

from __future__ import annotations

from math import log, sin
from typing import Literal

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.numerics.signal import sweep_phase
from hilserver.units import Frequency, Number, Time


class SweepSignal(Component):
    r"""A sine whose frequency changes from f_0 to f_1, to measure frequency responses.

    .. math:: u = u_0 + a\,\sin\left(2\pi\int f\,dt\right), \qquad
       f = f_0 + (f_1 - f_0)\,\frac{t - t_0}{T} \quad \mathrm{or} \quad f = f_0 (f_1/f_0)^{(t - t_0)/T}

    Before and after, the offset alone. A logarithmic sweep spends equal times on equal ratios of frequency.
    t counts from the start of the circuit.
    """

    type_name = "sweep_signal"
    outputs = ("signal",)

    from_frequency: Frequency = Field(gt=0, description="frequency at the start, f_0")
    to_frequency: Frequency = Field(gt=0, description="frequency at the end, f_1")
    duration: Time = Field(gt=0, description="duration, T")
    spacing: Literal["linear", "logarithmic"] = Field(
        default="logarithmic", description="how the frequency changes over time"
    )
    amplitude: Number = Field(default=1.0, description="amplitude, a; SI")
    offset: Number = Field(default=0.0, description="offset, u_0; SI")
    start: Time = Field(default="0 s", description="start of the sweep, t_0")

    def parameters(self, fluid: Fluid) -> Parameters:
        f_0, f_1 = self.from_frequency, self.to_frequency
        growth = log(f_1 / f_0) if self.spacing == "logarithmic" else 0.0
        times = {"T_s": self.duration, "t_0": self.start}
        return {"a": self.amplitude, "f_0": f_0, "f_1": f_1, "growth": growth, "u_0": self.offset, **times}


@kernel(SweepSignal)
def sweep_signal(t, a, f_0, f_1, growth, T_s, t_0, u_0):
    running = t_0 <= t <= t_0 + T_s
    u_signal = u_0 + (a * sin(sweep_phase(t - t_0, f_0, f_1, growth, T_s)) if running else 0.0)
    return u_signal
