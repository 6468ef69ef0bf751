"""Comparator with hysteresis."""

from __future__ import annotations

from pydantic import Field, StrictBool, model_validator

from hilserver.components.base import Component, Fluid, Memory, Parameters, kernel, sampled
from hilserver.units import Number


class Comparator(Component):
    r"""A switch with hysteresis: on above one level, off below a lower one, unchanged between them.

    .. math:: u = u_{on}\;\mathrm{after}\;u_{in} \ge s_{on}, \qquad u = u_{off}\;\mathrm{after}\;u_{in} \le s_{off}

    It samples its input once per integration step, so it acts one step later and may close a signal loop. Swap
    ``on_value`` and ``off_value`` for one that switches on when its input falls (a pressure switch that loads a pump).
    """

    type_name = "comparator"
    inputs = ("input",)
    outputs = ("signal",)
    memories = (Memory("on", initial="on_0"),)

    on_at: Number = Field(description="level at which it switches on, s_on; SI (Pa for a pressure)")
    off_at: Number = Field(description="level at which it switches off, s_off; SI")
    on_value: Number = Field(default=1.0, description="signal while on, u_on; SI")
    off_value: Number = Field(default=0.0, description="signal while off, u_off; SI")
    starts_on: StrictBool = Field(default=False, description="whether the comparator is on at the start")

    @model_validator(mode="after")
    def _in_order(self) -> Comparator:
        if self.off_at > self.on_at:
            raise ValueError(
                f"off_at {self.off_at:g} must not be above on_at {self.on_at:g}: to switch on when the input falls, "
                "swap on_at with off_at, and on_value with off_value"
            )
        return self

    def parameters(self, fluid: Fluid) -> Parameters:
        levels = {"s_on": self.on_at, "s_off": self.off_at, "on_0": float(self.starts_on)}
        return {**levels, "u_on": self.on_value, "u_off": self.off_value}


@kernel(Comparator)
def comparator(on, u_on, u_off):
    u_signal = u_on if on > 0.0 else u_off
    return u_signal


@sampled(Comparator)
def compare(u_input, on, s_on, s_off):
    next_on = 1.0 if u_input >= s_on else (0.0 if u_input <= s_off else on)
    return next_on
