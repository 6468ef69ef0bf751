"""What the rig file states of cylinders, valves and sensors, compared with the simulated rig that it drives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hilserver.circuit.model import Circuit, Placed
from hilserver.components.load_mass import LoadMass
from hilserver.components.shared.edges import ValveWithEdges
from hilserver.components.shared.piston import Piston
from hilserver.components.shared.spool import SpoolValve
from hilserver.components.volume import OilVolume
from hilserver.rig.build import Device, Rig
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.units import shown_unit, shown_value, unit_of_value

SCALE_ERROR = 0.05
"""Error of a channel's scale against its simulated sensor, as a fraction of its range, that nobody means."""
DIMENSION_ERROR = 0.05
"""Error of a dimension, as a fraction, that nobody means: it is on the drawing."""
FACTOR = 2.0
"""Factor between two values that are seldom known exactly: masses and volumes."""
VALVES = (ValveWithEdges, SpoolValve)
"""The valves with a command of full scale 1."""
ELASTIC = {"hose", "pipe", "accumulator"}
"""Components at a port with which its volume is not compared."""


def differing_parts(rig: Rig) -> Iterator[str]:
    """What differs so much that a real rig would not be described like this, in words, with the keys."""
    for device in (device for device in rig.devices if device.is_simulated):
        yield from _sensors(rig, device)
        circuit = rig.plant_circuits[device.name].circuit
        yield from _ports(rig, device, circuit)
        for name, cylinder in rig.settings.cylinders.items():
            yield from _cylinder(rig, f"cylinders.{name}", cylinder, circuit)
        yield from _valves(rig, device, circuit)
        yield from _limits_at_start(rig, device)


def _sensors(rig: Rig, device: Device) -> Iterator[str]:
    """Simulated sensors of another quantity than they measure, or that their channel reads with another scale."""
    for name, sensor in device.config.sensors.items():
        key, of = f"devices.{device.name}.sensors.{name}", sensor.of
        quantity, stated = unit_of_value(of if "." in of else f"{of}.p"), sensor.value[0].unit
        if quantity and stated and stated != quantity:
            yield f"{key}.value: is in {shown_unit(stated)[0]}, but {of} is in {shown_unit(quantity)[0]}."
            continue
        for channel, settings in rig.settings.channels.items():
            if settings.device == device.name and settings.source == name and stated == settings.unit:
                yield from _scales_that_differ(channel, settings, sensor)


def _scales_that_differ(name: str, channel: ChannelSettings, sensor: Any) -> Iterator[str]:
    """A channel that reads an end of its simulated sensor's range as quite another value. Small errors are meant."""
    if channel.scale is None or channel.absolute:
        return
    curve, span = channel.scale.curve(), abs(sensor.value[1].value - sensor.value[0].value)
    for raw, end in zip(sensor.raw, sensor.value, strict=True):
        if abs(curve.value(raw) - end.value) > SCALE_ERROR * span:
            shown = [shown_value(value, channel.unit) for value in (end.value, curve.value(raw))]
            yield f"channels.{name}.scale: reads {shown[0]} of its simulated sensor as {shown[1]}."


def _ports(rig: Rig, device: Device, circuit: Circuit) -> Iterator[str]:
    """Ports whose channel measures at another node than the one with the port's name."""
    nodes = circuit.hydraulic_nodes()
    for port, channel in rig.settings.ports.items():
        settings = rig.settings.channels[channel]
        sensor = device.config.sensors.get(settings.source) if settings.device == device.name else None
        at = sensor.of.removesuffix(".p") if sensor is not None else port
        if port in nodes and at in nodes and at != port:
            yield f"ports.{port}: its channel {channel} measures at node {at} of the simulated machine, not at {port}."


def _cylinder(rig: Rig, key: str, stated: CylinderSettings, circuit: Circuit) -> Iterator[str]:
    """A cylinder with other dimensions, another mass or other volumes than the simulated one at its port A."""
    placed = next((p for p in _of_kind(circuit, Piston) if stated.port_A in p.ports.values()), None)
    if placed is None:
        return
    found: Any = placed.component
    side = next(port for port, node in placed.ports.items() if node == stated.port_A)
    areas = dict(zip("AB", found.areas(), strict=True))
    if side == "B" and _differs(areas["A"], areas["B"], DIMENSION_ERROR):
        yield f"{key}.port_A: port {stated.port_A} is the rod side of the simulated {placed.name}."
        return
    for name in ("bore", "rod_diameter", "stroke"):
        true = getattr(found, name, None)
        if true is not None and _differs(getattr(stated, name), true, DIMENSION_ERROR):
            yield _differing(f"{key}.{name}", getattr(stated, name), true, "m", placed.name)
    yield from _mass(key, stated, placed, circuit)
    if side == "A":
        yield from _volumes(key, stated, placed, circuit)


def _volumes(key: str, stated: CylinderSettings, placed: Placed, circuit: Circuit) -> Iterator[str]:
    """The dead volumes of a cylinder, which contain the other volumes at its ports."""
    for part, node in (("dead_volume_A", stated.port_A), ("dead_volume_B", stated.port_B)):
        beside = [p.component for p in circuit.placed if node in p.ports.values() and p is not placed]
        dead = getattr(placed.component, part, None)
        if dead is None or node is None or any(each.type_name in ELASTIC for each in beside):
            continue
        true = dead + sum(each.volume for each in beside if isinstance(each, OilVolume))
        if _differs(getattr(stated, part), true, FACTOR - 1.0):
            yield _differing(f"{key}.{part}", getattr(stated, part), true, "m^3", placed.name)


def _mass(key: str, stated: CylinderSettings, placed: Placed, circuit: Circuit) -> Iterator[str]:
    """The mass at the rod of a cylinder, where all of it is known: a mechanism or a spring moves others."""
    rod = placed.ports["rod"]
    others = [p for p in circuit.placed if rod in p.ports.values() and p is not placed]
    if rod in {node for each in circuit.mechanisms for node in each.nodes.values()}:
        return
    loads = [p.component for p in others if isinstance(p.component, LoadMass)]
    if len(loads) == len(others) and loads and all(load.inertia == 0.0 for load in loads):
        piston: Any = placed.component
        true = piston.rod_mass(circuit.fluid) + sum(load.mass for load in loads)
        if _differs(stated.mass, true, FACTOR - 1.0):
            yield _differing(f"{key}.mass", stated.mass, true, "kg", placed.name)


def _valves(rig: Rig, device: Device, circuit: Circuit) -> Iterator[str]:
    """Outputs that command a simulated valve elsewhere, or the opposite of what they mean."""
    for name, stated in rig.settings.valves.items():
        if stated.device != device.name or stated.output not in device.config.actuators:
            continue
        actuator = device.config.actuators[stated.output]
        driven = [p for p in _of_kind(circuit, *VALVES) if p.signals.get("command") == actuator.to]
        if len(driven) != 1:
            continue
        ports = {node: port for port, node in driven[0].ports.items()}
        if stated.port not in ports:
            text = f"commands {driven[0].name} of the simulated drive, which is not at port {stated.port}."
            yield f"valves.{name}.output: {text}"
            continue
        meant = stated.polarity * (stated.raw[1] - stated.raw[0])
        true = (actuator.raw[1] - actuator.raw[0]) * (-1.0 if ports[stated.port] == "B" else 1.0)
        if meant * true < 0.0:
            yield (
                f"valves.{name}.polarity: a positive command lets oil out of port {stated.port} of the simulated "
                f"machine: {-stated.polarity} would be right, or the other order of raw."
            )


def _limits_at_start(rig: Rig, device: Device) -> Iterator[str]:
    """Limits that the simulated rig violates before anything moves."""
    plant, names = rig.plant_circuits[device.name].packed, rig.first_plants[device.name].values
    for name, limit in rig.settings.limits.items():
        channel = rig.settings.channels[limit.channel]
        if channel.device != device.name or limit.action == "warn":
            continue
        of = device.config.sensors[channel.source].of
        place = next((plant.names.index(known) for known in (of, f"{of}.p") if known in plant.values), None)
        if place is None:
            continue
        value = float(names[place]) + channel.zero
        for key, bound in (("min", limit.min), ("max", limit.max)):
            if bound is not None and (value < bound.value if key == "min" else value > bound.value):
                start, shown = (shown_value(each, channel.unit) for each in (value, bound.value))
                yield f"limits.{name}.{key}: {shown} is violated from the start: {of} begins at {start}."


def _of_kind(circuit: Circuit, *kinds: type) -> list[Placed]:
    return [placed for placed in circuit.placed if isinstance(placed.component, kinds)]


def _differs(stated: float, true: float, share: float) -> bool:
    """Whether the larger of two values exceeds the smaller by more than this fraction."""
    low, high = sorted((abs(stated), abs(true)))
    return high > (1.0 + share) * low


def _differing(key: str, stated: float, true: float, unit: str, component: str) -> str:
    shown = [shown_value(value, unit) for value in (stated, true)]
    return f"{key}: {shown[0]}, but the simulated {component} has {shown[1]}."
