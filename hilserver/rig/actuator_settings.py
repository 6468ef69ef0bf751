"""The settings of an actuator whose position is controlled, and of the specimen that it moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StrictBool, model_validator

from hilserver.components.base import Datasheet
from hilserver.displacement.servo import UNCERTAIN, ServoActuator
from hilserver.displacement.specimen import Specimen
from hilserver.rig.confirmation import ConfirmationAge, UnconfirmedAction
from hilserver.rig.references import DeviceName, ForceSensor, PositionSensor, Text
from hilserver.tick.hybrid.displacement import AVAILABLE_IN_RIGS
from hilserver.units import Damping, Frequency, Length, Mass, Number, Rate, Stiffness, Time, Velocity, shown_value

if TYPE_CHECKING:
    DisplacementStrategyName = str
    UncertainName = str
else:
    DisplacementStrategyName = Literal[AVAILABLE_IN_RIGS]
    UncertainName = Literal[UNCERTAIN]


SOFTEST_OIL = 1e4
"""N/m: a piston of 0.5 cm² on a litre of oil. Less is a mistake in the unit."""


class ServoSettings(Datasheet):
    """The actuator with its position controller and servo valve; linear."""

    velocity_gain: Rate = Field(
        gt=0, examples=["50 1/s"], description="velocity without load per position error: gain of the position loop"
    )
    f90: Frequency = Field(gt=0, description="-90° frequency of the servo valve")
    damping: Number = Field(default=0.7, gt=0, le=5, description="damping ratio of the servo valve")
    oil_stiffness: Stiffness = Field(
        gt=0,
        examples=["4.2e6 N/m"],
        description="stiffness of the oil at both sides of the piston; in the middle of the stroke 4·B·A²/V with the "
        "area A of the piston and all of the oil V",
    )
    force_decay: Rate = Field(
        default="0 1/s", ge=0, examples=["3 1/s"], description="rate at which leakage reduces a force at rest"
    )
    position_gain: Number = Field(default=1.0, gt=0, description="displacement at rest per command")
    moving_mass: Mass = Field(
        default="0 kg",
        ge=0,
        description="mass of piston, rod and what is fixed to it in front of the load cell, whose inertia the measured "
        "force does not contain",
    )

    @model_validator(mode="after")
    def _oil(self) -> ServoSettings:
        if self.oil_stiffness < SOFTEST_OIL:
            raise ValueError(
                f"oil_stiffness: {self.oil_stiffness:g} N/m is softer than the oil of any actuator, which has "
                f"{SOFTEST_OIL:g} N/m at least, and usually 1e6 to 1e9 N/m: check the unit and the power of ten"
            )
        return self


class SpecimenSettings(Datasheet):
    """What the actuator moves behind the load cell, as far as it is known in advance."""

    mass: Mass = Field(
        gt=0, description="mass whose inertia the measured force contains; if it is that of the oil, with the piston"
    )
    damping: Damping = Field(default="0 N*s/m", ge=0, description="force per velocity")
    stiffness: Stiffness = Field(default="0 N/m", ge=0, description="force per displacement")


class DisplacementBridgeSettings(Datasheet):
    """How the virtual position is converted into the actuator's command."""

    strategy: DisplacementStrategyName = Field(default="prediction", description="strategy at start")
    learn: StrictBool = Field(
        default=True,
        description="adaptive, adaptive_lead, prediction: track what uncertainty names, and delays; false: hold them",
    )
    approach: Time = Field(
        default="2 s", gt=0, le=60, description="time in which the actuator moves to the virtual position at the start"
    )
    jog_speed: Velocity = Field(default="10 mm/s", gt=0, description="manual: velocity at full jog")
    jog_time: Time = Field(
        default="0.5 s", gt=0, le=60, description="manual: time after which a motion ends if it is not renewed"
    )


Share = Annotated[Number, Field(gt=0, le=1)]
MOST_UNCERTAIN = 0.5
"""Largest uncertainty of a parameter that must not become 0; damping and decay may."""
MAY_VANISH = ("force_decay", "specimen_damping")


class ActuatorSettings(Datasheet):
    """An actuator that follows the mechanical node ``rig.<name>`` of the circuit and moves the real specimen."""

    description: str = Field(default="", description="free text")
    position: PositionSensor = Field(description="channel of the measured displacement")
    force: ForceSensor = Field(
        description="channel of the measured force with which the actuator pushes the specimen towards larger "
        "displacements"
    )
    offset: Length = Field(default="0 m", description="displacement of the actuator at position 0 of the node")
    servo: ServoSettings = Field(description="the actuator with its position controller and servo valve")
    specimen: SpecimenSettings = Field(description="what it moves")
    delay: Time = Field(default="0 s", ge=0, le=0.1, description="from the output of a command until it acts")
    uncertainty: dict[UncertainName, Share] = Field(
        default_factory=dict,
        description="standard deviations of uncertain values of servo and specimen, as fractions of the stated values; "
        "the bridge tracks them",
    )
    device: DeviceName = Field(description="device that drives the actuator")
    output: Text = Field(description="name of the output channel at the device")
    max_age: ConfirmationAge = None
    unconfirmed: UnconfirmedAction = "trip"
    raw: tuple[Number, Number] = Field(
        description="raw output at both ends of the range; -10 and 10 for volts", examples=[[-10, 10]]
    )
    range: tuple[Length, Length] = Field(
        examples=[["-50 mm", "50 mm"]], description="displacements that may be commanded"
    )
    slew: Velocity = Field(gt=0, examples=["0.5 m/s"], description="fastest change of the command")
    safe: Length = Field(default="0 m", description="displacement at which it stays unless RUNNING")
    return_speed: Velocity = Field(default="20 mm/s", gt=0, description="velocity with which it moves there")
    at_trip: Literal["return", "hold"] = Field(
        default="return",
        description="return: it moves to the safe displacement; hold: it stays where it is until the fault is reset, "
        "which is refused as long as a limit that trips is violated there",
    )
    max_error: Length | None = Field(
        default=None,
        gt=0,
        examples=["5 mm"],
        description="largest distance of the displacement from the virtual position while RUNNING; default: 5 % of the "
        "range",
    )
    error_action: Literal["warn", "ramp", "trip"] = Field(
        default="trip",
        description="action if it is larger; warn: report only; ramp: leave RUNNING; trip: FAULT, latched",
    )
    bridge: DisplacementBridgeSettings = Field(
        default_factory=DisplacementBridgeSettings, description="strategy and its settings"
    )

    @model_validator(mode="after")
    def _consistent(self) -> ActuatorSettings:
        low, high = self.range
        if not low < high:
            raise ValueError("range: the first displacement must be below the second")
        if not low <= self.safe <= high:
            ends = f"{shown_value(low, 'm')} … {shown_value(high, 'm')}"
            raise ValueError(f"safe: {shown_value(self.safe, 'm')} is outside of the range, {ends}")
        if self.raw[0] == self.raw[1]:
            raise ValueError("raw: the outputs at both ends of the range must differ")
        if self.max_error is not None and self.max_error > high - low:
            largest, span = shown_value(self.max_error, "m"), shown_value(high - low, "m")
            raise ValueError(
                f"max_error: {largest} is more than the whole range, {span}, so that the actuator may be anywhere: "
                "state the largest distance that the specimen can bear"
            )
        self._check_uncertainty()
        return self

    def _check_uncertainty(self) -> None:
        """Raises ValueError where a value could not be controlled, or is 0, in the range of its uncertainty."""
        model = self.model()
        for name, share in self.uncertainty.items():
            if share > MOST_UNCERTAIN and name not in MAY_VANISH:
                raise ValueError(f"uncertainty.{name}: {share:g} is too much to control it; at most {MOST_UNCERTAIN:g}")
            if spread_of(model, name) == 0.0:
                raise ValueError(f"uncertainty.{name}: a fraction of 0 is no uncertainty; give the value itself first")

    @property
    def largest_error(self) -> float:
        """Largest distance from the virtual position, m."""
        return self.max_error if self.max_error is not None else USUAL_ERROR * (self.range[1] - self.range[0])

    def model(self) -> ServoActuator:
        """Actuator and specimen as they are described."""
        servo, part = self.servo, self.specimen
        return ServoActuator(
            servo.velocity_gain,
            servo.f90,
            servo.damping,
            servo.oil_stiffness,
            servo.force_decay,
            servo.position_gain,
            Specimen(part.mass, part.damping, part.stiffness),
            self.delay,
            moving_mass=servo.moving_mass,
        )

    def spread(self) -> dict[str, float]:
        """Standard deviations of the uncertain parameters, SI."""
        model = self.model()
        return {name: share * spread_of(model, name) for name, share in self.uncertainty.items()}


USUAL_ERROR = 0.05
"""Largest error, as a fraction of the range, where none is stated."""


def spread_of(model: ServoActuator, name: str) -> float:
    """The nominal value of an uncertain parameter."""
    part = name.removeprefix("specimen_")
    found: float = getattr(model.specimen, part) if part != name else getattr(model, name)
    return found
