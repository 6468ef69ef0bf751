"""Shared by the datasheets of pressure and flow valves: a check valve for the free direction, the fully open point.

And the lag of the spool, if it has any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from hilserver.components.base import Component
from hilserver.components.orifice import FlowAtDrop
from hilserver.components.shared.spool import NoLag
from hilserver.numerics.spool import FOLLOWS
from hilserver.units import BAR, Pressure


class ReverseCheck(FlowAtDrop):
    """A built-in check valve: its free flow, fully open at this drop."""

    cracking_pressure: Pressure = Field(default="0.5 bar", ge=0, description="drop at which it opens")

    @model_validator(mode="after")
    def _opens_by_its_nominal_point(self) -> ReverseCheck:
        if self.cracking_pressure >= self.drop:
            raise ValueError(
                f"cracking_pressure {self.cracking_pressure / BAR:g} bar must be below the drop of "
                f"{self.drop / BAR:g} bar at which the check valve passes its nominal flow"
            )
        return self


class ValveWithThrottle(Component):
    """A valve whose flow is that of an adjustable restriction, with an optional check valve in parallel."""

    transition_pressure: Pressure = Field(default="1 bar", gt=0, description="laminar below this drop, p_tr")

    def check_parameters(self, check: ReverseCheck | None) -> dict[str, float]:
        """Kernel parameters of the check valve; K_check = 0 if there is none."""
        p_tr = self.transition_pressure
        if check is None:
            return {"K_check": 0.0, "p_crack": 0.0, "p_full": 1.0, "p_tr": p_tr}
        return {
            "K_check": check.coefficient(p_tr),
            "p_crack": check.cracking_pressure,
            "p_full": check.drop,
            "p_tr": p_tr,
        }

    def turbulent(self, name: str, drop: float) -> float:
        """``drop``; raises ValueError if the flow is not turbulent there, as the laws of these valves require."""
        if drop < self.transition_pressure:
            raise ValueError(
                f"{name} of {drop / BAR:g} bar is below the transition_pressure of "
                f"{self.transition_pressure / BAR:g} bar: give a point above it, or a lower transition_pressure"
            )
        return drop


class ValveWithRegulator(ValveWithThrottle):
    """A valve whose spool settles where it holds a pressure, a drop or a flow; with a lag, or without any.

    Without lag the spool is at its settled position within each stage, so that no state is read by a flow. The state
    remains, because the log shows it and a live switch carries it; a sampled kernel sets it before each step.
    """

    lag: NoLag | None = Field(
        default=None,
        description='"none": an ideal spool, which is where it settles, at any time; instead of response_time. In a '
        "small volume the circuit is stiff then",
    )

    @model_validator(mode="after")
    def _one_lag(self) -> ValveWithRegulator:
        if self.lag is not None and "response_time" in self.model_fields_set:
            raise ValueError('give either response_time or lag = "none", not both')
        return self

    def is_sampled(self) -> bool:
        return self.lag is not None

    def spool_parameters(self, response_time: float) -> dict[str, float]:
        """Kernel parameters of the spool's motion."""
        return {"tau": FOLLOWS if self.lag is not None else response_time, "ideal": float(self.lag is not None)}


def refuse_no_lag(data: Any, remedy: str) -> Any:
    """For a type that can't be without lag: raise ValueError with the reason where ``lag`` is given."""
    if isinstance(data, Mapping) and "lag" in data:
        raise ValueError(f"lag: the opening of this poppet is a state, which needs a time constant. {remedy}")
    return data
