"""The plan's tables of the machine as the bridge knows it: ports, cylinders, motors, length of the stored history."""

from __future__ import annotations

from math import ceil, pi
from typing import Any

from hilserver.components.base import Fluid
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.cylinder_settings import CylinderSettings, PortRestriction
from hilserver.rig.motor_settings import MotorSettings
from hilserver.rig.sampling_lag import SlowDevices
from hilserver.rig.settings import RigSettings
from hilserver.rig.valves import valve_delay
from hilserver.tick.bridge.learning import DELAY_RANGE
from hilserver.tick.records import NONE

TRANSFER = 3e-3
"""s: time beyond its delay by which a sample of a slow device has arrived; older samples are not used."""
UNSTEADY = 3.0
"""The same for other devices, in ticks: the device may have a separate clock, and the loop may wake up late."""
OPEN_VOLUME = 1e6
"""m³: oil of a side that is open to the tank, whose pressure nothing changes."""
NOISES, LEAST_CLEARANCE = 3.0, 1e-4
"""Standard deviations of its sensor, and m, by which a piston at an end stop may seem to have left it."""


def past_lengths(settings: RigSettings, slow: SlowDevices) -> tuple[int, int]:
    """Ticks that are remembered of each valve's command, and of each cylinder's state: as long as the delays may be."""
    rate = settings.loop.rate
    commands = max((valve_delay(v, slow) for v in settings.valves.values()), default=0.0) * rate
    late = {device: max(TRANSFER * rate, UNSTEADY) for device in slow.rates}
    ages = (s.lag * rate + late.get(s.device or "", UNSTEADY) for s in _sensors(settings))
    return ceil(commands + DELAY_RANGE * rate) + 2, ceil(max(ages, default=UNSTEADY)) + 1


def _sensors(settings: RigSettings) -> list[ChannelSettings]:
    """The channels with which the state of the cylinders is estimated."""
    names = {*settings.ports.values(), *(v.flow for v in settings.valves.values())}
    names |= {actuator.motion for actuator in settings.hydraulic_actuators().values()}
    return [channel for name, channel in settings.channels.items() if name in names]


def port_lines(settings: RigSettings, first_channel: int) -> list[dict[str, Any]]:
    """A line per port: its channel, its cylinder and side, the valve that drives it, the one whose other edges do."""
    channels, actuators = list(settings.channels), list(settings.hydraulic_actuators().values())
    lines = []
    for port, channel in settings.ports.items():
        number = next((i for i, s in enumerate(actuators) if port in (s.port_A, s.port_B)), NONE)
        line = {
            "column": first_channel + channels.index(channel) if channel in channels else 0,
            "cylinder": number,
            "is_B": number >= 0 and port == actuators[number].port_B,
            "valve": valve_at(settings, port, own=True),
            "turned": valve_at(settings, port, own=False),
        }
        lines.append(line)
    return lines


def valve_at(settings: RigSettings, port: str | None, *, own: bool) -> int:
    """Number of the valve that drives a port, or (not ``own``) of the one whose other edges do."""
    valves = enumerate(settings.valves.values())
    return next((i for i, v in valves if port and (v.port if own else v.other_port) == port), NONE)


def cylinder_lines(settings: RigSettings, first_channel: int, fluid: Fluid) -> list[dict[str, Any]]:
    """A line per cylinder and motor: ports, sensors and their ages, geometry, oil, valves."""
    lines = []
    for s in settings.hydraulic_actuators().values():
        oil = fluid.parameters()
        if s.bulk_modulus is not None:
            oil |= {"B_o": s.bulk_modulus, "alpha_0": 0.0}
        if s.air_fraction is not None:
            oil["alpha_0"] = s.air_fraction
        sensor_x, age_x = _sensor(settings, s.motion, first_channel)
        line = {
            **_side("A", s.port_A, settings, first_channel),
            **_side("B", s.port_B, settings, first_channel),
            "sensor_x": sensor_x,
            "age_x": age_x,
            "clearance": _clearance(settings, s.motion),
            "leakage": s.leakage,
            **(_cylinder(s) if isinstance(s, CylinderSettings) else _motor(s)),
            **{name: oil[name] for name in ("B_o", "alpha_0", "kappa", "p_0")},
        }
        lines.append(line)
    return lines


def _clearance(settings: RigSettings, channel: str | None) -> float:
    """Measured distance from an end stop, m, that noise and resolution of the position sensor do not explain."""
    noise = settings.channels[channel].deviation() if channel in settings.channels else 0.0
    return max(NOISES * noise, LEAST_CLEARANCE)


def _cylinder(s: CylinderSettings) -> dict[str, float]:
    """Geometry of a cylinder, the mass, hoses and restrictions."""
    area_A, area_B = s.areas()
    dead_B = s.dead_volume_B
    if s.port_B is None:
        area_B, dead_B = 0.0, OPEN_VOLUME
    return {
        "area_A": area_A,
        "area_B": area_B,
        "dead_A": s.dead_volume_A,
        "dead_B": dead_B,
        "stroke": s.stroke,
        "mass": s.mass,
        "case_leakage": 0.0,
        **_restriction("A", s.restriction_A, area_A),
        **_restriction("B", s.restriction_B, area_B),
        "line_A": max(s.line_volume_A, s.hose_volume_A),
        "line_B": max(s.line_volume_B, s.hose_volume_B),
        "hose_A": s.hose_volume_A / s.hose_modulus,
        "hose_B": s.hose_volume_B / s.hose_modulus,
    }


def _motor(s: MotorSettings) -> dict[str, float]:
    """The same of a motor, by its revolutions: its chambers do not change (:mod:`hilserver.tick.cylinder`)."""
    area_A, area_B = s.areas()
    none = dict.fromkeys(("line_A", "line_B", "hose_A", "hose_B"), 0.0)
    return {
        "area_A": area_A,
        "area_B": area_B,
        "dead_A": s.volume_A,
        "dead_B": s.volume_B,
        "stroke": 0.0,
        "mass": 4.0 * pi**2 * s.inertia,
        "case_leakage": s.case_leakage,
        **_restriction("A", None, area_A),
        **_restriction("B", None, area_B),
        **none,
    }


def _restriction(side: str, restriction: PortRestriction | None, area: float) -> dict[str, float]:
    """That between port A or B and the piston, by the speed of the piston."""
    if restriction is None:
        return {f"root_{side}": 0.0, f"p_tr_{side}": 0.0}
    return {f"root_{side}": restriction.root_by_flow() * area, f"p_tr_{side}": restriction.transition_pressure}


def _side(side: str, port: str | None, settings: RigSettings, first_channel: int) -> dict[str, Any]:
    """Port A or B of a cylinder: which it is, who measures it, which valve feeds it."""
    ports, valves = list(settings.ports), list(settings.valves.values())
    own, turned = valve_at(settings, port, own=True), valve_at(settings, port, own=False)
    sensor, age = _sensor(settings, settings.ports.get(port or ""), first_channel)
    flow, flow_age = _sensor(settings, valves[own].flow if own >= 0 else None, first_channel)
    return {
        f"port_{side}": ports.index(port) if port in ports else NONE,
        f"sensor_{side}": sensor,
        f"age_{side}": age,
        f"sensor_Q{side}": flow,
        f"age_Q{side}": flow_age,
        f"valve_{side}": own if own >= 0 else turned,
        f"turn_{side}": 1.0 if own >= 0 else -1.0,
    }


def _sensor(settings: RigSettings, channel: str | None, first_channel: int) -> tuple[int, float]:
    """Column of a channel and the age of its samples in ticks."""
    if channel not in settings.channels:
        return NONE, 0.0
    place = first_channel + list(settings.channels).index(channel)
    return place, settings.channels[channel].lag * settings.loop.rate
