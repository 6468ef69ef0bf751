"""Shared by all cylinders: a piston with friction, end stops, cushions and a return spring, and its chambers."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, pi, sin
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from hilserver.components.base import Component, Datasheet, Fluid, State
from hilserver.components.end_stop import Contact
from hilserver.components.friction import CODES, DryFriction
from hilserver.components.shared.line import LineSize
from hilserver.numerics.fluid import capacitance
from hilserver.numerics.friction import EFFICIENCY, cushion_force, seal_friction, seal_slope
from hilserver.numerics.motion import stop_force, stop_mass
from hilserver.numerics.shape import clip
from hilserver.units import (
    Angle,
    Area,
    Flow,
    Force,
    LeakageCoefficient,
    Length,
    Mass,
    Number,
    Pressure,
    Velocity,
    Volume,
    shown_value,
)

HIGHEST_PRESSURE = 1e8
"""Pa; the deflection of the bristles in the LuGre law is limited to its maximum at this pressure."""

GRAVITY = 9.81
"""m/s²."""

_OF_EFFICIENCY = {"efficiency", "factor"}
_OF_ALL = {"law", "reversal_speed"}


class SealFriction(DryFriction):
    """Friction of the seals: from the cylinder's efficiency, or dry friction with rules of thumb."""

    law: Literal["efficiency", "stribeck", "lugre"] = Field(
        default="efficiency",
        description="efficiency: a fraction of the hydraulic force; stribeck, lugre: dry friction as in `friction`",
    )
    efficiency: Number = Field(
        default=0.95, gt=0, le=1, description="fraction of the hydraulic force left at xi = 1, eta; 1: no friction"
    )
    factor: Literal["polynomial", "constant"] = Field(
        default="polynomial",
        description="xi versus speed: polynomial 1 - 0.2 - 1 at 0 - 0.1 - 5 m/s, or the constant 1",
    )
    reversal_speed: Velocity | None = Field(
        default=None,
        gt=0,
        description="sign is tanh(v/v_0), v_0 passed in several steps; 10 mm/s, stribeck 0.5 mm/s if not given",
    )
    static: Force | None = Field(
        default=None, gt=0, description="F_S; 10 % of the piston's area at A times working_pressure if not given"
    )
    working_pressure: Pressure = Field(default="160 bar", gt=0, description="pressure for the default of static only")
    reference_pressure: Pressure | None = Field(
        default=None,
        gt=0,
        description="p_ref: pressure at which the friction forces are twice F_S and F_C, which are then the values "
        "without pressure, and half as large by default; if not given, friction does not depend on the pressure",
    )

    @model_validator(mode="after")
    def _values_of_one_law(self) -> SealFriction:
        by_efficiency = self.law == "efficiency"
        for key in sorted(self.model_fields_set - _OF_ALL):
            if (key in _OF_EFFICIENCY) != by_efficiency:
                laws = 'law = "stribeck" or "lugre"' if by_efficiency else 'law = "efficiency"'
                raise ValueError(f'{key} has no meaning with law = "{self.law}": it belongs to {laws}')
        return self

    def parameters(self, A_A: float, mass: float) -> dict[str, float]:
        """Kernel parameters, of a piston of this area and mass."""
        share = 0.1 if self.reference_pressure is None else 0.05
        F_S = self.static if self.static is not None else share * A_A * self.working_pressure
        strongest = 1.0 + HIGHEST_PRESSURE / self.reference_pressure if self.reference_pressure is not None else 1.0
        v_0 = 5e-4 if self.law == "stribeck" else 0.01
        return {
            "law": CODES.get(self.law, EFFICIENCY),
            "loss": 1.0 - self.efficiency,
            "polynomial": float(self.factor == "polynomial"),
            "v_0": self.reversal_speed if self.reversal_speed is not None else v_0,
            "p_ref": self.reference_pressure if self.reference_pressure is not None else inf,
            **self.dry_parameters(F_S, mass, strongest),
        }


class CushionFlow(Datasheet):
    """A point of a cushion's throttle, fully closed."""

    flow: Flow = Field(gt=0, description="flow through the throttle")
    drop: Pressure = Field(gt=0, description="pressure drop at this flow")


class Cushion(Datasheet):
    """Cushion at one end of the stroke: the oil leaves the chamber through a throttle that closes gradually."""

    length: Length = Field(gt=0, description="part of the stroke that is cushioned")
    throttle: CushionFlow = Field(description='closed, like { flow = "5 l/min", drop = "100 bar" }')
    closing: Length | None = Field(
        default=None, gt=0, description="part of the length over which the throttle closes; half of it if not given"
    )
    area: Area | None = Field(
        default=None, gt=0, description="area of the piston around the spear, A_c; 75 % of the chamber's if not given"
    )

    @model_validator(mode="after")
    def _closes_within_its_length(self) -> Cushion:
        if self.closing is not None and self.closing > self.length:
            raise ValueError(
                f"closing {shown_value(self.closing, 'm')} must not be more than the length of "
                f"{shown_value(self.length, 'm')}"
            )
        return self

    def check(self, key: str, chamber_area: float, stroke: float) -> None:
        """Raise ValueError if the cushion does not fit into its cylinder."""
        if self.length > stroke:
            raise ValueError(
                f"{key}.length {shown_value(self.length, 'm')} must not be more than the stroke of "
                f"{shown_value(stroke, 'm')}"
            )
        if self.area is not None and self.area > chamber_area:
            raise ValueError(
                f"{key}.area {self.area * 1e4:.4g} cm² must not be more than the chamber's {chamber_area * 1e4:.4g} cm²"
            )

    def coefficient(self, chamber_area: float) -> float:
        """Force per squared speed with the throttle closed, k = A_c·(A_c/C_v)², N·s²/m²."""
        area = self.area if self.area is not None else 0.75 * chamber_area
        return area**3 * self.throttle.drop / self.throttle.flow**2


def cushion_parameters(port: str, cushion: Cushion | None, chamber_area: float) -> dict[str, float]:
    """Kernel parameters of the cushion of one chamber; no force if there is none."""
    if cushion is None:
        return {f"k_c{port}": 0.0, f"L_c{port}": 0.0, f"closing_{port}": 1.0}
    closing = cushion.closing if cushion.closing is not None else 0.5 * cushion.length
    return {f"k_c{port}": cushion.coefficient(chamber_area), f"L_c{port}": cushion.length, f"closing_{port}": closing}


class Piston(Component):
    """A piston in a bore, driven by the chamber at port A; subclasses add what is on its other side."""

    mechanical = ("rod",)
    states = (State("z", "m", lower="z_min", upper="z_max", scale="z_max"),)

    bore: Length = Field(gt=0, description="diameter of the piston")
    stroke: Length = Field(gt=0, description="from fully retracted to fully extended")
    moving_mass: Mass = Field(ge=0, description="piston and rod; 0: neglected beside the mass at the rod")
    direction: Angle | None = Field(
        default=None,
        ge=-pi,
        le=pi,
        description="angle of the extending direction above the horizontal, for the weight of moving_mass; none: no "
        "weight",
    )
    dead_volume_A: Volume = Field(gt=0, description="oil at port A with the piston fully retracted, V_0A")
    line_A: LineSize | None = Field(default=None, description="line at port A, its oil's mass reduced to the rod")
    friction: SealFriction = Field(default_factory=SealFriction, description="of the seals")
    end_stop: Contact = Field(default_factory=Contact, description="at both ends of the stroke")
    cushion_A: Cushion | None = Field(
        default=None, description="throttles port A before the retracted end; none if not given"
    )

    def areas(self) -> tuple[float, float]:
        """Effective areas A_A and A_B, m²."""
        raise NotImplementedError

    def lines(self) -> tuple[LineSize | None, LineSize | None]:
        """The lines at A and B, whose oil is reduced to the rod."""
        return self.line_A, None

    def bore_area(self) -> float:
        """Cross-section of the bore, m²."""
        return 0.25 * pi * self.bore * self.bore

    def rod_mass(self, fluid: Fluid) -> float:
        """Moving mass and reduced mass of the oil in the lines, kg."""
        return self.moving_mass + sum(
            line.oil_mass(fluid) * (area / line.area()) ** 2
            for line, area in zip(self.lines(), self.areas(), strict=True)
            if line is not None
        )

    def has_mass(self) -> bool:
        return self.moving_mass > 0.0 or any(line is not None for line in self.lines())

    def weight(self) -> float:
        """Force of the moving mass's weight against extending, N."""
        return 0.0 if self.direction is None else self.moving_mass * GRAVITY * sin(self.direction)

    def positions(self) -> Mapping[str, tuple[float, float]]:
        """The rod's, within the stroke."""
        return {"rod": (0.0, self.stroke)}

    def contacts(self) -> Mapping[str, tuple[float, ...]]:
        """The rod's, at both ends of the stroke."""
        return {"rod": (-self.end_stop.zone, self.stroke + self.end_stop.zone)}

    def cushions(self) -> dict[str, Cushion | None]:
        """The cushions by the port that they throttle."""
        return {"A": self.cushion_A}

    @model_validator(mode="after")
    def _friction_and_cushions_fit(self) -> Piston:
        self.friction.parameters(self.areas()[0], self.moving_mass)
        for (port, cushion), area in zip(self.cushions().items(), self.areas(), strict=False):
            if cushion is not None:
                cushion.check(f"cushion_{port}", area, self.stroke)
        return self

    def piston_parameters(self, fluid: Fluid) -> dict[str, float]:
        """Kernel parameters of piston, chamber A and oil; without chamber B, return spring and pressure on the rod."""
        A_A, A_B = self.areas()
        mass = self.rod_mass(fluid)
        return {
            "A_A": A_A,
            "A_B": A_B,
            "stroke": self.stroke,
            "V_0A": self.dead_volume_A,
            "m_moving": mass,
            "F_g": self.weight(),
            **self.friction.parameters(A_A, mass),
            **self.end_stop.contact_parameters(),
            **cushion_parameters("A", self.cushion_A, A_A),
            **fluid.parameters(),
        }


class DoubleActing(Piston):
    """A piston between two chambers, with one rod or two."""

    hydraulic = ("A", "B")

    rod_diameter: Length = Field(gt=0, description="diameter of the rod")
    dead_volume_B: Volume = Field(gt=0, description="oil at port B with the piston fully extended, V_0B")
    line_B: LineSize | None = Field(default=None, description="line at port B, its oil's mass reduced to the rod")
    leakage: LeakageCoefficient = Field(
        default="0 l/min/bar", ge=0, description="leakage past the piston, flow per pressure, C"
    )
    cushion_B: Cushion | None = Field(
        default=None, description="throttles port B before the extended end; none if not given"
    )
    ambient_pressure: Pressure = Field(default="0 bar", description="gauge pressure on the rod, p_amb")

    @field_validator("rod_diameter", mode="after")
    @classmethod
    def _rod_fits(cls, rod_diameter: float, values: ValidationInfo) -> float:
        bore = values.data.get("bore", inf)
        if rod_diameter >= bore:
            text = (
                f"rod_diameter {shown_value(rod_diameter, 'm')} must be less than the bore of {shown_value(bore, 'm')}"
            )
            raise ValueError(text)
        return rod_diameter

    def cushions(self) -> dict[str, Cushion | None]:
        return {"A": self.cushion_A, "B": self.cushion_B}

    def annulus_area(self) -> float:
        """Area of the bore around the rod, m²."""
        return self.bore_area() - 0.25 * pi * self.rod_diameter * self.rod_diameter

    def lines(self) -> tuple[LineSize | None, LineSize | None]:
        return self.line_A, self.line_B

    def parameters(self, fluid: Fluid) -> dict[str, float]:
        return {
            "V_0B": self.dead_volume_B,
            "C": self.leakage,
            "p_amb": self.ambient_pressure,
            "F_spring": 0.0,
            "K_spring": 0.0,
            **cushion_parameters("B", self.cushion_B, self.areas()[1]),
            **self.piston_parameters(fluid),
        }


def chamber_A(p_A, p_B, x_rod, v_rod, A_A, stroke, V_0A, C, B_o, alpha_0, kappa, p_0):
    V = V_0A + A_A * clip(x_rod, 0.0, stroke)
    C_A = capacitance(V, p_A, B_o, alpha_0, kappa, p_0)
    q_A = -A_A * v_rod - C * (p_A - p_B)
    return q_A, C_A


def chamber_B(p_A, p_B, x_rod, v_rod, A_B, stroke, V_0B, C, B_o, alpha_0, kappa, p_0):
    V = V_0B + A_B * (stroke - clip(x_rod, 0.0, stroke))
    C_B = capacitance(V, p_B, B_o, alpha_0, kappa, p_0)
    q_B = A_B * v_rod + C * (p_A - p_B)
    return q_B, C_B


def piston(
    p_A, p_B, x_rod, v_rod, z, h_explicit, A_A, A_B, stroke, p_amb, m_moving, F_g, F_spring, K_spring,
    law, loss, polynomial, v_0, F_S, F_C, v_s, b, sigma0, sigma1, p_ref,
    K_end, D_end, zone, k_cA, L_cA, closing_A, k_cB, L_cB, closing_B,
):  # fmt: skip
    F_p = A_A * p_A - A_B * p_B
    F_mu, dz = seal_friction(
        p_A, p_B, v_rod, z, F_p, law, loss, polynomial, v_0, F_S, F_C, v_s, b, sigma0, sigma1, p_ref
    )
    F_extended = stop_force(x_rod - stroke, v_rod, K_end, D_end, zone)
    F_extended += cushion_force(x_rod - stroke + L_cB, v_rod, k_cB, closing_B)
    F_retracted = stop_force(-x_rod, -v_rod, K_end, D_end, zone) + cushion_force(L_cA - x_rod, -v_rod, k_cA, closing_A)
    F_end = F_extended - F_retracted
    F_rod = F_p - (A_A - A_B) * p_amb - F_spring - K_spring * x_rod - F_mu - F_end - F_g
    D_stopped = D_end + seal_slope(p_A, p_B, F_p, law, loss, v_0, F_S, b, sigma1, p_ref)
    m_rod = max(m_moving, stop_mass(max(x_rod - stroke, -x_rod), K_end, D_stopped, zone, h_explicit))
    return F_rod, m_rod, F_mu, F_end, dz
