"""The plan's table of the actuators whose position is controlled, and the designs of their bridges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hilserver.displacement.design import USUAL, Followed, Tuning, bridge_for, slow_motion
from hilserver.displacement.linear import LinearMotion
from hilserver.displacement.preview import horizon_of, preview_for
from hilserver.displacement.sensors import Sensors, in_ticks
from hilserver.displacement.servo import SPECIMEN, ServoActuator
from hilserver.errors import ConfigurationError, HilserverError, Problem
from hilserver.numerics.arrays import Floats, Matrix
from hilserver.rig.actuator_settings import ActuatorSettings
from hilserver.rig.sampling_lag import SlowDevices
from hilserver.rig.settings import RigSettings
from hilserver.tick.hybrid.displacement import SENSORS, DisplacementBridge, DisplacementStrategy
from hilserver.tick.hybrid.memory import design_cells, memory_cells, preview_cells

LOAD_SHARE = 0.02
"""Drift per tick of a force on the specimen that its model does not contain, as a share of the force sensor's noise."""
ROBUSTNESS = 0.3
"""Weight of the changes of the command relative to the usual one, which is chosen for a benchmark without unknown
delays: with less, an actuator is quieter and withstands more, and follows a little less closely."""
USUAL_RATE = 4096.0
"""Ticks per second for which the usual weights of the regulator are chosen. The change per tick is weighted such that
the regulator is as fast at any rate."""
DAMPING = SPECIMEN + "damping"
"""Name of the specimen's damping among the uncertain values."""
USUAL_LATENESS = 1e-3
"""s by which commands and sensors may be later than stated, and a tick: half of it is the standard deviation."""
FADING = 1e-3
"""1/s, with which position and velocity are assumed to decay in the design: for a motion that goes on without end, the
regulator would have no finite cost."""


def actuator_lines(settings: RigSettings, slow: SlowDevices, interval: int, channel: int) -> list[dict[str, Any]]:
    """A line per actuator; ``interval``, ``channel``: columns at which these sections of the row begin."""
    lines, channels, design = [], list(settings.channels), 0
    for a in settings.actuators.values():
        x, force = channels.index(a.position), channels.index(a.force)
        low, high = a.range
        gain = (a.raw[1] - a.raw[0]) / (high - low)
        late, uncertain = _ticks_late(a, settings, slow), list(a.uncertainty)
        lines.append(
            {
                "column_x": channel + x,
                "column_F": channel + force,
                "interval_x": interval + x,
                "interval_F": interval + force,
                "offset": a.offset,
                "lowest": low,
                "highest": high,
                "slew_rate": a.slew,
                "return_rate": min(a.return_speed, a.slew),
                "safe_value": a.safe,
                "holds_at_trip": a.at_trip == "hold",
                "approach": a.bridge.approach,
                "stiffness": a.specimen.stiffness,
                "damping": a.specimen.damping,
                "mass": a.specimen.mass,
                "jog_speed": a.bridge.jog_speed,
                "jog_time": a.bridge.jog_time,
                "force_lag": force_lag(a, settings, slow),
                "raw_gain": gain,
                "raw_offset": a.raw[0] - gain * low,
                "strategy_first": DisplacementStrategy[a.bridge.strategy],
                "learns": a.bridge.learn,
                "slow": slow_motion(_noise(settings, a.position, LEAST_NOISE[0])),
                "tracked": len(a.uncertainty),
                "damping_place": uncertain.index(DAMPING) if DAMPING in uncertain else -1,
                "design": design,
                "disturbance_start": USUAL.start,
                **late,
            }
        )
        tracked = len(a.uncertainty)
        design += design_cells(tracked, late["command_late"]) + preview_cells(tracked)
    return lines


def memory_length(settings: RigSettings, slow: SlowDevices) -> int:
    """Number of values that are stored per actuator: as many as the one with most needs."""
    of_each = (memory_cells(len(a.uncertainty), **_ticks_late(a, settings, slow)) for a in settings.actuators.values())
    return max(of_each, default=0)


def force_lag(a: ActuatorSettings, settings: RigSettings, slow: SlowDevices) -> float:
    """Mean age of a measured force while the circuit is calculated with it, s: half a tick and the sensor's lag."""
    channel = settings.channels[a.force]
    return 0.5 / settings.loop.rate + channel.lag + slow.lag(channel.device).mean


def delays_of(a: ActuatorSettings, settings: RigSettings, slow: SlowDevices) -> dict[str, float]:
    """Delays of command, displacement and force, s, by their names in the plan."""
    return {
        "command_late": a.delay + slow.lag(a.device).mean,
        "displacement_late": settings.channels[a.position].lag,
        "force_late": settings.channels[a.force].lag,
    }


def _ticks_late(a: ActuatorSettings, settings: RigSettings, slow: SlowDevices) -> dict[str, int]:
    """The same in ticks."""
    dt = 1.0 / settings.loop.rate
    return {name: in_ticks(delay, dt) for name, delay in delays_of(a, settings, slow).items()}


def designs(settings: RigSettings, slow: SlowDevices, file: str) -> tuple[Floats, float]:
    """The designs of all actuators, one behind the other, and the time, s, over which they look ahead.

    Raises ConfigurationError where there is no regulator.
    """
    found, problems = [], []
    for name, actuator in settings.actuators.items():
        try:
            found.append(designed(actuator, settings, slow))
        except HilserverError as error:
            text = f"no regulator can be designed for this actuator ({error}) Check servo, specimen and uncertainty."
            problems.append(Problem(text, f"actuators.{name}", file))
    if problems:
        raise ConfigurationError(problems)
    horizon = max((horizon_of(bridge.gains, 1.0 / settings.loop.rate) for bridge in found), default=0.0)
    parts = [np.zeros(0)]
    for bridge, actuator in zip(found, settings.actuators.values(), strict=True):
        parts += [cells_of_design(bridge), *map(np.ravel, previewed(actuator, settings, slow, horizon))]
    return np.concatenate(parts), horizon


def previewed(
    a: ActuatorSettings, settings: RigSettings, slow: SlowDevices, horizon: float
) -> tuple[Floats, Matrix, Matrix]:
    """Gains of an actuator for the motion that is foreseen over ``horizon`` s, with their derivatives."""
    model, tuning = model_with_delay(a, settings, slow), tuning_of(a, settings)
    return preview_for(Followed(_any_motion()), model, a.spread(), 1.0 / settings.loop.rate, tuning, horizon)


def designed(a: ActuatorSettings, settings: RigSettings, slow: SlowDevices) -> DisplacementBridge:
    """The bridge of an actuator that follows any motion, at nominal parameters."""
    dt = 1.0 / settings.loop.rate
    late = _ticks_late(a, settings, slow)
    noise = [_noise(settings, name, least) for name, least in zip((a.position, a.force), LEAST_NOISE, strict=True)]
    sensors = Sensors(noise[0], noise[1], late["displacement_late"] * dt, late["force_late"] * dt)
    model, tuning = model_with_delay(a, settings, slow), tuning_of(a, settings)
    return bridge_for(Followed(_any_motion()), model, a.spread(), sensors, dt, tuning)


def model_with_delay(a: ActuatorSettings, settings: RigSettings, slow: SlowDevices) -> ServoActuator:
    """The actuator as it is described, with the delay of its commands in whole ticks."""
    return replace(a.model(), delay=_ticks_late(a, settings, slow)["command_late"] / settings.loop.rate)


def tuning_of(a: ActuatorSettings, settings: RigSettings) -> Tuning:
    """Weights of its filter and regulator."""
    noise = _noise(settings, a.force, LEAST_NOISE[1])
    late = 0.5 * (USUAL_LATENESS + 1.0 / settings.loop.rate)
    change = ROBUSTNESS * USUAL.change * USUAL_RATE / settings.loop.rate
    return Tuning(load=LOAD_SHARE * noise, change=change, lateness=(late, late))


LEAST_NOISE = (1e-8, 1e-3)
"""m and N: that of sensors without noise, whose range is not known."""
RESOLUTION = 1e-5
"""Least noise as a share of the range, about that of a 15-bit converter: a filter should not trust it more."""


def _noise(settings: RigSettings, channel: str, least: float) -> float:
    """Standard deviation of a channel's noise, SI, for which a filter is designed."""
    stated = settings.channels[channel]
    low, high = stated.measuring_range() or (0.0, 0.0)
    return max(stated.deviation(), RESOLUTION * (high - low), least)


def _any_motion() -> LinearMotion:
    """A motion whose acceleration is assumed to remain constant, independent of any force."""
    return LinearMotion(np.array([[-FADING, 1.0], [0.0, -FADING]]), np.array([[0.0, 0.0], [1.0, 0.0]]))


def cells_of_design(bridge: DisplacementBridge) -> Floats:
    """The arrays of a design as `hilserver.tick.hybrid.memory.bridge_of` reads them."""
    arrays = [
        bridge.step,
        bridge.input,
        bridge.step_slopes,
        bridge.input_slopes,
        bridge.seen,
        bridge.seen_rates,
        bridge.seen_curves,
        bridge.variance,
        bridge.lateness,
        bridge.drift,
        bridge.gains,
        bridge.gain_slopes,
        bridge.gain_curves,
    ]
    assert len(bridge.seen) == SENSORS
    return np.concatenate([np.ravel(array) for array in arrays])
