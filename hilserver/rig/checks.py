"""Consistency of the tables of a rig file, its circuit and its work cycle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError

from hilserver.circuit import engine as e
from hilserver.circuit.library import Library
from hilserver.circuit.model import RIG
from hilserver.circuit.pack import PackedCircuit
from hilserver.errors import Problem, did_you_mean, shown
from hilserver.rig.actuator_settings import ActuatorSettings
from hilserver.rig.available_strategies import cannot
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.cycle import CycleInput, CycleSettings
from hilserver.rig.references import ChannelKind, subtables, unresolved
from hilserver.rig.settings import RigSettings
from hilserver.rig.triggers import too_long_before, unknown_signals
from hilserver.units import CIRCUIT, shown_value, usual_unit

ROUNDING = 1e-9
"""m."""
TICKS_PER_PERIOD = 10
"""Minimum number of ticks per period of the fastest sine of a sweep."""


def channel_kinds(source: Mapping[str, Any]) -> dict[str, ChannelKind]:
    """What a reference may require of each channel that is valid, of a rig file's table that need not be."""
    found = {}
    for name, table in subtables(source, "channels").items():
        with suppress(ValidationError):
            channel = ChannelSettings.model_validate(table)
            found[name] = ChannelKind(channel.unit, channel.is_measured)
    return found


def unresolved_in_rig(source: Mapping[str, Any], file: str) -> Iterator[Problem]:
    """The references of a rig file's table that name nothing, or something of another kind than is required."""
    channels = channel_kinds(source)
    yield from unresolved(RigSettings, source, source, file, channels)
    for problem in unknown_signals(source, channels):
        yield replace(problem, file=file)


def disagreements(settings: RigSettings, file: str) -> Iterator[Problem]:
    """Settings that are valid separately, but not together. For references to missing entries see references.py."""
    for check in (_limits, _valves, _actuators, _outputs, _cylinders, _triggers):
        for problem in check(settings):
            yield replace(problem, file=file)


def _limits(settings: RigSettings) -> Iterator[Problem]:
    for name, limit in settings.limits.items():
        key = f"limits.{name}"
        if name in settings.channels and name != limit.channel:
            text = f'has the name of a channel but monitors channel "{limit.channel}": give it another name.'
            yield Problem(text, key)
        if limit.channel in settings.channels:
            unit = settings.channels[limit.channel].unit
            for bound_key in ("min", "max", "max_rate", "slow_down"):
                bound = getattr(limit, bound_key)
                if bound is not None and bound.unit != unit:
                    found, own = (usual_unit(each) or "no unit" for each in (bound.unit, unit))
                    text = f'is in {found}, but channel "{limit.channel}" is in {own}.'
                    yield Problem(text, f"{key}.{bound_key}")
        for valve in limit.valves:
            if valve in settings.valves and not (
                settings.valves[valve].range[0] <= 0.0 <= settings.valves[valve].range[1]
            ):
                text = f"valve {valve} can't be stopped: its range does not contain 0."
                yield Problem(text, f"{key}.valves.{valve}")


def _valves(settings: RigSettings) -> Iterator[Problem]:
    outputs: dict[tuple[str, str], str] = {}
    ports: dict[str, str] = {}
    for name, valve in settings.valves.items():
        key = f"valves.{name}"
        if reason := cannot(settings, valve, valve.bridge.strategy):
            yield Problem(f"{valve.bridge.strategy} {reason}.", f"{key}.bridge.strategy")
        if valve.dither.amplitude > 0 and valve.dither.frequency >= 0.5 * settings.loop.rate:
            text = (
                f"{valve.dither.frequency:g} Hz is not achievable at {settings.loop.rate:g} ticks per second: "
                "stay below half of that."
            )
            yield Problem(text, f"{key}.dither.frequency")
        if other := outputs.get((valve.device, valve.output)):
            yield Problem(f'valve "{other}" is driven by this output too.', f"{key}.output")
        if other := ports.get(valve.port):
            yield Problem(f'valve "{other}" controls the flow of this port too.', f"{key}.port")
        outputs.setdefault((valve.device, valve.output), name)
        ports.setdefault(valve.port, name)


def _actuators(settings: RigSettings) -> Iterator[Problem]:
    """Actuators share the names of nodes with ports, those of commands with valves, and the outputs with both."""
    outputs = {(v.device, v.output): f'valve "{name}"' for name, v in settings.valves.items()}
    for name, a in settings.actuators.items():
        key = f"actuators.{name}"
        for kind, names in (("port", settings.ports), ("valve", settings.valves)):
            if name in names:
                yield Problem(f"is the name of a {kind}, too: give the actuator a name of its own.", key)
        if user := outputs.get((a.device, a.output)):
            yield Problem(f"{user} is driven by this output too.", f"{key}.output")
        outputs.setdefault((a.device, a.output), f'actuator "{name}"')
        if a.position == a.force:
            yield Problem("is the channel of the displacement, too.", f"{key}.force")
        yield from _beyond_its_sensor(settings, name, a)


def _beyond_its_sensor(settings: RigSettings, name: str, a: ActuatorSettings) -> Iterator[Problem]:
    """A range that the sensor of the displacement does not measure."""
    channel = settings.channels.get(a.position)
    known = channel.measuring_range() if channel is not None and channel.unit == "m" else None
    if channel is not None and known is not None and not known[0] <= a.range[0] < a.range[1] <= known[1]:
        text = f'goes beyond what channel "{a.position}" measures, {channel.shown(*known)}.'
        yield Problem(text, f"actuators.{name}.range")


def starts_out_of_range(settings: RigSettings, packed: PackedCircuit, file: str) -> Iterator[Problem]:
    """Nodes of the circuit that begin where their actuator must not move."""
    first = int(packed.index[e.INITIAL])
    start = dict(zip(packed.values, packed.value[first : first + len(packed.values)], strict=True))
    for name, a in settings.actuators.items():
        x, (low, high) = start.get(f"{RIG}{name}.x"), a.range
        if x is not None and not low - ROUNDING <= x + a.offset <= high + ROUNDING:
            at, least, most = (shown_value(each, "m") for each in (x, low, high))
            sum_of = f", with the offset {shown_value(x + a.offset, 'm')}" if a.offset else ""
            text = (
                f"{least} … {most} does not contain the initial position of node {RIG}{name}, {at}{sum_of}. Change "
                "its position in the circuit, the offset or the range."
            )
            yield Problem(text, f"actuators.{name}.range", file)


def _outputs(settings: RigSettings) -> Iterator[Problem]:
    driven = {(v.device, v.output): f'valve "{name}"' for name, v in settings.valves.items()}
    driven |= {(a.device, a.output): f'actuator "{name}"' for name, a in settings.actuators.items()}
    for name, output in settings.outputs.items():
        place = (output.device, output.output)
        if user := driven.get(place):
            yield Problem(f"{user} is driven by this output too.", f"outputs.{name}.output")
        driven[place] = f'output "{name}"'


def _cylinders(settings: RigSettings) -> Iterator[Problem]:
    at_port: dict[str, str] = {}
    for kind, table in (("cylinder", settings.cylinders), ("motor", settings.motors)):
        for name, actuator in table.items():
            key = f"{kind}s.{name}"
            if kind == "motor" and name in settings.cylinders:
                yield Problem("is the name of a cylinder, too: each actuator needs a name of its own.", key)
            if actuator.port_B == actuator.port_A:
                yield Problem("is the same port as port_A.", f"{key}.port_B")
            for port in sorted({actuator.port_A, actuator.port_B} - {None}, key=str):
                if other := at_port.get(str(port)):
                    yield Problem(f'port "{port}" already belongs to {other}.', key)
                at_port[str(port)] = f'{kind} "{name}"'


def _triggers(settings: RigSettings) -> Iterator[Problem]:
    yield from too_long_before(settings, settings.recording.triggers)


def unmatched_signals(settings: RigSettings, columns: Iterable[str], file: str) -> Iterator[Problem]:
    """Patterns of ``recording.signals`` that match none of the row's columns; values of a circuit are not judged."""
    columns = list(columns)
    sections = {f"{name.partition('.')[0]}." for name in columns if "." in name} | {CIRCUIT}
    for pattern in settings.recording.signals:
        if not pattern.startswith(CIRCUIT) and not any(fnmatchcase(name, pattern) for name in columns):
            section = f"{pattern.partition('.')[0]}."
            known = [name for name in columns if name.startswith(section)] or [f"{each}*" for each in sections]
            text = f"{shown(pattern)} matches no column of the log.{did_you_mean(pattern, known)}"
            yield Problem(text, "recording.signals", file=file)


def cycle_disagreements(settings: RigSettings, cycle: CycleSettings, file: str) -> Iterator[Problem]:
    """Values of a work cycle outside of its inputs' ranges, and sweeps that are too fast for the loop."""
    for name, entry in cycle.inputs.items():
        if name not in settings.inputs:
            continue
        low, high = settings.inputs[name].range
        for number, (_, value) in enumerate(entry.points or ()):
            if not low <= value <= high:
                text = f"{value:g} is outside the input's range {low:g} … {high:g}."
                yield Problem(text, f"inputs.{name}.points[{number}]", file)
        yield from _sweep(settings, name, entry, file)


def _sweep(settings: RigSettings, name: str, entry: CycleInput, file: str) -> Iterator[Problem]:
    if (sweep := entry.sweep) is None:
        return
    key, (low, high) = f"inputs.{name}.sweep", settings.inputs[name].range
    lowest, highest = sweep.mean - sweep.amplitude, sweep.mean + sweep.amplitude
    if lowest < low or highest > high:
        text = f"goes from {lowest:g} to {highest:g}, outside the input's range {low:g} … {high:g}."
        yield Problem(text, key, file)
    if (fastest := max(sweep.frequencies)) * TICKS_PER_PERIOD > settings.loop.rate:
        text = (
            f"{fastest:g} Hz is too fast for {settings.loop.rate:g} ticks per second: a period needs at least "
            f"{TICKS_PER_PERIOD} ticks."
        )
        yield Problem(text, f"{key}.frequencies", file)


def undriven_signals(circuit: object, inputs: Iterable[str], library: Library, file: str) -> Iterator[Problem]:
    """Signals that no component writes and that are not an input of the rig, in a circuit that need not be valid."""
    inputs = list(inputs)
    placed = {
        name: (table, library.types[table["type"]])
        for name, table in subtables(circuit, "components").items()
        if isinstance(table.get("type"), str) and table["type"] in library.types
    }
    written = {
        table[port] for table, kind in placed.values() for port in kind.outputs if isinstance(table.get(port), str)
    }
    for name, (table, kind) in placed.items():
        for port in kind.inputs:
            signal = table.get(port)
            if isinstance(signal, str) and signal not in written and signal not in inputs:
                text = f"signal {shown(signal)} is written by no component and is not an input of the rig."
                yield Problem(text + did_you_mean(signal, inputs), f"components.{name}.{port}", file)
