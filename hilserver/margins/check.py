"""A rig as tables, without running it; and what of it is allowed, but likely not meant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.table import Table

from hilserver.circuit import engine as e
from hilserver.circuit.analysis import Analysis, NoEquilibrium, Stiffness, too_long
from hilserver.circuit.mechanisms import PlacedMechanism
from hilserver.circuit.model import RIG, Circuit, read_part
from hilserver.circuit.pack import TABLE_WIDTHS
from hilserver.circuit.program import Program
from hilserver.driver import Pace
from hilserver.errors import shown
from hilserver.margins.margins import Margins
from hilserver.rig.build import Rig
from hilserver.rig.channels import ChannelSettings, LimitSettings
from hilserver.rig.plan import corner_frequency
from hilserver.rig.settings import ValveSettings
from hilserver.tick.codes import Watched
from hilserver.tick.program import compiled_program
from hilserver.units import shown_unit

PERIODS_OLD = 3.0
"""Periods of a slow device that a sample may be old without anything being wrong: reading, answer, another clock."""


def tables(rig: Rig, found: Margins) -> Iterator[Table]:
    """Channels, limits, circuit, nodes, valves with their margins, and rates of a rig, one table each."""
    yield channel_table(rig)
    if rig.settings.limits:
        yield limit_table(rig)
    yield component_table(rig.circuit)
    yield node_table(rig)
    if rig.settings.valves:
        yield valve_table(rig)
        yield from found.tables()
    yield rate_table(rig)
    yield solver_table(rig)


def warnings(rig: Rig, found: Margins) -> Iterator[str]:
    """What is allowed, but likely not meant."""
    yield from found.warnings({valve.bridge.strategy: None for valve in rig.settings.valves.values()})
    yield from _solver_warnings(rig)
    yield from _age_warnings(rig)
    if rig.settings.calibration is not None and "calibration" not in rig.sources:
        yield f"calibration: there is no {shown(rig.settings.calibration)} yet; hilserver calibrate makes it."
    for device in rig.devices:
        if device.is_replayed and not (rig.file.parent / device.config.file).is_file():
            file = shown(device.config.file)
            yield f"devices.{device.name}.file: there is no {file} yet; hilserver replay names it with --file."
        if device.driver.pace is Pace.SLOW and device.outputs and not device.inputs:
            yield (
                f"devices.{device.name}: has outputs in use but no channel: nothing tells the loop when it is gone. "
                "Read one of its channels, with an age limit."
            )
    for name, text in _unused(rig):
        yield f"{name}: {text}"


def mechanisms(rig: Rig) -> tuple[PlacedMechanism, ...]:
    """The mechanisms of the virtual circuit and of the simulated machines."""
    machines = [tables["machine"] for tables in rig.sources.get("devices", {}).values() if "machine" in tables]
    return sum((read_part(machine, rig.library).mechanisms for machine in machines), rig.circuit.mechanisms)


def _age_warnings(rig: Rig) -> Iterator[str]:
    """Channels of slow devices whose samples are too old before the next ones come."""
    periods = {d.name: 1.0 / d.config.rate for d in rig.devices if d.driver.pace is Pace.SLOW}
    names = list(rig.settings.channels)
    for line in rig.plan.limit:
        name = names[line.channel]
        period = periods.get(rig.settings.channels[name].device or "")
        if line.watched == Watched.AGE and period is not None and line.upper < PERIODS_OLD * period:
            yield (
                f"channels.{name}: its device is read every {period * 1e3:g} ms, and {line.upper * 1e3:g} ms "
                f"old samples violate a limit: allow {PERIODS_OLD:g} periods (max_age of a limit, or loop.max_age)."
            )


def _solver_warnings(rig: Rig) -> Iterator[str]:
    if text := solver_trouble(rig, compiled_program(rig.library)):
        yield f"solver: {text}"


def solver_trouble(rig: Rig, program: Program) -> str | None:
    """What to change where the integrator can't follow the rig's circuit; else None."""
    solver = rig.circuit.solver
    return too_long(stiffest(rig, program), solver.integrator, 1.0 / rig.settings.loop.rate, solver.substeps)


def stiffest(rig: Rig, program: Program) -> Stiffness:
    """The fastest motion of the circuit: at its start, and at rest with each input at its ends."""
    found = [Analysis(program, rig.packed).stiffness()]
    ends = {name: s.range for name, s in rig.settings.inputs.items()}
    for end in (0, 1):
        analysis = Analysis(program, rig.packed)
        for name, limits in ends.items():
            if name in rig.packed.values:
                analysis.values[rig.packed.values.index(name)] = limits[end]
        with contextlib.suppress(NoEquilibrium):
            analysis.steady_state()
        found.append(analysis.stiffness())
    return min(found, key=lambda each: each.time_constant)


def _step(rig: Rig) -> float:
    return 1.0 / rig.settings.loop.rate / rig.circuit.solver.substeps


def _forcing(rig: Rig, found: Stiffness) -> str:
    """The component or node that a state belongs to, in words."""
    owner = found.state.rpartition(".")[0]
    if not owner:
        return found.state
    at = [placed.name for placed in rig.circuit.placed if owner in placed.ports.values()]
    return f'node "{owner}" ({", ".join(at)})' if at else f"component {owner}"


def solver_table(rig: Rig) -> Table:
    """Whether the integrator's step is short enough for the fastest motion in the circuit."""
    table = _table("Solver", "integrator", "step", "fastest time constant", "of", "longest stable step")
    found = stiffest(rig, compiled_program(rig.library))
    longest = found.longest_step(rig.circuit.solver.integrator)
    table.add_row(
        f"{rig.circuit.solver.integrator} × {rig.circuit.solver.substeps}",
        f"{_step(rig) * 1e6:.0f} µs",
        f"{found.time_constant * 1e3:.3g} ms",
        _forcing(rig, found),
        "any (L-stable)" if np.isinf(longest) else f"{longest * 1e6:.0f} µs",
    )
    return table


def _unused(rig: Rig) -> Iterator[tuple[str, str]]:
    used = set(rig.circuit.inputs())
    for name in rig.settings.inputs:
        if name not in used:
            yield f"inputs.{name}", "no component of the circuit reads it."
    for port in rig.settings.ports:
        if port not in rig.circuit.rig_ports():
            yield f"ports.{port}", f"no component of the circuit connects to {RIG}{port}: its virtual flow is 0."


# --- tables -----------------------------------------------------------------------------------------------------------


def channel_table(rig: Rig) -> Table:
    """Where each channel comes from, and its range."""
    heads = ("channel", "from", "raw", "value", "valid", "filter", "used as")
    table = _table("Channels", *heads, *(["calibrated"] if rig.calibrations else []))
    roles = _roles(rig)
    for name, channel in rig.settings.channels.items():
        origin = f"{channel.device}.{channel.source}" if channel.device else "fixed"
        low_pass = f"{channel.filter * 1e3:g} ms" if channel.filter else ""
        used = ", ".join(roles.get(name, []))
        last = rig.calibrations[name][-1] if name in rig.calibrations else None
        calibrated = [f"{last.date[:10]} {last.note}".rstrip() if last is not None else ""] if rig.calibrations else []
        table.add_row(name, origin, *_scaled(channel), _valid(channel), low_pass, used, *calibrated)
    return table


def _scaled(channel: ChannelSettings) -> tuple[str, str]:
    """Raw readings and the values they stand for."""
    kind = " abs." if channel.absolute else ""
    if channel.value is not None:
        return "", quantity(channel.value.value, channel.unit) + kind
    assert channel.scale is not None
    if channel.scale.polynomial is not None:
        raw, value = "polynomial", f"{formula(channel.scale.polynomial)} {channel.scale.unit}"
    else:
        points, values = channel.scale.raw or (4.0, 20.0), channel.scale.value or channel.scale.current or ()
        raw = f"{points[0]:g} … {points[-1]:g}" + (" mA" if channel.scale.current else "")
        raw += f", {len(points)} points" if len(points) > 2 else ""
        value = f"{quantity(values[0].value, channel.unit)} … {quantity(values[-1].value, channel.unit)}"
    if channel.tare is not None:
        value += f", less {quantity(channel.tare.value, channel.unit)}"
    return raw, value + kind


def formula(polynomial: Sequence[float]) -> str:
    """A polynomial of the raw reading in words.

    >>> formula((0.5, -25.0, 0.01))
    '0.5 - 25·raw + 0.01·raw^2'
    """
    powers = ("", "·raw", *(f"·raw^{n}" for n in range(2, len(polynomial))))
    terms = [f"{number:.6g}{power}" for number, power in zip(polynomial, powers, strict=False)]
    return " + ".join(terms).replace("+ -", "- ")


def _valid(channel: ChannelSettings) -> str:
    """What a sample must keep to, to be one."""
    if channel.value is not None:
        return ""
    low, high = channel.raw_limits()
    found = [f"raw {low:g} … {high:g}"] if np.isfinite(low) else []
    if channel.valid is not None:
        first, last = channel.valid
        found.append(f"{quantity(first.value, channel.unit)} … {quantity(last.value, channel.unit)}")
    if channel.valid_rate is not None:
        found.append(f"{quantity(channel.valid_rate.value, channel.unit)} per second")
    return ", ".join(found)


def _roles(rig: Rig) -> dict[str, list[str]]:
    roles: dict[str, list[str]] = {}
    for port, channel in rig.settings.ports.items():
        roles.setdefault(channel, []).append(f"{RIG}{port}")
    for name, valve in rig.settings.valves.items():
        for word in ("supply", "tank", "flow"):
            if channel_name := getattr(valve, word):
                roles.setdefault(channel_name, []).append(f"{word} of valve {name}")
    return roles


def limit_table(rig: Rig) -> Table:
    """What is watched, and what happens."""
    table = _table("Limits", "limit", "channel", "allowed", "action")
    for name, limit in rig.settings.limits.items():
        table.add_row(name, limit.channel, _allowed(limit, rig.settings.channels[limit.channel].unit), limit.action)
    return table


def _allowed(limit: LimitSettings, unit: str) -> str:
    parts = []
    if limit.min is not None:
        parts.append(f"≥ {quantity(limit.min.value, unit)}")
    if limit.max is not None:
        parts.append(f"≤ {quantity(limit.max.value, unit)}")
    if limit.max_age is not None:
        parts.append(f"not older than {limit.max_age * 1e3:g} ms")
    if limit.max_rate is not None:
        parts.append(f"not faster than {quantity(limit.max_rate.value, limit.max_rate.unit)} per second")
    if limit.slow_down is not None:
        parts.append(f"slower from {quantity(limit.slow_down.value, unit)} before")
    return ", ".join(parts)


def component_table(circuit: Circuit) -> Table:
    """The circuit: what is on the drawing, with what is on the datasheet."""
    table = _table("Virtual circuit", "component", "type", "connections", "datasheet")
    for placed in circuit.placed:
        given = circuit.source["components"][placed.name]
        hidden = {"type", "ports", "description", *placed.signals}
        values = [f"{key} {written(value)}" for key, value in given.items() if key not in hidden]
        connections = [f"{port}: {node}" for port, node in (*placed.ports.items(), *placed.signals.items())]
        table.add_row(placed.name, placed.component.type_name, "\n".join(connections), "\n".join(values))
    table.caption = circuit.description
    return table


def node_table(rig: Rig) -> Table:
    """The nodes of the circuit at rest: pressure, and their capacitance as a volume of oil; motion and mass; states."""
    table = _table("Nodes and states at rest", "node or state", "kind", "start", "volume or mass")
    packed, totals = rig.packed, _sums_at_rest(rig)
    volumes = {
        packed.values[place]: total * rig.circuit.fluid.bulk_modulus for place, total in totals[e.HYDRAULIC].items()
    }
    masses = {packed.values[place]: total for place, total in totals[e.MECHANICAL].items()}
    first = int(packed.index[e.INITIAL])
    for place, (name, unit) in enumerate(zip(packed.values, packed.kinds, strict=True)):
        start = packed.value[first + place]
        if name in volumes:
            table.add_row(
                name.removesuffix(".content"), "hydraulic", quantity(start, "Pa"), f"{volumes[name] * 1e3:.4g} l"
            )
        elif name in masses:
            resists = f"{masses[name]:.4g} {'kg' if unit == 'm' else 'kg·m²'}"
            table.add_row(name.rpartition(".")[0], "mechanical", quantity(start, unit), resists)
        elif place < packed.n_states:
            table.add_row(name, "state", quantity(start, "" if unit == "1" else unit), "")
        elif name.startswith(RIG) and name.endswith(".p"):
            table.add_row(name.removesuffix(".p"), "measured", "", "")
    return table


def _sums_at_rest(rig: Rig) -> dict[int, dict[int, float]]:
    """Total capacitance (or mass) by the place of the node's first value, at the circuit's initial values."""
    program, packed = compiled_program(rig.library), rig.packed
    z, y = np.zeros(len(packed.values)), np.zeros(len(packed.recorded))
    work = np.zeros(packed.work_size)
    program.load(packed.index, packed.value, z)
    program.derivatives(packed.index, packed.value, z, y, work)
    found: dict[int, dict[int, float]] = {}
    for header in (e.HYDRAULIC, e.MECHANICAL):
        start, width = int(packed.index[header]), TABLE_WIDTHS[header]
        lines = packed.index[start : start + width * int(packed.index[header - 1])].reshape(-1, width)
        found[header] = {int(line[0]): float(work[int(line[1]) + 1]) for line in lines}
    return found


def valve_table(rig: Rig) -> Table:
    """The real valves, one per column."""
    valves = rig.settings.valves
    table = _table("Real valves", "", *valves)
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
    yield f"flow at {quantity(drop, 'Pa')} per edge", quantity(point.flow, "m^3/s")
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


def rate_table(rig: Rig) -> Table:
    """Tick, integration steps, telemetry."""
    settings, solver = rig.settings, rig.circuit.solver
    table = _table("Rates", "what", "value")
    tick = 1.0 / settings.loop.rate
    table.add_row("tick", f"{tick * 1e3:g} ms ({settings.loop.rate:g} Hz)")
    table.add_row(
        "circuit", f"{solver.integrator}, {solver.substeps} steps of {tick / solver.substeps * 1e6:g} µs per tick"
    )
    table.add_row("missed ticks", f"up to {settings.loop.max_missed} in a row are made good")
    table.add_row(
        "telemetry", f"{settings.mqtt.telemetry_rate:g} Hz, sent every {settings.mqtt.telemetry_batch * 1e3:g} ms"
    )
    if rig.cycle is not None:
        table.add_row(
            "work cycle",
            f"{rig.cycle.duration:g} s{', repeated' if rig.cycle.repeat else ''}: {', '.join(rig.cycle.inputs)}",
        )
    return table


# --- values as the user writes them -----------------------------------------------------------------------------------


def quantity(value: float, unit: str) -> str:
    """An SI value in the unit people use.

    >>> quantity(3.5e6, "Pa"), quantity(1e-3, "m^3/s"), quantity(0.5, "")
    ('35 bar', '60 l/min', '0.5')
    """
    shown, factor = shown_unit(unit)
    return f"{value * factor:.4g} {shown}".rstrip()


def written(value: object) -> str:
    """A value of a circuit file on one line.

    >>> written({"flow": "40 l/min", "per": "edge"}), written([["5 bar", "20 l/min"], ["15 bar", "60 l/min"]])
    ('flow 40 l/min, per edge', '5 bar, 20 l/min; 15 bar, 60 l/min')
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {written(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return ("; " if any(isinstance(entry, list) for entry in value) else ", ").join(map(written, value))
    return str(value)


def _table(title: str, *heads: str) -> Table:
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head)
    return table
