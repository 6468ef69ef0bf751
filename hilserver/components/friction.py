"""Dry friction, of cylinders and of other moving parts."""

from __future__ import annotations

from math import sqrt
from typing import Literal

from pydantic import Field, model_validator

from hilserver.components.base import Component, Datasheet, Fluid, Parameters, State, kernel
from hilserver.numerics.friction import LUGRE, STRIBECK, dry_friction
from hilserver.units import Damping, Force, Length, Stiffness, Velocity

CODES = {"stribeck": STRIBECK, "lugre": LUGRE}
COULOMB_SHARE = 0.7
"""Ratio of F_C to F_S if the datasheet gives none: 20 to 50 % lower, by theory §3."""


class DryFriction(Datasheet):
    """Parameters of the Stribeck and LuGre laws, with rules of thumb as defaults."""

    coulomb: Force | None = Field(
        default=None, gt=0, description="friction while sliding, F_C; 70 % of static if not given"
    )
    viscous: Damping | None = Field(
        default=None, ge=0, description="viscous friction, b; static friction per 1 m/s if not given"
    )
    stribeck_speed: Velocity = Field(default="8 mm/s", gt=0, description="Stribeck speed, v_s; typically 3 to 15 mm/s")
    bend: Length = Field(
        default="0.2 mm",
        gt=0,
        description="displacement before sliding, z_max; typically 0.1 to 0.5 mm: sigma0 = F_S/z_max",
    )
    sigma0: Stiffness | None = Field(default=None, gt=0, description="LuGre: stiffness at rest; F_S/bend if not given")
    sigma1: Damping | None = Field(
        default=None, ge=0, description="LuGre: damping at rest; sqrt(sigma0·m) if not given, m the mass that slides"
    )

    def dry_parameters(self, F_S: float, mass: float, strongest: float = 1.0) -> dict[str, float]:
        """Kernel parameters. ``F_S`` static friction, N; ``mass`` for sigma1's rule, kg; ``strongest`` the largest Psi.

        Raises ValueError if the sliding friction is above the static friction.
        """
        F_C = self.coulomb if self.coulomb is not None else COULOMB_SHARE * F_S
        if F_C > F_S:
            raise ValueError(
                f"coulomb {F_C:g} N must not be above the static friction of {F_S:g} N: sliding friction is lower"
            )
        sigma0 = self.sigma0 if self.sigma0 is not None else F_S / self.bend
        z_max = strongest * F_S / sigma0
        return {
            "F_S": F_S,
            "F_C": F_C,
            "v_s": self.stribeck_speed,
            "b": self.viscous if self.viscous is not None else F_S,
            "sigma0": sigma0,
            "sigma1": self.sigma1 if self.sigma1 is not None else sqrt(sigma0 * mass),
            "z_max": z_max,
            "z_min": -z_max,
        }


class Friction(DryFriction, Component):
    r"""Dry and viscous friction of a moving part against the frame.

    .. math:: g(v) = F_C + (F_S - F_C)\,e^{-(v/v_s)^2}

    .. math:: F_\mu = \tanh(v/v_0)\,g(v) + b\,v \qquad \mathrm{(stribeck)}

    .. math:: \dot z = v - \frac{\sigma_0 |v|}{g(v)} z, \qquad
       F_\mu = \sigma_0 z + \min(\sigma_1, 4g/|v|)\,\dot z + b\,v \qquad \mathrm{(lugre)}

    Both follow the same curve at a steady speed, g + b·v. ``stribeck`` creeps under load: a force below F_S is balanced
    at a speed below about v_0, not at rest. ``lugre`` sticks, yields by about F/sigma0 before it slides, and shows
    stick-slip; z is the deflection of its bristles. Its damping is bounded by 4g/abs(v), which makes it passive for all
    values, and its bristles settle no faster than in 0.1 ms, so that fast sliding is not stiff.

    Steps: ``stribeck`` is steep at rest; it requires ``rosenbrock``, or steps below m·v_0/F_S (longer ones chatter).
    For ``lugre`` steps below sqrt(m/sigma0) and 0.2 ms are sufficient with any integrator.
    The logged ``F_mu`` is positive against increasing position. Source: theory §3; [Linjama]; Canudas de Wit, Olsson,
    Åström & Lischinsky, A new model for control of systems with friction, IEEE TAC 40 (1995).
    """

    type_name = "friction"
    mechanical = ("rod",)
    states = (State("z", "m", lower="z_min", upper="z_max", scale="z_max"),)

    law: Literal["stribeck", "lugre"] = Field(
        default="stribeck", description="stribeck: smooth, creeps under load; lugre: bristle model, sticks"
    )
    static: Force = Field(gt=0, description="friction at rest, F_S")
    reversal_speed: Velocity = Field(
        default="0.5 mm/s", gt=0, description="stribeck: its sign is tanh(v/v_0); 0.05 to 0.5 mm/s by [Linjama]"
    )

    @model_validator(mode="after")
    def _values_fit(self) -> Friction:
        if self.law == "lugre" and self.sigma1 is None:
            raise ValueError(
                'law "lugre" needs sigma1, since the mass m that slides is not known here: '
                "typically 0.5 to 2 times sqrt(sigma0·m)"
            )
        self.dry_parameters(self.static, 0.0)
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"law": CODES[self.law], "v_0": self.reversal_speed, **self.dry_parameters(self.static, 0.0)}


@kernel(Friction)
def friction(v_rod, z, law, F_S, F_C, v_s, b, v_0, sigma0, sigma1):
    F_mu, dz = dry_friction(law, v_rod, z, 1.0, F_S, F_C, v_s, b, v_0, sigma0, sigma1)
    F_rod = -F_mu
    return F_rod, F_mu, dz
