"""What the server publishes about what it drives: real valves, and actuators whose position is controlled."""

from pydantic import Field

from hilserver.protocol.message import Published


class ValveDescription(Published):
    """A real valve and the strategies that can drive it."""

    strategies: tuple[str, ...] = Field(description="strategies that the command `strategy` may select")
    jog_limit: float = Field(default=0.0, description="largest command of jog, fraction of full scale")
    description: str = Field(default="", description="description of the valve")


class Utilisation(Published):
    """Utilisation of a real valve by the virtual circuit: the maximum since the last state, as fractions of its
    capacity."""

    flow_to_port: float | None = Field(
        default=0.0,
        description="flow into the port, as a fraction of the flow at full command; null: not possible, for lack of "
        "a pressure drop",
    )
    flow_to_tank: float | None = Field(default=0.0, description="the same for the flow from the port to the tank")
    speed_to_port: float = Field(
        default=0.0,
        description="speed of opening from P to the port, as a fraction of the speed that spool and slew limit allow",
    )
    speed_to_tank: float = Field(default=0.0, description="the same from the port to the tank")


class LearnedValue(Published):
    """A value of a real valve or actuator that a bridge tracks, in the SI unit ``unit``."""

    value: float = Field(description="the learned value")
    configured: float = Field(description="the value in the rig file")
    minimum: float = Field(description="smallest value that is accepted")
    maximum: float = Field(description="largest value that is accepted")
    unit: str = Field(description='its unit, "" for a plain number')
    deviation: float | None = Field(default=None, description="its standard deviation; null: not calculated")
    known: bool = Field(description="whether the movements have determined it")
    at_bound: bool = Field(description="whether it is the smallest or largest value that is accepted")
    state: str = Field(description="tracked, not excited yet, at a bound, or why it is held or off")


class ActuatorDescription(Published):
    """An actuator whose position is controlled, and the strategies that can drive it."""

    strategies: tuple[str, ...] = Field(description="strategies that the command `strategy` may select")
    jog_speed: float = Field(default=0.0, description="velocity of a jog with command 1, m/s")
    description: str = Field(default="", description="description of the actuator")


class ActuatorStatus(Published):
    """An actuator whose position is controlled, in SI units. Pushing and moving outwards are positive."""

    strategy: str = Field(description="the strategy that drives it")
    position: float = Field(description="displacement that it follows: that of its node of the virtual circuit, m")
    measured: float | None = Field(description="measured displacement, m; null: no sample")
    estimate: float | None = Field(description="displacement as the bridge estimates it, m; null: not known yet")
    error: float | None = Field(description="estimated displacement minus the one that it follows, m; 0 unless RUNNING")
    command: float = Field(description="command within all limits, m")
    force: float | None = Field(description="measured force with which it pushes the specimen, N; null: no sample")
    reaction: float = Field(description="force of the specimen on the virtual circuit, N")
    saturation: tuple[str, ...] = Field(default=(), description="the limits at which the command is, in words")
    learned: dict[str, LearnedValue] = Field(
        default={}, description="uncertain values that the bridge tracks, by their names in the rig file"
    )
    late_command: float = Field(default=0.0, description="tracked delay of its commands beyond the stated one, s")
    late_force: float = Field(
        default=0.0, description="tracked delay of its force beyond the stated one, relative to the displacement, s"
    )
