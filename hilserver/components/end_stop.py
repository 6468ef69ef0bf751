"""End stops of a moving part."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from pydantic import Field, model_validator

from hilserver.components.base import Component, Datasheet, Fluid, Parameters, kernel
from hilserver.numerics.motion import stop_force, stop_mass
from hilserver.units import Damping, Length, Stiffness


class Contact(Datasheet):
    """Contact at the end of a stroke.

    Explicit steps can't follow the contact of a mass that is light for them: within the stop it then moves as if it had
    the least mass that they can stop (``stop_mass``). Where it comes to rest, and the force there, don't depend on it.
    """

    stiffness: Stiffness = Field(default="1e8 N/m", gt=0, description="stiffness of the contact, K_end")
    damping: Damping = Field(default="2e5 N*s/m", ge=0, description="damping of the contact, D_end")
    zone: Length = Field(
        default="0.1 mm", gt=0, description="depth over which both are faded in, without a force spike at contact"
    )

    def contact_parameters(self) -> dict[str, float]:
        """Kernel parameters."""
        return {"K_end": self.stiffness, "D_end": self.damping, "zone": self.zone}


class EndStop(Contact, Component):
    r"""Stops at one or both ends of a motion, fixed to the frame.

    .. math:: F = -s(\delta/\delta_0)\,\langle K\,\delta + D\,\dot\delta\rangle

    delta is the depth beyond ``lower`` or ``upper``. Spring and damper are faded in together over the first
    ``zone`` (a STEP); the stop never pulls. With ``euler`` and ``rk4``, a mass of h·(D/2 + h·K) is faded in with them,
    so that the contact is stable with any mass and step h. Source: theory §3.
    """

    type_name = "end_stop"
    mechanical = ("rod",)

    lower: Length | None = Field(default=None, description="position below which the stop pushes up; none if not given")
    upper: Length | None = Field(
        default=None, description="position above which the stop pushes down; none if not given"
    )

    @model_validator(mode="after")
    def _stops_in_order(self) -> EndStop:
        if self.lower is None and self.upper is None:
            raise ValueError("give lower, upper, or both: the positions of the stops")
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise ValueError(f"lower {self.lower:g} m must be less than upper {self.upper:g} m")
        return self

    def contacts(self) -> Mapping[str, tuple[float, ...]]:
        """The rod's, at each stop."""
        lower = () if self.lower is None else (self.lower - self.zone,)
        return {"rod": lower if self.upper is None else (*lower, self.upper + self.zone)}

    def parameters(self, fluid: Fluid) -> Parameters:
        return {
            "x_lower": self.lower if self.lower is not None else -inf,
            "x_upper": self.upper if self.upper is not None else inf,
            **self.contact_parameters(),
        }


@kernel(EndStop)
def end_stop(x_rod, v_rod, h_explicit, x_lower, x_upper, K_end, D_end, zone):
    down = stop_force(x_rod - x_upper, v_rod, K_end, D_end, zone)
    F_rod = stop_force(x_lower - x_rod, -v_rod, K_end, D_end, zone) - down
    added_m_rod = stop_mass(max(x_rod - x_upper, x_lower - x_rod), K_end, D_end, zone, h_explicit)
    return F_rod, added_m_rod
