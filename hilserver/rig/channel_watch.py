"""Settings of the checks of a channel's readings in the rig file."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, StrictBool

from hilserver.components.base import Datasheet
from hilserver.units import AnyDifference, AnyQuantity, Time

WatchAction = Literal["off", "warn", "ramp", "trip"]


class ChannelWatch(Datasheet):
    """Detection of implausible readings. All checks are on by default, as far as the rig file says what is possible."""

    range: StrictBool = Field(
        default=True,
        description="a value outside the scale's range by more than 10 % of that range is not a sample, and neither "
        "is a pressure below vacuum; `valid` sets another range",
    )
    jumps: WatchAction = Field(
        default="warn",
        description="channels with a unit: a sample differs from the previous one by more than 10 % of the scale's "
        "range plus the change that is possible in the time between them: half of the range per millisecond; for a "
        "piston's position, "
        "three times the speed at which the valve could move it. Or it changes faster than `valid_rate`",
    )
    stuck: WatchAction = Field(
        default="trip",
        description="sensors of a cylinder and its valve: the reading has not changed at all although the valve's "
        "flow must have moved the piston (at an end of the sensor's range: by more than its stroke); any channel with "
        "`noise`: the reading has not changed for 10 s while RUNNING (a warning)",
    )
    estimate: WatchAction = Field(
        default="warn", description="sensors of a cylinder and its valve: the estimator expects another value"
    )
    estimate_limit: AnyDifference | None = Field(
        default=None,
        examples=["20 bar"],
        description="largest difference between measurement and estimate, mean over 0.1 s; default: 10 % of the "
        "scale's range",
    )
    supply: WatchAction = Field(
        default="ramp",
        description="supply pressure of a valve: it is missing while RUNNING; with ramp and trip, start is refused "
        "without it, and a person must start again when it is back",
    )
    supply_min: AnyQuantity | None = Field(
        default=None,
        examples=["20 bar"],
        description="pressure below which the supply is missing; default: 2 % of the scale's upper end",
    )
    supply_time: Time = Field(
        default="0.2 s", ge=0, le=60, description="time for which it must be missing before this acts"
    )
    supply_run_up: Time | None = Field(
        default=None,
        ge=0,
        le=60,
        examples=["3 s"],
        description="time that it may take to build up after start, if RUNNING switches it on; 0 s: it must be there "
        'at start. Default: 5 s if an output is on while RUNNING (`on = "running"`), else 0 s',
    )
