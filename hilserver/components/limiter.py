"""Limits of a signal."""

from __future__ import annotations

from pydantic import Field, model_validator

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.numerics.shape import clip
from hilserver.units import Number


class Limiter(Component):
    r"""A signal limited to a range.

    .. math:: u = \mathrm{clip}(u_{in},\,u_{min},\,u_{max})
    """

    type_name = "limiter"
    inputs = ("input",)
    outputs = ("signal",)

    lower: Number = Field(default=-1.0, description="lower limit, u_min; SI")
    upper: Number = Field(default=1.0, description="upper limit, u_max; SI")

    @model_validator(mode="after")
    def _in_order(self) -> Limiter:
        if self.lower > self.upper:
            raise ValueError(f"lower {self.lower:g} must not be above upper {self.upper:g}")
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"lower": self.lower, "upper": self.upper}


@kernel(Limiter)
def limiter(u_input, lower, upper):
    u_signal = clip(u_input, lower, upper)
    return u_signal
