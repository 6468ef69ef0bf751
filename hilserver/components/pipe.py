"""Pipe: a volume of oil with elastic walls."""

from __future__ import annotations

from pydantic import Field, model_validator

from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.components.shared.line import LineSize
from hilserver.numerics.fluid import capacitance
from hilserver.units import Length, Modulus, shown_value


class Pipe(LineSize, Component):
    r"""A pipe as a volume at one node: its oil and its elastic wall (no pressure loss, no waves).

    .. math:: C_P = \frac{V}{B_e} + \frac{V}{B_c}, \qquad B_c = \frac{t\,E}{d}, \qquad V = \tfrac{\pi}{4} d^2 l

    Thin walls: t much smaller than d (at t = d/4 the error of the formula is about 30 %); thicker ones are refused.
    ``oil_mass`` gives the mass of its oil. Source: theory §2; [Virtual hydraulics] ch. 3.1.
    """

    type_name = "pipe"
    hydraulic = ("P",)

    wall_thickness: Length = Field(gt=0, description="thickness of the wall, t")
    elastic_modulus: Modulus = Field(
        default="210 GPa", gt=0, description="Young's modulus of the wall, E; steel 210 GPa"
    )

    @model_validator(mode="after")
    def _thin_wall(self) -> Pipe:
        if self.wall_thickness > 0.25 * self.inner_diameter:
            raise ValueError(
                f"wall_thickness {shown_value(self.wall_thickness, 'm')} is more than a quarter of the inner diameter: "
                "the formula for thin walls doesn't hold; use a volume (rigid walls) instead"
            )
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        B_c = self.wall_thickness * self.elastic_modulus / self.inner_diameter
        return {"V": self.oil_volume(), "B_c": B_c, **fluid.parameters()}


@kernel(Pipe)
def pipe(p_P, V, B_c, B_o, alpha_0, kappa, p_0):
    C_P = capacitance(V, p_P, B_o, alpha_0, kappa, p_0) + V / B_c
    return C_P
