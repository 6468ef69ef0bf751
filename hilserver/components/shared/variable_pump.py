"""Shared by the datasheets of all pumps with a controlled displacement."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import ClassVar

from pydantic import Field

from hilserver.components.base import Component, Fluid, State
from hilserver.components.shared.suction import Suction
from hilserver.units import BAR, Flow, Number, Power, Pressure, Time


class VariablePump(Suction, Component):
    """A pump from T to P whose displacement is a state, filled at T; subclasses add its control."""

    hydraulic = ("P", "T")
    inputs: ClassVar[tuple[str, ...]] = ("drive",)
    input_defaults: ClassVar[Mapping[str, float]] = {"drive": 1.0}
    states = (State("Q", "m^3/s", lower=0.0, upper="Q_max", scale="Q_max"),)

    max_flow: Flow = Field(gt=0, description="maximum flow at the rated speed, Q_max")
    response_time: Time = Field(default="20 ms", gt=0, description="time constant of the displacement control, tau")
    control_range: Pressure = Field(
        default="10 bar", gt=0, description="pressure over which the control goes from full flow to none"
    )
    max_power: Power | None = Field(default=None, gt=0, description="of the motor, P_max; unlimited if not given")
    efficiency: Number = Field(default=0.85, gt=0, le=1, description="total efficiency, eta_tot")

    def pump_parameters(self, fluid: Fluid) -> dict[str, float]:
        """Kernel parameters of flow, control, motor and suction."""
        return {
            "k": self.max_flow / self.control_range,
            "tau": self.response_time,
            "Q_max": self.max_flow,
            "P_max": self.max_power if self.max_power is not None else inf,
            "eta_tot": self.efficiency,
            **self.suction_parameters(fluid),
        }

    def refuse_range_from(self, limit: float, name: str) -> None:
        """Raise ValueError if the control range is not less than the pressure below which it lies."""
        if self.control_range >= limit:
            raise ValueError(
                f"control_range {self.control_range / BAR:g} bar must be less than {name} {limit / BAR:g} bar: "
                f"it is the pressure below {name} at which the flow is full"
            )
