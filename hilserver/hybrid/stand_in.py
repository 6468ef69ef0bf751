"""A simulated rig in place of a real one, made from what the rig file states of its actuators and their specimens."""

from __future__ import annotations

from math import pi
from typing import Any

from hilserver.errors import HilserverError
from hilserver.rig.actuator_settings import ActuatorSettings
from hilserver.rig.build import assemble
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.rig import Rig

NAME = "stand-in"
LEFT_OUT = ("outputs", "enable", "calibration")
"""Tables of the rig file that a simulation does not need."""
CELL, CELL_DAMPING, CELL_LAG = 2.0 * pi * 500.0, 0.05, "0.05 ms"
"""Load cell with the masses in front of and behind it: natural frequency, 1/s, damping ratio; lag of its amplifier."""
RAW = (0.0, 10.0)
"""Raw readings at the ends of a simulated sensor's range."""


def simulated(rig: Rig, known: Rig | None = None) -> Rig:
    """The rig itself if it has a simulated device, otherwise one with actuators as they are described.

    ``known``: with other values of its actuators, which its bridge is told instead of those that are simulated. Raises
    HilserverError if it has servo valves on real devices as well: their machine is not described here.
    """
    if any(device.is_simulated for device in rig.devices):
        return rig
    if rig.settings.valves:
        text = "actuators and servo valves on real devices can't be simulated together"
        raise HilserverError(f"{rig.file}: {text}: give a rig file with a simulated device (driver simulated).")
    machine: dict[str, Any] = {"components": {}, "nodes": {}}
    drive: dict[str, Any] = {"components": {}, "nodes": {}}
    for name, actuator in rig.settings.actuators.items():
        machine["components"] |= _specimen(name, actuator)
        machine["nodes"][name] = {"position": f"{actuator.safe!r} m"}
        drive["components"] |= _actuator(name, actuator)
    used = {channel: f"{name}.x" for name, a in rig.settings.actuators.items() for channel in (a.position,)}
    used |= {a.force: _force_of(name, a) for name, a in rig.settings.actuators.items()}
    device = {
        "driver": "simulated",
        "machine": "specimen",
        "drive": "actuators",
        "sensors": {channel: _sensor(rig.settings.channels[channel], of) for channel, of in used.items()},
        "actuators": {
            name: {"to": f"{name}_command", "raw": list(a.raw), "delay": f"{a.delay!r} s"}
            for name, a in rig.settings.actuators.items()
        },
    }
    return assemble(_sources(known or rig, used, device, machine, drive), rig.file, rig.library)


def _sources(
    rig: Rig, used: dict[str, str], device: dict[str, Any], machine: dict[str, Any], drive: dict[str, Any]
) -> dict[str, Any]:
    """The sources of the rig with the simulated device in place of all others."""
    given = {key: table for key, table in rig.sources["rig"].items() if key not in LEFT_OUT}
    given["devices"] = {NAME: device}
    given["channels"] = {channel: _channel(rig.settings.channels[channel], channel) for channel in used}
    given["limits"] = {name: table for name, table in given.get("limits", {}).items() if table.get("channel") in used}
    given["actuators"] = {name: {**table, "device": NAME, "output": name} for name, table in given["actuators"].items()}
    sources = {key: table for key, table in rig.sources.items() if key != "calibration"}
    return {**sources, "rig": given, "devices": {NAME: {"machine": machine, "drive": drive}}}


def _specimen(name: str, a: ActuatorSettings) -> dict[str, Any]:
    """Mass, spring and damper at the node of the actuator."""
    part = a.specimen
    node, ground = {"rod": name}, {"rod": name, "base": f"{name}_ground"}
    found: dict[str, Any] = {
        f"{name}_mass": {"type": "load_mass", "ports": node, "mass": f"{part.mass!r} kg", "gravity": "0 m/s^2"},
        f"{name}_ground": {"type": "velocity_source", "ports": {"rod": f"{name}_ground"}},
    }
    if part.stiffness > 0.0:
        found[f"{name}_spring"] = {"type": "spring", "ports": ground, "stiffness": f"{part.stiffness!r} N/m"}
    if part.damping > 0.0:
        found[f"{name}_damper"] = {"type": "damper", "ports": ground, "damping": f"{part.damping!r} N*s/m"}
    return found


def _actuator(name: str, a: ActuatorSettings) -> dict[str, Any]:
    """The actuator; its command is -1 and 1 at the ends of its range. A load cell is a stiff spring behind its mass."""
    servo, (low, high) = a.servo, a.range
    rod = f"{name}_rod" if servo.moving_mass > 0.0 else name
    actuator = {
        "type": "position_actuator",
        "ports": {"rod": rod},
        "command": f"{name}_command",
        "travel": f"{0.5 * (high - low)!r} m",
        "middle": f"{0.5 * (high + low) * servo.position_gain!r} m",
        "velocity_gain": f"{servo.velocity_gain!r} 1/s",
        "f90": f"{servo.f90!r} Hz",
        "damping": servo.damping,
        "oil_stiffness": f"{servo.oil_stiffness!r} N/m",
        "force_decay": f"{servo.force_decay!r} 1/s",
        "position_gain": servo.position_gain,
    }
    return {f"{name}_actuator": actuator, **(_load_cell(name, a, rod) if servo.moving_mass > 0.0 else {})}


def _load_cell(name: str, a: ActuatorSettings, rod: str) -> dict[str, Any]:
    """The mass in front of it, and itself; its signal is the force in N."""
    mass, behind = a.servo.moving_mass, a.specimen.mass
    reduced = mass * behind / (mass + behind)
    stiffness, damping = reduced * CELL**2, 2.0 * CELL_DAMPING * CELL * reduced
    sensor = {"type": "position_sensor", "time_constant": CELL_LAG}
    return {
        f"{name}_rod_mass": {
            "type": "load_mass",
            "ports": {"rod": rod},
            "mass": f"{mass!r} kg",
            "gravity": "0 m/s^2",
        },
        f"{name}_cell": {
            "type": "elastic_coupling",
            "ports": {"rod": rod, "base": name},
            "stiffness": f"{stiffness!r} N/m",
            "damping": f"{damping!r} N*s/m",
        },
        f"{name}_cell_rod": {**sensor, "ports": {"rod": rod}, "signal": f"{name}_before"},
        f"{name}_cell_base": {**sensor, "ports": {"rod": name}, "signal": f"{name}_behind"},
        f"{name}_force": {
            "type": "sum",
            "a": f"{name}_before",
            "b": f"{name}_behind",
            "weight_a": stiffness,
            "weight_b": -stiffness,
            "signal": f"{name}_pushes",
        },
    }


def _force_of(name: str, a: ActuatorSettings) -> str:
    """What the force sensor measures."""
    return f"{name}_pushes" if a.servo.moving_mass > 0.0 else f"{name}_actuator.F"


def _sensor(channel: ChannelSettings, of: str) -> dict[str, Any]:
    low, high = _range(channel)
    unit = channel.unit
    return {
        "of": of,
        "raw": list(RAW),
        "value": [f"{low!r} {unit}", f"{high!r} {unit}"],
        "noise": min(channel.deviation() / (high - low), 0.1),
        "delay": f"{channel.delay!r} s",
    }


def _channel(channel: ChannelSettings, name: str) -> dict[str, Any]:
    low, high = _range(channel)
    unit = channel.unit
    found: dict[str, Any] = {
        "device": NAME,
        "source": name,
        "scale": {"raw": list(RAW), "value": [f"{low!r} {unit}", f"{high!r} {unit}"]},
        "delay": f"{channel.delay!r} s",
        "filter": f"{channel.filter!r} s",
    }
    return found if channel.noise is None else {**found, "noise": f"{channel.noise.value!r} {unit}"}


def _range(channel: ChannelSettings) -> tuple[float, float]:
    """What the simulated sensor measures: of a channel that does not say it, more than anything that happens."""
    return channel.measuring_range() or (-1e6, 1e6)
