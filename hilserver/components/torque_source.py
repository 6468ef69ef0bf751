"""A torque from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Torque


class TorqueSource(Component):
    r"""A torque on a shaft whatever its motion, led by a signal: a hanging load's, an electric motor's.

    .. math:: T = u\,T_{full}

    Positive in the direction of growing angle.
    """

    type_name = "torque_source"
    rotational = ("shaft",)
    inputs = ("command",)
    input_defaults: ClassVar[Mapping[str, float]] = {"command": 1.0}

    torque: Torque = Field(description="torque at command 1; a negative one acts against growing angle")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"T_full": self.torque}


@kernel(TorqueSource)
def torque_source(u_command, T_full):
    T_shaft = u_command * T_full
    return T_shaft
