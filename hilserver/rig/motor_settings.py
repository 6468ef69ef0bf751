"""The rig file's ``[motors]``: hydraulic motors of the machine as the bridge knows them."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Datasheet
from hilserver.rig.references import PortName, SpeedChannel
from hilserver.units import Displacement, Inertia, LeakageCoefficient, Modulus, Number, Volume


class MotorSettings(Datasheet):
    """A motor of the machine, for the strategies that predict and for flows that are not measured.

    Everything that it turns counts as one inertia at its shaft; load and friction need not be known. To the bridge it
    is a cylinder without ends (:mod:`hilserver.tick.cylinder`).
    """

    description: str = Field(default="", description="free text")
    port_A: PortName = Field(description="the rig's port at A; pressure there turns the shaft forwards")
    port_B: PortName = Field(description="the rig's port at B")
    speed: SpeedChannel | None = Field(default=None, description="channel of the shaft's speed, in rpm")
    displacement: Displacement = Field(gt=0, examples=["32 cm^3"], description="volume per revolution")
    volume_A: Volume = Field(gt=0, examples=["0.3 l"], description="oil between valve and motor at A, hoses included")
    volume_B: Volume = Field(gt=0, examples=["0.3 l"], description="the same at B")
    inertia: Inertia = Field(
        gt=0, examples=["0.3 kg*m^2"], description="moment of inertia of all that turns, load included, at the shaft"
    )
    leakage: LeakageCoefficient = Field(
        default="0 l/min/bar",
        ge=0,
        examples=["0.01 l/min/bar"],
        description="leakage between A and B per pressure difference",
    )
    case_leakage: LeakageCoefficient = Field(
        default="0 l/min/bar",
        ge=0,
        examples=["0.005 l/min/bar"],
        description="leakage from each port to the case per pressure",
    )
    bulk_modulus: Modulus | None = Field(
        default=None,
        examples=["1.2e9 Pa"],
        gt=0,
        description="effective value of the oil, hoses included; default: that of the circuit's oil",
    )
    air_fraction: Number | None = Field(
        default=None,
        ge=0,
        le=0.1,
        description="volume fraction of free air in the oil at atmospheric pressure; default: that of the circuit's "
        "oil, 0 where bulk_modulus is given",
    )

    @property
    def motion(self) -> str | None:
        """The channel that shows its motion."""
        return self.speed

    def areas(self) -> tuple[float, float]:
        """Displacement per revolution at A and B, m³."""
        return self.displacement, self.displacement

    def hose_volumes(self) -> tuple[float, float]:
        """Oil in hoses at A and B whose walls count separately, m³: none."""
        return 0.0, 0.0

    def restrictions(self) -> tuple[None, None]:
        """Those between port and motor, at A and B: none."""
        return None, None
