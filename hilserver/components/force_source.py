"""An external force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Force


class ForceSource(Component):
    r"""A force on a mechanical node at any motion, following a signal.

    .. math:: F = u\,F_{full}

    Positive in the direction of increasing position.
    """

    type_name = "force_source"
    mechanical = ("rod",)
    inputs = ("command",)
    input_defaults: ClassVar[Mapping[str, float]] = {"command": 1.0}

    force: Force = Field(description="force at command 1; a negative force acts against increasing position")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"F_full": self.force}


@kernel(ForceSource)
def force_source(u_command, F_full):
    F_rod = u_command * F_full
    return F_rod
