"""The rig file: devices, channels, limits, ports, valves and their bridges, loop, recording, MQTT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, StrictInt, model_validator

from hilserver.components.base import Datasheet
from hilserver.components.shared.edges import Leakage, NominalFlow
from hilserver.components.shared.fitting import SignalPoint
from hilserver.protocol.address import BrokerAddress
from hilserver.rig.actuator_settings import ActuatorSettings
from hilserver.rig.channels import ChannelSettings, EnableSettings, LimitSettings
from hilserver.rig.confirmation import ConfirmationAge, UnconfirmedAction
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.flow_signal import FlowSignal, linear_valve
from hilserver.rig.input_settings import InputSettings
from hilserver.rig.motor_settings import MotorSettings
from hilserver.rig.recording_settings import RecordingSettings
from hilserver.rig.references import (
    DeviceName,
    FlowChannel,
    Name,
    PlainChannel,
    PortName,
    PressureChannel,
    Text,
)
from hilserver.rig.scale import Scale
from hilserver.tick.bridge.strategies import STRATEGY_NAMES
from hilserver.units import (
    AnyQuantity,
    Force,
    Frequency,
    Number,
    Pressure,
    Rate,
    Time,
    shown_value,
)

LOWEST_RATE, HIGHEST_RATE = 1.0, 20_000.0
"""Ticks per second of the clock at which the loop can run."""


class LoopSettings(Datasheet):
    """The real-time loop."""

    rate: Frequency = Field(default="1 kHz", ge=LOWEST_RATE, le=HIGHEST_RATE, description="ticks per second")
    max_missed: StrictInt = Field(
        default=5, ge=0, le=10_000, description="consecutive missed ticks that are compensated; more cause a trip"
    )
    max_age: Time = Field(
        default="20 ms",
        gt=0,
        description="maximum age of a sample of a channel without a separate max_age limit; trips",
    )
    heartbeat_timeout: Time = Field(
        default="1 s", gt=0, description="ramp to null if the supervisor is silent for this long"
    )
    reactions: StrictInt = Field(
        default=0,
        ge=0,
        le=16,
        description="number of reactions that can be armed at the same time (`react`); each takes 120 bytes of a row",
    )
    playouts: StrictInt = Field(
        default=0,
        ge=0,
        le=8,
        description="number of playouts at the same time (`play`); each takes 264 bytes of a row",
    )
    priority: StrictInt = Field(default=80, ge=1, le=99, description="SCHED_FIFO priority")
    cpus: tuple[Annotated[StrictInt, Field(ge=0, le=1023)], ...] = Field(
        default=(), description="CPUs the loop may use; empty: any"
    )
    lock_memory: StrictBool = Field(default=True, description="keep all memory in RAM (mlockall)")
    rehearsal: StrictBool = Field(default=True, description="rehearse each tick before it is due, on a fifth of a CPU")
    compiled_circuit: StrictBool = Field(
        default=True, description="compile code for the circuit alone after 20 s (needs LLVM): its ticks take less time"
    )


class Dither(Datasheet):
    """A small sine on the command that keeps the spool moving."""

    amplitude: Number = Field(default=0.0, ge=0, le=0.2, description="of full command")
    frequency: Frequency = Field(default="100 Hz", gt=0, description="of the sine")


if TYPE_CHECKING:
    StrategyName = str
else:
    StrategyName = Literal[STRATEGY_NAMES]


class BridgeSettings(Datasheet):
    """How the virtual flow is converted into the valve's command."""

    strategy: StrategyName = Field(default="inverse_lag_leakage", description="strategy at start")
    lead_filter: Time = Field(default="2 ms", ge=0, description="filter of the lag compensation's derivative")
    null_band: Number = Field(
        default=0.005,
        ge=1e-4,
        le=0.2,
        description="opening over which the jump across the overlap is smoothed, so that noise can't move the spool",
    )
    feedback_time: Time = Field(
        default="30 ms",
        gt=0,
        le=10,
        description="feedback: time constant with which a missing volume is compensated; hilserver identify "
        "calculates it",
    )
    learn: bool = Field(
        default=True,
        description="adaptive: track delay, flow gains, null and overlap of the valve; false: hold them",
    )
    gain: Number = Field(
        default=0.5,
        ge=0,
        description="flow servo: command per flow error, in units of the nominal flow; hilserver identify calculates "
        "this and the following three",
    )
    integral_time: Time = Field(default="10 ms", ge=0, description="flow servo: integral time; 0: none")
    derivative_time: Time = Field(default="0 s", ge=0, examples=["1 ms"], description="flow servo: derivative time")
    derivative_filter: Time = Field(default="2 ms", ge=0, description="flow servo: filter time of the derivative")
    fade: Time = Field(
        default="50 ms", ge=0, description="bumpless transfer: time constant of the fade to a new strategy"
    )
    jog_limit: Number = Field(default=0.1, ge=0, le=1, description="manual: largest command")
    jog_time: Time = Field(
        default="0.5 s", gt=0, le=60, description="manual: time after which a command ends if it is not renewed"
    )


class ValveSettings(Datasheet):
    """A real servo valve: its ports, datasheet values, bridge and output."""

    description: str = Field(default="", description="free text")
    port: PortName = Field(description="the rig's port whose flow this valve controls")
    other_port: PortName | None = Field(
        default=None,
        description="port at the valve's other edges, if one spool serves both (A and B of a 4/3 valve)",
    )
    supply: PressureChannel = Field(description="channel of the real supply pressure p_S")
    tank: PressureChannel = Field(description="channel of the real tank pressure p_T")
    flow: FlowChannel | None = Field(default=None, description="channel of the measured flow into the port")
    spool: PlainChannel | None = Field(default=None, description="channel of the measured spool position, -1 to 1")
    nominal_flow: NominalFlow = Field(description="datasheet flow at full command")
    nominal_flow_to_tank: NominalFlow | None = Field(default=None, description="the A-T edge, where it differs")
    transition_pressure: Pressure = Field(default="1 bar", gt=0, description="laminar below this drop")
    f45: Frequency | None = Field(
        default=None, gt=0, description="spool of first order: -45° frequency of the datasheet's Bode plot"
    )
    f90: Frequency | None = Field(
        default=None, gt=0, description="spool of second order: -90° frequency of the Bode plot, omega/(2·pi)"
    )
    damping: Number = Field(
        default=0.8, gt=0, le=5, description="with f90: damping ratio, d; the Bode plot's gain at f90 is 1/(2·d)"
    )
    delay: Time = Field(
        default="0 s",
        ge=0,
        le=0.02,
        examples=["2 ms"],
        description="from the output of the command to the first movement of the spool",
    )
    overlap: Number = Field(
        default=0.0, ge=0, lt=0.5, description="spool travel before an edge opens, as a fraction of full stroke"
    )
    flow_signal: tuple[SignalPoint, ...] | None = Field(
        default=None,
        examples=[[[0.03, "0 l/min"], [0.4, "8 l/min"], [1, "40 l/min"]]],
        description="flow-signal curve of the datasheet, where the flow is not proportional to the signal (progressive "
        "valves, valves with two gains); instead of overlap. Its shape counts: the flow at signal 1 is nominal_flow",
    )
    hysteresis: Number = Field(default=0.0, ge=0, lt=0.2, description="width of its loop: fraction of full command")
    leakage: Leakage | None = Field(default=None, description="datasheet leakage at null")
    flow_drift: Number = Field(
        default=0.02,
        ge=1e-4,
        le=1,
        description="by how much the flow drifts within 0.1 s from that of the values above, as a fraction of "
        "nominal_flow (standard deviation); hilserver identify determines it",
    )
    device: DeviceName = Field(description="device that drives the valve")
    output: Text = Field(description="name of the output channel at the device")
    max_age: ConfirmationAge = None
    unconfirmed: UnconfirmedAction = "trip"
    raw: tuple[Number, Number] = Field(
        description="raw output at command -1 and +1; -10 and 10 for volts", examples=[[-10, 10]]
    )
    polarity: Literal[1, -1] = Field(default=1, description="-1: a positive command opens A-T")
    null: Number = Field(default=0.0, gt=-0.5, lt=0.5, description="command at which the spool is centred")
    dither: Dither = Field(default_factory=Dither, description="small sine on the command")
    range: tuple[Number, Number] = Field(default=(-1.0, 1.0), description="command limits (before null offset)")
    slew: Rate = Field(default="50 1/s", gt=0, description="fastest change of the command, full scales per second")
    stop_time: Time = Field(default="200 ms", gt=0, le=2, description="ramp from full command to null at a stop")
    safe: Number = Field(default=0.0, ge=-1, le=1, description="safe command (before null offset)")
    bridge: BridgeSettings = Field(default_factory=BridgeSettings, description="strategy and its settings")

    @model_validator(mode="after")
    def _range_holds_safe(self) -> ValveSettings:
        low, high = self.range
        if not (-1 <= low <= self.safe <= high <= 1 and low < high):
            raise ValueError(
                "range: the first value must be below the second, both must be within -1 … 1, and the "
                "range must contain the safe command"
            )
        if self.raw[0] == self.raw[1]:
            raise ValueError("raw: the outputs at command -1 and +1 must differ")
        if (self.f45 is None) == (self.f90 is None):
            raise ValueError("spool dynamics: give f45 (first order) or f90 with damping (second order)")
        if "damping" in self.model_fields_set and self.f90 is None:
            raise ValueError("damping belongs to f90, the -90° frequency of a second-order spool: give both or neither")
        if self.other_port == self.port:
            raise ValueError("other_port must be a different port from port")
        if self.flow_signal is not None and self.overlap != 0.0:
            raise ValueError("flow_signal: the curve contains the overlap; give one or the other")
        self.curve()
        for key in ("nominal_flow", "nominal_flow_to_tank", "leakage"):
            point = getattr(self, key)
            if point is not None and point.edge_drop() < self.transition_pressure:
                raise ValueError(
                    f"{key}.drop is {shown_value(point.edge_drop(), 'Pa')} across one edge, below the "
                    f"transition_pressure of {shown_value(self.transition_pressure, 'Pa')}: give a point above it, "
                    "or a lower transition_pressure"
                )
        return self

    @property
    def nominal_flow_AT(self) -> NominalFlow:
        """Datasheet flow over the A-T edge at full command: that of the P-A edge, unless another one is stated."""
        return self.nominal_flow_to_tank or self.nominal_flow

    def curve(self) -> FlowSignal:
        """Its flow-signal curve. Raises ValueError."""
        return FlowSignal.of(self.flow_signal) if self.flow_signal is not None else linear_valve(self.overlap)


class OutputSettings(Datasheet):
    """An output other than those of the servo valves: a pump's enable, a block valve, a lamp, a watchdog relay."""

    description: str = Field(default="", description="free text")
    device: DeviceName = Field(description="device that has the output")
    output: Text = Field(description="name of the output channel at the device")
    max_age: ConfirmationAge = None
    unconfirmed: UnconfirmedAction = "trip"
    raw: tuple[Number, Number] | None = Field(
        default=None, description="raw output when off and when on; 0 and 1 for a digital line", examples=[[0, 1]]
    )
    value: tuple[AnyQuantity, AnyQuantity] | None = Field(
        default=None,
        examples=[["20 bar", "140 bar"]],
        description="instead of raw, with scale: the quantity when off and when on",
    )
    scale: Scale | None = Field(
        default=None, description="value: relation of raw output and quantity; points or current"
    )
    on: Literal["armed", "running", "healthy", "heartbeat"] = Field(
        description="armed: in ARMED and RUNNING; running: in RUNNING; healthy: as long as there is no fault, once all "
        "channels have samples; heartbeat: changes in every tick while healthy, for a watchdog that requires edges"
    )

    off_delay: Time = Field(
        default="0 s",
        ge=0,
        le=10,
        examples=["0.5 s"],
        description="armed, running: time for which it stays on when the mode has ended, also after a trip, so that "
        "valve, block valve and pump close in order",
    )

    @model_validator(mode="after")
    def _two_levels(self) -> OutputSettings:
        if self.off_delay > 0.0 and self.on not in ("armed", "running"):
            text = f'with "{self.on}" the output must switch off at once'
            raise ValueError(f'off_delay requires on = "armed" or "running"; {text}')
        if (self.raw is None) == (self.value is None) or (self.value is None) != (self.scale is None):
            raise ValueError("give raw, or value and scale")
        if self.value is not None and self.scale is not None:
            if {value.unit for value in self.value} != {self.scale.si_unit}:
                raise ValueError("value: both must be of the same kind of quantity as the scale's")
        if self.levels()[0] == self.levels()[1]:
            raise ValueError("the outputs when off and when on must differ")
        return self

    def levels(self) -> tuple[float, float]:
        """Raw output when off and when on."""
        if self.raw is not None:
            return self.raw
        assert self.scale is not None
        assert self.value is not None
        curve = self.scale.curve()
        return curve.raw(self.value[0].value), curve.raw(self.value[1].value)


class ArmingSettings(Datasheet):
    """Conditions for arming the rig."""

    virtual_commissioning: StrictBool = Field(
        default=True,
        description="simulate the bridged rig first, and refuse to arm it where it trips, oscillates or drops the load",
    )


class OperatorSettings(Datasheet):
    """The link to the operator that is required while the rig is armed or running, and the action when it is lost."""

    require: Literal["broker", "client", "none"] = Field(
        default="broker",
        description="broker: the server's connection to the MQTT broker, over which all commands arrive; client: also "
        "the heartbeat of the client that has armed or started the rig; none: the rig keeps running unattended",
    )
    lost_after: Time = Field(
        default="2 s", ge=0.5, le=60, description="time without a response after which the operator counts as lost"
    )
    action: Literal["ramp", "trip"] = Field(
        default="ramp",
        description="ramp: to null in stop_time, mode SAFE; trip: FAULT, latched, to null at the slew limit",
    )


class SimulationSettings(Datasheet):
    """Values that the simulation of a rig with real devices needs in addition to its valves, channels and cylinders."""

    supply_pressure: Pressure | None = Field(
        default=None, gt=0, examples=["210 bar"], description="real supply pressure, where a channel measures it"
    )
    tank_pressure: Pressure = Field(
        default="0 bar", examples=["2 bar"], description="real tank pressure, where a channel measures it"
    )
    loads: dict[Name, Force] = Field(
        default_factory=dict,
        description="force against increasing position, by cylinder; default: the weight of its mass",
    )


class MqttSettings(BrokerAddress):
    """The broker, and the rate of telemetry. File names are relative to the rig file."""

    port: StrictInt = Field(default=1883, ge=0, le=65535, description="broker's port; 0 with embedded: any free one")
    embedded: StrictBool = Field(default=False, description="start an embedded broker on the loopback interface")
    accounts: Path | None = Field(
        default=None,
        description="embedded: accounts that may log in, a file made by mosquitto_passwd; without it, everybody may "
        "log in",
    )
    operators: tuple[Text, ...] = Field(
        default=(), description="embedded: the accounts that may command; the others only read"
    )
    command_lifetime: Time | None = Field(
        default=None,
        examples=["30 s"],
        ge=1,
        le=300,
        description="commands need an id and must expire within this time, against replay attacks",
    )
    telemetry_rate: Frequency = Field(default="50 Hz", gt=0, le=1000, description="samples per second in telemetry")
    telemetry_batch: Time = Field(default="200 ms", gt=0, description="a batch is sent this often")

    @model_validator(mode="after")
    def _one_broker(self) -> Self:
        if self.embedded:
            foreign = {"host", "user", "password_file", "ca_file", "cert_file", "key_file"} & self.model_fields_set
            if foreign:
                raise ValueError(f"{sorted(foreign)[0]} is for an external broker, not for embedded = true")
        elif self.accounts is not None or self.operators:
            raise ValueError("accounts and operators are for embedded = true; an external broker has its own")
        if self.operators and self.accounts is None:
            raise ValueError("operators need accounts: the file with their passwords")
        if self.port == 0 and not self.embedded:
            raise ValueError("port 0, any free one, is for embedded = true")
        return self


class RigSettings(Datasheet):
    """A rig file. ``name`` is also its name on MQTT."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,40}$", description="letters, digits, - and _")
    description: str = Field(default="", description="free text")
    circuit: Text = Field(description="circuit file, relative to this file")
    cycle: Text | None = Field(default=None, description="work cycle file, relative to this file")
    library: tuple[Text, ...] = Field(
        default=(), description="Python files with user-defined components, relative to this file"
    )
    calibration: Text | None = Field(
        default=None, description="calibration file, relative to this file; hilserver calibrate writes it"
    )
    loop: LoopSettings = Field(default_factory=LoopSettings)
    devices: dict[Name, dict[str, Any]] = Field(
        default_factory=dict, description="driver and its settings, by device name"
    )
    channels: dict[Name, ChannelSettings] = Field(description="measured and fixed quantities, by name")
    ports: dict[Name, PressureChannel] = Field(
        default_factory=dict, description="port of the machine -> channel that measures its pressure"
    )
    inputs: dict[Name, InputSettings] = Field(default_factory=dict)
    limits: dict[Name, LimitSettings] = Field(default_factory=dict)
    enable: EnableSettings | None = Field(default=None, description="the local enable, where there is one")
    valves: dict[Name, ValveSettings] = Field(default_factory=dict)
    actuators: dict[Name, ActuatorSettings] = Field(
        default_factory=dict, description="actuators whose position is controlled, by name"
    )
    outputs: dict[Name, OutputSettings] = Field(
        default_factory=dict, description="outputs other than those of the servo valves, by name"
    )
    cylinders: dict[Name, CylinderSettings] = Field(default_factory=dict)
    motors: dict[Name, MotorSettings] = Field(default_factory=dict)
    arming: ArmingSettings = ArmingSettings()
    operator: OperatorSettings = OperatorSettings()
    simulation: SimulationSettings = SimulationSettings()
    recording: RecordingSettings = Field(default_factory=RecordingSettings)
    mqtt: MqttSettings = Field(default_factory=MqttSettings)

    @model_validator(mode="after")
    def _something_to_bridge(self) -> Self:
        if not self.ports and not self.actuators:
            raise ValueError("ports: missing: give the ports of the machine, or actuators that follow the circuit")
        return self

    def hydraulic_actuators(self) -> dict[str, CylinderSettings | MotorSettings]:
        """Cylinders and motors by name, in the order in which the tick numbers them."""
        return {**self.cylinders, **self.motors}

    def oldest_sample(self, channel: str) -> float:
        """Age limit of a channel, s: the smallest of its limits; ``loop.max_age`` if it has none."""
        ages = [limit.max_age for limit in self.limits.values() if limit.channel == channel]
        return min((age for age in ages if age is not None), default=self.loop.max_age)
