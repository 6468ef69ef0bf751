"""Tables of a rig for the terminal: channels, limits, real valves, rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hilserver.circuit.model import RIG
from hilserver.cli.tables import TerminalTable
from hilserver.record.forecast import forecast, free_space, log_folder
from hilserver.rig.actuator_settings import ActuatorSettings
from hilserver.rig.channels import ChannelSettings, LimitSettings
from hilserver.rig.rig import Rig
from hilserver.rig.settings import ValveSettings
from hilserver.rig.valves import corner_frequency
from hilserver.rig.watches import unwatched, watches
from hilserver.units import shown_value


def new_table(title: str, *heads: str) -> TerminalTable:
    """An empty table."""
    table = TerminalTable(title=title, title_justify="left")
    for head in heads:
        table.add_column(head)
    return table


def channel_table(rig: Rig) -> TerminalTable:
    """Source, scale, range and use of each channel."""
    heads = ("channel", "source", "raw", "value", "valid", "filter", "used as")
    table = new_table("Channels", *heads, *(["calibrated"] if rig.calibrations else []))
    roles = _roles(rig)
    for name, channel in rig.settings.channels.items():
        origin = f"{channel.device}.{channel.source}" if channel.is_measured else "fixed"
        low_pass = f"{channel.filter * 1e3:g} ms" if channel.filter else ""
        used = ", ".join(roles.get(name, []))
        last = rig.calibrations[name][-1] if name in rig.calibrations else None
        calibrated = [f"{last.date[:10]} {last.note}".rstrip() if last is not None else ""] if rig.calibrations else []
        table.add_row(name, origin, *_scaled(channel), _valid(channel), low_pass, used, *calibrated)
    return table


def _scaled(channel: ChannelSettings) -> tuple[str, str]:
    """Raw readings and the values that they represent."""
    kind = " absolute" if channel.absolute else ""
    if channel.value is not None:
        return "", channel.shown(channel.fixed())
    assert channel.scale is not None
    if channel.scale.polynomial is not None:
        raw, value = "polynomial", f"{formula(channel.scale.polynomial)} {channel.scale.unit}"
    else:
        points, values = channel.scale.raw or (4.0, 20.0), channel.scale.value or channel.scale.current or ()
        raw = f"{points[0]:g} … {points[-1]:g}" + (" mA" if channel.scale.current else "")
        raw += f", {len(points)} points" if len(points) > 2 else ""
        ends = (values[0].value - channel.zero, values[-1].value - channel.zero)
        value = channel.shown(*ends).removesuffix(kind)
    if channel.tare is not None:
        value += f", minus {channel.shown_difference(channel.tare.value)}"
    return raw, value + kind


def formula(polynomial: Sequence[float]) -> str:
    """A polynomial of the raw reading as a formula.

    >>> formula((0.5, -25.0, 0.01))
    '0.5 - 25·raw + 0.01·raw^2'
    """
    powers = ("", "·raw", *(f"·raw^{n}" for n in range(2, len(polynomial))))
    terms = [f"{number:.6g}{power}" for number, power in zip(polynomial, powers, strict=False)]
    return " + ".join(terms).replace("+ -", "- ")


def watch_table(rig: Rig) -> TerminalTable:
    """The checks of each measured channel's readings, with their actions; a dash stands for no check."""
    kinds = ("jumps", "stuck", "estimate", "supply")
    table = new_table("Implausible readings", "channel", "range", *kinds, "not checked")
    found = watches(rig.settings)
    for name, channel in rig.settings.channels.items():
        if not channel.is_measured:
            continue
        cells = {kind: found.get(f"{name}.{kind}") for kind in (*kinds, "frozen")}
        cells["stuck"] = cells["stuck"] or cells["frozen"]
        shown = [f"{cell.what}: {cell.action}" if (cell := cells[kind]) else "–" for kind in kinds]
        table.add_row(name, _range(channel), *shown, ", ".join(unwatched(name, channel, rig.settings)))
    return table


def _range(channel: ChannelSettings) -> str:
    """The values that count as samples."""
    ends = channel.value_limits()
    return channel.shown(*ends) if np.isfinite(ends).all() else "–"


def _valid(channel: ChannelSettings) -> str:
    """Ranges in which a sample is valid."""
    if channel.value is not None:
        return ""
    low, high = channel.raw_limits()
    found = [f"raw {low:g} … {high:g}"] if np.isfinite(low) else []
    if channel.valid is not None:
        found.append(channel.shown(*channel.value_limits()))
    if channel.valid_rate is not None:
        found.append(f"{channel.shown_difference(channel.valid_rate.value)} per second")
    return ", ".join(found)


def _roles(rig: Rig) -> dict[str, list[str]]:
    roles: dict[str, list[str]] = {}
    for port, channel in rig.settings.ports.items():
        roles.setdefault(channel, []).append(f"{RIG}{port}")
    for name, valve in rig.settings.valves.items():
        for word in ("supply", "tank", "flow"):
            if channel_name := getattr(valve, word):
                roles.setdefault(channel_name, []).append(f"{word} of valve {name}")
    for name, actuator in rig.settings.actuators.items():
        roles.setdefault(actuator.position, []).append(f"position of actuator {name}")
        roles.setdefault(actuator.force, []).append(f"force of actuator {name}")
    return roles


def limit_table(rig: Rig) -> TerminalTable:
    """Limits and their actions."""
    table = new_table("Limits", "limit", "channel", "allowed", "action")
    for name, limit in rig.settings.limits.items():
        table.add_row(name, limit.channel, _allowed(limit, rig.settings.channels[limit.channel]), limit.action)
    return table


def _allowed(limit: LimitSettings, channel: ChannelSettings) -> str:
    parts = []
    if limit.min is not None:
        parts.append(f"≥ {channel.shown(limit.min.value - channel.zero)}")
    if limit.max is not None:
        parts.append(f"≤ {channel.shown(limit.max.value - channel.zero)}")
    if limit.max_age is not None:
        parts.append(f"not older than {limit.max_age * 1e3:g} ms")
    if limit.max_rate is not None:
        parts.append(f"not faster than {channel.shown_difference(limit.max_rate.value)} per second")
    if limit.slow_down is not None:
        parts.append(f"reduced within {channel.shown_difference(limit.slow_down.value)} of it")
    return ", ".join(parts)


def valve_table(rig: Rig) -> TerminalTable:
    """The real valves, one per column."""
    valves = rig.settings.valves
    table = new_table("Real valves", "", *valves)
    rows: dict[str, list[str]] = {}
    for valve in valves.values():
        for key, value in _properties(valve):
            rows.setdefault(key, []).append(value)
    for key, values in rows.items():
        table.add_row(key, *values)
    return table


def _properties(valve: ValveSettings) -> Iterator[tuple[str, str]]:
    drop, point = valve.nominal_flow.edge_drop(), valve.nominal_flow
    yield "port", valve.port + (f", other edges at {valve.other_port}" if valve.other_port else "")
    yield f"flow at {shown_value(drop, 'Pa')} per edge", shown_value(point.flow, "m^3/s")
    if valve.f90 is not None:
        yield "-90° frequency", f"{valve.f90:g} Hz, damping {valve.damping:g}"
    yield "-45° frequency", f"{corner_frequency(valve):.4g} Hz"
    yield "delay", f"{valve.delay * 1e3:g} ms"
    yield "strategy", valve.bridge.strategy
    yield "output", f"{valve.device}.{valve.output}, raw {valve.raw[0]:g} … {valve.raw[1]:g}"
    yield (
        "command",
        f"{valve.range[0]:g} … {valve.range[1]:g}, at most {valve.slew:g} full scales per second, safe {valve.safe:g}",
    )


def actuator_table(rig: Rig) -> TerminalTable:
    """The actuators whose position is controlled, one per column."""
    actuators = rig.settings.actuators
    table = new_table("Actuators", "", *actuators)
    rows: dict[str, list[str]] = {}
    for actuator in actuators.values():
        for key, value in _properties_of_actuator(actuator):
            rows.setdefault(key, []).append(value)
    for key, values in rows.items():
        table.add_row(key, *values)
    return table


def _properties_of_actuator(a: ActuatorSettings) -> Iterator[tuple[str, str]]:
    servo, part = a.servo, a.specimen
    yield "displacement, force", f"{a.position}, {a.force}"
    yield "gain of the position loop", f"{servo.velocity_gain:.4g} 1/s"
    yield "servo valve", f"-90° at {servo.f90:.4g} Hz, damping {servo.damping:.3g}"
    yield "stiffness of the oil", f"{1e-6 * servo.oil_stiffness:.4g} kN/mm"
    yield "specimen", f"{part.mass:.4g} kg, {part.damping:.4g} N·s/m, {1e-6 * part.stiffness:.4g} kN/mm"
    yield "uncertain", ", ".join(f"{name} ± {share:.2%}" for name, share in a.uncertainty.items()) or "nothing"
    yield "delay of the command", f"{a.delay * 1e3:g} ms"
    yield "strategy", a.bridge.strategy
    low, high = (shown_value(end, "m") for end in a.range)
    yield "output", f"{a.device}.{a.output}, raw {a.raw[0]:g} … {a.raw[1]:g} for {low} … {high}"
    yield "command", f"at most {shown_value(a.slew, 'm/s')}, safe {shown_value(a.safe, 'm')}, after a trip: {a.at_trip}"
    yield "largest error", f"{shown_value(a.largest_error, 'm')}: {a.error_action}"


def rate_table(rig: Rig) -> TerminalTable:
    """Tick, integration steps, telemetry, log."""
    settings, solver = rig.settings, rig.circuit.solver
    table = new_table("Rates", "what", "value")
    tick = 1.0 / settings.loop.rate
    table.add_row("tick", f"{tick * 1e3:g} ms ({settings.loop.rate:g} Hz)")
    table.add_row(
        "circuit", f"{solver.integrator}, {solver.substeps} steps of {tick / solver.substeps * 1e6:g} µs per tick"
    )
    table.add_row("missed ticks", f"up to {settings.loop.max_missed} in a row are compensated")
    table.add_row(
        "telemetry", f"{settings.mqtt.telemetry_rate:g} Hz, sent every {settings.mqtt.telemetry_batch * 1e3:g} ms"
    )
    for what, value in forecast(rig, free_space(log_folder(settings.recording))):
        table.add_row(what, value)
    if rig.cycle is not None:
        table.add_row(
            "work cycle",
            f"{rig.cycle.duration:g} s{', repeated' if rig.cycle.repeat else ''}: {', '.join(rig.cycle.inputs)}",
        )
    return table
