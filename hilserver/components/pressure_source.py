"""Pressure source: prescribes a node's pressure."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Pressure


class PressureSource(Component):
    r"""An ideal source: a pressure at any flow, constant (no ``command``) or following a signal.

    .. math:: p_P = u\,p_{full}

    Valid where the real supply is much stiffer than the circuit it feeds.
    """

    type_name = "pressure_source"
    hydraulic = ("P",)
    inputs = ("command",)
    input_defaults = {"command": 1.0}

    pressure: Pressure = Field(gt=0, description="gauge pressure at command 1")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"p_full": self.pressure}


@kernel(PressureSource)
def pressure_source(u_command, p_full):
    p_P = u_command * p_full
    return p_P
