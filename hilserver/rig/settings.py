"""The rig file: devices, channels, limits, ports, valves and their bridges, loop, recording, MQTT."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, inf, isfinite, pi
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, StrictBool, StrictInt, StringConstraints, model_validator

from hilserver.components.base import Datasheet
from hilserver.components.shared.edges import Leakage, NominalFlow
from hilserver.protocol.address import BrokerAddress
from hilserver.rig.scale import Curve, Scale
from hilserver.units import (
    ATMOSPHERE,
    AnyDifference,
    AnyQuantity,
    AnyRate,
    Frequency,
    Length,
    Mass,
    Number,
    Pressure,
    Rate,
    Time,
    Volume,
)

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,39}$")]
"""Names become columns of the log and parts of commands: letters, digits, _ and -, a letter first."""
Text = Annotated[str, StringConstraints(min_length=1)]
USUAL_FREQUENCIES: Any = ("2 Hz", "3 Hz", "5 Hz", "7 Hz", "10 Hz", "14 Hz", "20 Hz")
ROUNDING = 1e-9
"""Periods that are too few by no more than this are whole ones."""


class LoopSettings(Datasheet):
    """The real-time loop."""

    rate: Frequency = Field(default="1 kHz", ge=1, le=20_000, description="ticks per second")
    max_missed: StrictInt = Field(
        default=5, ge=0, le=10_000, description="missed ticks in a row that are made good; more trip"
    )
    max_age: Time = Field(
        default="20 ms",
        gt=0,
        description="oldest allowed sample of a channel without a max_age limit of its own; trips",
    )
    heartbeat_timeout: Time = Field(default="1 s", gt=0, description="supervisor silent for so long: ramp to null")
    priority: StrictInt = Field(default=80, ge=1, le=99, description="SCHED_FIFO priority")
    cpus: tuple[Annotated[StrictInt, Field(ge=0, le=1023)], ...] = Field(
        default=(), description="CPUs the loop may use; empty: any"
    )
    lock_memory: StrictBool = Field(default=True, description="keep all memory in RAM (mlockall)")


class ChannelSettings(Datasheet):
    """A measured quantity (device, source, scale) or a configured one (value)."""

    description: str = Field(default="", description="free text")
    device: str | None = Field(default=None, description="name of the device that measures it")
    source: Text | None = Field(default=None, description="the device's name of the channel")
    scale: Scale | None = Field(default=None, description="raw reading to value")
    value: AnyQuantity | None = Field(default=None, description="a fixed value, where nothing measures it")
    absolute: StrictBool = Field(default=False, description="the values are absolute pressures; inside all are gauge")
    filter: Time = Field(default="0 s", ge=0, description="time constant of a first-order low-pass; also its lag")
    tare: AnyDifference | None = Field(default=None, description="what is taken from the scaled value: its zero error")
    valid_raw: tuple[Number, Number] | None = Field(
        default=None, description="raw readings outside of these two are no samples (4 … 20 mA: 3.6 mA and 21 mA)"
    )
    valid: tuple[AnyQuantity, AnyQuantity] | None = Field(
        default=None, description="values outside of these two are no samples"
    )
    valid_rate: AnyRate | None = Field(
        default=None, description="a value that changed faster since the last sample (filtered) is no sample"
    )
    delay: Time = Field(
        default="0 s", ge=0, le=0.1, description="age of a new sample: sensor, converter, transmission (prediction)"
    )
    noise: AnyQuantity | None = Field(
        default=None,
        description="standard deviation of the sensor's noise (estimation); 0.02 % of the scale's range if not given",
    )

    @model_validator(mode="after")
    def _measured_or_fixed(self) -> ChannelSettings:
        for_measured = ("device", "source", "scale", "tare", "valid_raw", "valid", "valid_rate")
        measured = [name for name in for_measured if getattr(self, name) is not None]
        if self.value is not None and measured:
            raise ValueError(f"has a fixed value and {measured[0]}: give one or the other")
        if self.value is None and not {"device", "source", "scale"} <= set(measured):
            raise ValueError("give device, source and scale (a measured channel), or value (a fixed one)")
        if self.absolute and self.unit != "Pa":
            raise ValueError("absolute is for pressures only")
        if self.noise is not None and (self.noise.unit != self.unit or self.noise.value <= 0.0):
            raise ValueError(f"noise must be above 0 and of the channel's unit, {self.unit or 'none'}")
        return self

    @model_validator(mode="after")
    def _validity(self) -> ChannelSettings:
        if self.valid_raw is not None and self.valid_raw[0] >= self.valid_raw[1]:
            raise ValueError("valid_raw: the first reading must be below the second")
        if self.valid is not None and self.valid[0].value >= self.valid[1].value:
            raise ValueError("valid: the first value must be below the second")
        if self.valid_rate is not None and self.valid_rate.value <= 0:
            raise ValueError("valid_rate must be above 0")
        valid = self.valid or ()
        for key, given in (("valid", valid), ("tare", (self.tare,)), ("valid_rate", (self.valid_rate,))):
            for amount in given:
                if amount is not None and amount.unit != self.unit:
                    raise ValueError(f"{key} is of unit {amount.unit or 'none'}, the scale of {self.unit or 'none'}")
        return self

    def deviation(self) -> float:
        """Standard deviation of the noise, SI."""
        if self.noise is not None:
            return self.noise.value
        values = [value.value for value in (self.scale.value or self.scale.current or ())] if self.scale else []
        return 2e-4 * (max(values) - min(values)) if values else 0.0

    @property
    def unit(self) -> str:
        """SI unit of the channel."""
        if self.value is not None:
            return self.value.unit
        assert self.scale is not None
        return self.scale.si_unit

    @property
    def zero(self) -> float:
        """What is taken from a configured value to have it as inside: pressures are gauge."""
        return ATMOSPHERE if self.absolute else 0.0

    def curve(self) -> Curve:
        """Raw reading -> SI value, gauge, less the tare."""
        assert self.scale is not None
        return self.scale.curve().less(self.zero + (self.tare.value if self.tare is not None else 0.0))

    def raw_limits(self) -> tuple[float, float]:
        """Raw readings outside of which there is no sample."""
        assert self.scale is not None
        return self.valid_raw or self.scale.live_range() or (-inf, inf)

    def value_limits(self) -> tuple[float, float]:
        """Values, SI and gauge, outside of which there is no sample."""
        return (self.valid[0].value - self.zero, self.valid[1].value - self.zero) if self.valid else (-inf, inf)

    def why_invalid(self, raw: float) -> str:
        """Why a raw reading is no sample, in words; empty where it is one (but for ``valid_rate``).

        ``raw`` is NaN where the device has none.
        """
        if not isfinite(raw):
            return "the device has no sample"
        low, high = self.raw_limits()
        if not low <= raw <= high:
            wire = ": broken wire or failed sensor" if self.valid_raw is None else ""
            return f"raw {raw:g} is outside of {low:g} … {high:g}{wire}"
        value, (least, most) = self.curve().value(raw), self.value_limits()
        if not least <= value <= most:
            return f"{value + self.zero:.6g} {self.unit} is outside of its valid range".replace("  ", " ")
        return ""

    def fixed(self) -> float:
        """The fixed value, SI, gauge."""
        assert self.value is not None
        return self.value.value - self.zero


class LimitSettings(Datasheet):
    """What a channel must keep to, and what happens when it doesn't."""

    channel: str = Field(description="the channel that is watched")
    min: AnyQuantity | None = Field(default=None, description="lowest allowed value")
    max: AnyQuantity | None = Field(default=None, description="highest allowed value")
    max_age: Time | None = Field(default=None, gt=0, description="oldest allowed sample")
    max_rate: AnyRate | None = Field(default=None, description='fastest allowed change, like "5000 bar/s"')
    action: Literal["warn", "stop", "hold", "ramp", "trip"] = Field(
        description="warn: report only; stop: no command of `valves` beyond min or max, the way back is free; "
        "hold: keep the command; ramp: to null, leave RUNNING; trip: FAULT, latched"
    )
    valves: dict[Name, Literal[1, -1]] = Field(
        default_factory=dict,
        description="stop: the valves that move it; 1: a positive command makes the channel rise, -1: fall",
    )
    slow_down: AnyDifference | None = Field(
        default=None, description="stop: within this distance before min and max the command is reduced in proportion"
    )

    @model_validator(mode="after")
    def _stops_by_its_valves(self) -> LimitSettings:
        if self.action != "stop":
            given = [key for key in ("valves", "slow_down") if key in self.model_fields_set]
            if given:
                raise ValueError(f"{given[0]} goes with action stop only")
            return self
        if not self.valves:
            raise ValueError("action stop needs valves: which ones move it, and which way, like { main = 1 }")
        if self.max_age is not None or self.max_rate is not None:
            raise ValueError("action stop is for min and max: give max_age and max_rate a limit of their own")
        if self.slow_down is not None and self.slow_down.value <= 0:
            raise ValueError("slow_down must be above 0")
        return self

    @model_validator(mode="after")
    def _something_to_watch(self) -> LimitSettings:
        if self.min is None and self.max is None and self.max_age is None and self.max_rate is None:
            raise ValueError("give at least one of min, max, max_age, max_rate")
        if self.min is not None and self.max is not None and self.min.value >= self.max.value:
            raise ValueError("min must be below max")
        if self.max_rate is not None and self.max_rate.value <= 0:
            raise ValueError("max_rate must be above 0")
        return self


class EnableSettings(Datasheet):
    """The local enable: a switch at the rig without which nobody arms or starts it, from wherever.

    It counts as off where its channel has no fresh sample (the channel's max_age).
    """

    channel: str = Field(description="measured channel without a unit, like a digital input: on from 0.5")
    action: Literal["refuse", "ramp", "trip"] = Field(
        default="trip",
        description="when it goes off; refuse: arm and start are refused, what runs runs on; "
        "ramp: to null, then SAFE; trip: FAULT, latched. In ramp and trip arm and start are refused too",
    )


class InputSettings(Datasheet):
    """A signal of the operator or of the work cycle."""

    description: str = Field(default="", description="free text")
    range: tuple[Number, Number] = Field(default=(-1.0, 1.0), description="allowed values")
    initial: Number = Field(default=0.0, description="value whenever the rig is not RUNNING")

    @model_validator(mode="after")
    def _initial_in_range(self) -> InputSettings:
        if self.range[0] >= self.range[1]:
            raise ValueError("range: the first value must be below the second")
        if not self.range[0] <= self.initial <= self.range[1]:
            raise ValueError(f"initial {self.initial:g} is outside of range {self.range[0]:g} … {self.range[1]:g}")
        return self


class Dither(Datasheet):
    """A small sine on the command that keeps the spool moving."""

    amplitude: Number = Field(default=0.0, ge=0, le=0.2, description="of full command")
    frequency: Frequency = Field(default="100 Hz", gt=0, description="of the sine")


class BridgeSettings(Datasheet):
    """How the virtual flow becomes the valve's command."""

    strategy: Literal[
        "manual",
        "inverse_static",
        "inverse_lag",
        "inverse_lag_leakage",
        "second_order",
        "null_region",
        "supply_droop",
        "prediction",
        "feedback",
        "adaptive",
        "flow_servo",
    ] = Field(default="inverse_lag_leakage", description="strategy at start")
    lead_filter: Time = Field(default="2 ms", ge=0, description="filter of the lag compensation's derivative")
    null_band: Number = Field(
        default=0.005,
        gt=0,
        le=0.2,
        description="opening over which the jump across the overlap is eased, so that noise does not chase the spool",
    )
    feedback_time: Time = Field(
        default="15 ms", gt=0, le=10, description="feedback: time in which a missing volume is made good"
    )
    gain: Number = Field(
        default=0.5, ge=0, description="flow servo: command per flow error, in units of the nominal flow"
    )
    integral_time: Time = Field(default="10 ms", ge=0, description="flow servo: integral time; 0: none")
    derivative_time: Time = Field(default="0 s", ge=0, description="flow servo: derivative time")
    derivative_filter: Time = Field(default="2 ms", ge=0, description="flow servo: filter of the derivative")
    fade: Time = Field(
        default="50 ms", ge=0, description="bumpless change: time constant of the fade to a new strategy"
    )
    jog_limit: Number = Field(default=0.1, ge=0, le=1, description="manual: largest command")
    jog_time: Time = Field(default="0.5 s", gt=0, le=60, description="manual: a command not renewed for so long ends")


class ValveSettings(Datasheet):
    """A real servo valve: where it sits, its datasheet, its bridge, its output."""

    description: str = Field(default="", description="free text")
    port: str = Field(description="the rig's port whose flow this valve makes")
    other_port: str | None = Field(
        default=None,
        description="port at the valve's other edges, where one spool serves both (A and B of a 4/3 valve)",
    )
    supply: str = Field(description="channel of the real supply pressure p_S")
    tank: str = Field(description="channel of the real tank pressure p_T")
    flow: str | None = Field(default=None, description="channel of the measured flow into the port")
    spool: str | None = Field(default=None, description="channel of the measured spool position, -1 to 1")
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
    delay: Time = Field(default="0 s", ge=0, le=0.02, description="from the command's output to the spool's start")
    overlap: Number = Field(default=0.0, ge=0, lt=0.5, description="spool travel before an edge opens, of full stroke")
    leakage: Leakage | None = Field(default=None, description="datasheet leakage at null")
    device: str = Field(description="device that drives the valve")
    output: Text = Field(description="the device's name of the output channel")
    raw: tuple[Number, Number] = Field(description="raw output at command -1 and +1, e.g. [-10, 10] for volts")
    polarity: Literal[1, -1] = Field(default=1, description="-1: a positive command opens A-T")
    null: Number = Field(default=0.0, gt=-0.5, lt=0.5, description="command at which the spool is centred")
    dither: Dither = Field(default_factory=Dither, description="small sine on the command")
    range: tuple[Number, Number] = Field(
        default=(-1.0, 1.0), description="command limits (before null offset), the last word"
    )
    slew: Rate = Field(default="50 1/s", gt=0, description="fastest change of the command, full scales per second")
    stop_time: Time = Field(default="200 ms", gt=0, le=2, description="ramp from full command to null at a stop")
    safe: Number = Field(default=0.0, ge=-1, le=1, description="safe command (before null offset)")
    bridge: BridgeSettings = Field(default_factory=BridgeSettings, description="strategy and its settings")

    @model_validator(mode="after")
    def _range_holds_safe(self) -> ValveSettings:
        low, high = self.range
        if not (-1 <= low <= self.safe <= high <= 1 and low < high):
            raise ValueError("range: must rise, lie within -1 … 1 and contain the safe command")
        if self.raw[0] == self.raw[1]:
            raise ValueError("raw: the outputs at command -1 and +1 must differ")
        if (self.f45 is None) == (self.f90 is None):
            raise ValueError("the spool's motion: give f45 (first order) or f90 with damping (second order)")
        if "damping" in self.model_fields_set and self.f90 is None:
            raise ValueError("damping belongs to f90, the -90° frequency of a second-order spool: give both or neither")
        if self.other_port == self.port:
            raise ValueError("other_port must be another port than port")
        if self.bridge.strategy == "flow_servo" and self.flow is None:
            raise ValueError("bridge.strategy flow_servo needs flow: the channel that measures it")
        for key in ("nominal_flow", "nominal_flow_to_tank", "leakage"):
            point = getattr(self, key)
            if point is not None and point.edge_drop() < self.transition_pressure:
                raise ValueError(
                    f"{key}.drop is {point.edge_drop() / 1e5:g} bar over one edge, below the transition_pressure of "
                    f"{self.transition_pressure / 1e5:g} bar: give a point above it, or a lower transition_pressure"
                )
        return self


class OutputSettings(Datasheet):
    """An output that is no valve: a pump's enable, a block valve, a lamp, the relay of a watchdog."""

    description: str = Field(default="", description="free text")
    device: str = Field(description="device that has the output")
    output: Text = Field(description="the device's name of the output channel")
    raw: tuple[Number, Number] | None = Field(
        default=None, description="raw output when off and when on, e.g. [0, 1] for a digital line"
    )
    value: tuple[AnyQuantity, AnyQuantity] | None = Field(
        default=None, description="instead of raw, with scale: the quantity when off and when on"
    )
    scale: Scale | None = Field(default=None, description="value: what raw outputs stand for; points or current")
    on: Literal["armed", "running", "healthy", "heartbeat"] = Field(
        description="armed: in ARMED and RUNNING; running: in RUNNING; healthy: as long as there is no fault, once all "
        "channels have samples; heartbeat: changes in every tick while healthy, for a watchdog that wants edges"
    )

    @model_validator(mode="after")
    def _two_levels(self) -> OutputSettings:
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


class CylinderSettings(Datasheet):
    """A cylinder of the machine, for the strategies that predict and for flows that nobody measures.

    Everything that it moves counts as one mass at the rod; load and friction need not be known.
    """

    description: str = Field(default="", description="free text")
    port_A: str = Field(description="the rig's port at the piston side")
    port_B: str | None = Field(default=None, description="the rig's port at the rod side; none: open to the tank")
    position: str | None = Field(default=None, description="channel of the rod's position, 0 m retracted")
    bore: Length = Field(gt=0, description="diameter of the piston")
    rod_diameter: Length = Field(ge=0, description="diameter of the rod")
    stroke: Length = Field(gt=0, description="stroke")
    dead_volume_A: Volume = Field(gt=0, description="oil between valve and piston with the rod in, hoses included")
    dead_volume_B: Volume = Field(default="0.1 l", gt=0, description="the same at the rod side, with the rod out")
    mass: Mass = Field(gt=0, description="moving mass with the load, reduced to the rod")
    bulk_modulus: Pressure | None = Field(
        default=None, gt=0, description="effective one of oil and hoses; that of the circuit's oil if not given"
    )

    @model_validator(mode="after")
    def _has_an_annulus(self) -> CylinderSettings:
        if self.rod_diameter >= self.bore:
            raise ValueError("rod_diameter must be smaller than bore")
        return self

    def areas(self) -> tuple[float, float]:
        """Piston areas at A and B, m²."""
        piston = 0.25 * pi * self.bore**2
        return piston, piston - 0.25 * pi * self.rod_diameter**2


class KeepSettings(Datasheet):
    """Which of a rig's recordings are kept; beyond that the oldest files go. Without a limit all are kept."""

    age: Time | None = Field(default=None, gt=0, description="files last written longer ago than this go")
    files: StrictInt | None = Field(default=None, ge=1, description="so many files are kept")
    gigabytes: Number | None = Field(default=None, gt=0, description="so much is kept, the running recording included")
    running: StrictBool = Field(
        default=True, description="keep all files of the running recording; false: only the one being written"
    )


class RecordingSettings(Datasheet):
    """The full-rate log."""

    folder: Text | None = Field(
        default=None,
        description="relative to the folder hilserver is started in; default: $LOGS_DIRECTORY (systemd), else logs",
    )
    enabled: StrictBool = Field(default=True, description="record every run")
    max_megabytes: Number = Field(default=1000.0, gt=0, description="a new file is begun beyond this size")
    max_duration: Time | None = Field(default=None, gt=0, description="a new file is begun after this time")
    min_free_megabytes: Number = Field(
        default=500.0, ge=0, description="with less room than this on the disk nothing is recorded"
    )
    keep: KeepSettings = KeepSettings()


class MqttSettings(BrokerAddress):
    """The broker, and what is published there. Files lie beside the rig file."""

    port: StrictInt = Field(default=1883, ge=0, le=65535, description="broker's port; 0 with embedded: any free one")
    embedded: StrictBool = Field(default=False, description="start a broker of our own on loopback")
    accounts: Path | None = Field(
        default=None, description="embedded: who may log in, a file of mosquitto_passwd; without it, everybody may"
    )
    operators: tuple[Text, ...] = Field(
        default=(), description="embedded: the accounts that may command; the others only read"
    )
    command_lifetime: Time | None = Field(
        default=None, ge=1, le=300, description="commands must have an id and expire within this time: no replays"
    )
    telemetry_rate: Frequency = Field(default="50 Hz", gt=0, le=1000, description="samples per second in telemetry")
    telemetry_batch: Time = Field(default="200 ms", gt=0, description="a batch is sent this often")

    @model_validator(mode="after")
    def _one_broker(self) -> Self:
        if self.embedded:
            foreign = {"host", "user", "password_file", "ca_file", "cert_file", "key_file"} & self.model_fields_set
            if foreign:
                raise ValueError(f"{sorted(foreign)[0]} is for a broker that runs already, not for embedded = true")
        elif self.accounts is not None or self.operators:
            raise ValueError("accounts and operators are for embedded = true; another broker has its own")
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
        default=(), description="Python files with components of your own, relative to this file"
    )
    calibration: Text | None = Field(
        default=None, description="calibration file, relative to this file; hilserver calibrate writes it"
    )
    loop: LoopSettings = Field(default_factory=LoopSettings)
    devices: dict[Name, dict[str, Any]] = Field(
        default_factory=dict, description="driver and its settings, by device name"
    )
    channels: dict[Name, ChannelSettings] = Field(description="measured and fixed quantities, by name")
    ports: dict[Name, str] = Field(description="port of the machine -> channel that measures its pressure")
    inputs: dict[Name, InputSettings] = Field(default_factory=dict)
    limits: dict[Name, LimitSettings] = Field(default_factory=dict)
    enable: EnableSettings | None = Field(default=None, description="the local enable, where there is one")
    valves: dict[Name, ValveSettings] = Field(default_factory=dict)
    outputs: dict[Name, OutputSettings] = Field(default_factory=dict, description="outputs that are no valves, by name")
    cylinders: dict[Name, CylinderSettings] = Field(default_factory=dict)
    recording: RecordingSettings = Field(default_factory=RecordingSettings)
    mqtt: MqttSettings = Field(default_factory=MqttSettings)


class Sine(NamedTuple):
    """A sine of a sweep: Hz; when it begins, from when it counts, when it ends, s."""

    frequency: float
    begins: float
    counts: float
    ends: float


class Sweep(Datasheet):
    """Sines one after the other about a mean, each in whole periods, with a rest before the first."""

    frequencies: tuple[Annotated[Frequency, Field(gt=0)], ...] = Field(
        default=USUAL_FREQUENCIES, min_length=1, max_length=100, description="of the sines"
    )
    amplitude: Number = Field(default=0.3, gt=0, description="of the sines")
    mean: Number = Field(default=0.0, description="value about which they go")
    rest: Time = Field(default="1 s", gt=0, description="at the mean, before the first sine")
    settle: Time = Field(
        default="0.3 s", ge=0, description="of each sine that does not count yet, at least; one period at least"
    )
    measure: Time = Field(default="1 s", ge=0, description="of each sine that counts, at least; three periods at least")
    pause: Time = Field(default="0.2 s", gt=0, description="at the mean, after each sine")

    def sines(self, start: float) -> list[Sine]:
        """The sines of a sweep that begins (with its rest) at ``start``, s."""
        found, t = [], start + self.rest
        for f in self.frequencies:
            settled = max(ceil(self.settle * f - ROUNDING), 1) / f
            counted = max(ceil(self.measure * f - ROUNDING), 3) / f
            found.append(Sine(f, t, t + settled, t + settled + counted))
            t = found[-1].ends + self.pause
        return found

    def duration(self) -> float:
        """Length, s."""
        return self.sines(0.0)[-1].ends + self.pause


class CycleInput(Datasheet):
    """One input over time: points, or a sweep; a sweep beside points follows them."""

    shape: Literal["linear", "step", "hold"] = Field(
        default="linear", description="between points: straight, cubic STEP, or hold"
    )
    points: tuple[tuple[Time, Number], ...] | None = Field(
        default=None, min_length=1, description="[time, value], rising times"
    )
    sweep: Sweep | None = Field(default=None, description="sines of rising or any other frequencies, after the points")

    @model_validator(mode="after")
    def _times_rise(self) -> CycleInput:
        times = [t for t, _ in self.points or ()]
        if not times and self.sweep is None:
            raise ValueError("give points ([time, value], …), or a sweep")
        if any(b <= a for a, b in pairwise(times)) or (times and times[0] < 0):
            raise ValueError("points: times must rise and not be negative")
        return self

    @property
    def sweep_begins(self) -> float:
        """When the points end and the sweep begins, s."""
        return self.points[-1][0] if self.points is not None else 0.0

    @property
    def sines(self) -> list[Sine]:
        """The sines, in s from the begin of the cycle."""
        return self.sweep.sines(self.sweep_begins) if self.sweep else []

    @property
    def duration(self) -> float:
        """Length, s."""
        return self.sweep_begins + (self.sweep.duration() if self.sweep else 0.0)


class CycleSettings(Datasheet):
    """A work cycle: inputs over time."""

    description: str = Field(default="", description="free text")
    repeat: StrictBool = Field(default=False, description="start again at the end")
    length: Time | None = Field(default=None, gt=0, description="default: the last point's time")
    inputs: dict[str, CycleInput] = Field(min_length=1)

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.length if self.length is not None else max(entry.duration for entry in self.inputs.values())
