"""Delay of a signal."""

from __future__ import annotations

from math import floor

from pydantic import Field

from hilserver.components.base import Component, Fluid, Memory, Parameters, kernel, sampled
from hilserver.units import Number, Time

PARTS = 32
"""Number of points of its input that a delay stores over its time."""
SIZE = PARTS + 4


class Delay(Component):
    r"""A signal delayed by a constant time.

    .. math:: u(t) = u_{in}(t - T)

    It stores its input at 32 points per delay and interpolates linearly: changes faster than T/16 are smoothed. A delay
    shorter than an integration step is as long as the step. It may close a signal loop.
    """

    type_name = "delay"
    inputs = ("input",)
    outputs = ("signal",)
    memories = (Memory("line", SIZE, initial="y_0"), Memory("last", initial="y_0"), Memory("t_last"), Memory("spacing"))

    delay: Time = Field(gt=0, description="delay, T")
    initial: Number = Field(default=0.0, description="signal before the start; SI")

    def parameters(self, fluid: Fluid) -> Parameters:
        return {"spacing_now": self.delay / PARTS, "y_0": self.initial}


@kernel(Delay)
def delayed(t, line, t_last, spacing_now):
    values, first = line
    x = min(t / spacing_now - PARTS, t_last / spacing_now - 1.0)
    k = floor(x)
    before, after = values[first + k % SIZE], values[first + (k + 1) % SIZE]
    u_signal = before + (x - k) * (after - before)
    return u_signal


@sampled(Delay)
def remember(t, u_input, line, last, t_last, spacing, spacing_now):
    values, first = line
    next_last, next_t_last, next_spacing = u_input, t, spacing_now
    if spacing != spacing_now:  # new, or switched to another delay: the old points stand for other times
        for i in range(SIZE):
            values[first + i] = last
        t_last, next_last = t, last
    newest = floor(t / spacing_now)
    for k in range(max(floor(t_last / spacing_now), newest - SIZE) + 1, newest + 1):
        values[first + k % SIZE] = last + (u_input - last) * (k * spacing_now - t_last) / (t - t_last)
    return next_last, next_t_last, next_spacing
