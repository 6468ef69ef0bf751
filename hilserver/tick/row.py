"""The row: the tick's whole memory and all that is logged of it, one block of float64 cells.

A header, then sections whose columns are in ``plan.layout``. Where a section is made of records, they are declared
here, and one function each finds a record in the row. The records' fields name the log's columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from hilserver.numerics.arrays import Floats, Integers, gives_arrays
from hilserver.tick.plan import REMEMBERED, Plan
from hilserver.tick.records import Field, RecordTable, Struct, record_at, table_on, value


class RowHeader(Struct):
    """The head of the row. What is set from outside before each tick is named in ``INPUTS``."""

    tick: float = value("", "number of the tick, from 0")
    time: float = value("s", "virtual time: ticks by period")
    utc: float = value("s", "wall clock, seconds since 1970")
    missed: float = value("", "ticks missed before this one and compensated in it")
    heartbeat_age: float = value("s", "age of the supervisor's last heartbeat")
    command: float = value("", "sequence number of the last command that was taken")
    result: float = value("", "its result (hilserver.tick.codes.Result)")
    mode: float = value("", "mode: 0 STARTUP, 1 SAFE, 2 ARMED, 3 RUNNING, 4 FAULT")
    fault: float = value("", "what tripped (hilserver.tick.codes.Fault); limit i is 100 + i")
    warnings: float = value("", "number of violated limits")
    circuit_version: float = value("", "number of the virtual circuit, which each switch raises")
    cycle_time: float = value("s", "time in the work cycle; -1: it does not run")
    wake_error: float = value("s", "delay with which the tick began")
    read_time: float = value("s", "time that reading the devices took in the tick before")
    compute_time: float = value("s", "time that the computation took in the tick before")
    write_time: float = value("s", "time that writing the devices took in the tick before")
    device_error: float = value("", "1 where a device could not be read or written")
    publish_time: float = value("s", "time that publishing the row took in the tick before")


TIMES = ("read_time", "compute_time", "write_time", "publish_time")
"""What the tick before took, by parts."""
INPUTS = ("tick", "utc", "missed", "heartbeat_age", "wake_error", *TIMES, "device_error")
"""Fields of the header that are set from outside before each tick; the tick computes the others."""


class InputTrend(Struct):
    """How an operator input moves, and what of it may be extrapolated into the next ticks."""

    last: float = value("", "the input in the tick before")
    step: float = value("", "its last change in a tick")
    step_before: float = value("", "the change before that")
    slope: float = value("", "change per tick that may be extrapolated")
    bend: float = value("", "change of that slope per tick")


class PortState(Struct):
    """A port's pressure as the virtual circuit gets it."""

    port: float = value("Pa", "pressure: as measured, or as estimated where a strategy looks ahead")
    port_trend: float = value("Pa/s", "its filtered rate of change")


class ValveState(Struct):
    """What a bridge remembers of its valve: a block of the row."""

    strategy: float = value("", "number of the bridge's strategy")
    flow_virtual: float = value("m^3/s", "flow that the virtual circuit passes into the port")
    flow_before: float = value("m^3/s", "the same in the tick before")
    flow_measured: float = value("m^3/s", "measured flow; NaN without a sensor")
    drop: float = value("Pa", "pressure drop over the open edge")
    opening: float = value("", "opening that passes the virtual flow, before lead and limits")
    demand: float = value("", "command that the strategy demands, of full opening")
    command: float = value("", "command within all limits, of full opening")
    saturation: float = value("", "why the command is not as demanded: bits (hilserver.tick.codes.Saturation)")
    opening_filtered: float = value("", "memory of the lead: the filtered opening")
    spool: float = value("", "spool position as followed from the commands, of full stroke")
    spool_speed: float = value("1/s", "its speed")
    integral: float = value("", "flow servo: integral part of the command")
    flow_filtered: float = value("m^3/s", "flow servo: filtered flow of the derivative")
    fade: float = value("", "what is left of the jump that the last take-over would have made")
    jog: float = value("", "manual command")
    jog_left: float = value("s", "time for which it still holds")
    output: float = value("raw", "raw value for the device")
    no_drop_share: float = value("", "share of the command that is faded out because there is hardly any drop")
    end_stop_share: float = value("", "how much the piston counts as held by its end stop, 0 to 1")
    flow_off_end_stop: float = value("m^3/s", "filtered virtual flow that leads off the end stop")
    flow_expected: float = value("m^3/s", "flow that the valve should pass at its spool and pressures")
    flow_estimated: float = value("m^3/s", "flow that it passes, as estimated")
    flow_deviation: float = value("m^3/s", "standard deviation of that estimate")
    flow_other: float = value("m^3/s", "flow that its other edges should pass")
    volume: float = value("m^3", "integral of the estimated flow")
    volume_before: float = value("m^3", "the same in the tick before")
    volume_error: float = value("m^3", "what the virtual valve passed and the real one did not")
    supply: float = value("Pa", "supply pressure")
    supply_trend: float = value("Pa/s", "its filtered rate of change")
    gain_PA: float = value("", "tracked flow gain of the edge from supply to port, by the datasheet's")
    gain_AT: float = value("", "tracked flow gain of the edge from port to tank, by the datasheet's")
    delay: float = value("s", "tracked delay, less the configured one")
    expected_before: float = value("m^3/s", "expected flow in the tick before")
    expected_rate: float = value("m^3/s^2", "filtered rate of change of the expected flow")
    spool_error: float = value("", "filtered difference of measured and followed spool position")
    oscillation: float = value("", "largest half-wave of late of the demanded opening")
    oscillation_mean: float = value("", "demanded opening, filtered")
    oscillation_from: float = value("", "its last turning point")
    oscillation_to: float = value("", "the farthest point since then")
    oscillation_time: float = value("s", "time since the last half-wave that counted")
    oscillation_travel: float = value("", "travel of the operator inputs in this half-wave, of half their ranges")
    oscillation_count: float = value("", "half-waves that counted")


class CylinderState(Struct):
    """A cylinder's estimated state; the first ones are those of its Kalman filter."""

    p_A: float = value("Pa", "pressure in chamber A")
    p_B: float = value("Pa", "pressure in chamber B")
    x: float = value("m", "position")
    v: float = value("m/s", "speed")
    F: float = value("N", "force that no sensor measures: load, gravity, friction")
    bias_A: float = value("m^3/s", "flow into A beyond that which is expected of its valve")
    bias_B: float = value("m^3/s", "flow into B beyond that which is expected of its valve")
    flow_A: float = value("m^3/s", "flow into A")
    flow_B: float = value("m^3/s", "flow into B")
    volume_A: float = value("m^3", "oil that went into A since the start")
    volume_B: float = value("m^3", "oil that went into B since the start")


class CommandRecord(Struct):
    """A command as it goes through the mailbox to the loop, and into the log's events."""

    kind: float = value("", "what is asked for (hilserver.tick.codes.Command)")
    a: float = value("", "first argument")
    b: float = value("", "second argument")
    spare_1: float = value("", "not used")
    spare_2: float = value("", "not used")
    spare_3: float = value("", "not used")
    spare_4: float = value("", "not used")
    sequence: float = value("", "its number, from 1")


COLUMN = {name: column for column, name in enumerate(RowHeader.names())}
"""Columns of the header's fields."""
HEADER_CELLS, MESSAGE_CELLS = RowHeader.cells(), CommandRecord.cells()
VALVE_CELLS, CYLINDER_CELLS, TREND_CELLS, PORT_CELLS = (
    ValveState.cells(),
    CylinderState.cells(),
    InputTrend.cells(),
    PortState.cells(),
)
CYLINDER_PAST = ("p_A", "p_B", "x", "flow_A", "flow_B")
"""What is remembered of a cylinder."""


@record_at(RowHeader)
def header(row: Floats) -> int:
    """The head of the row."""
    return 0


@record_at(CommandRecord)
def command_in(row: Floats) -> int:
    """The command in a mailbox record."""
    return 0


@record_at(InputTrend)
def trend(plan: Plan, row: Floats, i: int) -> int:
    """How input ``i`` moves."""
    return plan.layout[0].trend + i * TREND_CELLS


@record_at(PortState)
def port_state(plan: Plan, row: Floats, i: int) -> int:
    """Port ``i`` as the virtual circuit gets it."""
    return plan.layout[0].port + i * PORT_CELLS


@record_at(ValveState)
def valve_state(plan: Plan, row: Floats, i: int) -> int:
    """A valve's block of the row."""
    return plan.layout[0].valve + i * VALVE_CELLS


@record_at(CylinderState)
def cylinder_state(plan: Plan, row: Floats, c: int) -> int:
    """A cylinder's block of the row."""
    return plan.layout[0].cylinder + c * CYLINDER_CELLS


@gives_arrays
def past_of_valve(plan: Plan, row: Floats, i: int) -> Floats:
    """A valve's commands of the last ticks, the newest first."""
    layout = plan.layout[0]
    n = layout.valve_past_ticks
    return row[layout.valve_past + i * n : layout.valve_past + (i + 1) * n]


@gives_arrays
def past_of_cylinder(plan: Plan, row: Floats, c: int) -> Floats:
    """A cylinder's p_A, p_B, x and flows of the last ticks, the newest first: a line of each."""
    layout = plan.layout[0]
    n = layout.cylinder_past_ticks
    start = layout.cylinder_past + REMEMBERED * n * c
    return row[start : start + REMEMBERED * n].reshape(REMEMBERED, n)


def headers(rows: Floats) -> RecordTable[RowHeader]:
    """The heads of many rows, as a view: ``headers(rows)["mode"]``."""
    found: Any = table_on(rows[:, :HEADER_CELLS], RowHeader)
    heads: RecordTable[RowHeader] = found[:, 0]
    return heads


def valve_columns(plan: Plan, field: str) -> list[int]:
    """Columns of a field of every valve's block."""
    first = plan.layout[0].valve + ValveState.names().index(field)
    return [first + VALVE_CELLS * i for i in range(len(plan.valve))]


def input_columns(plan: Plan) -> Integers:
    """Columns of the row that are set from outside before each tick: of the header, raw readings, ages and errors."""
    layout = plan.layout[0]
    return np.array([*map(COLUMN.__getitem__, INPUTS), *range(layout.raw, layout.channel)], dtype=np.int64)


SECTIONS = {
    "raw": Field("raw", "raw reading of the device"),
    "age": Field("s", "age of that reading"),
    "errors": Field("", "1 where the device could not be read or written"),
    "channel": Field("SI", "value of the channel"),
    "stale": Field("s", "age of its last valid sample"),
    "change": Field("SI/s", "rate of change of the channel"),
    "input": Field("", "operator input"),
    "limit": Field("", "1 where the limit is violated"),
    "output": Field("raw", "raw value of an output that is no valve"),
}
"""Sections of the row with one value per name, which name their columns ``channel.p_A`` and so on."""


def column_reference() -> Iterator[tuple[str, Field]]:
    """Every kind of column of the log, in their order: its name (``*`` stands for a name of the rig) and meaning."""
    yield from RowHeader.fields().items()
    for section in ("raw", "age", "errors", "channel", "stale", "change", "input"):
        yield f"{section}.*", SECTIONS[section]
    yield from ((f"input_{field}.*", found) for field, found in InputTrend.fields().items())
    yield "limit.*", SECTIONS["limit"]
    yield from ((f"valve.*.{field}", found) for field, found in ValveState.fields().items())
    yield "output.*", SECTIONS["output"]
    yield from ((f"{field}.*", found) for field, found in PortState.fields().items())
    yield from ((f"cylinder.*.{field}", found) for field, found in CylinderState.fields().items())
    yield "valve.*.command_<k>", Field("", "command of k ticks ago")
    for field in CYLINDER_PAST:
        found = CylinderState.fields()[field]
        yield f"cylinder.*.{field}_<k>", Field(found.unit, f"{found.description}, k ticks ago")


def unit_of_column(name: str) -> str:
    """The SI unit of a column by its name, empty where it has none or has that of its channel or device."""
    found = next((value.unit for pattern, value in column_reference() if matches(name, pattern)), "")
    return "" if found in ("raw", "SI", "SI/s") else found


def matches(name: str, pattern: str) -> bool:
    """Whether a column is of a kind of `column_reference`."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".+").replace("<k>", r"\d+"), name) is not None
