r"""Margins of the flow servo of each real valve with a flow sensor, at its largest flow gain.

The flow gain dQ/dU grows with the root of the pressure drop over the open edge. It is largest where the whole supply
pressure is at one edge, and this operating point determines the stability; at a smaller drop the servo is only slower.
A gain margin of 2 thus allows four times this pressure drop. Within the null region the flow gain is smaller or that
of the leakage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import hypot, pi

from hilserver.margins.servo_loop import FlowPlant, LoopMargins, Pid, ServoLoop, tuned
from hilserver.numerics.arrays import Floats
from hilserver.numerics.flow import root_of_drop
from hilserver.rig.rig import Rig
from hilserver.rig.settings import BridgeSettings, ValveSettings
from hilserver.rig.valves import time_constant
from hilserver.simulation.machine import Pause, no_pause, real_pressures
from hilserver.units import shown_value

MIN_GAIN_MARGIN, MIN_PHASE_MARGIN = 2.0, 45.0
"""Below these (6 dB; °) there is a warning."""
STEEPEST_FADE = 1.5
"""Steepest slope of the STEP with which the leakage fades, times the opening at which it ends."""


@dataclass(frozen=True)
class ServoMargins:
    """The flow servo of a valve with the supply pressure over one edge (``drop``, Pa), as configured.

    ``assumed``: the supply pressure is not known, but assumed.
    """

    valve: str
    drop: float
    assumed: bool
    loop: ServoLoop
    margins: LoopMargins

    @cached_property
    def tuned(self) -> ServoLoop:
        """The loop with calculated settings; they take a fifth of the time of all margins, and are rarely wanted."""
        return ServoLoop(self.loop.plant, tuned(self.loop.plant))

    @property
    def at(self) -> str:
        """The operating point, in words."""
        return f"{'an assumed ' if self.assumed else ''}{shown_value(self.drop, 'Pa', 3)} across one edge"

    @property
    def sufficient(self) -> bool:
        """Whether the configured settings leave the required margins."""
        return self.margins.gain >= MIN_GAIN_MARGIN and self.margins.phase >= MIN_PHASE_MARGIN


def servo_margins(
    rig: Rig, assumed: Mapping[str, float], row: Floats | None = None, pause: Pause = no_pause
) -> tuple[ServoMargins, ...]:
    """Of all valves with a flow sensor. ``row``: of a running rig, for its supply pressures.

    ``assumed``: supply pressure by valve, Pa, where it is not known.
    """
    pressures, found = real_pressures(rig, row), []
    for name, v in rig.settings.valves.items():
        p_S, p_T = pressures[name] or (assumed.get(name, 0.0), 0.0)
        drop = p_S - p_T
        if v.flow is not None and drop > v.transition_pressure:  # a supply that is off says nothing
            pause()
            loop = ServoLoop(flow_plant(rig, v, drop), controller(v.bridge))
            found.append(ServoMargins(name, drop, pressures[name] is None, loop, loop.margins()))
    return tuple(found)


def warnings(found: tuple[ServoMargins, ...]) -> Iterator[str]:
    """Insufficient margins, in words."""
    for servo in found:
        if servo.sufficient:
            continue
        m = servo.margins
        state = "unstable" if m.gain < 1.0 else "close to instability"
        yield (
            f"valves.{servo.valve}.bridge: the flow servo is {state}: with {servo.at} "
            f"its gain margin is {m.gain:.2g} (at {m.gain_at:.3g} Hz) and its phase margin {m.phase:.0f}°; at least "
            f"{MIN_GAIN_MARGIN:g} and {MIN_PHASE_MARGIN:g}° are required. For the valve of this file set "
            f"{in_words(servo.tuned.pid)}; hilserver identify calculates the settings for the measured valve."
        )


def in_words(pid: Pid) -> str:
    """The settings as in a rig file.

    >>> in_words(Pid(0.25, 3e-3, 0.0, 0.0))
    'gain = 0.25, integral_time = "3 ms", derivative_time = "0 ms", derivative_filter = "0 ms"'
    """
    return ", ".join(f"{key} = {value}" for key, value in in_rig_file(pid).items())


def in_rig_file(pid: Pid) -> dict[str, str]:
    """The settings by their keys in ``[valves.<name>.bridge]``, in TOML."""
    times = {"integral_time": pid.T_i, "derivative_time": pid.T_d, "derivative_filter": pid.tau_d}
    return {"gain": f"{pid.gain:.3g}", **{key: f'"{1e3 * value:.3g} ms"' for key, value in times.items()}}


def margins_in_words(loop: ServoLoop) -> dict[str, str]:
    """The margins of a loop, each with its name."""
    m = loop.margins()
    return {
        "gain margin": f"{m.gain:.3g} at {m.gain_at:.3g} Hz",
        "gain margin with any passive load": f"{m.load:.3g}",
        "phase margin": f"{m.phase:.0f}° at {m.phase_at:.3g} Hz",
        "delay margin": f"{1e3 * m.delay:.3g} ms",
        "maximum sensitivity M_S": f"{m.M_S:.3g}",
        "bandwidth (-3 dB)": f"{m.bandwidth:.3g} Hz",
    }


def controller(bridge: BridgeSettings) -> Pid:
    """The configured controller."""
    return Pid(bridge.gain, bridge.integral_time, bridge.derivative_time, bridge.derivative_filter)


def flow_plant(rig: Rig, v: ValveSettings, drop: float) -> FlowPlant:
    """From the command of a valve to its measured flow, with ``drop`` over the open edge, Pa."""
    assert v.flow is not None
    channel = rig.settings.channels[v.flow]
    omega = 2.0 * pi * v.f90 if v.f90 is not None else 0.0
    held = sum(rig.slow_devices.lag(device).largest for device in (channel.device, v.device))
    return FlowPlant(
        gain=largest_slope(v) * root_of_drop(drop, v.transition_pressure) / v.nominal_flow.flow,
        tau=time_constant(v),
        omega=omega,
        damping=v.damping,
        dead_time=v.delay + channel.delay + held,
        filter=channel.filter,
        dt=1.0 / rig.settings.loop.rate,
    )


def largest_slope(v: ValveSettings) -> float:
    """Largest slope of the flow over the opening, divided by the root of the pressure drop, m³/(s·sqrt(Pa)).

    Past the overlap it is that of the edge. Where the leakage fades, with the slope b, it falls from P and from T: for
    a pressure p between them the slope is (a - b)·sqrt(p_S - p) + b·sqrt(p - p_T) at most, and thus no larger than
    hypot(a - b, b)·sqrt(p_S - p_T).
    """
    a = max(point.coefficient() for point in (v.nominal_flow, v.nominal_flow_AT))
    curve = v.curve()
    a /= 1.0 - curve.overlap
    gone_at = float(curve.linear_opening(v.leakage.gone_at if v.leakage else 1.0))
    b = STEEPEST_FADE * v.leakage.coefficient() / gone_at if v.leakage else 0.0
    return max(a, hypot(a - b, b))
