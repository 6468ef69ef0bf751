"""Volume of oil between rigid walls."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.numerics.fluid import capacitance
from hilserver.units import Volume


class OilVolume(Component):
    r"""A volume of oil, with the circuit's share of free air, between rigid walls: it determines its node's pressure.

    .. math:: \dot p = \frac{B_e}{V} \sum Q, \qquad C_P = V/B_e

    Elastic walls belong to ``pipe`` and ``hose``; volumes at the same node add up.
    Source: theory §2; [Virtual hydraulics] ch. 3.1.
    """

    type_name = "volume"
    hydraulic = ("P",)

    volume: Volume = Field(gt=0, description="volume of the oil")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"V": self.volume, **fluid.parameters()}


@kernel(OilVolume)
def volume(p_P, V, B_o, alpha_0, kappa, p_0):
    C_P = capacitance(V, p_P, B_o, alpha_0, kappa, p_0)
    return C_P
