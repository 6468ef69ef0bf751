"""Limits that detect implausible readings, derived from scales, valves and cylinders of the rig file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import inf, isfinite, sqrt
from typing import Any

from hilserver.rig.channels import ChannelSettings
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.cylinders import valve_at
from hilserver.rig.settings import RigSettings, ValveSettings
from hilserver.tick.codes import Watched
from hilserver.tick.records import NONE
from hilserver.units import shown_value

MOVED = {"position": 0.05, "pressure": 0.2, "flow": 0.2}
"""Fraction of the stroke by which the valve's flow must have moved the piston before an unchanged reading means a stuck
sensor.

Pressure and flow may be constant in a smooth motion, to the resolution of a coarse sensor; a position may not.
"""
AT_END = 1.2
"""The same for a pressure or a flow at an end of its sensor's range, beyond which the true one may change: a chamber
below 0 bar in a motion over the whole stroke, with a sensor that measures from 0 bar."""
RANGE_END = 5e-4
"""Distance to an end of a sensor's range, as a fraction of it, within which a reading counts as at the end: an error of
its zero or gain that a calibration has removed."""
ARRIVAL = 0.02
"""Largest difference to the estimate, as a fraction of the range, with which a true value arrives at an end of it. A
sensor that fails in a chamber under pressure arrives there with all of it."""
MIN_FLOW = 0.1
"""Flows below this fraction of the valve's nominal flow do not count: at rest they may be errors of null and
leakage."""
ONE_JUMP = 0.5
"""Limit between no jump (0) and one jump (1)."""
FASTEST = 3.0
"""Factor by which a piston may move faster than the valve's flow at the highest supply pressure could move it."""
RUN_UP = 5.0
"""s: time for which a supply that RUNNING switches on may build up."""
ESTIMATE = 0.1
"""Largest difference between measurement and estimate, as a fraction of the scale's range."""
SUPPLY, UNKNOWN_SUPPLY = 0.02, 5e5
"""Pressure below which a supply is missing, as a fraction of the scale's upper end; in Pa if the range of the scale is
not known."""
NEVER = 10.0
"""s: time for which a sensor with noise never gives the same reading."""


@dataclass(frozen=True)
class Watch:
    """A limit of the tick on a channel's readings. ``what``: the implausible behaviour, in words."""

    channel: str
    watched: Watched
    lower: float
    upper: float
    action: str
    what: str

    @property
    def name(self) -> str:
        """Its name among the limits."""
        return f"{self.channel}.{self.watched.name.lower()}"


@dataclass(frozen=True)
class ExpectedMotion:
    """What moves a sensor's reading: the flow of a valve, in m³ of which ``volume`` moves the piston visibly."""

    valve: str
    volume: float
    speed: float = inf
    """Of a position: fastest change that is possible, m/s."""


def watches(settings: RigSettings) -> dict[str, Watch]:
    """All watches by name; a limit of the rig file with the same name takes its place."""
    moving = motions(settings)
    found = (_of_channel(name, channel, settings, moving) for name, channel in settings.channels.items())
    return {watch.name: watch for watch in chain.from_iterable(found) if watch.name not in settings.limits}


def unwatched(name: str, channel: ChannelSettings, settings: RigSettings) -> Iterator[str]:
    """Reasons why a check of a measured channel is not possible."""
    watch, found = channel.watch, watches(settings)
    off = [kind for kind in ("jumps", "stuck", "estimate", "supply") if getattr(watch, kind) == "off"]
    if not watch.range:
        off.insert(0, "range")
    if off:
        yield f"switched off: {', '.join(off)}"
    if channel.measuring_range() is None:
        yield "range not known: give scale.range"
    if watch.stuck != "off" and not {f"{name}.stuck", f"{name}.frozen"} & found.keys():
        yield "stuck: no model of what moves it"


def channel_constants(settings: RigSettings) -> dict[str, dict[str, Any]]:
    """The constants that the tick needs for these checks, by channel: fields of its record in the plan."""
    valves, moving = list(settings.valves), motions(settings)
    constants = {}
    for name, channel in settings.channels.items():
        motion = moving.get(name)
        change, rate = possible_change(channel, motion)
        low, high = _ends_of_range(channel)
        constants[name] = {
            "range_low": low,
            "range_high": high,
            "arrival": _arrival(channel),
            "weight_at_end": MOVED["pressure"] / AT_END,
            "moved_by": valves.index(motion.valve) if motion is not None else NONE,
            "least_flow": MIN_FLOW * settings.valves[motion.valve].nominal_flow.flow if motion is not None else 0.0,
            "supply_min": supply_min(channel) if name in _supplies(settings) else -inf,
            "supply_run_up": run_up(channel, settings),
            "jump": change,
            "jump_rate": rate,
        }
    return constants


def _ends_of_range(channel: ChannelSettings) -> tuple[float, float]:
    """Values, SI and gauge, beyond which a pressure or flow is at an end of its sensor's range.

    A position reaches the ends of its range with the piston, and not beyond.
    """
    known = channel.measuring_range()
    if known is None or channel.unit not in ("Pa", "m^3/s"):
        return -inf, inf
    near = RANGE_END * (known[1] - known[0])
    return known[0] + near, known[1] - near


def _arrival(channel: ChannelSettings) -> float:
    """Largest difference to the estimate with which a true value arrives at an end of its sensor's range, SI."""
    known = channel.measuring_range()
    return ARRIVAL * (known[1] - known[0]) if known is not None else inf


def supply_min(channel: ChannelSettings) -> float:
    """Pressure below which a supply is missing, Pa gauge."""
    if channel.watch.supply_min is not None:
        return channel.watch.supply_min.value - channel.zero
    known = channel.measuring_range()
    return SUPPLY * known[1] if known is not None else UNKNOWN_SUPPLY


def run_up(channel: ChannelSettings, settings: RigSettings) -> float:
    """Time that a supply may take to build up after start, s; 0 if it must be there."""
    if channel.watch.supply_run_up is not None:
        return channel.watch.supply_run_up
    return RUN_UP if any(output.on == "running" for output in settings.outputs.values()) else 0.0


def possible_change(channel: ChannelSettings, motion: ExpectedMotion | None) -> tuple[float, float]:
    """Change (SI) and additional change per time (SI/s) beyond which a new sample is a jump."""
    change, rate = channel.jump()
    if channel.valid_rate is None and motion is not None:
        rate = min(rate, motion.speed)
    return change, rate


def motions(settings: RigSettings) -> dict[str, ExpectedMotion]:
    """The channels whose readings a valve's flow must move, because they measure a cylinder."""
    found = {}
    for cylinder in settings.cylinders.values():
        driven = _valve_of(cylinder, settings)
        if driven is None:
            continue
        valve, area = driven
        speed = FASTEST * highest_flow(settings.valves[valve], settings) / min(filter(None, cylinder.areas()))
        sensors = {"position": [cylinder.position], "flow": [settings.valves[valve].flow]}
        sensors["pressure"] = [settings.ports.get(port or "") for port in (cylinder.port_A, cylinder.port_B)]
        for kind, channels in sensors.items():
            for channel in channels:
                if channel in settings.channels and settings.channels[channel].is_measured:
                    fastest = speed if kind == "position" else inf
                    found[channel] = ExpectedMotion(valve, MOVED[kind] * area * cylinder.stroke, fastest)
    return found


def highest_flow(valve: ValveSettings, settings: RigSettings) -> float:
    """Flow of a fully open valve at the highest pressure that its supply's sensor can show, m³/s; inf if not known."""
    supply = settings.channels.get(valve.supply)
    if supply is None:
        return inf
    known = supply.measuring_range() if supply.is_measured else (0.0, supply.fixed())
    if known is None:
        return inf
    edges = (valve.nominal_flow, valve.nominal_flow_AT)
    return max(edge.coefficient() for edge in edges) * sqrt(max(known[1], 0.0))


def _valve_of(cylinder: CylinderSettings, settings: RigSettings) -> tuple[str, float] | None:
    """The valve that moves a cylinder, and the piston's area at the valve's port; None if there is none."""
    valves, areas = list(settings.valves), cylinder.areas()
    for port, area in zip((cylinder.port_A, cylinder.port_B), areas, strict=True):
        if (number := valve_at(settings, port, own=True)) >= 0:
            return valves[number], area
    return None


def _supplies(settings: RigSettings) -> set[str]:
    return {valve.supply for valve in settings.valves.values()}


def _of_channel(
    name: str, channel: ChannelSettings, settings: RigSettings, moving: Mapping[str, ExpectedMotion]
) -> Iterator[Watch]:
    if not channel.is_measured:
        return
    watch, known = channel.watch, channel.measuring_range()
    change, rate = possible_change(channel, moving.get(name))
    if watch.jumps != "off" and isfinite(change + rate):
        what = f"by {channel.shown_difference(change + rate * 1e-3)} in 1 ms"
        yield Watch(name, Watched.JUMPS, -inf, ONE_JUMP, watch.jumps, what)
    if watch.stuck != "off" and (motion := moving.get(name)) is not None:
        what = f"the same while {shown_value(motion.volume, 'm^3')} pass"
        yield Watch(name, Watched.STUCK, -inf, motion.volume, watch.stuck, what)
    elif watch.stuck != "off" and channel.noise is not None:
        yield Watch(name, Watched.FROZEN, -inf, NEVER, "warn", f"the same for {NEVER:g} s")
    if watch.estimate != "off" and name in moving and (most := _estimate_limit(channel, known)) is not None:
        yield Watch(name, Watched.ESTIMATE, -most, most, watch.estimate, f"± {channel.shown_difference(most)}")
    if watch.supply != "off" and name in _supplies(settings):
        what = f"below {channel.shown(supply_min(channel))} for {watch.supply_time:g} s"
        yield Watch(name, Watched.SUPPLY, -inf, watch.supply_time, watch.supply, what)


def _estimate_limit(channel: ChannelSettings, known: tuple[float, float] | None) -> float | None:
    if channel.watch.estimate_limit is not None:
        return channel.watch.estimate_limit.value
    return ESTIMATE * (known[1] - known[0]) if known is not None else None
