"""An external torque."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Torque


class TorqueSource(Component):
    r"""A torque on a shaft at any motion, following a signal: of a suspended load, of an electric motor.

    .. math:: T = u\,T_{full}

    Positive in the direction of increasing angle.
    """

    type_name = "torque_source"
    rotational = ("shaft",)
    inputs = ("command",)
    input_defaults: ClassVar[Mapping[str, float]] = {"command": 1.0}

    torque: Torque = Field(description="torque at command 1; a negative torque acts against increasing angle")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"T_full": self.torque}


@kernel(TorqueSource)
def torque_source(u_command, T_full):
    T_shaft = u_command * T_full
    return T_shaft
