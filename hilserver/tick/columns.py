"""Where things stand in the row and in the plan's tables, and the numbers that stand for modes, commands and actions.

The *row* is the tick's whole memory (docs/architecture.md): header, then sections whose places are in ``plan.layout``.
Plain module constants, because compiled code reads them.
"""

from __future__ import annotations

# --- header of the row -----------------------------------------------------------------------------------------------
TICK, TIME, UTC, MISSED, HEARTBEAT_AGE = 0, 1, 2, 3, 4
COMMAND, RESULT, MODE, FAULT, WARNINGS = 5, 6, 7, 8, 9
CIRCUIT_VERSION, CYCLE_TIME, WAKE_ERROR, READ_TIME, COMPUTE_TIME, WRITE_TIME = 10, 11, 12, 13, 14, 15
DEVICE_ERROR, PUBLISH_TIME, HEADER = 16, 17, 18
HEADER_NAMES = (
    "tick",
    "time",
    "utc",
    "missed",
    "heartbeat_age",
    "command",
    "result",
    "mode",
    "fault",
    "warnings",
    "circuit_version",
    "cycle_time",
    "wake_error",
    "read_time",
    "compute_time",
    "write_time",
    "device_error",
    "publish_time",
)
TIMES = (READ_TIME, COMPUTE_TIME, WRITE_TIME, PUBLISH_TIME)
"""What the tick before took, by parts, s."""
INPUT_COLUMNS = (TICK, UTC, MISSED, HEARTBEAT_AGE, WAKE_ERROR, *TIMES, DEVICE_ERROR)
"""Header columns that are set from outside before each tick; the tick computes the others."""

# --- layout: where the sections of the row begin ---------------------------------------------------------------------
RAW, AGE, ERRORS, CHANNEL, STALE, CHANGE, INPUT, TREND, LIMIT, VALVE, OUTPUTS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
PORTS_SEEN, CYLINDERS, VALVES_PAST, CYLINDERS_PAST, CIRCUIT = 11, 12, 13, 14, 15
CIRCUIT_SPACE, VALVE_PAST, CYLINDER_PAST, LAYOUT = 16, 17, 18, 19  # how many columns circuit and pasts have

# --- plan.loop -------------------------------------------------------------------------------------------------------
DT, MAX_MISSED, HEARTBEAT_TIMEOUT, CYCLE_LENGTH, CYCLE_REPEATS = 0, 1, 2, 3, 4
ENABLE_CHANNEL, ENABLE_MAX_AGE, ENABLE_ACTION, LOOP = 5, 6, 7, 8  # the local enable; channel -1: there is none

# --- plan.channel: one line per channel ------------------------------------------------------------------------------
(
    RAW_SLOT,
    CONSTANT,
    FILTER,
    CURVE_KIND,
    CURVE_FIRST,
    CURVE_LAST,
    RAW_LOW,
    RAW_HIGH,
    VALID_LOW,
    VALID_HIGH,
    VALID_RATE,
) = range(11)
CHANNEL_WIDTH = 11

# --- plan.curve: coefficients of polynomials (rising powers; 0), points of tables (raw, value) -----------------------
POLYNOMIAL, TABLE = 0, 1

# --- plan.limit ------------------------------------------------------------------------------------------------------
LIMIT_CHANNEL, LIMIT_KIND, LIMIT_LOWER, LIMIT_UPPER, LIMIT_ACTION = 0, 1, 2, 3, 4
LIMIT_WIDTH = 5
BY_VALUE, BY_AGE, BY_RATE = 0, 1, 2
WARN, HOLD, RAMP, TRIP = 1, 2, 3, 4
ACTION_NAMES = {"warn": WARN, "stop": WARN, "hold": HOLD, "ramp": RAMP, "trip": TRIP}
"""A limit that stops acts on its valves, by plan.end; on the mode no more than a warning."""
ENABLE_ACTIONS = {"refuse": WARN, "ramp": RAMP, "trip": TRIP}

# --- plan.end: ends of a stroke; SIGN +1: a positive command of the valve makes the channel rise ---------------------
END_CHANNEL, END_VALVE, END_SIGN, END_LOWER, END_UPPER, END_DISTANCE, END_WIDTH = 0, 1, 2, 3, 4, 5, 6

# --- plan.output: outputs that are no valve; a heartbeat changes every TOGGLE_TICKS -----------------------------------
OUTPUT_WHEN, OUTPUT_OFF, OUTPUT_ON, TOGGLE_TICKS, OUTPUT_WIDTH = 0, 1, 2, 3, 4
WHEN_ARMED, WHEN_RUNNING, WHEN_HEALTHY, HEARTBEAT = 0, 1, 2, 3
WHEN_NAMES = {"armed": WHEN_ARMED, "running": WHEN_RUNNING, "healthy": WHEN_HEALTHY, "heartbeat": HEARTBEAT}

# --- plan.cycle: breakpoints, sorted by input and time; the shape is that before the point, as are a sine's amplitude
#     and frequency (Hz) ---------------------------------------------------------------------------------------------
CYCLE_INPUT, CYCLE_AT, CYCLE_VALUE, CYCLE_SHAPE, CYCLE_AMPLITUDE, CYCLE_FREQUENCY = 0, 1, 2, 3, 4, 5
CYCLE_WIDTH = 6
LINEAR, SMOOTH, JUMP, SINE = 0, 1, 2, 3
SHAPE_NAMES = {"linear": LINEAR, "step": SMOOTH, "hold": JUMP}

# --- plan.port: one line per port of the machine; -1 where there is none ---------------------------------------------
PORT_CHANNEL, PORT_CYLINDER, PORT_SIDE, PORT_VALVE, PORT_TURNED = 0, 1, 2, 3, 4
PORT_WIDTH = 5

# --- per input, how it moves: the last value, the last steps, and what may be carried on -----------------------------
LAST, STEP_1, STEP_2, SLOPE, BEND = 0, 1, 2, 3, 4
TREND_NAMES = ("last", "step", "step_before", "slope", "bend")
TRENDS = 5

# --- plan.input ------------------------------------------------------------------------------------------------------
INPUT_INITIAL, INPUT_LOW, INPUT_HIGH = 0, 1, 2

# --- modes -----------------------------------------------------------------------------------------------------------
STARTUP, SAFE, ARMED, RUNNING, FAULTED = 0, 1, 2, 3, 4
MODE_NAMES = ("STARTUP", "SAFE", "ARMED", "RUNNING", "FAULT")

# --- faults: what tripped; a tripped limit i is FAULT_LIMIT + i ------------------------------------------------------
NO_FAULT, FAULT_MISSED, FAULT_DIVERGED, FAULT_SUPERVISOR, FAULT_DEVICE, FAULT_ESTOP, FAULT_BRIDGE = range(7)
FAULT_ENABLE = 7
FAULT_LIMIT = 100
FAULT_TEXTS = {
    NO_FAULT: "",
    FAULT_MISSED: "more ticks in a row were missed than loop.max_missed allows",
    FAULT_DIVERGED: "the virtual circuit diverged (a value was not finite); it was set back to its initial values",
    FAULT_SUPERVISOR: "the supervisor's heartbeat stopped",
    FAULT_DEVICE: "a device could not be read or written",
    FAULT_BRIDGE: "a bridge asked for a command that is not a finite number",
    FAULT_ESTOP: "tripped by the operator (command trip)",
    FAULT_ENABLE: "the local enable went off",
}

# --- commands --------------------------------------------------------------------------------------------------------
NOTHING, ARM, DISARM, START, STOP, RESET, SET_INPUT, STRATEGY, JOG, CYCLE, SWAP, ESTOP = range(12)
COMMAND_KIND, COMMAND_A, COMMAND_B, COMMAND_SEQUENCE, COMMAND_WIDTH = 0, 1, 2, 7, 8

# --- results of commands ---------------------------------------------------------------------------------------------
DONE, WRONG_MODE, LIMIT_ACTIVE, NOT_MANUAL, UNKNOWN_COMMAND, CAUSE_PERSISTS, BAD_VALUE, NOT_ENABLED = range(8)
RESULT_TEXTS = {
    DONE: "",
    WRONG_MODE: "not possible in this mode",
    LIMIT_ACTIVE: "a limit is violated that would end it at once; mend its cause first",
    NOT_MANUAL: "the valve's bridge strategy is not manual",
    UNKNOWN_COMMAND: "unknown command",
    CAUSE_PERSISTS: "the cause of the fault is still there; mend it first",
    BAD_VALUE: "there is no such input, valve, strategy or cycle, or the value is not a finite number",
    NOT_ENABLED: "the local enable is off: switch it on at the rig first",
}
