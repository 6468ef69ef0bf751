"""A damper between two moving parts."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Damping


class Damper(Component):
    r"""A linear (viscous) damper between two mechanical nodes.

    .. math:: F_{rod} = -D\,(v_{rod} - v_{base}), \qquad F_{base} = -F_{rod}

    For a damper to the frame, connect ``base`` to a ``velocity_source``, which without a signal holds its node at rest.
    """

    type_name = "damper"
    mechanical = ("rod", "base")

    damping: Damping = Field(gt=0, description="damping coefficient, force per velocity, D")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"D": self.damping}


@kernel(Damper)
def damper(v_rod, v_base, D):
    F_base = D * (v_rod - v_base)
    F_rod = -F_base
    return F_rod, F_base
