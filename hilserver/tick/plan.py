"""The plan: all constants of the tick, as tables of records in one block of memory.

Channels, ports, valves and cylinders are numbered from 0 in the order of the rig file; *columns* are places in the row.
Numbers and columns are ``NONE`` (-1) if there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hilserver.numerics.arrays import Floats, Matrix, as_matrix
from hilserver.numerics.compilable import compilable, gives_arrays
from hilserver.tick.codes import Action, Characteristic, Shape, Watched, When
from hilserver.tick.gain_tables import LINES
from hilserver.tick.records import RecordTable, Struct, dtype_of, records_in, value

SUBSTEPS_OF_MACHINE = 4
"""Sub-steps per tick for the simulation of spools and cylinders."""
STATES = 7
"""States of a cylinder that its Kalman filter corrects: the first fields of its block of the row."""
MEASUREMENTS = 5
"""Quantities of a cylinder that may be measured: p_A, p_B, x, Q_A, Q_B."""
SENSED = 3
"""Number of its measured states: p_A, p_B, x."""
REMEMBERED = 5
"""Values stored per tick because sensors have delays: p_A, p_B, x and the flows."""


class LoopRecord(Struct):
    """The loop."""

    dt: float = value("s", "period of the loop")
    max_missed: float = value("", "largest number of consecutive missed ticks that are compensated; more cause a trip")
    longest_gap: float = value("s", "time without a tick after which the devices' watchdogs have closed the valves")
    heartbeat_timeout: float = value("s", "largest age of the supervisor's heartbeat")
    cycle_length: float = value("s", "duration of the work cycle")
    cycle_repeats: int = value("", "1 if the work cycle restarts at its end")
    cycle_foreseen: int = value("", "1 if the look-ahead knows the work cycle")
    enable_channel: int = value("", "number of the channel of the local enable; -1: there is none")
    enable_max_age: float = value("s", "largest age of its samples")
    enable_action: Action = value("", "action when the local enable is switched off")
    reactions: int = value("", "number of reactions that can be armed")
    playouts: int = value("", "number of playouts at the same time")
    foreseen: float = value("s", "time over which the motion of the nodes that actuators follow is foreseen")


class Layout(Struct):
    """Columns at which the sections of the row begin, and the lengths of those that do not follow from the rig."""

    raw: int = value("", "raw readings, one per input of a device")
    age: int = value("", "their ages")
    errors: int = value("", "one per device: its failures, counted since the start")
    confirmed: int = value("", "raw values of the outputs that their devices have confirmed")
    confirmed_age: int = value("", "ages of the commands with which these came")
    channel: int = value("", "channels in SI units")
    stale: int = value("", "ages of the channels' last valid samples")
    interval: int = value("", "times between the channels' last two samples; 0 without a new one")
    change: int = value("", "the channels' rates of change")
    input: int = value("", "operator inputs")
    trend: int = value("", "motion of the inputs: one record each")
    reading: int = value("", "history of the channels' readings: one record each")
    limit: int = value("", "limits: 1 if violated")
    valve: int = value("", "valves: one record each")
    learning: int = value("", "what adaptive bridges have seen of their valves: one record each")
    actuator: int = value("", "actuators: one record each")
    actuator_memory: int = value("", "what their bridges remember of them")
    output: int = value("", "outputs other than valves")
    output_off: int = value("", "times since the modes in which these are on have ended")
    port: int = value("", "ports: one record each")
    cylinder: int = value("", "cylinders: one record each")
    valve_past: int = value("", "the valves' last commands")
    cylinder_past: int = value("", "the cylinders' last states")
    input_ahead: int = value("", "the inputs' next values")
    reaction: int = value("", "reactions: one record each")
    playout: int = value("", "playouts: one record each")
    circuit: int = value("", "values of the virtual circuit")
    circuit_space: int = value("", "columns that the circuit may take")
    valve_past_ticks: int = value("", "number of ticks for which a valve's commands are stored")
    cylinder_past_ticks: int = value("", "number of ticks for which a cylinder's states are stored")
    input_ahead_ticks: int = value("", "number of ticks for which an input's next values are stored")
    actuator_memory_cells: int = value("", "number of values that the bridge of an actuator remembers")


class ChannelRecord(Struct):
    """A measured channel: the conversion from the raw reading to its SI value."""

    slot: int = value("", "number of its raw reading; -1: a fixed value")
    constant: float = value("SI", "the fixed value")
    filter: float = value("s", "time constant of the low-pass filter")
    characteristic: Characteristic = value("", "kind of its curve")
    first: int = value("", "first line of its curve in plan.curve")
    last: int = value("", "last line of its curve")
    raw_low: float = value("raw", "lowest valid raw reading")
    raw_high: float = value("raw", "highest valid raw reading")
    valid_low: float = value("SI", "lowest valid value")
    valid_high: float = value("SI", "highest valid value")
    valid_rate: float = value("SI/s", "largest valid rate of change")
    jump: float = value("SI", "a new sample that differs by more than this, plus jump_rate times the time, is a jump")
    jump_rate: float = value("SI/s", "fastest possible change")
    least_interval: float = value(
        "s", "half the time between samples: a sample that seems to arrive sooner is an old one"
    )
    range_low: float = value("SI", "value at and below which the sensor is at the lower end of its range")
    range_high: float = value("SI", "value at and above which it is at the upper end")
    arrival: float = value("SI", "largest difference to the estimate with which a true value arrives at an end")
    moved_by: int = value("", "number of the valve whose flow changes the reading; -1: not known")
    weight_at_end: float = value("", "weight of that flow while the reading is at an end of the sensor's range")
    least_flow: float = value("m^3/s", "flow below which this may be an error of the model")
    supply_min: float = value("SI", "value below which a supply is missing; -inf: it is no supply")
    supply_run_up: float = value("s", "time that it may take to build up in RUNNING; 0: it must be there at start")


class CurvePoint(Struct):
    """A line of a channel's curve: a point of a table, or a coefficient of a polynomial (``x``)."""

    x: float = value("raw", "raw reading; or a coefficient of the polynomial")
    y: float = value("SI", "value at that reading")


class LimitRecord(Struct):
    """A limit of a channel, or of the confirmations of an output."""

    channel: int = value("", "number of the channel; of the output if its confirmations are monitored")
    watched: Watched = value("", "quantity that is monitored")
    lower: float = value("SI", "least allowed")
    upper: float = value("SI", "most allowed")
    action: Action = value("", "action on a violation")


class StrokeEnd(Struct):
    """The ends of a stroke, towards which a valve's command is reduced."""

    channel: int = value("", "number of the channel that measures the position")
    valve: int = value("", "number of the valve")
    sign: int = value("", "+1 if a positive command makes the channel rise, else -1")
    lower: float = value("SI", "lower end")
    upper: float = value("SI", "upper end")
    distance: float = value("SI", "distance from an end within which the command is reduced")


class InputRecord(Struct):
    """An operator input."""

    initial: float = value("", "value while the rig is not RUNNING")
    low: float = value("", "lower end of its range")
    high: float = value("", "upper end of its range")
    delay: int = value("ticks", "after which a value that is set acts")


class PortRecord(Struct):
    """A port of the machine."""

    column: int = value("", "column of the channel with its pressure")
    cylinder: int = value("", "number of the cylinder at the port")
    is_B: int = value("", "1 if it is the cylinder's port B")
    valve: int = value("", "number of the valve that drives the port")
    turned: int = value("", "number of the valve whose other pair of edges serves the port")


class OutputRecord(Struct):
    """An output other than a valve."""

    when: When = value("", "when it is on")
    off: float = value("raw", "raw value when off")
    on: float = value("raw", "raw value when on")
    toggle_ticks: int = value("", "ticks between two changes of a heartbeat")
    off_delay: float = value("s", "time for which it stays on when its mode has ended")


class CyclePoint(Struct):
    """A breakpoint of the work cycle, sorted by input and time. Shape and sine apply to the interval before it."""

    input: int = value("", "number of the input")
    at: float = value("s", "time in the cycle")
    target: float = value("", "value of the input at this time")
    kind: Shape = value("", "how the input moves to this value")
    amplitude: float = value("", "amplitude of a sine")
    frequency: float = value("Hz", "frequency of a sine")


class ValveRecord(Struct):
    """The bridge's data of its real valve."""

    port: int = value("", "number of the port that it drives")
    column_p: int = value("", "column of the pressure at the port")
    column_S: int = value("", "column of the supply pressure")
    column_T: int = value("", "column of the tank pressure")
    column_Q: int = value("", "column of the measured flow")
    column_spool: int = value("", "column of the measured spool position")
    age_spool: float = value("s", "age of a new sample of the spool's sensor")
    age_Q: float = value("s", "mean age of the measured flow")
    other_port: int = value("", "number of the port at its other pair of edges")
    C_PA: float = value("m^3/(s*sqrt(Pa))", "flow coefficient of the edge from supply to port, fully open")
    C_AT: float = value("m^3/(s*sqrt(Pa))", "flow coefficient of the edge from port to tank, fully open")
    p_tr: float = value("Pa", "transition pressure of the orifice law")
    tau: float = value("s", "time constant of the spool")
    omega: float = value("rad/s", "natural frequency of the spool; 0: first-order spool")
    damping: float = value("", "damping ratio of the spool")
    delay: float = value("s", "time from the command to the start of the spool's motion")
    overlap: float = value("", "overlap, as an opening of the linear valve")
    null_band: float = value("", "width beyond the overlap in which the inverse is smoothed, likewise")
    leak_PA: float = value("m^3/(s*sqrt(Pa))", "coefficient of the leakage from supply to port at null")
    leak_AT: float = value("m^3/(s*sqrt(Pa))", "coefficient of the leakage from port to tank at null")
    leak_gone: float = value("", "opening of the linear valve from which there is no leakage")
    bend_1: float = value("", "flow-signal curve: spool position at its first bend")
    opening_1: float = value("", "opening there of a linear valve with the same flow")
    bend_2: float = value("", "spool position at its second bend")
    opening_2: float = value("", "opening of the linear valve there")
    bend_3: float = value("", "spool position at its third bend")
    opening_3: float = value("", "opening of the linear valve there")
    bend_4: float = value("", "spool position at its fourth bend")
    opening_4: float = value("", "opening of the linear valve there")
    tau_W: float = value("s", "filter of the lead")
    K_p: float = value("s/m^3", "flow servo: proportional gain")
    T_i: float = value("s", "flow servo: integral time; 0: none")
    T_d: float = value("s", "flow servo: derivative time")
    tau_d: float = value("s", "flow servo: filter of the derivative")
    feedback_time: float = value("s", "time in which the feedback corrects a volume error")
    Q_nominal: float = value("m^3/s", "nominal flow")
    learns: int = value("", "1 if `adaptive` tracks the valve, 0 if it holds what it has learned")
    cylinder: int = value("", "number of the cylinder at its port")
    is_B: int = value("", "1 where its port is the cylinder's port B")
    fade_time: float = value("s", "time constant with which a jump fades when a strategy takes over")
    jog_limit: float = value("", "largest manual command")
    jog_time: float = value("s", "duration of a manual command")
    polarity: float = value("", "+1 or -1: sign of the raw command")
    null: float = value("", "null offset")
    hysteresis: float = value("", "width of the hysteresis loop, as a fraction of full command")
    dither: float = value("", "amplitude of the dither")
    dither_frequency: float = value("Hz", "frequency of the dither")
    u_min: float = value("", "lowest command")
    u_max: float = value("", "highest command")
    slew_rate: float = value("1/s", "slew limit of the command")
    stop_rate: float = value("1/s", "slew limit on the way to the safe value")
    safe_value: float = value("", "safe command")
    raw_gain: float = value("raw", "raw value of full command minus the offset")
    raw_offset: float = value("raw", "raw value of command 0")
    strategy_first: int = value("", "number of the strategy at the start")
    spool_11: float = value("", "spool transition over a sub-step: position from position")
    spool_12: float = value("s", "spool transition over a sub-step: position from speed")
    spool_21: float = value("1/s", "spool transition over a sub-step: speed from position")
    spool_22: float = value("", "spool transition over a sub-step: speed from speed")
    catch_up: float = value("", "command by which the spool catches up, by the distance that it is behind")
    catch_up_speed: float = value("s", "the same by the speed")


class CylinderRecord(Struct):
    """The bridge's data of a cylinder."""

    port_A: int = value("", "number of port A")
    port_B: int = value("", "number of port B")
    sensor_A: int = value("", "column of the pressure at port A")
    sensor_B: int = value("", "column of the pressure at port B")
    sensor_x: int = value("", "column of the position")
    sensor_QA: int = value("", "column of the flow into port A")
    sensor_QB: int = value("", "column of the flow into port B")
    age_A: float = value("ticks", "delay of that sensor")
    age_B: float = value("ticks", "delay of that sensor")
    age_x: float = value("ticks", "delay of that sensor")
    age_QA: float = value("ticks", "delay of that sensor")
    age_QB: float = value("ticks", "delay of that sensor")
    clearance: float = value("m", "measured distance from an end stop from which on the piston may have left it")
    area_A: float = value("m^2", "area of the piston")
    area_B: float = value("m^2", "area of the annulus")
    dead_A: float = value("m^3", "volume between valve and piston at x = 0")
    dead_B: float = value("m^3", "volume between valve and piston at full stroke")
    stroke: float = value("m", "stroke; 0: a motor, which has no ends")
    mass: float = value("kg", "mass that the piston moves")
    leakage: float = value("m^3/(s*Pa)", "leakage past the piston")
    case_leakage: float = value("m^3/(s*Pa)", "leakage from each chamber to the case; of a motor")
    line_A: float = value("m^3", "part of dead_A before the restriction")
    line_B: float = value("m^3", "part of dead_B before the restriction")
    hose_A: float = value("m^3/Pa^0.5", "volume of hoses at port A divided by the modulus of their walls at 1 Pa")
    hose_B: float = value("m^3/Pa^0.5", "the same at port B")
    root_A: float = value("Pa^0.5*s/m", "orifice law of the drop from port A to the piston, by the speed of the piston")
    root_B: float = value("Pa^0.5*s/m", "the same from the piston to port B")
    p_tr_A: float = value("Pa", "transition pressure of the restriction at port A")
    p_tr_B: float = value("Pa", "the same at port B")
    B_o: float = value("Pa", "bulk modulus of the oil without air")
    alpha_0: float = value("", "volume fraction of free air at atmospheric pressure")
    kappa: float = value("", "polytropic exponent of the air")
    p_0: float = value("Pa", "atmospheric pressure")
    valve_A: int = value("", "number of the valve at port A")
    valve_B: int = value("", "number of the valve at port B")
    turn_A: float = value("", "+1 if that valve drives the port, -1 if its other pair of edges serves it")
    turn_B: float = value("", "+1 if that valve drives the port, -1 if its other pair of edges serves it")


class ActuatorRecord(Struct):
    """The bridge's data of an actuator whose position is controlled."""

    column_x: int = value("", "column of the measured displacement")
    column_F: int = value("", "column of the measured force")
    interval_x: int = value("", "column of the time since the previous sample of the displacement")
    interval_F: int = value("", "column of the same of the force")
    offset: float = value("m", "displacement at position 0 of the node that it follows")
    lowest: float = value("m", "lowest command")
    highest: float = value("m", "highest command")
    slew_rate: float = value("m/s", "slew limit of the command")
    return_rate: float = value("m/s", "velocity of the command on the way to the safe value")
    safe_value: float = value("m", "safe command")
    holds_at_trip: int = value("", "1 if it stays where it is in FAULT, 0 if it moves to the safe value")
    approach: float = value("s", "time in which it moves to the virtual position at the start")
    jog_speed: float = value("m/s", "largest velocity of a manual command")
    jog_time: float = value("s", "duration of a manual command")
    stiffness: float = value("N/m", "of the specimen, where it is not at its node")
    damping: float = value("N*s/m", "of the specimen, likewise")
    mass: float = value("kg", "of the specimen")
    force_lag: float = value("s", "mean age of the force with which the circuit is calculated")
    raw_gain: float = value("raw/m", "change of the raw value by the command")
    raw_offset: float = value("raw", "raw value of command 0")
    strategy_first: int = value("", "number of the strategy at the start")
    learns: int = value("", "1 if its uncertain parameters are tracked")
    slow: float = value("", "velocity up to which it counts as being at rest, in units of the design")
    tracked: int = value("", "number of uncertain parameters")
    damping_place: int = value("", "place of the specimen's damping among them; -1: it is not uncertain")
    command_late: int = value("ticks", "delay of the command")
    displacement_late: int = value("ticks", "age of the measured displacement")
    force_late: int = value("ticks", "age of the measured force")
    design: int = value("", "first cell of its design in plan.design")
    disturbance_start: float = value("m", "standard deviation of the disturbance of the command at the start")


class Plan(NamedTuple):
    """The tick's constants. All tables are views on ``block``, the one array that is passed to compiled code."""

    block: Floats
    loop: RecordTable[LoopRecord]
    layout: RecordTable[Layout]
    channel: RecordTable[ChannelRecord]
    curve: RecordTable[CurvePoint]
    limit: RecordTable[LimitRecord]
    end: RecordTable[StrokeEnd]
    input: RecordTable[InputRecord]
    port: RecordTable[PortRecord]
    valve: RecordTable[ValveRecord]
    output: RecordTable[OutputRecord]
    cylinder: RecordTable[CylinderRecord]
    actuator: RecordTable[ActuatorRecord]
    cycle: RecordTable[CyclePoint]
    kalman: Matrix
    """LINES lines per cylinder (:mod:`hilserver.rig.kalman`)."""
    design: Floats
    """The constants of the actuators' bridges (`hilserver.tick.hybrid.memory.bridge_of`)."""


TABLES: dict[str, type[Struct]] = {
    "loop": LoopRecord,
    "layout": Layout,
    "channel": ChannelRecord,
    "curve": CurvePoint,
    "limit": LimitRecord,
    "end": StrokeEnd,
    "input": InputRecord,
    "port": PortRecord,
    "valve": ValveRecord,
    "output": OutputRecord,
    "cylinder": CylinderRecord,
    "actuator": ActuatorRecord,
    "cycle": CyclePoint,
}
"""The record of each table, in the order of the block, which starts with the places of the tables."""
(
    _loop, _layout, _channel, _curve, _limit, _end, _input, _port, _valve, _output, _cylinder, _actuator, _cycle
) = map(records_in, TABLES.values())  # fmt: skip
CELLS_OF_CYLINDER = CylinderRecord.cells()
PLACES = len(TABLES) + 3
"""Number of places at the start of the block: of each table, of the Kalman gains, of the designs and of the end."""


@gives_arrays
def plan_on(block: Floats) -> Plan:
    """The plan contained in a block (see `make_plan`)."""
    at = block[:PLACES].view(np.int64)
    n = (at[11] - at[10]) // CELLS_OF_CYLINDER * LINES
    return Plan(
        block,
        _loop(block, at[0], at[1]),
        _layout(block, at[1], at[2]),
        _channel(block, at[2], at[3]),
        _curve(block, at[3], at[4]),
        _limit(block, at[4], at[5]),
        _end(block, at[5], at[6]),
        _input(block, at[6], at[7]),
        _port(block, at[7], at[8]),
        _valve(block, at[8], at[9]),
        _output(block, at[9], at[10]),
        _cylinder(block, at[10], at[11]),
        _actuator(block, at[11], at[12]),
        _cycle(block, at[12], at[13]),
        as_matrix(block[at[13] : at[14]], n),
        block[at[14] : at[15]],
    )


@compilable
def is_gap(plan: Plan, elapsed: float) -> bool:
    """Whether so many ticks were missed, in ``elapsed`` s, that the devices' watchdogs have closed the valves."""
    return elapsed > max(plan.loop[0].longest_gap, 1.5 * plan.loop[0].dt)


def make_plan(lines: Mapping[str, Iterable[Mapping[str, Any]]], kalman: Floats, design: Floats) -> Plan:
    """Make a plan from the records of its tables, each given by the names of its fields."""
    tables = {name: table_of(record, lines[name]) for name, record in TABLES.items()}
    parts = [np.asarray(table).view(np.float64) for table in tables.values()] + [kalman.ravel(), design]
    places = PLACES + np.cumsum([0, *map(len, parts)])
    return plan_on(np.concatenate([places.astype(np.int64).view(np.float64), *parts]))


def table_of(record: type[Struct], lines: Iterable[Mapping[str, Any]]) -> RecordTable[Any]:
    """Make records from the values of their fields by name; every field must be given."""
    found = list(lines)
    made = np.zeros(len(found), dtype=dtype_of(record))
    for i, line in enumerate(found):
        if line.keys() != record.fields().keys():
            odd = ", ".join(sorted(line.keys() ^ record.fields().keys()))
            raise ValueError(f"{record.__name__}: fields without a value, or values without a field: {odd}")
        made[i] = tuple(line[name] for name in record.names())
    return made
