"""How long a device may take to confirm the command of an output, and what happens if it takes longer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hilserver.units import Time

ConfirmationAge = Annotated[
    Time | None,
    Field(
        gt=0,
        description="maximum time until the device confirms a command; default: the maximum age of a sample of the "
        "device's channels, plus two periods of a slow device; simulated devices are not monitored by default",
    ),
]
UnconfirmedAction = Annotated[
    Literal["warn", "ramp", "trip"],
    Field(
        description="action if it takes longer: warn: report only; ramp: ramp to null and leave RUNNING; trip: FAULT, "
        "latched",
    ),
]
