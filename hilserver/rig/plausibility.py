"""Settings of a rig that are possible separately, but improbable in combination."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite

from hilserver.circuit.library import Role
from hilserver.circuit.model import RIG, read_part
from hilserver.components.base import Fluid
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.rig import Rig
from hilserver.rig.simulated_parts import VALVES, differing_parts
from hilserver.units import shown_value

COVERED = 0.99
"""Share of the stroke that its sensor must cover at least."""
FULL_COMMAND = 1.1
"""Command of a valve beyond which nobody means it: at 1 it is fully open."""


def implausible(rig: Rig) -> Iterator[str]:
    """Probable errors, in words, with the keys."""
    yield from _shared_pressures(rig)
    yield from _limits_out_of_reach(rig)
    yield from _strokes_out_of_reach(rig)
    yield from _same_supply_and_tank(rig)
    yield from _different_oils(rig)
    yield from _volumes_at_ports(rig)
    yield from _inputs_beyond_full_command(rig)
    yield from differing_parts(rig)


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
        low, high = _readable(channel)
        for key, bound in (("min", limit.min), ("max", limit.max)):
            end = bound.value - channel.zero if bound is not None else low
            if end < low if key == "min" else end > high:
                yield (
                    f"limits.{name}.{key}: {channel.shown(end)} is outside the range of its sensor, "
                    f"{channel.shown(low, high)}: it may never be violated."
                )


def _strokes_out_of_reach(rig: Rig) -> Iterator[str]:
    """Position sensors that do not cover the stroke."""
    for name, cylinder in rig.settings.cylinders.items():
        if cylinder.position is None:
            continue
        channel = rig.settings.channels[cylinder.position]
        low, high = _readable(channel)
        if high - low < COVERED * cylinder.stroke:
            shown, *ends = (shown_value(value, "m") for value in (cylinder.stroke, low, high))
            yield (
                f"cylinders.{name}.position: channel {cylinder.position} measures {ends[0]} … {ends[1]}, less than the "
                f"stroke of {shown}."
            )


def _readable(channel: ChannelSettings) -> tuple[float, float]:
    """Values that a channel can show, SI, gauge; infinite if that is not known."""
    (low, high), known = channel.value_limits(), channel.measuring_range() or (-inf, inf)
    low, high = max(low, known[0]), min(high, known[1])
    if channel.scale is not None and isfinite(sum(raw := channel.raw_limits())):
        ends = sorted(map(channel.curve().value, raw))
        low, high = max(low, ends[0]), min(high, ends[1])
    return low, high


def _same_supply_and_tank(rig: Rig) -> Iterator[str]:
    """Valves with one channel for both."""
    for name, valve in rig.settings.valves.items():
        if valve.supply == valve.tank:
            yield f"valves.{name}.supply: is the same channel as tank, {valve.tank}."


def _different_oils(rig: Rig) -> Iterator[str]:
    """Simulated machines with another oil than the circuit, with which the bridge calculates the chambers.

    Unless the cylinders and motors state it; their bulk modulus includes the air.
    """
    stated = {"bulk_modulus", "air_fraction"}
    actuators = rig.settings.hydraulic_actuators().values()
    for each in actuators:
        if each.bulk_modulus is None:
            stated -= {"bulk_modulus", *(["air_fraction"] if each.air_fraction is None else [])}
    for name, tables in rig.sources.get("devices", {}).items():
        if "machine" not in tables or not actuators:
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


def _inputs_beyond_full_command(rig: Rig) -> Iterator[str]:
    """Inputs that command a valve and reach far beyond the command with which it is fully open."""
    for name, settings in rig.settings.inputs.items():
        valves = [p.name for p in rig.circuit.placed if isinstance(p.component, VALVES) and name in p.signals.values()]
        if valves and max(map(abs, settings.range)) > FULL_COMMAND:
            low, high = settings.range
            yield f"inputs.{name}.range: {low:g} … {high:g}, but {valves[0]} is fully open at a command of 1."
