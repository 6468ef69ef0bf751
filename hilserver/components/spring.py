"""A spring between two moving parts."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Length, Stiffness


class Spring(Component):
    r"""A linear spring between two mechanical nodes.

    .. math:: F_{rod} = -K\,(x_{rod} - x_{base} - x_0), \qquad F_{base} = -F_{rod}

    It acts in tension and compression, without end and without mass. For a spring to the frame, connect ``base`` to a
    ``velocity_source``, which without a signal holds its node at rest. A preload F_0 at x_rod = x_base is x_0 = F_0/K.
    """

    type_name = "spring"
    mechanical = ("rod", "base")

    stiffness: Stiffness = Field(gt=0, description="stiffness, force per length, K")
    relaxed: Length = Field(default="0 m", description="x_rod - x_base at which it has no force, x_0")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"K": self.stiffness, "x_0": self.relaxed}


@kernel(Spring)
def spring(x_rod, x_base, K, x_0):
    F_base = K * (x_rod - x_base - x_0)
    F_rod = -F_base
    return F_rod, F_base
