"""Channels of a rig, their limits, and the local enable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import Any, Literal

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, StrictBool, model_validator

from hilserver.components.base import Datasheet
from hilserver.rig.channel_watch import ChannelWatch
from hilserver.rig.references import ChannelName, DeviceName, SwitchChannel, Text, ValveName
from hilserver.rig.scale import Curve, Scale, in_si, written_unit
from hilserver.units import (
    ATMOSPHERE,
    AnyDifference,
    AnyQuantity,
    AnyRate,
    Number,
    Time,
    shown_difference,
    shown_value,
    usual_unit,
    with_digits,
)

USUAL_NOISE = 5e-4
"""Of a sensor and its converter, as a fraction of the range."""
MARGIN = 0.1
"""Distance outside the scale's range, as a fraction of it, up to which values are possible."""
SENSOR_ERROR, UNKNOWN_ERROR = 0.01, 1e5
"""Distance below vacuum that a sensor may read because of its own error: as a fraction of its range, or in Pa if that
is not known."""
HIGHEST_PRESSURE = 1e9
"""Pa; where the range is not known."""
JUMP, JUMP_RATE = 0.1, 500.0
"""Fraction of the range by which two samples may always differ (noise), and the additional change per second."""


LONGEST_FILTER = 0.1
"""s: time constant of a filter up to which its lag counts; behind a slower one, nothing is known of the present."""


OF_SEVERAL = ("1/s", "")
"""SI units of several kinds of quantity, with a usual unit each: speeds and frequencies; angles, shares and numbers."""


class ChannelSettings(Datasheet):
    """A measured quantity (device, source, scale) or a configured one (value)."""

    description: str = Field(default="", description="free text")
    device: DeviceName | None = Field(default=None, description="name of the device that measures it")
    source: Text | None = Field(default=None, description="name of the channel at the device")
    scale: Scale | None = Field(default=None, description="raw reading to value")
    value: AnyQuantity | None = Field(
        default=None, description="a fixed value, if the quantity is not measured", examples=["0 bar"]
    )
    absolute: StrictBool = Field(
        default=False, description="the values are absolute pressures; they are converted to gauge pressures"
    )
    filter: Time = Field(
        default="0 s", ge=0, examples=["2 ms"], description="time constant of a first-order low-pass; also its lag"
    )
    tare: AnyDifference | None = Field(
        default=None, description="zero error, subtracted from the scaled value", examples=["0.3 bar"]
    )
    valid_raw: tuple[Number, Number] | None = Field(
        default=None,
        examples=[[-500, 5000]],
        description="raw readings outside this range are not samples (4 … 20 mA: 3.6 mA and 21 mA)",
    )
    valid: tuple[AnyQuantity, AnyQuantity] | None = Field(
        default=None, examples=[["0 bar", "420 bar"]], description="values outside this range are not samples"
    )
    valid_rate: AnyRate | None = Field(
        default=None,
        description="a value that changed faster since the last sample (filtered) is not a sample",
        examples=["50000 bar/s"],
    )
    watch: ChannelWatch = Field(default=ChannelWatch(), description="which of its readings are implausible")
    delay: Time = Field(
        default="0 s",
        ge=0,
        le=0.1,
        examples=["1 ms"],
        description="age of a new sample: sensor, converter, transmission (prediction)",
    )
    noise: AnyQuantity | None = Field(
        default=None,
        examples=["0.2 bar"],
        description="standard deviation of the sensor's noise (estimation); 0.05 % of the scale's range if not given",
    )

    _written: str = PrivateAttr(default="")
    """The unit in which the file states the values."""

    @model_validator(mode="wrap")
    @classmethod
    def _note_its_unit(cls, raw: Any, handler: ModelWrapValidatorHandler[ChannelSettings]) -> ChannelSettings:
        found = handler(raw)
        if isinstance(raw, Mapping):
            found._written = _unit_in(raw)
        return found

    @model_validator(mode="after")
    def _measured_or_fixed(self) -> ChannelSettings:
        for_measured = ("device", "source", "scale", "tare", "valid_raw", "valid", "valid_rate")
        measured = [name for name in for_measured if getattr(self, name) is not None]
        if self.value is not None and measured:
            raise ValueError(f"has a fixed value and {measured[0]}: give one or the other")
        if self.value is None and not {"device", "source", "scale"} <= set(measured):
            raise ValueError("give device, source and scale (a measured channel), or value (a fixed one)")
        if self.value is not None and "watch" in self.model_fields_set:
            raise ValueError("has a fixed value and watch: give one or the other")
        for key in ("estimate_limit", "supply_min"):
            if (given := getattr(self.watch, key)) is not None and given.unit != self.unit:
                raise ValueError(f"watch.{key} must be in the channel's unit, {usual_unit(self.unit) or 'none'}")
        if self.absolute and self.unit != "Pa":
            raise ValueError("absolute is for pressures only")
        if self.noise is not None and (self.noise.unit != self.unit or self.noise.value <= 0.0):
            raise ValueError(f"noise must be above 0 and in the channel's unit, {usual_unit(self.unit) or 'none'}")
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
                    found, own = (usual_unit(unit) or "no unit" for unit in (amount.unit, self.unit))
                    raise ValueError(f"{key} is in {found}, but the scale is in {own}")
        return self

    def deviation(self) -> float:
        """Standard deviation of the noise, SI; where it is not stated, a fraction of the range, or 0 without one."""
        return self.noise.value if self.noise is not None else USUAL_NOISE * self.span()

    @property
    def is_measured(self) -> bool:
        """Whether a device measures it; otherwise its value is fixed."""
        return self.device is not None

    @property
    def unit(self) -> str:
        """SI unit of the channel."""
        if self.value is not None:
            return self.value.unit
        assert self.scale is not None
        return self.scale.si_unit

    @property
    def lag(self) -> float:
        """How late a steadily changing value is when a new sample arrives, s."""
        return self.delay + min(self.filter, LONGEST_FILTER)

    @property
    def zero(self) -> float:
        """Offset that is subtracted from a configured value to obtain the internal one: pressures are gauge."""
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
        if self.valid:
            return self.valid[0].value - self.zero, self.valid[1].value - self.zero
        if not self.watch.range:
            return -inf, inf
        known, low, high = self.measuring_range(), -inf, inf
        error = UNKNOWN_ERROR
        if known is not None:
            span = known[1] - known[0]
            low, high, error = known[0] - MARGIN * span, known[1] + MARGIN * span, SENSOR_ERROR * span
        return (max(low, -ATMOSPHERE - error), min(high, HIGHEST_PRESSURE)) if self.unit == "Pa" else (low, high)

    def measuring_range(self) -> tuple[float, float] | None:
        """Values between which the sensor measures, SI, gauge, less the tare; None if the scale does not say."""
        values = self.scale.range_values() if self.scale is not None else None
        offset = self.zero + (self.tare.value if self.tare is not None else 0.0)
        return (values[0] - offset, values[1] - offset) if values is not None else None

    def span(self) -> float:
        """The width of this range, SI; 0 if it is not known."""
        low, high = (self.scale.range_values() if self.scale is not None else None) or (0.0, 0.0)
        return high - low

    def jump(self) -> tuple[float, float]:
        """Change (SI) and additional change per time (SI/s) beyond which a new sample is a jump; inf if not known."""
        if self.valid_rate is not None:
            return 0.0, self.valid_rate.value
        known = self.measuring_range()
        if known is None or not self.unit:
            return inf, inf
        span = known[1] - known[0]
        return JUMP * span, JUMP_RATE * span

    def why_invalid(self, raw: float) -> str:
        """Why a raw reading is not a sample, in words; empty if it is one (apart from ``valid_rate``).

        ``raw`` is NaN where the device has none.
        """
        if not isfinite(raw):
            return "the device has no sample"
        low, high = self.raw_limits()
        if not low <= raw <= high:
            wire = ": broken wire or failed sensor" if self.valid_raw is None else ""
            return f"raw {raw:g} is outside {low:g} … {high:g}{wire}"
        value, (least, most) = self.curve().value(raw), self.value_limits()
        if not least <= value <= most:
            found, ends = self.shown(value, digits=5), self.shown(least, most, digits=5)
            return f"{found} is outside its valid range, {ends}"
        return ""

    def shown(self, *values: float, digits: int = 4) -> str:
        """A value, or the ends of a range, SI and gauge, as a person reads them at this sensor; absolute if it is."""
        texts = [self._text(value + self.zero, digits, shown_value) for value in values]
        return " … ".join(texts) + (" absolute" if self.absolute else "")

    def shown_difference(self, value: float, digits: int = 4) -> str:
        """A difference of two values, or their noise, SI, as a person reads it at this sensor."""
        return self._text(value, digits, shown_difference)

    def _text(self, value: float, digits: int, usual: Callable[[float, str, int], str]) -> str:
        if self.unit not in OF_SEVERAL or not self._written:
            return usual(value, self.unit, digits)
        return with_digits(value / in_si(self._written)[2], self._written, digits)

    def fixed(self) -> float:
        """The fixed value, SI, gauge."""
        assert self.value is not None
        return self.value.value - self.zero


def _unit_in(channel: Mapping[str, Any]) -> str:
    """The unit in which a table states the values of a channel."""
    scale = channel.get("scale")
    if not isinstance(scale, Mapping):
        return written_unit(channel.get("value"))
    values = scale.get("value") or scale.get("current") or [""]
    return str(scale.get("unit") or written_unit(values[-1]))


class LimitSettings(Datasheet):
    """A limit of a channel, and the action when it is violated."""

    channel: ChannelName = Field(description="the channel that is monitored")
    min: AnyQuantity | None = Field(default=None, description="lowest allowed value", examples=["-0.5 bar"])
    max: AnyQuantity | None = Field(default=None, description="highest allowed value", examples=["280 bar"])
    max_age: Time | None = Field(default=None, gt=0, description="oldest allowed sample")
    max_rate: AnyRate | None = Field(default=None, description="fastest allowed change", examples=["5000 bar/s"])
    action: Literal["warn", "stop", "hold", "ramp", "trip"] = Field(
        description="warn: report only; stop: no command of `valves` moves the quantity further beyond min or max, "
        "movement back is possible; hold: freeze the command; ramp: ramp to null and leave RUNNING; trip: FAULT, "
        "latched"
    )
    valves: dict[ValveName, Literal[1, -1]] = Field(
        default_factory=dict,
        description="stop: the valves that move the quantity; 1: a positive command makes it rise, -1: fall",
    )
    slow_down: AnyDifference | None = Field(
        default=None,
        description="stop: within this distance before min and max the command is reduced in proportion",
        examples=["20 mm"],
    )

    @model_validator(mode="after")
    def _stops_by_its_valves(self) -> LimitSettings:
        if self.action != "stop":
            given = [key for key in ("valves", "slow_down") if key in self.model_fields_set]
            if given:
                raise ValueError(f"{given[0]} requires action stop")
            return self
        if not self.valves:
            raise ValueError(
                "action stop needs valves: those that move the quantity, with their direction, such as { main = 1 }"
            )
        if self.max_age is not None or self.max_rate is not None:
            raise ValueError("action stop is for min and max: give max_age and max_rate a separate limit")
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
    """The local enable: a switch at the rig without which nobody can arm or start it.

    It counts as off if its channel has no fresh sample (the channel's max_age).
    """

    channel: SwitchChannel = Field(
        description="measured channel without a unit, such as a digital input: on at 0.5 and above"
    )
    action: Literal["refuse", "ramp", "trip"] = Field(
        default="trip",
        description="when it is switched off; refuse: arm and start are refused, a running rig keeps running; "
        "ramp: to null, then SAFE; trip: FAULT, latched. With ramp and trip, arm and start are refused too",
    )
