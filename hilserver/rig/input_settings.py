"""The rig file's ``[inputs]``."""

from __future__ import annotations

from pydantic import Field, model_validator

from hilserver.components.base import Datasheet
from hilserver.units import Number, Time


class InputSettings(Datasheet):
    """A signal of the operator or of the work cycle."""

    description: str = Field(default="", description="free text")
    range: tuple[Number, Number] = Field(default=(-1.0, 1.0), description="allowed values")
    initial: Number = Field(default=0.0, description="value while the rig is not RUNNING")
    hold_to_run: Time | None = Field(
        default=None,
        examples=["0.5 s"],
        ge=0.2,
        le=60,
        description="the value returns to initial unless set_input renews it within this time; default: it stays",
    )
    delay: Time = Field(
        default="0 s",
        examples=["20 ms"],
        ge=0,
        le=0.1,
        description="time after which a value that is set acts, rounded to whole ticks, at least one; until then the "
        "bridge knows it in advance",
    )

    @model_validator(mode="after")
    def _initial_in_range(self) -> InputSettings:
        if self.range[0] >= self.range[1]:
            raise ValueError("range: the first value must be below the second")
        if not self.range[0] <= self.initial <= self.range[1]:
            raise ValueError(f"initial {self.initial:g} is outside the range {self.range[0]:g} … {self.range[1]:g}")
        return self
