"""Rig settings -> the plan (the tick's constants as tables of records) and the row layout (what is in which column)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilserver.circuit import engine as e
from hilserver.circuit.model import FORCE, RIG
from hilserver.circuit.pack import PackedCircuit
from hilserver.components.base import Fluid
from hilserver.errors import ConfigurationError, Problem
from hilserver.numerics.arrays import Floats, Integers
from hilserver.rig.actuators import actuator_lines, designs, memory_length
from hilserver.rig.channels import LimitSettings
from hilserver.rig.cycle import CycleInput, CycleSettings
from hilserver.rig.cylinders import cylinder_lines, past_lengths, port_lines
from hilserver.rig.input_settings import InputSettings
from hilserver.rig.kalman import kalman_table
from hilserver.rig.outputs import DrivenOutput
from hilserver.rig.sampling_lag import SlowDevices
from hilserver.rig.scale import Curve
from hilserver.rig.settings import RigSettings
from hilserver.rig.valves import valve_line
from hilserver.rig.watches import channel_constants, watches
from hilserver.tick.codes import Action, Characteristic, Shape, Watched, When
from hilserver.tick.columns import SECTIONS, is_whole
from hilserver.tick.outputs import raw_output
from hilserver.tick.plan import ChannelRecord, CyclePoint, Plan, make_plan, table_of
from hilserver.tick.records import NONE, RecordTable, cells_of
from hilserver.tick.row import (
    ACTUATOR_CELLS,
    ActuatorState,
    PortState,
    RowHeader,
    actuator_state,
    as_whole,
    cylinder_state,
    header,
    past_of_valve,
    trend,
    valve_state,
)

Line = dict[str, Any]
"""A record of the plan: the values of its fields by name."""
LIMIT_ACTIONS = {
    "warn": Action.WARN,
    "stop": Action.WARN,
    "hold": Action.HOLD,
    "ramp": Action.RAMP,
    "trip": Action.TRIP,
}
"""A limit that stops acts on its valves, by plan.end; on the mode no more than a warning."""
ENABLE_ACTIONS = {"refuse": Action.WARN, "ramp": Action.RAMP, "trip": Action.TRIP}
SHAPES = {"linear": Shape.LINEAR, "step": Shape.SMOOTH, "hold": Shape.JUMP}
CIRCUIT_SPACE = 256
"""Room in the row for the values of circuits switched in later; a larger first circuit gets twice its own size."""


MOST_PLANS = 16
"""Plans whose row before the first tick is remembered: those of a study's variants differ in strategies, if at all."""


@dataclass(frozen=True)
class RowLayout:
    """Names of the row's fixed columns, and where its sections begin."""

    names: tuple[str, ...]
    limits: tuple[str, ...]
    valves: tuple[str, ...]
    ports: tuple[str, ...]
    actuators: tuple[str, ...]
    bindings: Mapping[str, int]
    raw: tuple[str, ...]
    circuit_space: int
    starts: Mapping[str, int]
    """First column of each section, by the fields of `hilserver.tick.plan.Layout`; the circuit's values come last."""
    lengths: tuple[int, int, int, int]
    """Ticks that are stored: of each valve's command and each cylinder's state those past, of each input the next; and
    the number of values that the bridge of each actuator remembers."""
    outputs: tuple[DrivenOutput, ...]
    """The outputs in use, in the order of the sections ``confirmed`` and ``confirmed_age``."""

    def places(self) -> Line:
        """The layout as the plan holds it."""
        keys = ("valve_past_ticks", "cylinder_past_ticks", "input_ahead_ticks", "actuator_memory_cells")
        lengths = dict(zip(keys, self.lengths, strict=True))
        return {**self.starts, "circuit": len(self.names), "circuit_space": self.circuit_space, **lengths}

    @property
    def width(self) -> int:
        """Number of columns: fixed ones and the room for circuit values."""
        return len(self.names) + self.circuit_space

    @property
    def fingerprint(self) -> int:
        """A number that identifies this layout."""
        return zlib.crc32("\n".join((*self.names, str(self.circuit_space))).encode())

    def column(self, name: str) -> int:
        """Column of a fixed name such as ``channel.p_A``."""
        return self._columns[name]

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.names)}

    def values(self, rows: Floats, name: str) -> NDArray[Any]:
        """A fixed column of a row or of many rows, as a view: float64, or int64 for whole numbers."""
        found: NDArray[Any] = (as_whole(rows) if is_whole(name) else rows)[..., self.column(name)]
        return found

    def section(self, prefix: str) -> Mapping[str, int]:
        """Columns whose name begins with ``prefix.``, by the rest of the name."""
        if prefix not in self._sections:
            start = f"{prefix}."
            found = {name.removeprefix(start): i for i, name in enumerate(self.names) if name.startswith(start)}
            self._sections[prefix] = found
        return self._sections[prefix]

    @cached_property
    def _sections(self) -> dict[str, dict[str, int]]:
        """Those that were looked for so far."""
        return {}

    @cached_property
    def first_rows(self) -> dict[bytes, Floats]:
        """The row before the first tick, without a circuit, by the tables from which it follows: those asked for.

        The whole plan has a work cycle, which is a thousand times as large.
        """
        return {}

    @cached_property
    def ages(self) -> Integers:
        """Columns that are infinite before there is what they count from."""
        sections = ("age", "stale", "confirmed_age", "output_off")
        return np.array([column for name in sections for column in self.section(name).values()], dtype=np.int64)

    def with_space_for(self, packed: PackedCircuit) -> RowLayout:
        """The layout with at least the usual room, and twice what ``packed`` takes; with accounts, as much for them."""
        usual = (1 + ("account" in packed.kinds)) * CIRCUIT_SPACE
        space = max(usual, 2 * len(packed.names))
        return self if space == self.circuit_space else replace(self, circuit_space=space)

    def check_space(self, packed: PackedCircuit, file: str = "") -> None:
        """Refuse a circuit that has more values than the row has room for."""
        if len(packed.names) > self.circuit_space:
            text = (
                f"the circuit has {len(packed.names)} values, the running server has space for {self.circuit_space}: "
                "restart it with this circuit in the rig file."
            )
            raise ConfigurationError([Problem(text, file=file)])


def first_row(layout: RowLayout, plan: Plan, packed: PackedCircuit) -> Floats:
    """The row before the first tick: no sample yet, strategies as configured, the circuit at its initial values."""
    tables = (plan.layout, plan.input, plan.valve, plan.actuator, plan.output, plan.cylinder)
    known, key = layout.first_rows, b"".join(np.asarray(table).tobytes() for table in tables)
    if (empty := known.get(key)) is None:
        if len(known) >= MOST_PLANS:
            known.clear()
        known[key] = empty = _row_without_circuit(layout, plan)
    row, start, first = empty.copy(), len(layout.names), int(packed.index[e.INITIAL])
    row[start : start + len(packed.values)] = packed.value[first : first + len(packed.values)]
    return row


def _row_without_circuit(layout: RowLayout, plan: Plan) -> Floats:
    row = np.zeros(layout.width)
    row[layout.ages], row[list(layout.section("confirmed").values())] = np.inf, np.nan
    head, at = header(row), plan.layout[0]
    head.tick, head.circuit_version, head.cycle_time = -1, 1, -1.0
    for number, v in enumerate(plan.valve):
        block, safe = valve_state(plan, row, number), v.safe_value
        block.strategy = v.strategy_first
        block.fade = block.opening_filtered = block.supply = np.nan
        block.command = block.demand = block.spool = safe
        block.gain_PA = block.gain_AT = 1.0
        block.output = raw_output(safe, v)
        past_of_valve(at, row, number)[:] = safe
    for number, a in enumerate(plan.actuator):
        state = actuator_state(plan, row, number)
        state.strategy = a.strategy_first
        state.command = state.demand = state.position = state.estimate = a.safe_value
        state.output = a.raw_offset + a.raw_gain * a.safe_value
        state.approach = state.node_velocity = state.node_change = np.nan
    row[at.output : at.output + len(plan.output)] = plan.output["off"]
    for number in range(len(plan.cylinder)):
        cells_of(cylinder_state(plan, row, number))[:] = np.nan
    row[at.input : at.input + len(plan.input)] = plan.input["initial"]
    for number, entry in enumerate(plan.input):
        trend(plan, row, number).last = entry.initial
    return row


def row_layout(
    settings: RigSettings,
    slots: Mapping[tuple[str, str], int],
    slow: SlowDevices,
    outputs: tuple[DrivenOutput, ...],
) -> RowLayout:
    """The layout of the row, with the usual room for circuit values.

    ``slots``: (device, source) -> raw slot; ``outputs``: those in use.
    """
    limits = _limit_lines(settings, list(settings.channels), outputs)
    sources = {(s.device, s.source): name for name, s in settings.channels.items() if s.device and s.source}
    raw = tuple(sources.get(key, key[1]) for key in sorted(slots, key=lambda k: slots[k]))
    latest = max((_ticks_of(s, settings) for s in settings.inputs.values()), default=0)
    lengths = (*past_lengths(settings, slow), latest, memory_length(settings, slow))
    sections = _sections(settings, raw, limits, outputs, lengths)
    names, starts = list(RowHeader.names()), {}
    for section, columns in sections.items():
        starts[section] = len(names)
        names += columns
    bindings = {f"{RIG}{port}": starts["port"] + PortState.cells() * i for i, port in enumerate(settings.ports)}
    force = starts["actuator"] + ActuatorState.names().index("force")
    bindings |= {f"{RIG}{name}{FORCE}": force + ACTUATOR_CELLS * i for i, name in enumerate(settings.actuators)}
    bindings |= {name: starts["input"] + i for i, name in enumerate(settings.inputs)}
    return RowLayout(
        tuple(names),
        tuple(limits),
        tuple(settings.valves),
        tuple(settings.ports),
        tuple(settings.actuators),
        bindings,
        raw,
        CIRCUIT_SPACE,
        starts,
        lengths,
        outputs,
    )


def _sections(
    settings: RigSettings,
    raw: tuple[str, ...],
    limits: Iterable[str],
    outputs: tuple[DrivenOutput, ...],
    lengths: tuple[int, int, int, int],
) -> dict[str, list[str]]:
    """The names of the row's columns behind its header, by section."""
    names: dict[str, Iterable[str]] = {
        "readings": raw,
        "driven": [output.name for output in outputs],
        "devices": settings.devices,
        "channels": settings.channels,
        "inputs": settings.inputs,
        "limits": list(limits),
        "valves": settings.valves,
        "actuators": settings.actuators,
        "outputs": settings.outputs,
        "ports": settings.ports,
        "cylinders": settings.cylinders,
        "motors": settings.motors,
        "reactions": [str(number) for number in range(settings.loop.reactions)],
        "playouts": [str(number) for number in range(settings.loop.playouts)],
    }
    valve_past, cylinder_past, ahead, memory = lengths
    ticks = {
        "actuator_memory": range(memory),
        "valve_past": range(1, valve_past + 1),
        "cylinder_past": range(cylinder_past),
        "motor_past": range(cylinder_past),
        "input_ahead": range(1, ahead + 1),
    }
    found = {name: s.columns(names[s.owner], ticks.get(name, (0,))) for name, s in SECTIONS.items()}
    found["cylinder"] += found.pop("motor")  # the tick numbers motors behind the cylinders
    found["cylinder_past"] += found.pop("motor_past")
    return found


def _ticks_of(settings: InputSettings, rig: RigSettings) -> int:
    """Delay of an input in ticks, rounded; at least one, if there is one."""
    return max(round(settings.delay * rig.loop.rate), int(settings.delay > 0.0))


def build_plan(
    settings: RigSettings,
    cycle: CycleSettings | None,
    slots: Mapping[tuple[str, str], int],
    layout: RowLayout,
    slow: SlowDevices,
    fluid: Fluid,
    longest_gap: float,
    file: str = "",
) -> Plan:
    """The plan of a run.

    ``slots``: (device, source) -> raw slot; ``fluid``: the machine's oil; ``longest_gap``: time without a tick after
    which devices have closed the valves, s. Raises ConfigurationError where no bridge can be designed for an actuator
    (of ``file``).
    """
    channels, inputs, first = list(settings.channels), list(settings.inputs), layout.starts["channel"]
    design, foreseen = designs(settings, slow, file)
    lines: dict[str, list[Line]] = {
        "loop": [_loop_line(settings, cycle, longest_gap) | {"foreseen": foreseen}],
        "layout": [layout.places()],
        "channel": _channel_lines(settings, slots, slow),
        "curve": _curve_lines(settings),
        "limit": list(_limit_lines(settings, channels, layout.outputs).values()),
        "end": _end_lines(settings, channels),
        "input": [
            {"initial": s.initial, "low": s.range[0], "high": s.range[1], "delay": _ticks_of(s, settings)}
            for s in settings.inputs.values()
        ],
        "port": port_lines(settings, first),
        "valve": [valve_line(v, settings, slow, first) for v in settings.valves.values()],
        "output": _output_lines(settings, slow),
        "cylinder": cylinder_lines(settings, first, fluid),
        "actuator": actuator_lines(settings, slow, layout.starts["interval"], first),
        "cycle": cycle_lines(cycle, inputs),
    }
    plan = make_plan(lines, np.empty((0, 0)), design)
    return make_plan(lines, kalman_table(settings, plan, slow), design) if len(plan.cylinder) else plan


def _loop_line(settings: RigSettings, cycle: CycleSettings | None, longest_gap: float) -> Line:
    loop = settings.loop
    line: Line = {
        "dt": 1.0 / loop.rate,
        "max_missed": loop.max_missed,
        "longest_gap": longest_gap,
        "heartbeat_timeout": loop.heartbeat_timeout,
        "cycle_length": cycle.duration if cycle is not None else 0.0,
        "cycle_repeats": cycle is not None and cycle.repeat,
        "cycle_foreseen": cycle is not None and cycle.foreseen,
        "enable_channel": NONE,
        "enable_max_age": 0.0,
        "enable_action": Action.NONE,
        "reactions": loop.reactions,
        "playouts": loop.playouts,
    }
    if (enable := settings.enable) is not None and enable.channel in settings.channels:
        line["enable_channel"] = list(settings.channels).index(enable.channel)
        line["enable_max_age"] = settings.oldest_sample(enable.channel)
        line["enable_action"] = ENABLE_ACTIONS[enable.action]
    return line


def _channel_lines(settings: RigSettings, slots: Mapping[tuple[str, str], int], slow: SlowDevices) -> list[Line]:
    lines, first = [], 0
    watched = channel_constants(settings)
    for name, s in settings.channels.items():
        line: Line = dict(watched[name])
        if s.device is None or s.source is None:
            line = {**dict.fromkeys(ChannelRecord.names(), 0.0), **line, "constant": s.fixed(), "slot": NONE}
        else:
            points = len(_points_of(s.curve()))
            low, high = s.raw_limits()
            lowest, highest = s.value_limits()
            line |= {
                "constant": 0.0,
                "slot": slots[s.device, s.source],
                "filter": s.filter,
                "characteristic": Characteristic.TABLE if s.curve().points else Characteristic.POLYNOMIAL,
                "first": first,
                "last": first + points - 1,
                "raw_low": low,
                "raw_high": high,
                "valid_low": lowest,
                "valid_high": highest,
                "valid_rate": s.valid_rate.value if s.valid_rate is not None else np.inf,
                "least_interval": 0.5 * slow.ticks(s.device) / slow.loop_rate,
            }
            first += points
        lines.append(line)
    return lines


def _curve_lines(settings: RigSettings) -> list[Line]:
    measured = [s for s in settings.channels.values() if s.is_measured]
    return [{"x": x, "y": y} for s in measured for x, y in _points_of(s.curve())]


def _points_of(curve: Curve) -> list[tuple[float, float]]:
    return [(x, y) for x, y in curve.points] or [(coefficient, 0.0) for coefficient in curve.coefficients]


def _limit_lines(settings: RigSettings, channels: list[str], outputs: tuple[DrivenOutput, ...]) -> dict[str, Line]:
    """All limits by name: the configured ones, ``loop.max_age`` for each channel without one, those of the outputs."""
    found = {}
    for name, limit in settings.limits.items():
        channel = settings.channels.get(limit.channel)
        zero = channel.zero if channel is not None else 0.0
        place = channels.index(limit.channel) if limit.channel in channels else 0
        for suffix, bounds in _bounds(limit, zero):
            found[name + suffix] = {"channel": place, **bounds, "action": LIMIT_ACTIONS[limit.action]}
    watched = {limit.channel for limit in settings.limits.values() if limit.max_age is not None}
    for place, (name, s) in enumerate(settings.channels.items()):
        if s.is_measured and name not in watched:
            bounds = _range(Watched.AGE, -np.inf, settings.loop.max_age)
            found[f"{name}.age"] = {"channel": place, **bounds, "action": Action.TRIP}
    for place, output in enumerate(outputs):
        if output.max_age is not None:
            bounds = _range(Watched.CONFIRMATION, -np.inf, output.max_age)
            found[output.limit] = {"channel": place, **bounds, "action": output.action}
    for place, (name, actuator) in enumerate(settings.actuators.items()):
        error = actuator.largest_error
        bounds = _range(Watched.FOLLOWING, -error, error)
        found[f"{name}.following"] = {"channel": place, **bounds, "action": LIMIT_ACTIONS[actuator.error_action]}
    for name, watch in watches(settings).items():
        bounds = _range(watch.watched, watch.lower, watch.upper)
        found[name] = {"channel": channels.index(watch.channel), **bounds, "action": LIMIT_ACTIONS[watch.action]}
    return found


def _end_lines(settings: RigSettings, channels: list[str]) -> list[Line]:
    """A line for each valve that a limit stops."""
    lines, valves = [], list(settings.valves)
    for limit in settings.limits.values():
        for valve, sign in limit.valves.items():
            if limit.channel in channels and valve in valves:
                ((_, bounds),) = _bounds(limit, 0.0)
                line = {
                    "channel": channels.index(limit.channel),
                    "valve": valves.index(valve),
                    "sign": sign,
                    "lower": bounds["lower"],
                    "upper": bounds["upper"],
                    "distance": limit.slow_down.value if limit.slow_down is not None else 0.0,
                }
                lines.append(line)
    return lines


def _range(watched: Watched, lower: float, upper: float) -> Line:
    return {"watched": watched, "lower": lower, "upper": upper}


def _bounds(limit: LimitSettings, zero: float) -> list[tuple[str, Line]]:
    """Name suffix and bounds of each thing a limit watches; ``zero``: the channel's zero above gauge."""
    found = []
    if limit.min is not None or limit.max is not None:
        lower = limit.min.value - zero if limit.min is not None else -np.inf
        upper = limit.max.value - zero if limit.max is not None else np.inf
        found.append(("", _range(Watched.VALUE, lower, upper)))
    if limit.max_age is not None:
        found.append((".age", _range(Watched.AGE, -np.inf, limit.max_age)))
    if limit.max_rate is not None:
        found.append((".rate", _range(Watched.RATE, -limit.max_rate.value, limit.max_rate.value)))
    return found


def _output_lines(settings: RigSettings, slow: SlowDevices) -> list[Line]:
    """A heartbeat on a slow device changes no faster than the device is sure to see."""
    lines = []
    for s in settings.outputs.values():
        off, on = s.levels()
        ticks = np.ceil(2.0 * slow.loop_rate / slow.rates[s.device]) if s.device in slow.rates else 1
        line = {"when": When[s.on.upper()], "off": off, "on": on, "toggle_ticks": int(ticks), "off_delay": s.off_delay}
        lines.append(line)
    return lines


def cycle_lines(cycle: CycleSettings | None, inputs: list[str]) -> list[Line]:
    """The points of a work cycle, sorted by input and time."""
    if cycle is None:
        return []
    driven = ((number, cycle.inputs[name]) for number, name in enumerate(inputs) if name in cycle.inputs)
    return [{"input": number, **point} for number, entry in driven for point in _cycle_points(entry)]


def cycle_table(cycle: CycleSettings | None, inputs: list[str]) -> RecordTable[CyclePoint]:
    """The same as a table of the plan."""
    return table_of(CyclePoint, cycle_lines(cycle, inputs))


def cycle_objects(cycle: CycleSettings, inputs: list[str]) -> Any:
    """The same as an array of objects: Python reads their attributes ten times as fast as those of a NumPy record."""
    table: Any = cycle_table(cycle, inputs)
    points = [SimpleNamespace(**dict(zip(table.dtype.names, point, strict=True))) for point in table.tolist()]
    return np.array(points, dtype=object)


def _cycle_points(entry: CycleInput) -> Iterator[Line]:
    """The points of an input, and those between which it rests and oscillates about the mean of its sweep."""

    def point(at: float, target: float, kind: Shape, amplitude: float = 0.0, frequency: float = 0.0) -> Line:
        return {"at": at, "target": target, "kind": kind, "amplitude": amplitude, "frequency": frequency}

    for t, value in entry.points or ():
        yield point(t, value, SHAPES[entry.shape])
    sweep = entry.sweep
    if sweep is None:
        return
    yield point(entry.sweep_begins + 0.5 * sweep.rest, sweep.mean, Shape.SMOOTH)
    for sine in entry.sines:
        yield point(sine.begins, sweep.mean, Shape.LINEAR)
        yield point(sine.ends, sweep.mean, Shape.SINE, sweep.amplitude, sine.frequency)
    yield point(entry.duration, sweep.mean, Shape.LINEAR)
