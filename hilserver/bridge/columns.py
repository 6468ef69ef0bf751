"""What a bridge remembers (its block of the row) and what it knows of its valve (its line of ``plan.valve``)."""

from __future__ import annotations

# --- block of the row, one per valve; the names are the log's column names -------------------------------------------
BLOCK_NAMES = (
    "strategy",
    "flow_virtual",
    "flow_measured",
    "drop",
    "opening",
    "demand",
    "command",
    "saturation",
    "opening_filtered",
    "spool",
    "integral",
    "flow_filtered",
    "fade",
    "jog",
    "jog_left",
    "output",
    "withheld",
)
(
    STRATEGY_NOW,
    FLOW_VIRTUAL,
    FLOW_MEASURED,
    DROP,
    OPENING,
    DEMAND,
    COMMAND_OUT,
    SATURATION,
    OPENING_FILTERED,
    SPOOL,
    INTEGRAL,
    FLOW_FILTERED,
    FADE,
    JOG_TARGET,
    JOG_LEFT,
    OUTPUT,
    WITHHELD,
) = range(17)
BLOCK = 17

# --- strategies: the ladder of compensation --------------------------------------------------------------------------
MANUAL, INVERSE_STATIC, INVERSE_LAG, INVERSE_LAG_LEAKAGE, FLOW_SERVO = 0, 1, 2, 3, 4
STRATEGY_NAMES = ("manual", "inverse_static", "inverse_lag", "inverse_lag_leakage", "flow_servo")

# --- saturation flags ------------------------------------------------------------------------------------------------
CAPACITY, NO_DROP, RANGE, SLEW, NEAR_END = 1, 2, 4, 8, 16
SATURATION_TEXTS = {
    CAPACITY: "the real valve is too small for the virtual flow at this pressure drop",
    NO_DROP: "hardly any drop in the direction of the virtual flow: it can't be had, the command fades to null",
    RANGE: "command held at the end of its range",
    SLEW: "command held back by its slew limit",
    NEAR_END: "command held back near the end of the stroke",
}

# --- columns of plan.valve -------------------------------------------------------------------------------------------
(
    PORT,
    CHANNEL_P,
    CHANNEL_S,
    CHANNEL_T,
    CHANNEL_Q,
    C_PA,
    C_AT,
    P_TR,
    TAU,
    LEAK_PA,
    LEAK_AT,
    LEAK_GONE,
    TAU_W,
    K_P,
    T_I,
    T_D,
    TAU_D,
    FADE_TIME,
    JOG_LIMIT,
    JOG_TIME,
    POLARITY,
    NULL,
    DITHER,
    DITHER_FREQUENCY,
    U_MIN,
    U_MAX,
    SLEW_RATE,
    STOP_RATE,
    SAFE_VALUE,
    RAW_GAIN,
    RAW_OFFSET,
    STRATEGY_FIRST,
) = range(32)
VALVE_WIDTH = 32
