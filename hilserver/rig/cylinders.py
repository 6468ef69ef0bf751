"""The plan's tables of the machine as the bridge knows it: ports, cylinders, and how much past is remembered."""

from __future__ import annotations

from math import ceil

import numpy as np

from hilserver.components.base import Fluid
from hilserver.numerics.arrays import Floats
from hilserver.rig.settings import CylinderSettings, RigSettings, ValveSettings
from hilserver.tick import columns as c
from hilserver.tick.bridge import columns as b

SPARE_TICKS = 3
"""Ticks beyond a valve's delay that its commands are remembered, for a tracked delay."""
NONE = -1.0
"""Stands for no port, valve, channel or cylinder."""


def past_lengths(settings: RigSettings) -> tuple[int, int]:
    """Ticks that are remembered of each valve's command, and of each cylinder's state: as long as the delays are."""
    rate = settings.loop.rate
    commands = max((v.delay for v in settings.valves.values()), default=0.0) * rate
    samples = max((s.delay for s in settings.channels.values()), default=0.0) * rate
    return ceil(commands) + 2 + SPARE_TICKS, ceil(samples) + 2


def port_table(settings: RigSettings, first_channel: int) -> Floats:
    """A line per port: its channel, its cylinder and side, the valve that drives it, the one whose other edges do."""
    channels, cylinders = list(settings.channels), list(settings.cylinders.values())
    table = np.zeros((len(settings.ports), c.PORT_WIDTH))
    for line, (port, channel) in zip(table, settings.ports.items(), strict=True):
        line[c.PORT_CHANNEL] = first_channel + channels.index(channel) if channel in channels else 0.0
        number = next((i for i, s in enumerate(cylinders) if port in (s.port_A, s.port_B)), -1)
        line[c.PORT_CYLINDER] = float(number)
        line[c.PORT_SIDE] = float(number >= 0 and port == cylinders[number].port_B)
        line[c.PORT_VALVE], line[c.PORT_TURNED] = (valve_at(settings, port, own) for own in (True, False))
    return table


def valve_at(settings: RigSettings, port: str | None, own: bool) -> float:
    """Number of the valve that drives a port, or (not ``own``) of the one whose other edges do."""
    valves = enumerate(settings.valves.values())
    return next((float(i) for i, v in valves if port and (v.port if own else v.other_port) == port), NONE)


def cylinder_table(settings: RigSettings, first_channel: int, fluid: Fluid) -> Floats:
    """A line per cylinder: ports, sensors and their ages, geometry, oil, valves."""
    table = np.zeros((len(settings.cylinders), b.CYLINDER_WIDTH))
    for line, s in zip(table, settings.cylinders.values(), strict=True):
        _sides(line, s, settings, first_channel)
        line[b.SENSOR_X], line[b.AGE_X] = _sensor(settings, s.position, first_channel)
        line[b.AREA_A], line[b.AREA_B] = s.areas()
        line[b.DEAD_A], line[b.DEAD_B] = s.dead_volume_A, s.dead_volume_B
        line[b.STROKE], line[b.MASS] = s.stroke, s.mass
        oil = fluid.parameters()
        if s.bulk_modulus is not None:
            oil |= {"B_o": s.bulk_modulus, "alpha_0": 0.0}
        line[[b.B_O, b.ALPHA_0, b.KAPPA, b.P_0]] = [oil[name] for name in ("B_o", "alpha_0", "kappa", "p_0")]
    return table


def _sides(line: Floats, s: CylinderSettings, settings: RigSettings, first_channel: int) -> None:
    """Ports A and B of a cylinder: which they are, who measures them, which valve feeds them."""
    ports, valves = list(settings.ports), list(settings.valves.values())
    columns = (
        (s.port_A, b.CYLINDER_PORT_A, b.SENSOR_A, b.AGE_A, b.SENSOR_QA, b.AGE_QA, b.VALVE_A, b.TURN_A),
        (s.port_B, b.CYLINDER_PORT_B, b.SENSOR_B, b.AGE_B, b.SENSOR_QB, b.AGE_QB, b.VALVE_B, b.TURN_B),
    )
    for port, place, sensor, age, flow, flow_age, valve, turn in columns:
        own, turned = valve_at(settings, port, True), valve_at(settings, port, False)
        driver: ValveSettings | None = valves[int(own)] if own >= 0.0 else None
        line[place] = float(ports.index(port)) if port in ports else NONE
        line[sensor], line[age] = _sensor(settings, settings.ports.get(port or ""), first_channel)
        line[flow], line[flow_age] = _sensor(settings, driver.flow if driver else None, first_channel)
        line[valve], line[turn] = (own, 1.0) if own >= 0.0 else (turned, -1.0)


def _sensor(settings: RigSettings, channel: str | None, first_channel: int) -> tuple[float, float]:
    """Column of a channel and the age of its samples in ticks."""
    if channel not in settings.channels:
        return NONE, 0.0
    place = first_channel + list(settings.channels).index(channel)
    return float(place), settings.channels[channel].delay * settings.loop.rate
