"""The row: the complete memory of the tick, which is also what the log contains, as one block of 8-byte cells.

Most cells are float64, and an array of the row is one of float64; whole numbers are int64 in the same memory.
A header is followed by sections whose columns are in ``plan.layout``. The records of which a section consists are
declared here, with one function each that finds a record in the row. The records' fields name the log's columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hilserver.numerics.arrays import Floats, Integers, as_matrix
from hilserver.numerics.compilable import gives_arrays
from hilserver.tick.codes import Learning, Mode, Unseen
from hilserver.tick.plan import REMEMBERED, Layout, Plan
from hilserver.tick.records import RecordTable, Struct, record_at, table_on, value


class RowHeader(Struct):
    """The header of the row. The fields that are set from outside before each tick are listed in ``INPUTS``."""

    tick: int = value("", "number of the tick, from 0")
    time: float = value("s", "virtual time: ticks times period")
    utc: float = value("s", "wall clock, seconds since 1970")
    missed: int = value("", "ticks missed before this one and compensated in it")
    heartbeat_age: float = value("s", "age of the supervisor's last heartbeat")
    command: int = value("", "sequence number of the last command taken")
    result: int = value("", "its result (hilserver.tick.codes.ResultCode)")
    mode: int = value("", "mode: " + ", ".join(f"{mode.value} {mode.name}" for mode in Mode))
    fault: int = value("", "cause of the trip (hilserver.tick.codes.FaultCode); limit i is 100 + i")
    warnings: int = value("", "number of violated limits")
    circuit_version: int = value("", "number of the virtual circuit, increased by each switch")
    cycle_time: float = value("s", "time in the work cycle; -1: not running")
    wake_error: float = value("s", "delay of the tick's start after its deadline")
    read_time: float = value("s", "time for reading the devices in the previous tick")
    compute_time: float = value("s", "time for the computation in the previous tick")
    write_time: float = value("s", "time for writing the devices in the previous tick")
    device_error: int = value("", "1 if a device could not be read or written")
    publish_time: float = value("s", "time for publishing the row in the previous tick")


TIMES = ("read_time", "compute_time", "write_time", "publish_time")
"""Durations of the parts of the previous tick."""
INPUTS = ("tick", "utc", "missed", "heartbeat_age", "wake_error", *TIMES, "device_error")
"""Fields of the header that are set from outside before each tick; the tick computes the others."""


class InputTrend(Struct):
    """The motion of an operator input, and its extrapolation beyond the last value that is known."""

    last: float = value("", "that value in the previous tick")
    step: float = value("", "its last change per tick")
    step_before: float = value("", "the previous change")
    slope: float = value("", "change per tick that may be extrapolated")
    bend: float = value("", "change of that slope per tick")
    known: int = value("ticks", "for which its next values are known, because an operator's are delayed")


class ReadingState(Struct):
    """The history of a channel's readings, to detect implausible ones."""

    reading: float = value("raw", "the last raw reading")
    same: int = value("", "number of samples with exactly this reading while RUNNING")
    moved: float = value("m^3", "integral of the flow that should have changed it since then")
    frozen: float = value("s", "time since it changed, while RUNNING")
    end: int = value("", "end of the sensor's range at which the reading is: -1 the lower, 1 the upper, 0 neither")
    beyond: int = value("", "there: 1 if the true value may lie beyond, -1 if the estimate contradicts; otherwise 0")
    jumps: float = value("", "number of jumps from one sample to the next while RUNNING; decays with time")
    difference: float = value("SI", "measurement minus estimate, recent mean")
    missing: float = value("s", "supply: time for which it is missing in ARMED or RUNNING; below 0: time to build up")


class PortState(Struct):
    """A port's pressure as passed to the virtual circuit."""

    port: float = value("Pa", "pressure: as measured, or as estimated if a strategy looks ahead, plus port_shift")
    port_shift: float = value("Pa", "pressure rise that the oil of the volume error would cause")
    port_trend: float = value("Pa/s", "its filtered rate of change")


class ValveState(Struct):
    """The memory of a bridge for its valve: a block of the row."""

    strategy: int = value("", "number of the bridge's strategy")
    flow_virtual: float = value("m^3/s", "flow that the virtual circuit passes into the port, mean over the tick")
    flow_measured: float = value("m^3/s", "measured flow; NaN without a sensor")
    drop: float = value("Pa", "pressure drop over the open edge")
    opening: float = value("", "opening that passes the virtual flow, before lead and limits")
    demand: float = value("", "command that the strategy demands, as a fraction of full opening")
    command: float = value("", "command within all limits, as a fraction of full opening")
    saturation: int = value("", "limits of the command, faults of the spool: bits (hilserver.tick.codes.Saturation)")
    opening_filtered: float = value("", "memory of the lead: the filtered opening")
    lead: float = value("", "lead with look-ahead: of the next tick, or (held pressures) of this one; NaN at first")
    spool: float = value("", "spool position simulated from the commands, as a fraction of full stroke")
    spool_speed: float = value("1/s", "its speed")
    behind: float = value("", "by how far the spool is behind, because the slew limit has withheld commands")
    behind_speed: float = value("1/s", "by how much its speed is lower for that reason")
    integral: float = value("", "flow servo: integral part of the command")
    flow_filtered: float = value("m^3/s", "flow servo: filtered flow for the derivative")
    fade: float = value("", "demand may differ by this from the strategy's; infinite before RUNNING, NaN in a hold")
    jog: float = value("", "manual command")
    jog_left: float = value("s", "remaining time of the manual command")
    play: float = value("", "what the output adds to the command so that the spool is there in spite of its hysteresis")
    direction: float = value("", "in which the command moves, for that: 1 or -1; 0 before its first motion")
    farthest: float = value("", "farthest command in this direction")
    output: float = value("raw", "raw value for the device")
    no_drop_share: float = value("", "fraction of the command that is faded out because there is almost no drop")
    end_stop_share: float = value("", "degree to which the piston counts as held by its end stop, 0 to 1")
    flow_off_end_stop: float = value("m^3/s", "filtered virtual flow in the direction away from the end stop")
    flow_expected: float = value("m^3/s", "flow that the valve should pass at its spool position and pressures")
    flow_estimated: float = value("m^3/s", "estimated flow through the valve")
    flow_deviation: float = value("m^3/s", "standard deviation of that estimate")
    flow_other: float = value("m^3/s", "flow that its other pair of edges should pass")
    volume: float = value("m^3", "integral of the estimated flow")
    volume_before: float = value("m^3", "the same in the previous tick")
    volume_virtual: float = value("m^3", "integral of the virtual flow")
    volume_virtual_before: float = value("m^3", "the same in the previous tick, with that of missed ticks")
    volume_error: float = value("m^3", "virtual volume that the real valve has not passed yet")
    volume_ahead: float = value("m^3", "late part of volume_error, which the circuit treats as already passed")
    volume_lost: float = value("m^3", "virtual volume that was not passed and will not be compensated")
    supply: float = value("Pa", "filtered supply pressure; NaN before its first sample")
    supply_trend: float = value("Pa/s", "filtered rate of change of the supply pressure")
    gain_PA: float = value("", "tracked flow gain of the edge from supply to port, relative to the datasheet's")
    gain_AT: float = value("", "tracked flow gain of the edge from port to tank, relative to the datasheet's")
    delay: float = value("s", "tracked delay minus the configured one")
    null: float = value("", "tracked shift of the spool at command 0, as a fraction of full stroke")
    overlap: float = value("", "tracked overlap minus the configured one")
    learning: int = value("", "what the tracked values do: " + ", ".join(f"{s.value} {s.text}" for s in Learning))
    unseen: int = value("", "why its volume is not known: " + ", ".join(f"{u.value} {u.text}" for u in Unseen))
    spool_error: float = value("", "filtered difference between measured and simulated spool position")
    oscillation: float = value("", "largest recent half-wave of the demanded opening")
    oscillation_mean: float = value("", "demanded opening, filtered")
    oscillation_from: float = value("", "last turning point of the demanded opening")
    oscillation_to: float = value("", "farthest point since that turning point")
    oscillation_time: float = value("s", "time since the last half-wave that counted")
    oscillation_travel: float = value("", "travel of the operator inputs in it, as a fraction of half their ranges")
    oscillation_count: int = value("", "half-waves that counted")


class LearningState(Struct):
    """What an adaptive bridge has seen of its valve: the effects of the `LEARNED` values, and their products."""

    flow_change: float = value("m^3/s", "expected flow, recent part: the effect of a delay")
    passed_PA: float = value("m^3", "volume expected from the supply into the port, recent part: the effect of a gain")
    passed_AT: float = value("m^3", "volume expected from the port to the tank, recent part, negative")
    passed_by_null: float = value("m^3", "volume that a shift of the null by the full stroke would add, recent part")
    passed_by_overlap: float = value("m^3", "the same for a larger overlap")
    unexplained: float = value("m^3", "volume expected of the valve minus volume passed, recent part")
    seen_11: float = value("s^3", "adaptive: squares of the effect of delay")
    seen_12: float = value("s^3", "adaptive: products of the effects of delay and gain P->A")
    seen_13: float = value("s^3", "adaptive: products of the effects of delay and gain A->T")
    seen_14: float = value("s^3", "adaptive: products of the effects of delay and null")
    seen_15: float = value("s^3", "adaptive: products of the effects of delay and overlap")
    seen_22: float = value("s^3", "adaptive: squares of the effect of gain P->A")
    seen_23: float = value("s^3", "adaptive: products of the effects of gain P->A and gain A->T")
    seen_24: float = value("s^3", "adaptive: products of the effects of gain P->A and null")
    seen_25: float = value("s^3", "adaptive: products of the effects of gain P->A and overlap")
    seen_33: float = value("s^3", "adaptive: squares of the effect of gain A->T")
    seen_34: float = value("s^3", "adaptive: products of the effects of gain A->T and null")
    seen_35: float = value("s^3", "adaptive: products of the effects of gain A->T and overlap")
    seen_44: float = value("s^3", "adaptive: squares of the effect of null")
    seen_45: float = value("s^3", "adaptive: products of the effects of null and overlap")
    seen_55: float = value("s^3", "adaptive: squares of the effect of overlap")
    seen_1: float = value("s^3", "adaptive: unexplained volume times the effect of delay")
    seen_2: float = value("s^3", "adaptive: unexplained volume times the effect of gain P->A")
    seen_3: float = value("s^3", "adaptive: unexplained volume times the effect of gain A->T")
    seen_4: float = value("s^3", "adaptive: unexplained volume times the effect of null")
    seen_5: float = value("s^3", "adaptive: unexplained volume times the effect of overlap")


class ActuatorState(Struct):
    """The memory of a bridge for its actuator: a block of the row. What its filter remembers follows further below."""

    strategy: int = value("", "number of the bridge's strategy")
    position: float = value("m", "displacement that it follows: that of its node, at the start on the way there")
    velocity: float = value("m/s", "its velocity")
    acceleration: float = value("m/s^2", "its acceleration")
    measured: float = value("m", "measured displacement; NaN without a new sample")
    force_measured: float = value("N", "measured force with which it pushes the specimen; NaN without a new sample")
    estimate: float = value("m", "estimated displacement")
    force_estimate: float = value("N", "estimated force with which it pushes the specimen")
    force: float = value("N", "force of the specimen on the virtual circuit")
    error: float = value("m", "distance from the displacement that it follows, estimated or measured; 0 unless RUNNING")
    demand: float = value("m", "command that the strategy demands")
    command: float = value("m", "command within all limits")
    saturation: int = value("", "limits of the command: bits (hilserver.tick.codes.Saturation)")
    output: float = value("raw", "raw value for the device")
    known: int = value("", "1 once there were samples from which to start the filter; 2: until the reset of a fault")
    disturbance: float = value("m", "tracked difference between the command and what acts")
    node_velocity: float = value("m/s", "velocity of the node at the start of the tick")
    node_change: float = value("m/s^2", "mean acceleration of the node before that")
    elapsed: float = value("s", "time by which the circuit has moved since")
    expected_change: float = value(
        "m/s^2", "mean acceleration of the node if only the force of the specimen changed it"
    )
    other_change: float = value("m/s^2", "change of the mean acceleration of the node by other forces")
    foreseen: float = value("m", "part of the next command for the motion that is foreseen; NaN: none is")
    away: float = value("m", "distance from the virtual position at the start of the approach")
    away_velocity: float = value("m/s", "difference of the velocities there")
    away_acceleration: float = value("m/s^2", "acceleration of the node there")
    approach: float = value("s", "time since then; NaN: the approach has not begun")
    approach_time: float = value("s", "duration of the approach")
    estimate_velocity: float = value("m/s", "estimated velocity of the displacement")
    force_beyond: float = value("N", "measured force in excess of the estimated one at the same time")
    late_command: float = value("s", "tracked delay of the command beyond the stated one")
    late_force: float = value("s", "the same of the force, relative to the displacement, as far as it is believed")
    then_x: float = value("m", "measured displacement that the estimate contains last; NaN without a new sample")
    then_v: float = value("m/s", "estimated velocity at this time")
    then_F: float = value("N", "measured force at this time; NaN without a new sample")
    mean_xx: float = value("m^2", "recent mean square of the measured displacement in motion")
    mean_xv: float = value("m^2/s", "the same of its product with the velocity")
    mean_vv: float = value("m^2/s^2", "the same of the square of the velocity")
    mean_Fx: float = value(
        "N*m", "the same of the displacement and the measured force that its description does not give"
    )
    mean_Fv: float = value("W", "the same of the velocity and this force")
    force_is_late: int = value("", "1 once the measured force would supply power to the motion, so that it is late")
    load: float = value("N", "estimated force on the specimen that its description does not contain, mean of the tick")
    oscillation: float = value("m", "largest recent half-wave of the following error")
    oscillation_mean: float = value("m", "following error, filtered")
    oscillation_from: float = value("m", "last turning point of the following error")
    oscillation_to: float = value("m", "farthest point since that turning point")
    oscillation_time: float = value("s", "time since the last half-wave that counted")
    oscillation_travel: float = value("m", "error that the motion of the node explains in it")
    oscillation_count: int = value("", "half-waves that counted")
    jog: float = value("m/s", "manual: velocity of the command")
    jog_left: float = value("s", "remaining time of this motion")


class CylinderState(Struct):
    """A cylinder's estimated state; the first fields are the states of its Kalman filter."""

    p_A: float = value("Pa", "pressure in chamber A")
    p_B: float = value("Pa", "pressure in chamber B")
    x: float = value("m", "position")
    v: float = value("m/s", "speed")
    F: float = value("N", "force that is not measured: load, gravity, friction")
    bias_A: float = value("m^3/s", "flow into A in excess of that expected of its valve")
    bias_B: float = value("m^3/s", "flow into B in excess of that expected of its valve")
    void_A: float = value("m^3", "void in chamber A")
    void_B: float = value("m^3", "void in chamber B")
    flow_A: float = value("m^3/s", "flow into A")
    flow_B: float = value("m^3/s", "flow into B")
    volume_A: float = value("m^3", "oil that has entered A since the start")
    volume_B: float = value("m^3", "oil that has entered B since the start")
    stiffness: float = value("N/m", "by which F rises with the position; 0 while the piston moves freely")
    slow_x: float = value("m", "position, low-pass filtered")
    slow_F: float = value("N", "F, low-pass filtered")
    slow_pressed: float = value("N", "force of the pressures, low-pass filtered")
    free_F: float = value("N", "the same when the piston last moved freely")
    moved: float = value("", "sum of the squares of recent movements, see hilserver.tick.contact")
    together: float = value("", "sum of the products of the piston's movements and the force of the pressures")
    taken_up: float = value("", "sum of their products with the part that the oil has taken up")
    waits: float = value("s", "after a gap, greatest age of samples with which the estimate starts again; 0: it has")


class ReactionMemory(Struct):
    """A reaction: its condition, its action, and how far it has come. Of free ones the other fields have no meaning."""

    state: int = value("", "0 free, 1 armed, 2 watching, 3 moves its input, 4 holds, 5 done, 6 has ended the run")
    column: int = value("", "column of the row that its condition is about")
    direction: int = value("", "+1: fires above the level, -1: below it")
    level: float = value("SI", "level of the condition")
    hysteresis: float = value("SI", "distance from the level at which a condition that was met ends")
    hold: float = value("s", "time for which the condition must hold")
    action: int = value("", "1 set an input, 2 hold the commands, 3 stop, 4 trip")
    input: int = value("", "number of the input that it sets")
    target: float = value("", "value to which the input is set")
    ramp: float = value("s", "time in which the input moves there")
    rate: float = value("1/s", "speed of the input on the way")
    repeats: int = value("", "1 if it can fire again, when the condition has ended in between")
    primed: int = value("", "0 if the condition must first end before it can fire")
    held: float = value("s", "time for which the condition has been met; -1: it is not")
    count: int = value("", "how often the reactions with this number have fired")


class PlayoutMemory(Struct):
    """A playout: a sine on an input, and its response. Sines and cosines are the parts of a complex amplitude."""

    state: int = value("", "hilserver.tick.codes.PlayoutState")
    input: int = value("", "number of the input that it moves")
    column: int = value("", "column of the response")
    ticks: int = value("", "ticks per cycle")
    cycles: int = value("", "number of cycles that are wanted")
    count: int = value("", "number of cycles that are done")
    wanted_sin: float = value("SI", "response that is wanted: sine")
    wanted_cos: float = value("SI", "response that is wanted: cosine")
    measured_sin: float = value("SI", "response in the last whole cycle: sine")
    measured_cos: float = value("SI", "response in the last whole cycle: cosine")
    measured_mean: float = value("SI", "mean of the response in the last whole cycle")
    drive_sin: float = value("", "drive: sine")
    drive_cos: float = value("", "drive: cosine")
    drive_mean: float = value("", "mean of the drive")
    from_sin: float = value("", "drive before its last change: sine")
    from_cos: float = value("", "drive before its last change: cosine")
    from_mean: float = value("", "mean of the drive before its last change")
    mean_set: float = value("", "mean of the drive without control of the centre")
    limit: float = value("", "largest amplitude of the drive")
    gain: float = value("", "share of the error that is corrected at a time")
    tolerance: float = value("", "largest deviation of the response's amplitude, as a fraction")
    centre: float = value("SI", "mean of the response that is wanted")
    centre_gain: float = value("1/SI", "change of the drive's mean by the deviation of the response's mean")
    block: int = value("", "cycles from one correction to the next")
    place: int = value("", "cycles since the last correction")
    sum_sin: float = value("SI", "sum of the response times the sine in this cycle")
    sum_cos: float = value("SI", "sum of the response times the cosine in this cycle")
    sum_mean: float = value("SI", "sum of the response in this cycle")
    samples: int = value("", "number of samples in these sums")
    learning: int = value("", "blocks before the response was first within its tolerance")
    outside: int = value("", "consecutive blocks out of tolerance")
    faded: int = value("", "ticks for which it fades out")
    outcome: int = value("", "state when it has faded out")


class CommandRecord(Struct):
    """A command as passed through the mailbox to the loop, and stored in the log's events."""

    kind: int = value("", "kind of the command (hilserver.tick.codes.CommandKind)")
    a: float = value("", "first argument")
    b: float = value("", "second argument")
    c: float = value("", "third argument; of reactions and playouts only, as the following ones")
    d: float = value("", "fourth argument")
    e: float = value("", "fifth argument")
    f: float = value("", "sixth argument")
    sequence: int = value("", "number of the command, from 1")


COLUMN = {name: column for column, name in enumerate(RowHeader.names())}
"""Columns of the header's fields."""
HEADER_CELLS, MESSAGE_CELLS = RowHeader.cells(), CommandRecord.cells()
REACTION_CELLS, PLAYOUT_CELLS = ReactionMemory.cells(), PlayoutMemory.cells()
LEARNED = 5
"""Number of values that are learned of a valve: delay, gains, null, overlap."""
LEARNING_CELLS, VALVE_CELLS, CYLINDER_CELLS = LearningState.cells(), ValveState.cells(), CylinderState.cells()
ACTUATOR_CELLS = ActuatorState.cells()
TREND_CELLS, PORT_CELLS, READING_CELLS = InputTrend.cells(), PortState.cells(), ReadingState.cells()
CYLINDER_PAST = ("p_A", "p_B", "x", "flow_A", "flow_B")
"""The stored past states of a cylinder."""


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
    """The motion of input ``i``."""
    return plan.layout[0].trend + i * TREND_CELLS


@record_at(ReadingState)
def reading_state(plan: Plan, row: Floats, i: int) -> int:
    """The history of the readings of channel ``i``."""
    return plan.layout[0].reading + i * READING_CELLS


@record_at(PortState)
def port_state(plan: Plan, row: Floats, i: int) -> int:
    """Port ``i`` as passed to the virtual circuit."""
    return plan.layout[0].port + i * PORT_CELLS


@record_at(ValveState)
def valve_state(plan: Plan, row: Floats, i: int) -> int:
    """A valve's block of the row."""
    return plan.layout[0].valve + i * VALVE_CELLS


@record_at(LearningState)
def learning_state(plan: Plan, row: Floats, i: int) -> int:
    """What the bridge of valve ``i`` has seen of it."""
    return plan.layout[0].learning + i * LEARNING_CELLS


@record_at(ActuatorState)
def actuator_state(plan: Plan, row: Floats, i: int) -> int:
    """The block of the row of an actuator whose position is controlled."""
    return plan.layout[0].actuator + i * ACTUATOR_CELLS


@record_at(CylinderState)
def cylinder_state(plan: Plan, row: Floats, c: int) -> int:
    """A cylinder's block of the row."""
    return plan.layout[0].cylinder + c * CYLINDER_CELLS


@record_at(ReactionMemory)
def reaction_memory(plan: Plan, row: Floats, i: int) -> int:
    """Reaction ``i``."""
    return plan.layout[0].reaction + i * REACTION_CELLS


@record_at(PlayoutMemory)
def playout_memory(plan: Plan, row: Floats, i: int) -> int:
    """Playout ``i``."""
    return plan.layout[0].playout + i * PLAYOUT_CELLS


@record_at(CylinderState)
def cylinder_copy(row: Floats, c: int) -> int:
    """Cylinder ``c`` in a copy of the row's cylinders."""
    return c * CYLINDER_CELLS


@gives_arrays
def ahead_of_input(layout: Layout, row: Floats, i: int) -> Floats:
    """An operator input's values in the next ticks, the nearest first; none if no input is delayed."""
    n = layout.input_ahead_ticks
    return row[layout.input_ahead + i * n : layout.input_ahead + (i + 1) * n]


@gives_arrays
def past_of_valve(layout: Layout, row: Floats, i: int) -> Floats:
    """A valve's commands of the last ticks, the newest first."""
    n = layout.valve_past_ticks
    return row[layout.valve_past + i * n : layout.valve_past + (i + 1) * n]


@gives_arrays
def past_of_cylinder(layout: Layout, row: Floats, c: int) -> Floats:
    """A cylinder's p_A, p_B, x and flows of the last ticks, the newest first: a line of each."""
    n = layout.cylinder_past_ticks
    start = layout.cylinder_past + REMEMBERED * n * c
    return as_matrix(row[start : start + REMEMBERED * n], REMEMBERED)


def headers(rows: Floats) -> RecordTable[RowHeader]:
    """The headers of many rows, as a view: ``headers(rows)["mode"]``."""
    found: Any = table_on(rows[:, :HEADER_CELLS], RowHeader)
    heads: RecordTable[RowHeader] = found[:, 0]
    return heads


def as_whole(rows: Floats) -> Integers:
    """The same cells as int64, as a view."""
    return rows.view(np.int64)


def valve_columns(plan: Plan, field: str) -> list[int]:
    """Columns of a field of every valve's block."""
    first = plan.layout[0].valve + ValveState.names().index(field)
    return [first + VALVE_CELLS * i for i in range(len(plan.valve))]


def input_columns(plan: Plan) -> Integers:
    """Columns of the row that are set from outside before each tick: of the header, raw readings, ages and errors."""
    layout = plan.layout[0]
    return np.array([*map(COLUMN.__getitem__, INPUTS), *range(layout.raw, layout.channel)], dtype=np.int64)
