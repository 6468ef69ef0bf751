"""Product of signals."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Number


class Product(Component):
    r"""The product of up to four signals and a gain.

    .. math:: u = k\,a\,b\,c\,d

    An input that is not connected counts as 1.
    """

    type_name = "product"
    inputs = ("a", "b", "c", "d")
    outputs = ("signal",)
    input_defaults = {"c": 1.0, "d": 1.0}

    gain: Number = Field(default=1.0, description="gain, k; SI")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"k": self.gain}


@kernel(Product)
def product(u_a, u_b, u_c, u_d, k):
    u_signal = k * u_a * u_b * u_c * u_d
    return u_signal
