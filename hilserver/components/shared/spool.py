"""How the spool of a directional valve follows its command: shared by all types of the family."""

from __future__ import annotations

from math import inf, log, pi
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field, model_validator

from hilserver.components.base import Component, Datasheet, Memory, State, kernel, sampled
from hilserver.components.shared.fitting import BodePoint, fit_bode
from hilserver.numerics.shape import clip
from hilserver.numerics.spool import (
    ARRIVED,
    EMPTY,
    FOLLOWS,
    LANDING,
    LINE_SIZE,
    lagging,
    last_command,
    spool_target,
    switched,
    through_delay,
    within_play,
)
from hilserver.units import Frequency, Number, Rate, Time


class Switching(Datasheet):
    """Switching behaviour of an on/off valve."""

    on: Time = Field(gt=0, description="switching time on: from the signal to 95 % of the spool's travel")
    off: Time = Field(gt=0, description="switching time off, likewise")
    dead_share: Number = Field(
        default=0.5,
        ge=0,
        le=0.9,
        description="fraction of the switching times without motion, while the solenoid's current builds up or decays; "
        "not given in datasheets, half is a rule of thumb",
    )
    detent: bool = Field(
        default=False, description="true: no return spring, the spool keeps its position until the opposite command"
    )

    def travel(self, time: float) -> tuple[float, float]:
        """Time constant of the final approach (s) and speed before it (1/s): 95 % of the travel in ``time``."""
        tau = (1.0 - self.dead_share) * time / ((1.0 - LANDING) / LANDING + log(LANDING / (1.0 - ARRIVED)))
        return tau, LANDING / tau


NoLag = Literal["none"]
NO_LAG: Any = Field(
    default=None,
    description='"none": an ideal spool, which is where the command is; instead of the frequencies of a Bode plot',
)
MOTIONS = ("f45", "time_constant", "f90", "bode", "switching", "lag")


def one_motion(valve: Any, frequency: str, *more: str) -> None:
    """Raise ValueError unless a valve has either this frequency or no lag; ``more``: what belongs to the frequency."""
    if (getattr(valve, frequency) is None) == (valve.lag is None):
        given = "both" if valve.lag is not None else "none"
        raise ValueError(f'spool dynamics: give {frequency}, or lag = "none" for a spool without lag, not {given}')
    wrong = sorted({*more} & valve.model_fields_set) if valve.lag is not None else []
    if wrong:
        raise ValueError(f'{", ".join(wrong)} has no meaning with lag = "none"')


class SpoolValve(Component):
    """A valve whose spool follows a command; subclasses add ports and edges.

    The command is clipped to the valve's range, delayed, passed through a play (hysteresis) and moved by the null
    offset; a spool of first or second order follows it. One without lag is there at once: it takes the position that
    belongs to the command at the beginning of each integration step. On/off valves: a command above 0.5 (below -0.5)
    is on.
    """

    inputs = ("command",)
    states = (State("U", "1", lower="least", upper=1.0), State("W", "1/s", lower="least_rate", upper="rate"))
    closed = {"U": 0.0, "W": 0.0}
    memories = (Memory("delayed"), Memory("play"), Memory("line", LINE_SIZE, EMPTY))
    least: ClassVar[float] = 0.0
    """Minimum command: 0 for a spool with two end positions, -1 for one that moves to both sides of its centre."""

    f45: Frequency | None = Field(
        default=None, gt=0, description="first-order spool: -45° frequency of the datasheet's Bode plot"
    )
    time_constant: Time | None = Field(default=None, gt=0, description="first-order spool: its time constant, tau")
    f90: Frequency | None = Field(
        default=None, gt=0, description="second-order spool: -90° frequency of the Bode plot, omega/(2·pi)"
    )
    damping: Number = Field(
        default=0.8, gt=0, le=5, description="with f90: damping ratio, d; the Bode plot's gain at f90 is 1/(2·d)"
    )
    bode: tuple[BodePoint, ...] | None = Field(
        default=None,
        description="second-order spool: points of the Bode plot, like "
        '[["20 Hz", -0.2, -25], ["60 Hz", -4, -90]] (frequency, gain in dB, phase in degrees), instead of f90',
    )
    lag: NoLag | None = NO_LAG
    switching: Switching | None = Field(
        default=None, description='on/off valve: switching times, like { on = "40 ms", off = "30 ms" }'
    )
    opening_rate: Rate | None = Field(
        default=None, gt=0, description="maximum spool speed, full strokes per second; unlimited if not given"
    )
    delay: Time = Field(
        default="0 ms",
        ge=0,
        le=10,
        description="pure delay (dead time) of the command; changes closer together than a fifteenth of it are "
        "sampled at that interval",
    )
    hysteresis: Number = Field(
        default=0.0,
        ge=0,
        le=0.5,
        description="width of the hysteresis loop between rising and falling command, as a fraction of full command",
    )
    null_offset: Number = Field(default=0.0, gt=-0.5, lt=0.5, description="spool position at command 0")

    @model_validator(mode="after")
    def _one_motion(self) -> SpoolValve:
        given = [name for name in MOTIONS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                "spool dynamics: give one of f45, time_constant (first order), f90, bode (second order), switching "
                f'(on/off), or lag = "none", not {" and ".join(given) or "none"}'
            )
        if self.lag is not None and self.opening_rate is not None:
            raise ValueError('opening_rate has no meaning with lag = "none"')
        if "damping" in self.model_fields_set and self.f90 is None:
            raise ValueError("damping belongs to f90, the -90° frequency of a second-order spool: give both or neither")
        too_many = {"opening_rate", "delay", "hysteresis", "null_offset"} & self.model_fields_set
        if self.switching and too_many:
            raise ValueError(
                f"{', '.join(sorted(too_many))}: for proportional valves only; an on/off valve has its switching times"
            )
        if self.least < 0.0 and self.switching and self.switching.detent:
            raise ValueError("switching.detent: without springs this spool would never return to its centre")
        self._second_order()
        return self

    def _second_order(self) -> tuple[float, float]:
        """Natural frequency in rad/s (0: not of second order) and damping ratio."""
        if self.bode is not None:
            return fit_bode(self.bode)
        return (2.0 * pi * self.f90, self.damping) if self.f90 is not None else (0.0, 0.0)

    def _first_order(self) -> tuple[float, float, float, float]:
        """Time constants (s) and speeds (1/s) away from 0 and back; 1 and none where the spool is of second order."""
        rate = self.opening_rate if self.opening_rate is not None else inf
        if self.switching is not None:
            (tau_out, rate_out), (tau_in, rate_in) = map(self.switching.travel, (self.switching.on, self.switching.off))
            return tau_out, tau_in, rate_out, rate_in
        if self.lag is not None:
            return FOLLOWS, FOLLOWS, inf, inf
        tau = 1.0 / (2.0 * pi * self.f45) if self.f45 is not None else self.time_constant or 1.0
        return tau, tau, rate, rate

    def spool_parameters(self) -> dict[str, float]:
        """Kernel parameters of the spool's motion."""
        omega, d = self._second_order()
        tau_out, tau_in, rate_out, rate_in = self._first_order()
        switching = self.switching
        return {
            "least": self.least,
            "on_off": float(switching is not None),
            "ideal": float(self.lag is not None),
            "detent": float(switching is not None and switching.detent),
            "delay_out": switching.dead_share * switching.on if switching else self.delay,
            "delay_in": switching.dead_share * switching.off if switching else self.delay,
            "half_loop": 0.5 * self.hysteresis,
            "U_0": self.null_offset,
            "omega": omega,
            "d": d,
            "tau_out": tau_out,
            "tau_in": tau_in,
            "rate_out": rate_out,
            "rate_in": rate_in,
            "rate": rate_out,
            "least_rate": -rate_out,
        }


AnySpoolValve = TypeVar("AnySpoolValve", bound=type[SpoolValve])


def with_spool(component: AnySpoolValve) -> AnySpoolValve:
    """Class decorator: give a type of valve the kernels that move its spool."""
    sampled(component)(spool_command)
    kernel(component)(spool_motion)
    return component


def spool_command(
    u_command, t, U, delayed, play, line, least, on_off, ideal, detent, delay_out, delay_in, half_loop, U_0
):
    u = clip(u_command, least, 1.0)
    if on_off > 0.0:
        u = switched(u_command, last_command(line, delayed), least, detent)
    next_delayed = through_delay(line, t, u, delay_out, delay_in, delayed)
    next_play = within_play(play, next_delayed, half_loop)
    next_U = U
    if ideal > 0.0:
        next_U = spool_target(next_play, half_loop, U_0, least)
    return next_delayed, next_play, next_U


def spool_motion(
    u_command,
    U,
    W,
    delayed,
    play,
    least,
    on_off,
    delay_out,
    half_loop,
    U_0,
    omega,
    d,
    tau_out,
    tau_in,
    rate_out,
    rate_in,
):
    u = delayed
    if on_off == 0.0 and delay_out == 0.0:  # no memory: not held over the step
        u = clip(u_command, least, 1.0)
    target = spool_target(within_play(play, u, half_loop), half_loop, U_0, least)
    if omega > 0.0:
        dU = W
        dW = omega * omega * (target - U) - 2.0 * d * omega * W
    else:
        dU = lagging(U, target, tau_out, tau_in, rate_out, rate_in)
        dW = 0.0
    return dU, dW
