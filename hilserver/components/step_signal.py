"""Step of a signal."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.numerics.shape import step
from hilserver.units import Number, Time


class StepSignal(Component):
    r"""A signal that changes from one value to another, by the cubic STEP within the rise time, or at once.

    .. math:: u = \mathrm{STEP}(t,\,t_0,\,u_0,\,t_0 + T,\,u_1)

    t counts from the start of the circuit. Source: theory, STEP; [Asikainen] eq. 33.
    """

    type_name = "step_signal"
    outputs = ("signal",)

    start: Time = Field(default="0 s", description="start of the step, t_0")
    rise_time: Time = Field(default="0 s", ge=0, description="rise time, T")
    before: Number = Field(default=0.0, description="value before, u_0; SI")
    after: Number = Field(default=1.0, description="value after, u_1; SI")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"t_0": self.start, "t_1": self.start + self.rise_time, "u_0": self.before, "u_1": self.after}


@kernel(StepSignal)
def step_signal(t, t_0, t_1, u_0, u_1):
    u_signal = u_1 if t >= t_1 else (step(t, t_0, u_0, t_1, u_1) if t > t_0 else u_0)
    return u_signal
