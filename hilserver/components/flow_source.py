"""Flow source: a flow independent of the pressure."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Flow


class FlowSource(Component):
    r"""An ideal source: a flow from T to P at any pressure, constant (no ``command``) or following a signal.

    .. math:: Q = u\,Q_{full}

    Nothing limits its pressure; give its node a relief valve or an outlet.
    """

    type_name = "flow_source"
    hydraulic = ("P", "T")
    inputs = ("command",)
    input_defaults = {"command": 1.0}

    flow: Flow = Field(gt=0, description="flow from T to P at command 1; a negative command reverses it")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"Q_full": self.flow}


@kernel(FlowSource)
def flow_source(u_command, Q_full):
    q_P = u_command * Q_full
    q_T = -q_P
    return q_P, q_T
