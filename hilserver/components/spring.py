"""A spring between two things that move."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Length, Stiffness


class Spring(Component):
    r"""A linear spring between two mechanical nodes.

    .. math:: F_{rod} = -K\,(x_{rod} - x_{base} - x_0), \qquad F_{base} = -F_{rod}

    It pulls and pushes, without end and without mass. To the frame: connect ``base`` to a ``velocity_source``, which
    holds its node where no signal leads it. A preload F_0 at x_rod = x_base is x_0 = F_0/K.
    """

    type_name = "spring"
    mechanical = ("rod", "base")

    stiffness: Stiffness = Field(gt=0, description="force per length, K")
    relaxed: Length = Field(default="0 m", description="x_rod - x_base at which it has no force, x_0")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"K": self.stiffness, "x_0": self.relaxed}


@kernel(Spring)
def spring(x_rod, x_base, K, x_0):
    F_base = K * (x_rod - x_base - x_0)
    F_rod = -F_base
    return F_rod, F_base
