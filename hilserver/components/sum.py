"""Weighted sum of signals."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Number


class Sum(Component):
    r"""The sum of up to four signals, each with its weight: ``weight_b = -1`` subtracts b.

    .. math:: u = w_a a + w_b b + w_c c + w_d d

    An input that is not connected counts as 0.
    """

    type_name = "sum"
    inputs = ("a", "b", "c", "d")
    outputs = ("signal",)
    input_defaults = {"b": 0.0, "c": 0.0, "d": 0.0}

    weight_a: Number = Field(default=1.0, description="weight of a, w_a; SI")
    weight_b: Number = Field(default=1.0, description="weight of b, w_b; SI")
    weight_c: Number = Field(default=1.0, description="weight of c, w_c; SI")
    weight_d: Number = Field(default=1.0, description="weight of d, w_d; SI")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"w_a": self.weight_a, "w_b": self.weight_b, "w_c": self.weight_c, "w_d": self.weight_d}


@kernel(Sum)
def weighted_sum(u_a, u_b, u_c, u_d, w_a, w_b, w_c, w_d):
    u_signal = w_a * u_a + w_b * u_b + w_c * u_c + w_d * u_d
    return u_signal
