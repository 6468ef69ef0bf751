"""What the rig file states of cylinders, valves and sensors, compared with the simulated rig that it drives."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

from hilserver.circuit.model import Circuit, Placed
from hilserver.components.load_mass import LoadMass
from hilserver.components.shared.edges import ValveWithEdges
from hilserver.components.shared.piston import Piston
from hilserver.components.shared.spool import SpoolValve
from hilserver.components.volume import OilVolume
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.cylinder_settings import CylinderSettings
from hilserver.rig.rig import Device, Rig
from hilserver.rig.settings import ValveSettings
from hilserver.rig.simulated import counts_turns
from hilserver.units import shown_value, unit_of_value, usual_unit

SCALE_ERROR = 0.05
"""Error of a channel's scale against its simulated sensor, as a fraction of its range, that nobody means."""
STROKE_ERROR, AREA_ERROR = 0.05, 0.1
"""Errors of dimensions, as fractions, that nobody means: they are on the drawing."""
VALVE_ERROR = 0.25
"""Error of a valve's nominal flow and frequency, as a fraction: more than the tolerance of a datasheet."""
FACTOR = 2.0
"""Factor between two values that are seldom known exactly: masses and volumes."""
VALVES = (ValveWithEdges, SpoolValve)
"""The valves with a command of full scale 1."""
MASSLESS = {"friction", "force_source", "damper", "position_sensor", "end_stop"}
"""Components at a rod that do not move anything else."""
DELAY_ERROR = 2e-3
"""s, error of a sensor's delay that nobody means."""
ELASTIC = {"hose", "pipe", "accumulator"}
"""Components at a port with which its volume is not compared."""


def differing_parts(rig: Rig) -> Iterator[str]:
    """What differs so much that a real rig would not be described like this, in words, with the keys."""
    for device in (device for device in rig.devices if device.is_simulated):
        circuit = rig.plant_circuits[device.name].circuit
        yield from _sensors(rig, device, circuit)
        yield from _ports(rig, device, circuit)
        for name, cylinder in rig.settings.cylinders.items():
            yield from _cylinder(f"cylinders.{name}", cylinder, circuit)
        yield from _valves(rig, device, circuit)
        yield from _limits_at_start(rig, device)


def _sensors(rig: Rig, device: Device, circuit: Circuit) -> Iterator[str]:
    """Simulated sensors of another quantity than they measure, or that their channel reads with another scale."""
    nodes = circuit.hydraulic_nodes()
    for name, sensor in device.config.sensors.items():
        key, of = f"devices.{device.name}.sensors.{name}", sensor.of
        quantity, stated = unit_of_value(f"{of}.p" if of in nodes else of), sensor.value[0].unit
        if quantity and stated and stated != quantity and not counts_turns(sensor):
            yield f"{key}.value: is in {usual_unit(stated)}, but {of} is in {usual_unit(quantity)}."
            continue
        for channel, settings in rig.settings.channels.items():
            if settings.device == device.name and settings.source == name and stated == settings.unit:
                yield from _scales_that_differ(channel, settings, sensor)


def _scales_that_differ(name: str, channel: ChannelSettings, sensor: Any) -> Iterator[str]:
    """A channel that reads its simulated sensor as quite another value, or much later. Small errors are meant."""
    if abs(sensor.delay - channel.delay) > DELAY_ERROR:
        late = f"{1e3 * channel.delay:g} ms, but its simulated sensor is {1e3 * sensor.delay:g} ms late"
        yield f"channels.{name}.delay: {late}."
    if channel.scale is None or channel.absolute:
        return
    curve, ends = channel.curve(), [value.value for value in sensor.value]
    for share in (0.0, 1.0, 0.5):
        raw, value = (low + share * (high - low) for low, high in (sensor.raw, ends))
        if abs(curve.value(raw) - value) > SCALE_ERROR * abs(ends[1] - ends[0]):
            shown = [channel.shown(each) for each in (value, curve.value(raw))]
            yield f"channels.{name}.scale: reads {shown[0]} of its simulated sensor as {shown[1]}."
            return


def _ports(rig: Rig, device: Device, circuit: Circuit) -> Iterator[str]:
    """Ports whose channel measures at another node than the one with the port's name."""
    nodes = circuit.hydraulic_nodes()
    for port, channel in rig.settings.ports.items():
        settings = rig.settings.channels[channel]
        sensor = device.config.sensors.get(settings.source) if settings.device == device.name else None
        at = sensor.of.removesuffix(".p") if sensor is not None else port
        if port in nodes and at in nodes and at != port:
            yield f"ports.{port}: its channel {channel} measures at node {at} of the simulated machine, not at {port}."


def _cylinder(key: str, stated: CylinderSettings, circuit: Circuit) -> Iterator[str]:
    """A cylinder with other dimensions, another mass or other volumes than those simulated at its ports."""
    parallel = [p for p in _of_kind(circuit, Piston) if stated.port_A in p.ports.values()]
    if not parallel:
        return
    placed, found = parallel[0], [_areas_at(p, stated) for p in parallel]
    true_A, true_B = (sum(areas) for areas in zip(*found, strict=True))
    area_A, area_B = stated.areas()
    if _differs(area_A, true_A, AREA_ERROR) and not _differs(area_A, true_B, AREA_ERROR):
        yield f"{key}.port_A: port {stated.port_A} is the rod side of the simulated {placed.name}."
        return
    if _differs(area_A, true_A, AREA_ERROR):
        yield _differing(f"{key}.bore: the area at port {stated.port_A} is", area_A, true_A, "m^2", placed.name)
    elif stated.port_B is not None and true_B and _differs(area_B, true_B, AREA_ERROR):
        yield _differing(f"{key}.rod_diameter: the area at port {stated.port_B} is", area_B, true_B, "m^2", placed.name)
    stroke = getattr(placed.component, "stroke", stated.stroke)
    if _differs(stated.stroke, stroke, STROKE_ERROR):
        yield _differing(f"{key}.stroke:", stated.stroke, stroke, "m", placed.name)
    if len(parallel) == 1:
        yield from _mass(key, stated, placed, circuit)
        yield from _volumes(key, stated, placed, circuit)


def _areas_at(placed: Placed, stated: CylinderSettings) -> tuple[float, float]:
    """The areas of a simulated cylinder at the ports A and B of the rig file's, m²; 0 where it is not connected."""
    piston: Any = placed.component
    nodes = [placed.ports[port] for port in "AB" if port in placed.ports]
    at = dict(zip(nodes, piston.areas(), strict=False))  # a single-acting one has no port B
    return at.get(stated.port_A, 0.0), at.get(str(stated.port_B), 0.0)


def _volumes(key: str, stated: CylinderSettings, placed: Placed, circuit: Circuit) -> Iterator[str]:
    """The dead volumes of a cylinder, which contain the other volumes at its ports."""
    if placed.ports.get("A") != stated.port_A:
        return
    for part, node in (("dead_volume_A", stated.port_A), ("dead_volume_B", stated.port_B)):
        beside = [p.component for p in circuit.placed if node in p.ports.values() and p is not placed]
        dead = getattr(placed.component, part, None)
        if dead is None or node is None or any(each.type_name in ELASTIC for each in beside):
            continue
        true = dead + sum(each.volume for each in beside if isinstance(each, OilVolume))
        if _differs(getattr(stated, part), true, FACTOR - 1.0):
            yield _differing(f"{key}.{part}:", getattr(stated, part), true, "m^3", placed.name)


def _mass(key: str, stated: CylinderSettings, placed: Placed, circuit: Circuit) -> Iterator[str]:
    """The mass at the rod of a cylinder, where all of it is known: a mechanism or a spring moves others."""
    rod = placed.ports["rod"]
    others = [p for p in circuit.placed if rod in p.ports.values() and p is not placed]
    if rod in {node for each in circuit.mechanisms for node in each.nodes.values()}:
        return
    loads = [p.component for p in others if isinstance(p.component, LoadMass)]
    known = all(isinstance(p.component, LoadMass) or p.component.type_name in MASSLESS for p in others)
    if known and loads and all(load.inertia == 0.0 for load in loads):
        piston: Any = placed.component
        true = piston.rod_mass(circuit.fluid) + sum(load.mass for load in loads)
        if _differs(stated.mass, true, FACTOR - 1.0):
            yield _differing(f"{key}.mass:", stated.mass, true, "kg", placed.name)


def _valves(rig: Rig, device: Device, circuit: Circuit) -> Iterator[str]:
    """Outputs that command a simulated valve elsewhere, or the opposite of what they mean."""
    for name, stated in rig.settings.valves.items():
        if stated.device != device.name or stated.output not in device.config.actuators:
            continue
        actuator = device.config.actuators[stated.output]
        driven = [p for p in _of_kind(circuit, *VALVES) if p.signals.get("command") == actuator.to]
        if len(driven) != 1:
            continue
        yield from _datasheet(f"valves.{name}", stated, driven[0])
        port = next((port for port, node in driven[0].ports.items() if node == stated.port), None)
        if port is None:
            if others := sorted(rig.settings.ports.keys() & driven[0].ports.values()):
                text = f"commands {driven[0].name} of the simulated drive, which is at port {' and '.join(others)}"
                yield f"valves.{name}.output: {text}, not at {stated.port}."
            continue
        meant = stated.raw if stated.polarity > 0 else stated.raw[::-1]
        true = actuator.raw[::-1] if port == "B" else actuator.raw
        if (meant[1] - meant[0]) * (true[1] - true[0]) < 0.0:
            yield (
                f"valves.{name}.polarity: a positive command lets oil out of port {stated.port} of the simulated "
                f"machine: {-stated.polarity} would be right, or reverse the order of raw."
            )
        elif max(abs(a - b) for a, b in zip(meant, true, strict=True)) > SCALE_ERROR * abs(true[1] - true[0]):
            shown = [f"{low:g} … {high:g}" for low, high in (stated.raw, actuator.raw)]
            yield f"valves.{name}.raw: {shown[0]}, but the simulated actuator {stated.output} has {shown[1]}."


def _datasheet(key: str, stated: ValveSettings, placed: Placed) -> Iterator[str]:
    """A valve with another nominal flow or frequency than the simulated one that it drives."""
    flow, f90 = getattr(placed.component, "nominal_flow", None), getattr(placed.component, "f90", None)
    if flow is not None and stated.flow_signal is None:
        true = flow.coefficient() * sqrt(stated.nominal_flow.edge_drop())
        if _differs(stated.nominal_flow.flow, true, VALVE_ERROR):
            yield _differing(f"{key}.nominal_flow:", stated.nominal_flow.flow, true, "m^3/s", placed.name)
    if f90 is not None and stated.f90 is not None and _differs(stated.f90, f90, VALVE_ERROR):
        yield f"{key}.f90: {stated.f90:.4g} Hz, but the simulated {placed.name} has {f90:.4g} Hz."


def _limits_at_start(rig: Rig, device: Device) -> Iterator[str]:
    """Limits that the simulated rig violates before anything moves."""
    circuit, values = rig.plant_circuits[device.name].packed, rig.first_plants[device.name].values
    for name, limit in rig.settings.limits.items():
        channel = rig.settings.channels[limit.channel]
        if channel.device != device.name or limit.action == "warn":
            continue
        of = device.config.sensors[channel.source].of
        place = next((circuit.names.index(known) for known in (of, f"{of}.p") if known in circuit.values), None)
        if place is None:
            continue
        start = float(values[place])
        for key, bound in (("min", limit.min), ("max", limit.max)):
            end = bound.value - channel.zero if bound is not None else start
            if start < end if key == "min" else start > end:
                yield (
                    f"limits.{name}.{key}: {channel.shown(end)} is violated from the start: {of} begins at "
                    f"{channel.shown(start)}."
                )


def _of_kind(circuit: Circuit, *kinds: type) -> list[Placed]:
    return [placed for placed in circuit.placed if isinstance(placed.component, kinds)]


def _differs(stated: float, true: float, share: float) -> bool:
    """Whether the larger of two values exceeds the smaller by more than this fraction."""
    low, high = sorted((abs(stated), abs(true)))
    return high > (1.0 + share) * low


def _differing(what: str, stated: float, true: float, unit: str, component: str) -> str:
    areas = unit == "m^2"
    shown = [f"{1e4 * value:.4g} cm²" if areas else shown_value(value, unit) for value in (stated, true)]
    return f"{what} {shown[0]}, but the simulated {component} has {shown[1]}."
