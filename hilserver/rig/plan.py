"""Rig settings -> the plan (the tick's constants as tables of floats) and the row layout (what is in which column)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from hilserver.circuit import engine as e
from hilserver.circuit.model import RIG
from hilserver.circuit.pack import PackedCircuit
from hilserver.components.base import Fluid
from hilserver.errors import ConfigurationError, Problem
from hilserver.numerics.arrays import Floats
from hilserver.rig.channels import LimitSettings
from hilserver.rig.cycle import CycleInput, CycleSettings
from hilserver.rig.cylinders import cylinder_table, past_lengths, port_table
from hilserver.rig.kalman import observer_table
from hilserver.rig.scale import Curve
from hilserver.rig.settings import RigSettings, ValveSettings
from hilserver.tick import columns as c
from hilserver.tick.bridge import columns as b
from hilserver.tick.bridge.strategies import raw_output
from hilserver.tick.plan import Plan

CIRCUIT_SPACE = 256
"""Room in the row for the values of circuits switched in later; a larger first circuit gets twice its own size."""


@dataclass(frozen=True)
class RowLayout:
    """Names of the row's fixed columns, and where its sections begin."""

    names: tuple[str, ...]
    limits: tuple[str, ...]
    valves: tuple[str, ...]
    ports: tuple[str, ...]
    bindings: Mapping[str, int]
    raw: tuple[str, ...]
    circuit_space: int
    starts: tuple[int, ...]
    """First column of each section, in the order of :mod:`hilserver.tick.columns`; the circuit's values follow them."""
    pasts: tuple[int, int]
    """Ticks that are remembered of each valve's command, and of each cylinder's state."""

    def places(self) -> list[int]:
        """The layout's numbers as the plan holds them: starts, the circuit's start and room, lengths of the past."""
        return [*self.starts, len(self.names), self.circuit_space, *self.pasts]

    @property
    def width(self) -> int:
        """Number of columns: fixed ones and the room for circuit values."""
        return len(self.names) + self.circuit_space

    @property
    def fingerprint(self) -> int:
        """A number that tells this layout from others."""
        return zlib.crc32("\n".join((*self.names, str(self.circuit_space))).encode())

    def column(self, name: str) -> int:
        """Column of a fixed name such as ``channel.p_A``."""
        return self.names.index(name)

    def section(self, prefix: str) -> dict[str, int]:
        """Columns whose name begins with ``prefix.``, by the rest of the name."""
        return {
            name.removeprefix(f"{prefix}."): i for i, name in enumerate(self.names) if name.startswith(f"{prefix}.")
        }

    def with_space_for(self, packed: PackedCircuit) -> RowLayout:
        """The layout with at least the usual room, and twice what ``packed`` takes."""
        return replace(self, circuit_space=max(CIRCUIT_SPACE, 2 * len(packed.names)))

    def check_space(self, packed: PackedCircuit, file: str = "") -> None:
        """Refuse a circuit that has more values than the row has room for."""
        if len(packed.names) > self.circuit_space:
            text = (
                f"the circuit has {len(packed.names)} values, the running server has room for {self.circuit_space}: "
                "restart it with this circuit in the rig file."
            )
            raise ConfigurationError([Problem(text, file=file)])


def first_row(layout: RowLayout, plan: Plan, packed: PackedCircuit) -> Floats:
    """The row before the first tick: no sample yet, strategies as configured, the circuit at its initial values."""
    row = np.zeros(layout.width)
    for column, name in enumerate(layout.names):
        if name.startswith(("age.", "stale.")):
            row[column] = np.inf
    row[c.TICK], row[c.CIRCUIT_VERSION], row[c.CYCLE_TIME] = -1.0, 1.0, -1.0
    for number, line in enumerate(plan.valve):
        block = plan.layout[c.VALVE] + number * b.BLOCK
        row[block + b.STRATEGY_NOW] = line[b.STRATEGY_FIRST]
        row[block + b.FADE] = row[block + b.OPENING_FILTERED] = np.nan
        row[block + b.COMMAND_OUT] = row[block + b.DEMAND] = line[b.SAFE_VALUE]
        row[block + b.SPOOL] = line[b.SAFE_VALUE]
        row[block + b.GAIN_PA] = row[block + b.GAIN_AT] = 1.0
        past = plan.layout[c.VALVES_PAST] + number * plan.layout[c.VALVE_PAST]
        row[past : past + plan.layout[c.VALVE_PAST]] = line[b.SAFE_VALUE]
        row[block + b.OUTPUT] = raw_output(line[b.SAFE_VALUE], line)
    row[plan.layout[c.OUTPUTS] : plan.layout[c.OUTPUTS] + len(plan.output)] = plan.output[:, c.OUTPUT_OFF]
    for number in range(len(plan.cylinder)):
        block = plan.layout[c.CYLINDERS] + number * b.CYLINDER_BLOCK
        row[block : block + b.CYLINDER_BLOCK] = np.nan
    start, first = plan.layout[c.CIRCUIT], int(packed.index[e.INITIAL])
    row[start : start + len(packed.values)] = packed.value[first : first + len(packed.values)]
    row[plan.layout[c.INPUT] : plan.layout[c.INPUT] + len(plan.input)] = plan.input[:, c.INPUT_INITIAL]
    trends = slice(plan.layout[c.TREND] + c.LAST, plan.layout[c.LIMIT], c.TRENDS)
    row[trends] = plan.input[:, c.INPUT_INITIAL]
    return row


def row_layout(settings: RigSettings, slots: Mapping[tuple[str, str], int]) -> RowLayout:
    """The layout of the row, with the usual room for circuit values.

    ``slots``: (device, source) -> raw slot.
    """
    channels, inputs = list(settings.channels), list(settings.inputs)
    limit_names = _limit_table(settings, channels)[0]
    valve_past, cylinder_past = past_lengths(settings)
    sources = {(s.device, s.source): name for name, s in settings.channels.items() if s.device and s.source}
    raw = tuple(sources.get(key, key[1]) for key in sorted(slots, key=lambda k: slots[k]))
    sections = [
        [f"raw.{name}" for name in raw],
        [f"age.{name}" for name in raw],
        [f"errors.{name}" for name in settings.devices],
        [f"channel.{name}" for name in channels],
        [f"stale.{name}" for name in channels],
        [f"change.{name}" for name in channels],
        [f"input.{name}" for name in inputs],
        [f"input_{word}.{name}" for name in inputs for word in c.TREND_NAMES],
        [f"limit.{name}" for name in limit_names],
        [f"valve.{name}.{word}" for name in settings.valves for word in b.BLOCK_NAMES],
        [f"output.{name}" for name in settings.outputs],
        [f"{word}.{name}" for name in settings.ports for word in ("port", "port_trend")],
        [f"cylinder.{name}.{word}" for name in settings.cylinders for word in b.CYLINDER_NAMES],
        [f"valve.{name}.command_{k}" for name in settings.valves for k in range(1, valve_past + 1)],
        [
            f"cylinder.{name}.{word}_{k}"
            for name in settings.cylinders
            for word in ("p_A", "p_B", "x", "flow_A", "flow_B")
            for k in range(cylinder_past)
        ],
    ]
    names = list(c.HEADER_NAMES)
    starts = []
    for section in sections:
        starts.append(len(names))
        names += section
    bindings = {f"{RIG}{port}": starts[c.PORTS_SEEN] + 2 * i for i, port in enumerate(settings.ports)}
    bindings |= {name: starts[c.INPUT] + i for i, name in enumerate(inputs)}
    return RowLayout(
        tuple(names),
        limit_names,
        tuple(settings.valves),
        tuple(settings.ports),
        bindings,
        raw,
        CIRCUIT_SPACE,
        tuple(starts),
        (valve_past, cylinder_past),
    )


def build_plan(
    settings: RigSettings,
    cycle: CycleSettings | None,
    slots: Mapping[tuple[str, str], int],
    layout: RowLayout,
    rates: Mapping[str, float],
    fluid: Fluid,
) -> Plan:
    """The plan of a run.

    ``slots``: (device, source) -> raw slot; ``rates``: how often slow devices are written, 1/s; ``fluid``: the
    machine's oil.
    """
    channels, inputs = list(settings.channels), list(settings.inputs)
    places = layout.places()
    plan = Plan(
        loop=_loop_table(settings, cycle),
        channel=_channel_table(settings, slots),
        curve=_curve_table(settings),
        limit=_limit_table(settings, channels)[1],
        end=_end_table(settings, channels),
        input=_table([[s.initial, *s.range] for s in settings.inputs.values()], 3),
        port=port_table(settings, places[c.CHANNEL]),
        valve=_table([_valve_line(v, settings, places[c.CHANNEL]) for v in settings.valves.values()], b.VALVE_WIDTH),
        output=_output_table(settings, rates),
        cylinder=cylinder_table(settings, places[c.CHANNEL], fluid),
        observer=np.empty((0, 0)),
        cycle=cycle_table(cycle, inputs),
        layout=np.array(places, dtype=np.int64),
    )
    return plan._replace(observer=observer_table(settings, plan))


def _table(lines: list[list[float]], width: int) -> Floats:
    return np.array(lines, dtype=np.float64).reshape(-1, width)


def _loop_table(settings: RigSettings, cycle: CycleSettings | None) -> Floats:
    loop = settings.loop
    line = [0.0] * c.LOOP
    line[c.DT], line[c.MAX_MISSED], line[c.HEARTBEAT_TIMEOUT] = 1.0 / loop.rate, loop.max_missed, loop.heartbeat_timeout
    if cycle is not None:
        line[c.CYCLE_LENGTH], line[c.CYCLE_REPEATS] = cycle.duration, float(cycle.repeat)
    line[c.ENABLE_CHANNEL] = -1.0
    if (enable := settings.enable) is not None and enable.channel in settings.channels:
        ages = [s.max_age for s in settings.limits.values() if s.channel == enable.channel and s.max_age is not None]
        line[c.ENABLE_CHANNEL] = list(settings.channels).index(enable.channel)
        line[c.ENABLE_MAX_AGE] = min(ages, default=loop.max_age)
        line[c.ENABLE_ACTION] = c.ENABLE_ACTIONS[enable.action]
    return np.array(line, dtype=np.float64)


def _channel_table(settings: RigSettings, slots: Mapping[tuple[str, str], int]) -> Floats:
    lines, first = [], 0
    for s in settings.channels.values():
        line = [0.0] * c.CHANNEL_WIDTH
        if s.device is None or s.source is None:
            line[c.RAW_SLOT], line[c.CONSTANT] = -1.0, s.fixed()
        else:
            curve = _curve_lines(s.curve())
            line[c.RAW_SLOT], line[c.FILTER] = float(slots[s.device, s.source]), s.filter
            line[c.CURVE_KIND] = float(c.TABLE if s.curve().points else c.POLYNOMIAL)
            line[c.CURVE_FIRST], line[c.CURVE_LAST] = float(first), float(first + len(curve) - 1)
            line[c.RAW_LOW], line[c.RAW_HIGH] = s.raw_limits()
            line[c.VALID_LOW], line[c.VALID_HIGH] = s.value_limits()
            line[c.VALID_RATE] = s.valid_rate.value if s.valid_rate is not None else np.inf
            first += len(curve)
        lines.append(line)
    return _table(lines, c.CHANNEL_WIDTH)


def _curve_table(settings: RigSettings) -> Floats:
    measured = [s for s in settings.channels.values() if s.device is not None and s.source is not None]
    return _table([line for s in measured for line in _curve_lines(s.curve())], 2)


def _curve_lines(curve: Curve) -> list[list[float]]:
    return [list(point) for point in curve.points] or [[coefficient, 0.0] for coefficient in curve.coefficients]


def _limit_table(settings: RigSettings, channels: list[str]) -> tuple[tuple[str, ...], Floats]:
    """Names and lines of all limits: the configured ones, then ``loop.max_age`` for each channel without one."""
    names, lines = [], []
    for name, limit in settings.limits.items():
        channel = settings.channels.get(limit.channel)
        zero = channel.zero if channel is not None else 0.0
        for suffix, kind, lower, upper in _bounds(limit, zero):
            names.append(name + suffix)
            place = channels.index(limit.channel) if limit.channel in channels else 0
            lines.append([float(place), float(kind), lower, upper, float(c.ACTION_NAMES[limit.action])])
    watched = {limit.channel for limit in settings.limits.values() if limit.max_age is not None}
    for place, (name, measured) in enumerate(settings.channels.items()):
        if measured.device is not None and name not in watched:
            names.append(f"{name}.age")
            lines.append([float(place), float(c.BY_AGE), -np.inf, settings.loop.max_age, float(c.TRIP)])
    return tuple(names), _table(lines, c.LIMIT_WIDTH)


def _end_table(settings: RigSettings, channels: list[str]) -> Floats:
    """A line for each valve that a limit stops."""
    lines, valves = [], list(settings.valves)
    for limit in settings.limits.values():
        for valve, sign in limit.valves.items():
            if limit.channel in channels and valve in valves:
                ((_, _, lower, upper),) = _bounds(limit, 0.0)
                distance = limit.slow_down.value if limit.slow_down is not None else 0.0
                line = [channels.index(limit.channel), valves.index(valve), sign, lower, upper, distance]
                lines.append([float(number) for number in line])
    return _table(lines, c.END_WIDTH)


def _bounds(limit: LimitSettings, zero: float) -> list[tuple[str, int, float, float]]:
    """(name suffix, kind, lower, upper) of each thing a limit watches; ``zero``: the channel's zero above gauge."""
    found = []
    if limit.min is not None or limit.max is not None:
        lower = limit.min.value - zero if limit.min is not None else -np.inf
        upper = limit.max.value - zero if limit.max is not None else np.inf
        found.append(("", c.BY_VALUE, lower, upper))
    if limit.max_age is not None:
        found.append((".age", c.BY_AGE, -np.inf, limit.max_age))
    if limit.max_rate is not None:
        found.append((".rate", c.BY_RATE, -limit.max_rate.value, limit.max_rate.value))
    return found


def _output_table(settings: RigSettings, rates: Mapping[str, float]) -> Floats:
    """A heartbeat on a slow device changes no faster than the device is sure to see."""
    lines = []
    for s in settings.outputs.values():
        ticks = np.ceil(2.0 * settings.loop.rate / rates[s.device]) if s.device in rates else 1.0
        lines.append([float(c.WHEN_NAMES[s.on]), *s.levels(), float(ticks)])
    return _table(lines, c.OUTPUT_WIDTH)


def _valve_line(v: ValveSettings, settings: RigSettings, first_channel: int) -> list[float]:
    channels, ports = list(settings.channels), list(settings.ports)

    def place(channel: str | None) -> float:
        return float(first_channel + channels.index(channel)) if channel is not None else -1.0

    to_port = v.nominal_flow.coefficient()
    to_tank = (v.nominal_flow_to_tank or v.nominal_flow).coefficient()
    leak = v.leakage.coefficient() if v.leakage else 0.0
    gain = v.bridge.gain / v.nominal_flow.flow
    raw_gain = 0.5 * (v.raw[1] - v.raw[0])
    line = [0.0] * b.VALVE_WIDTH
    cylinders = list(settings.cylinders.values())
    cylinder = next((i for i, s in enumerate(cylinders) if v.port in (s.port_A, s.port_B)), -1)
    tau, omega = time_constant(v), 2.0 * np.pi * v.f90 if v.f90 else 0.0
    values = {
        b.PORT: float(ports.index(v.port)),
        b.CHANNEL_P: place(settings.ports[v.port]),
        b.CHANNEL_S: place(v.supply),
        b.CHANNEL_T: place(v.tank),
        b.CHANNEL_Q: place(v.flow),
        b.C_PA: to_port,
        b.C_AT: to_tank,
        b.P_TR: v.transition_pressure,
        b.CHANNEL_SPOOL: place(v.spool),
        b.AGE_SPOOL: settings.channels[v.spool].delay if v.spool in settings.channels else 0.0,
        b.AGE_Q: settings.channels[v.flow].delay if v.flow in settings.channels else 0.0,
        b.OTHER_PORT: float(ports.index(v.other_port)) if v.other_port in ports else -1.0,
        b.TAU: tau,
        b.OMEGA: omega,
        b.DAMPING: v.damping,
        b.DELAY: v.delay,
        b.OVERLAP: v.overlap,
        b.NULL_BAND: v.bridge.null_band,
        b.T_FEEDBACK: v.bridge.feedback_time,
        b.Q_NOMINAL: v.nominal_flow.flow,
        b.CYLINDER: float(cylinder),
        b.SIDE: float(cylinder >= 0 and v.port == cylinders[cylinder].port_B),
        b.LEAK_PA: leak,
        b.LEAK_AT: leak,
        b.LEAK_GONE: v.leakage.gone_at if v.leakage else 1.0,
        b.TAU_W: v.bridge.lead_filter,
        b.K_P: gain,
        b.T_I: v.bridge.integral_time,
        b.T_D: v.bridge.derivative_time,
        b.TAU_D: v.bridge.derivative_filter,
        b.FADE_TIME: v.bridge.fade,
        b.JOG_LIMIT: v.bridge.jog_limit,
        b.JOG_TIME: v.bridge.jog_time,
        b.POLARITY: float(v.polarity),
        b.NULL: v.null,
        b.DITHER: v.dither.amplitude,
        b.DITHER_FREQUENCY: v.dither.frequency,
        b.U_MIN: v.range[0],
        b.U_MAX: v.range[1],
        b.SLEW_RATE: v.slew,
        b.STOP_RATE: min(v.slew, 1.0 / v.stop_time),
        b.SAFE_VALUE: v.safe,
        b.RAW_GAIN: raw_gain,
        b.RAW_OFFSET: 0.5 * (v.raw[0] + v.raw[1]),
        b.STRATEGY_FIRST: float(b.STRATEGY_NAMES.index(v.bridge.strategy)),
    }
    h = 1.0 / (settings.loop.rate * b.SUBSTEPS_OF_MACHINE)
    values |= dict(zip(range(b.SPOOL_11, b.SPOOL_22 + 1), spool_matrix(tau, omega, v.damping, h), strict=True))
    for column, value in values.items():
        line[column] = value
    return line


def time_constant(v: ValveSettings) -> float:
    """Time constant of the valve's spool, s; of one of second order that of its lag at low frequency, 2·d/omega."""
    if v.f90 is not None:
        return 2.0 * v.damping / (2.0 * np.pi * v.f90)
    assert v.f45 is not None
    return 1.0 / (2.0 * np.pi * v.f45)


def corner_frequency(v: ValveSettings) -> float:
    """-45° frequency of the valve's spool, Hz: f45, or where the phase of second order is -45°."""
    if v.f90 is None:
        assert v.f45 is not None
        return v.f45
    return v.f90 * (sqrt(v.damping * v.damping + 1.0) - v.damping)


def spool_matrix(tau: float, omega: float, d: float, h: float) -> list[float]:
    """How the spool's distance from a held command, and its speed, go on in ``h`` seconds: exact, line by line."""
    if omega == 0.0:
        return [float(np.exp(-h / tau)), 0.0, 0.0, 0.0]
    from scipy.linalg import expm  # here: processes that only read plans start without it

    motion = np.array([[0.0, 1.0], [-omega * omega, -2.0 * d * omega]])
    return [float(x) for x in expm(motion * h).ravel()]


def cycle_table(cycle: CycleSettings | None, inputs: list[str]) -> Floats:
    """The points of a work cycle, one per line: number of the input, s, value, shape, amplitude, frequency."""
    lines = [
        [float(inputs.index(name)), *point]
        for name, entry in (cycle.inputs.items() if cycle else ())
        if name in inputs
        for point in _points(entry)
    ]
    return _table(lines, c.CYCLE_WIDTH)


def _points(entry: CycleInput) -> Iterator[tuple[float, float, float, float, float]]:
    """The points of an input, and those between which it rests and swings about the mean of its sweep."""
    for t, value in entry.points or ():
        yield t, value, c.SHAPE_NAMES[entry.shape], 0.0, 0.0
    sweep = entry.sweep
    if sweep is None:
        return
    yield entry.sweep_begins + 0.5 * sweep.rest, sweep.mean, c.SMOOTH, 0.0, 0.0
    for sine in entry.sines:
        yield sine.begins, sweep.mean, c.LINEAR, 0.0, 0.0
        yield sine.ends, sweep.mean, c.SINE, sweep.amplitude, sine.frequency
    yield entry.duration, sweep.mean, c.LINEAR, 0.0, 0.0
