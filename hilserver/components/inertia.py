"""An inertia on a shaft."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Inertia


class ShaftInertia(Component):
    r"""A body that rotates with a shaft.

    .. math:: J\,\dot\omega = \sum T, \qquad \dot\varphi = \omega

    Inertias at the same shaft add up. Behind a gear of ratio i (its speed over the shaft's) a body counts i² times.
    """

    type_name = "inertia"
    rotational = ("shaft",)

    inertia: Inertia = Field(gt=0, description="moment of inertia about the shaft, J")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"J": self.inertia}


@kernel(ShaftInertia)
def inertia(J):
    J_shaft = J
    return J_shaft
