"""The rig file's ``[cylinders]``: the machine as the bridge knows it."""

from __future__ import annotations

from itertools import product
from math import pi

from pydantic import Field, model_validator

from hilserver.components.base import Datasheet
from hilserver.components.orifice import FlowAtDrop
from hilserver.numerics.flow import drop_of_root, root_of_drop
from hilserver.rig.references import PortName, PositionChannel
from hilserver.units import HoseModulus, LeakageCoefficient, Length, Mass, Modulus, Number, Pressure, Volume

STEEL = 7850.0
"""Density, kg/m³."""
BRAIDED = 2e5
"""B_hc of a braided hose, Pa^0.5 (:mod:`hilserver.components.hose`)."""


class PortRestriction(FlowAtDrop):
    """A restriction between a port and the piston: its drop at a flow, by the law of the component ``orifice``."""

    transition_pressure: Pressure = Field(default="1 bar", gt=0, description="laminar below this drop")

    def root_by_flow(self) -> float:
        """The orifice law of the drop, by the flow: sqrt(Pa)·s/m³."""
        return root_of_drop(self.drop, self.transition_pressure) / self.flow

    def drop_at(self, flow: float) -> float:
        """The pressure drop at a flow, Pa."""
        return drop_of_root(self.root_by_flow() * flow, self.transition_pressure)


class CylinderSettings(Datasheet):
    """A cylinder of the machine, for the strategies that predict and for flows that are not measured.

    Everything that it moves counts as one mass at the rod; load and friction need not be known.
    """

    description: str = Field(default="", description="free text")
    port_A: PortName = Field(description="the rig's port at the piston side")
    port_B: PortName | None = Field(default=None, description="the rig's port at the rod side; none: open to the tank")
    position: PositionChannel | None = Field(default=None, description="channel of the rod's position, 0 m retracted")
    bore: Length = Field(gt=0, examples=["63 mm"], description="diameter of the piston")
    rod_diameter: Length = Field(ge=0, examples=["36 mm"], description="diameter of the rod")
    stroke: Length = Field(gt=0, examples=["400 mm"], description="stroke")
    dead_volume_A: Volume = Field(
        gt=0, examples=["0.3 l"], description="oil between valve and piston with the rod retracted, hoses included"
    )
    dead_volume_B: Volume = Field(default="0.1 l", gt=0, description="the same on the rod side, with the rod extended")
    mass: Mass = Field(gt=0, description="moving mass including the load, referred to the rod")
    leakage: LeakageCoefficient = Field(
        default="0 l/min/bar", ge=0, examples=["0.005 l/min/bar"], description="piston leakage per pressure difference"
    )
    bulk_modulus: Modulus | None = Field(
        default=None,
        examples=["1.2e9 Pa"],
        gt=0,
        description="effective value of the oil, and of hoses that hose_volume does not contain; default: that of the "
        "circuit's oil",
    )

    air_fraction: Number | None = Field(
        default=None,
        ge=0,
        le=0.1,
        description="volume fraction of free air in the oil at atmospheric pressure; default: that of the circuit's "
        "oil, 0 where bulk_modulus is given",
    )
    restriction_A: PortRestriction | None = Field(
        default=None, description="restriction between port A, where the pressure is measured, and the piston"
    )
    restriction_B: PortRestriction | None = Field(default=None, description="the same at port B")
    line_volume_A: Volume = Field(
        default="0 l", ge=0, description="part of dead_volume_A between the valve and restriction_A: hoses and pipes"
    )
    line_volume_B: Volume = Field(default="0 l", ge=0, description="the same at port B")
    hose_volume_A: Volume = Field(
        default="0 l",
        ge=0,
        examples=["0.2 l"],
        description="part of dead_volume_A in hoses, whose walls yield to the pressure; it lies before restriction_A",
    )
    hose_volume_B: Volume = Field(default="0 l", ge=0, description="the same at port B")
    hose_modulus: HoseModulus = Field(
        default=f"{BRAIDED:g} Pa^0.5",
        gt=0,
        description="the wall's bulk modulus at pressure p is hose_modulus·sqrt(p); default: that of braided hoses",
    )

    @model_validator(mode="after")
    def _has_an_annulus(self) -> CylinderSettings:
        if self.rod_diameter >= self.bore:
            raise ValueError("rod_diameter must be smaller than bore")
        return self

    @model_validator(mode="after")
    def _parts_within_the_dead_volume(self) -> CylinderSettings:
        for part, side in product(("line", "hose"), "AB"):
            volume, dead = getattr(self, f"{part}_volume_{side}"), getattr(self, f"dead_volume_{side}")
            if volume > dead:
                raise ValueError(
                    f"{part}_volume_{side} of {1e3 * volume:g} l is a part of dead_volume_{side}, {1e3 * dead:g} l, "
                    "and can't be larger"
                )
        return self

    @property
    def motion(self) -> str | None:
        """The channel that shows its motion."""
        return self.position

    def mass_of_rod(self) -> float:
        """Mass of piston and rod, kg, if they are of steel and of usual length."""
        rod = 0.25 * pi * self.rod_diameter**2 * (self.stroke + 2.0 * self.bore)
        return STEEL * (rod + 0.25 * pi * self.bore**3)

    def areas(self) -> tuple[float, float]:
        """Piston areas at A and B, m²."""
        piston = 0.25 * pi * self.bore**2
        return piston, piston - 0.25 * pi * self.rod_diameter**2

    def hose_volumes(self) -> tuple[float, float]:
        """Oil in hoses at A and B, m³."""
        return self.hose_volume_A, self.hose_volume_B

    def restrictions(self) -> tuple[PortRestriction | None, PortRestriction | None]:
        """Those between port and piston, at A and B."""
        return self.restriction_A, self.restriction_B
