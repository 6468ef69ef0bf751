"""What a bridge remembers (its block of the row) and what it knows of its valve (its line of ``plan.valve``).

And the same of the cylinders whose state it estimates: their blocks, and their lines of ``plan.cylinder``.
"""

from __future__ import annotations

# --- block of the row, one per valve; the names are the log's column names -------------------------------------------
BLOCK_NAMES = (
    "strategy",
    "flow_virtual",
    "flow_before",
    "flow_measured",
    "drop",
    "opening",
    "demand",
    "command",
    "saturation",
    "opening_filtered",
    "spool",
    "spool_speed",
    "integral",
    "flow_filtered",
    "fade",
    "jog",
    "jog_left",
    "output",
    "withheld",
    "pinned",
    "away",
    "flow_expected",
    "flow_estimated",
    "flow_deviation",
    "flow_other",
    "volume",
    "volume_before",
    "volume_error",
    "supply",
    "supply_trend",
    "gain_PA",
    "gain_AT",
    "delay",
    "expected_before",
    "expected_rate",
    "spool_error",
    "swing",
    "swing_mean",
    "swing_from",
    "swing_to",
    "swing_time",
    "swing_travel",
    "swing_count",
)
(
    STRATEGY_NOW,
    FLOW_VIRTUAL,
    FLOW_BEFORE,
    FLOW_MEASURED,
    DROP,
    OPENING,
    DEMAND,
    COMMAND_OUT,
    SATURATION,
    OPENING_FILTERED,
    SPOOL,
    SPOOL_SPEED,
    INTEGRAL,
    FLOW_FILTERED,
    FADE,
    JOG_TARGET,
    JOG_LEFT,
    OUTPUT,
    WITHHELD,
    PINNED,
    AWAY,
    FLOW_EXPECTED,
    FLOW_ESTIMATED,
    FLOW_DEVIATION,
    FLOW_OTHER,
    VOLUME,
    VOLUME_BEFORE,
    VOLUME_ERROR,
    SUPPLY,
    SUPPLY_TREND,
    GAIN_PA,
    GAIN_AT,
    DELAY_NOW,
    EXPECTED_BEFORE,
    EXPECTED_RATE,
    SPOOL_ERROR,
    SWING,
    SWING_MEAN,
    SWING_FROM,
    SWING_TO,
    SWING_TIME,
    SWING_TRAVEL,
    SWING_COUNT,
) = range(43)
BLOCK = 43

# --- strategies: the ladder of compensation, each rung with all that the one before has ------------------------------
MANUAL, INVERSE_STATIC, INVERSE_LAG, INVERSE_LAG_LEAKAGE = 0, 1, 2, 3
SECOND_ORDER, NULL_REGION, SUPPLY_DROOP, PREDICTION, FEEDBACK, ADAPTIVE = 4, 5, 6, 7, 8, 9
FLOW_SERVO = 10
STRATEGY_NAMES = (
    "manual",
    "inverse_static",
    "inverse_lag",
    "inverse_lag_leakage",
    "second_order",
    "null_region",
    "supply_droop",
    "prediction",
    "feedback",
    "adaptive",
    "flow_servo",
)

# --- saturation flags ------------------------------------------------------------------------------------------------
CAPACITY, NO_DROP, RANGE, SLEW, NEAR_END, OSCILLATION, SPOOL_FAULT = 1, 2, 4, 8, 16, 32, 64
SATURATION_TEXTS = {
    CAPACITY: "the real valve is too small for the virtual flow at this pressure drop",
    NO_DROP: "hardly any drop in the direction of the virtual flow: it can't be had, the command fades to null",
    RANGE: "command held at the end of its range",
    SLEW: "command held back by its slew limit",
    NEAR_END: "command held back near the end of the stroke",
    SPOOL_FAULT: "the spool does not follow its command",
    OSCILLATION: "the loop of circuit, valve and machine oscillates",
}

# --- columns of plan.valve -------------------------------------------------------------------------------------------
(
    PORT,
    CHANNEL_P,
    CHANNEL_S,
    CHANNEL_T,
    CHANNEL_Q,
    CHANNEL_SPOOL,
    AGE_SPOOL,
    AGE_Q,
    OTHER_PORT,
    C_PA,
    C_AT,
    P_TR,
    TAU,
    OMEGA,
    DAMPING,
    DELAY,
    OVERLAP,
    NULL_BAND,
    LEAK_PA,
    LEAK_AT,
    LEAK_GONE,
    TAU_W,
    K_P,
    T_I,
    T_D,
    TAU_D,
    T_FEEDBACK,
    Q_NOMINAL,
    CYLINDER,
    SIDE,
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
    SPOOL_11,
    SPOOL_12,
    SPOOL_21,
    SPOOL_22,
) = range(49)
VALVE_WIDTH = 49

# --- block of the row, one per cylinder: its estimated state ---------------------------------------------------------
CYLINDER_NAMES = ("p_A", "p_B", "x", "v", "F", "bias_A", "bias_B", "flow_A", "flow_B", "volume_A", "volume_B")
P_A, P_B, X, V, FORCE, BIAS_A, BIAS_B, FLOW_A, FLOW_B, VOLUME_A, VOLUME_B = range(11)
CYLINDER_BLOCK = 11
STATES = 7

# --- columns of plan.cylinder ----------------------------------------------------------------------------------------
(
    CYLINDER_PORT_A,
    CYLINDER_PORT_B,
    SENSOR_A,
    SENSOR_B,
    SENSOR_X,
    SENSOR_QA,
    SENSOR_QB,
    AGE_A,
    AGE_B,
    AGE_X,
    AGE_QA,
    AGE_QB,
    AREA_A,
    AREA_B,
    DEAD_A,
    DEAD_B,
    STROKE,
    MASS,
    B_O,
    ALPHA_0,
    KAPPA,
    P_0,
    VALVE_A,
    VALVE_B,
    TURN_A,
    TURN_B,
) = range(26)
CYLINDER_WIDTH = 26

# --- plan.observer: per cylinder GRID lines over its stroke: deviations of the flows into A and B, then the gains:
#     state by measurement, then p_A, p_B and x of one tick ago, two ticks ago, … by measurement
MEASUREMENTS = 5
SENSED = 3
REMEMBERED = 5  # p_A, p_B, x and the flows
GRID = 9
DEVIATION_A, DEVIATION_B, GAINS = 0, 1, 2

SUBSTEPS_OF_MACHINE = 4
"""Sub-steps per tick in which spools and cylinders are followed."""
