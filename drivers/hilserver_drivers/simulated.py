"""The simulated rig as a device: a circuit (supply, servo valve, machine) behind sensors and actuators. No hardware.

The program that runs it provides the circuit as a *plant*; the driver only passes readings and commands on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hilserver.driver import ChannelInfo, DriverConfig, Floats, PlantDriver
from hilserver.units import AnyQuantity, Number, Time


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class SimulatedSensor(_Part):
    """A sensor with its imperfections."""

    of: str = Field(description="value of the simulated circuit: a node (A), or a component's result (line.q_A)")
    raw: tuple[Number, Number] = Field(default=(0.0, 10.0), description="raw readings at the ends of the range")
    value: tuple[AnyQuantity, AnyQuantity] = Field(
        description="values at the ends of the range", examples=[["0 bar", "250 bar"]]
    )
    noise: Number = Field(default=0.0, ge=0, description="standard deviation of the noise, fraction of the range")
    bits: int = Field(default=0, ge=0, le=32, description="resolution of the converter; 0: none")
    delay: Time = Field(
        default="0 s",
        ge=0,
        le=1,
        description="transport delay; where it is not a whole number of ticks, the value is interpolated between two",
    )

    @model_validator(mode="after")
    def _a_range(self) -> SimulatedSensor:
        if self.value[0].unit != self.value[1].unit or self.value[0].value == self.value[1].value:
            raise ValueError("value: give two different values of the same kind of quantity")
        if self.raw[0] == self.raw[1]:
            raise ValueError("raw: the two readings must differ")
        return self


class SimulatedActuator(_Part):
    """A command input of the simulated circuit."""

    to: str = Field(description="input signal of the simulated circuit")
    raw: tuple[Number, Number] = Field(default=(-10.0, 10.0), description="raw output at signal -1 and +1")
    safe: Number = Field(default=0.0, description="raw output in the safe state")
    delay: Time = Field(default="0 s", ge=0, le=1, description="transport delay, also within a tick")

    @model_validator(mode="after")
    def _a_range(self) -> SimulatedActuator:
        if self.raw[0] == self.raw[1]:
            raise ValueError("raw: the two outputs must differ")
        return self


class DriftOfCircuit(_Part):
    """Values of a circuit at the end of the drift."""

    fluid: dict[str, Any] = Field(default_factory=dict, description="keys of the oil")
    components: dict[str, dict[str, Any]] = Field(default_factory=dict, description="keys of components, by name")


class SimulatedDrift(_Part):
    """What changes while the simulated rig runs: each value goes to its last one in a straight line, and stays there.

    The time is that of the simulated rig: a run begins with the values of the circuit files.
    """

    over: Time = Field(gt=0, description="time until the last values", examples=["60 s"])
    machine: DriftOfCircuit = Field(default=DriftOfCircuit(), description="values of the machine at the end")
    drive: DriftOfCircuit = Field(default=DriftOfCircuit(), description="values of the drive at the end")


class SimulatedRigConfig(DriverConfig):
    """Settings of a simulated rig."""

    machine: str = Field(description="circuit file of the machine: cylinder, load; nodes named like the rig's ports")
    drive: str = Field(description="circuit file of its drive: supply and real servo valve")
    sensors: dict[str, SimulatedSensor] = Field(min_length=1)
    actuators: dict[str, SimulatedActuator] = Field(default_factory=dict)
    watchdog: Time = Field(
        default="50 ms", gt=0, description="time without a command after which the device sets its safe values"
    )
    seed: int = Field(default=1, ge=0, description="seed of the noise")
    drift: SimulatedDrift | None = Field(
        default=None, description="values of machine and drive that change while the rig runs; default: none"
    )


class SimulatedRig(PlantDriver):
    """The simulated rig: in real time a separate process with a watchdog, in lockstep stepped by the run."""

    Config = SimulatedRigConfig

    @classmethod
    def channels(cls, config: SimulatedRigConfig) -> tuple[Sequence[ChannelInfo], Sequence[ChannelInfo]]:
        """One input per sensor, one output per actuator."""
        sensors = [ChannelInfo(name, "V", f"simulated sensor of {s.of}") for name, s in config.sensors.items()]
        actuators = [ChannelInfo(name, "V", f"simulated command {a.to}") for name, a in config.actuators.items()]
        return sensors, actuators

    @classmethod
    def safe_after(cls, config: SimulatedRigConfig, output: str) -> float:
        """The time of its watchdog."""
        return float(config.watchdog)

    def open(self) -> None:
        """Nothing to connect: the plant is provided."""

    def read(self, values: Floats, ages: Floats) -> None:
        """Read the sensors."""
        self.plant.read(values, ages)

    def write(self, values: Floats) -> None:
        """Set the commands."""
        self.plant.write(values)

    def make_safe(self) -> None:
        """Set all actuators to their safe values."""
        self.plant.make_safe()

    def close(self) -> None:
        """Release the plant."""
        self.plant.close()
