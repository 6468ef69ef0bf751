"""Settings of a rig that are possible separately, but improbable in combination."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hilserver.circuit.library import Role
from hilserver.circuit.model import RIG, read_part
from hilserver.components.base import Fluid
from hilserver.rig.build import Rig
from hilserver.rig.channels import ChannelSettings
from hilserver.units import shown_unit, shown_value, unit_of_value

SCALE_ERROR = 0.05
"""Error of a channel's scale against its simulated sensor, as a fraction of its range, that nobody means."""


def implausible(rig: Rig) -> Iterator[str]:
    """Probable errors, in words, with the keys."""
    yield from _shared_pressures(rig)
    yield from _limits_out_of_reach(rig)
    yield from _same_supply_and_tank(rig)
    yield from _different_oils(rig)
    yield from _volumes_at_ports(rig)
    yield from _simulated_sensors(rig)


def _shared_pressures(rig: Rig) -> Iterator[str]:
    """Ports with the same pressure sensor."""
    first: dict[str, str] = {}
    for port, channel in rig.settings.ports.items():
        if other := first.get(channel):
            text = f"uses the same channel as ports.{other} ({channel}): one sensor can't measure both ports."
            yield f"ports.{port}: {text}"
        first.setdefault(channel, port)


def _limits_out_of_reach(rig: Rig) -> Iterator[str]:
    """Bounds beyond the range of their sensor, which may never be violated."""
    for name, limit in rig.settings.limits.items():
        channel = rig.settings.channels[limit.channel]
        low, high = sensor_range(channel)
        for key, bound in (("min", limit.min), ("max", limit.max)):
            if bound is not None and (bound.value < low if key == "min" else bound.value > high):
                shown, *ends = (shown_value(value, channel.unit) for value in (bound.value, low, high))
                yield (
                    f"limits.{name}.{key}: {shown} is outside the range of its sensor, {ends[0]} … {ends[1]}: it may "
                    "never be violated."
                )


def sensor_range(channel: ChannelSettings) -> tuple[float, float]:
    """Values between which a sensor measures, SI, as on its label; infinite if that is not known.

    The points of a scale are taken to cover the range.
    """
    low, high = (value + channel.zero for value in channel.value_limits())
    if channel.scale is not None and (points := channel.scale.value or channel.scale.current):
        values = [point.value for point in points]
        low, high = max(low, min(values)), min(high, max(values))
    return low, high


def _same_supply_and_tank(rig: Rig) -> Iterator[str]:
    """Valves with one channel for both."""
    for name, valve in rig.settings.valves.items():
        if valve.supply == valve.tank:
            yield f"valves.{name}.supply: is the same channel as tank, {valve.tank}."


def _different_oils(rig: Rig) -> Iterator[str]:
    """Simulated machines with another oil than the circuit, with which the bridge calculates the chambers.

    Unless the cylinders state it; their bulk modulus includes the air.
    """
    stated = {"bulk_modulus", "air_fraction"}
    for cylinder in rig.settings.cylinders.values():
        if cylinder.bulk_modulus is None:
            stated -= {"bulk_modulus", *(["air_fraction"] if cylinder.air_fraction is None else [])}
    for name, tables in rig.sources.get("devices", {}).items():
        if "machine" not in tables or not rig.settings.cylinders:
            continue
        oil, own = read_part(tables["machine"], rig.library).fluid, rig.circuit.fluid
        unlike = [key for key in Fluid.model_fields if key not in stated and getattr(oil, key) != getattr(own, key)]
        if different := [f"fluid.{key}" for key in unlike]:
            yield (
                f"devices.{name}.machine: its oil differs from that of the circuit in {', '.join(different)}; the "
                "bridge calculates the machine's chambers with the circuit's oil."
            )


def _volumes_at_ports(rig: Rig) -> Iterator[str]:
    """Components whose volume has no effect, because the pressure at their port is the measured one."""
    for placed in rig.circuit.placed:
        results = [term for c in rig.library.contracts_of(type(placed.component)) for term in c.results]
        for node in {placed.ports[term.name] for term in results if term.role is Role.CAPACITANCE}:
            if node.startswith(RIG):
                yield (
                    f"components.{placed.name}: its volume has no effect at {node}, where the pressure is measured: "
                    "place an orifice or a line in between, or add the volume to the dead volume of the machine."
                )


def _simulated_sensors(rig: Rig) -> Iterator[str]:
    """Simulated sensors of another quantity than they measure, or that their channel reads with another scale."""
    for device in (device for device in rig.devices if device.is_simulated):
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
