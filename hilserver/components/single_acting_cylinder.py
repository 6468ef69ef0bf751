"""Single-acting hydraulic cylinder."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.shared.piston import Piston, chamber_A, cushion_parameters, piston
from hilserver.units import Force, Stiffness


class SingleActingCylinder(Piston):
    r"""Single-acting cylinder or plunger: pressure extends it, a spring or the load returns it.

    .. math:: C_A \dot p_A = \sum Q - A\,v, \qquad F = A\,p_A - F_0 - K\,x - F_\mu - F_{end}

    x = 0 is fully retracted; positive is extending. The spring's side is open to the atmosphere and nothing leaks past
    the piston. For a plunger ``bore`` is the plunger's diameter. Friction, cushion, line and end stops as in
    ``cylinder``. Source: theory §3; [Virtual hydraulics] ch. 4.2.4; [Linjama] (dry friction).
    """

    type_name = "single_acting_cylinder"
    hydraulic = ("A",)

    spring_force: Force = Field(
        default="0 N", ge=0, description="force of the return spring in the retracted position, F_0"
    )
    spring_stiffness: Stiffness = Field(default="0 N/m", ge=0, description="stiffness of the return spring, K")

    def areas(self) -> tuple[float, float]:
        return self.bore_area(), 0.0

    def parameters(self, fluid: Fluid) -> Parameters:
        return {
            "p_B": 0.0,
            "C": 0.0,
            "p_amb": 0.0,
            "F_spring": self.spring_force,
            "K_spring": self.spring_stiffness,
            **cushion_parameters("B", None, 0.0),
            **self.piston_parameters(fluid),
        }


kernel(SingleActingCylinder)(chamber_A)
kernel(SingleActingCylinder)(piston)
