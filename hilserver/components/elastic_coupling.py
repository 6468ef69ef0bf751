"""An entry of the stiffness and damping matrices of a structure."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Damping, Stiffness


class ElasticCoupling(Component):
    r"""Spring and damper in parallel between two mechanical nodes; either coefficient may be negative.

    .. math:: F_{rod} = -K\,(x_{rod} - x_{base}) - D\,(v_{rod} - v_{base}), \qquad F_{base} = -F_{rod}

    It represents a pair of entries of the stiffness and damping matrices of a structure that was reduced to a few
    positions: K = -K_ij, D = -C_ij. Static condensation and modal damping also give couplings between positions that
    are not neighbours, and some of these are negative; that is what distinguishes this component from ``spring`` and
    ``damper``. To the ground, a ``velocity_source`` without a signal, it has the sums of row i. A negative one alone
    is unstable; all together are a structure if their matrices are positive definite. Source: Guyan, AIAA Journal 3
    (1965) 380, for the condensation.
    """

    type_name = "elastic_coupling"
    mechanical = ("rod", "base")

    stiffness: Stiffness = Field(
        description="stiffness, K: minus the entry K_ij of the stiffness matrix, to the ground the sum of row i; "
        "may be negative",
        examples=["-2e5 N/m"],
    )
    damping: Damping = Field(
        default="0 N*s/m",
        description="damping coefficient, D: minus the entry C_ij of the damping matrix, to the ground the sum of row "
        "i; may be negative",
        examples=["-50 N*s/m"],
    )

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"K": self.stiffness, "D": self.damping}


@kernel(ElasticCoupling)
def elastic_coupling(x_rod, v_rod, x_base, v_base, K, D):
    F_base = K * (x_rod - x_base) + D * (v_rod - v_base)
    F_rod = -F_base
    return F_rod, F_base
