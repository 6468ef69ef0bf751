"""The tick: modes, commands, limits, channels, work cycle, swap; and that it is a pure function of its row."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig_bench import BAR, CIRCUIT, DT, L_MIN, Bench, bench_rig, merged, program

from hilserver.errors import ConfigurationError
from hilserver.numerics.arrays import Floats
from hilserver.tick.bridge.ladder import STRATEGY_NAMES
from hilserver.tick.codes import (
    FIRST_LIMIT_FAULT,
    Action,
    CommandKind,
    FaultCode,
    Mode,
    ResultCode,
    Saturation,
    Shape,
    Watched,
)
from hilserver.tick.plan import CyclePoint, table_of
from hilserver.tick.program import no_command, work_array
from hilserver.tick.row import COLUMN, INPUTS, command_in, header, headers
from hilserver.tick.signals import cycle_value

CYCLE = {"inputs": {"flow": {"points": [["0 s", 0.0], ["10 ms", 1.0]]}}}
TANK = {"type": "tank", "ports": {"T": "t"}}
SUPPLIED: dict[str, Any] = {
    "components": {
        "tank": TANK,
        "pump": {"type": "flow_source", "ports": {"P": "s", "T": "t"}, "flow": "10 l/min", "command": 1},
        "line": {"type": "volume", "ports": {"P": "s"}, "volume": "1 l"},
        "relief": {
            "type": "relief_valve",
            "ports": {"P": "s", "T": "t"},
            "opening_pressure": "100 bar",
            "override": [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]],
        },
        "throttle": {
            "type": "orifice",
            "ports": {"A": "s", "B": "rig.A"},
            "nominal_flow": {"flow": "20 l/min", "drop": "35 bar"},
        },
    },
    "nodes": {"s": {"pressure": "80 bar"}},
}


def bench(mode: int = Mode.SAFE, **changes: Any) -> Bench:
    """The bench's rig in this mode: p_A 50 bar, p_S 160 bar."""
    circuit, cycle = changes.pop("circuit", None), changes.pop("cycle", None)
    made = Bench(bench_rig(changes, circuit, cycle))
    made.raw.update(p_A=5.0, p_S=8.0)
    return made.run_to(mode)


# --- modes and commands ----------------------------------------------------------------------------------------------

W, D = ResultCode.WRONG_MODE, ResultCode.DONE
TABLE: dict[int, list[tuple[int, int | None]]] = {
    # in STARTUP, SAFE, ARMED, RUNNING, FAULT, SAFE_NOT_CONFIRMED: the result and the mode after it (None: the same)
    CommandKind.ARM: [(W, None), (D, Mode.ARMED), (W, None), (W, None), (W, None), (ResultCode.NOT_CONFIRMED, None)],
    CommandKind.DISARM: [(W, None), (W, None), (D, Mode.SAFE), (D, Mode.SAFE), (W, None), (W, None)],
    CommandKind.START: [(W, None), (W, None), (D, Mode.RUNNING), (W, None), (W, None), (W, None)],
    CommandKind.STOP: [(W, None), (W, None), (W, None), (D, Mode.ARMED), (W, None), (W, None)],
    CommandKind.RESET: [(W, None), (W, None), (W, None), (W, None), (D, Mode.SAFE), (W, None)],
    CommandKind.SET_INPUT: [(W, None), (W, None), (W, None), (D, None), (W, None), (W, None)],
    CommandKind.STRATEGY: [(D, None)] * 6,
    CommandKind.JOG: [(W, None), (W, None), (W, None), (ResultCode.NOT_MANUAL, None), (W, None), (W, None)],
    CommandKind.CYCLE: [(W, None), (W, None), (W, None), (D, None), (W, None), (W, None)],
    CommandKind.SWAP: [(D, None)] * 6,
    CommandKind.ESTOP: [(D, Mode.FAULT)] * 6,
    99: [(ResultCode.UNKNOWN_COMMAND, None)] * 6,
}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("command", list(TABLE))
def test_every_command_in_every_mode(command: int, mode: int) -> None:
    machine = bench(cycle=CYCLE, valves={"main": {"max_age": "10 ms", "unconfirmed": "warn"}})
    header(machine.row).mode = mode
    if mode == Mode.SAFE_NOT_CONFIRMED:
        machine.confirmed_ages["valve.main"] = inf
    if mode == Mode.STARTUP:  # a channel without a sample keeps it there
        machine.row[machine.rig.layout.column("stale.p_A")] = inf
        machine.raw["p_A"] = nan
    result, after = TABLE[command][mode]
    assert machine.tick(command, 0.0, 1.0) == result
    assert machine["mode"] == (mode if after is None else after)
    assert machine["command"] == machine.sequence  # each command is acknowledged by its number


def test_no_command_is_missing_from_the_table_and_every_result_has_a_text() -> None:
    machine = bench(cycle=CYCLE)
    for command in {*range(1, 99)} - {*TABLE}:
        assert machine.tick(command) == ResultCode.UNKNOWN_COMMAND
    assert all(result.text for result in ResultCode if result != ResultCode.DONE)
    assert all(fault.text for fault in FaultCode if fault != FaultCode.NONE)


def test_startup_lasts_until_every_channel_has_had_a_sample() -> None:
    machine = Bench()
    machine.raw.update(p_A=nan, p_S=8.0, Q_A=nan)
    for name in ("p_A", "Q_A"):
        machine.tick()
        assert machine.mode == "STARTUP"
        assert machine.tick(CommandKind.ARM) == ResultCode.WRONG_MODE
        machine.raw[name] = 0.0
    machine.tick()
    assert machine.mode == "SAFE"


def test_a_fault_latches_and_the_first_stays() -> None:
    machine = bench(Mode.RUNNING)
    machine.tick(CommandKind.ESTOP)
    machine.device_error = 1.0
    machine.tick()
    machine.device_error = 0.0
    machine.record("mode", 100)
    assert (machine.mode, machine["fault"]) == ("FAULT", FaultCode.ESTOP)


@pytest.mark.parametrize(
    ("attribute", "value", "fault"),
    [
        ("device_error", 1.0, FaultCode.DEVICE),
        ("heartbeat_age", 0.2, FaultCode.SUPERVISOR),
        ("missed", 6, FaultCode.MISSED),
    ],
)
def test_a_fault_is_reset_only_when_its_cause_is_gone(attribute: str, value: float, fault: int) -> None:
    machine = bench(Mode.RUNNING)
    before = getattr(machine, attribute)
    setattr(machine, attribute, value)
    machine.tick()
    assert (machine.mode, machine["fault"]) == ("FAULT", fault)
    assert machine.tick(CommandKind.RESET) == ResultCode.CAUSE_PERSISTS
    assert (machine.mode, machine["fault"]) == ("FAULT", fault)
    setattr(machine, attribute, before)
    assert machine.tick(CommandKind.RESET) == ResultCode.DONE
    assert (machine.mode, machine["fault"]) == ("SAFE", FaultCode.NONE)


@pytest.mark.parametrize("field", ["device_error", "heartbeat_age", "missed"])
def test_what_is_not_a_number_counts_as_lost(field: str) -> None:
    machine = bench(Mode.RUNNING)
    row, rig = machine.row, machine.rig
    setattr(header(row), field, nan)
    work = work_array(rig.packed, rig.plan)
    program().tick(rig.plan.block, rig.packed.index, rig.packed.value, row, work, no_command())
    assert machine.mode == "FAULT"
    assert np.isfinite(machine["valve.main.command"])


def test_reset_before_all_samples_came_leads_to_startup() -> None:
    machine = Bench()
    machine.raw["p_A"] = nan
    machine.device_error = 1.0
    machine.tick()
    machine.device_error = 0.0
    assert machine.tick(CommandKind.RESET) == ResultCode.LIMIT_ACTIVE  # the age limit of p_A
    machine.raw["p_A"] = 5.0
    assert machine.tick(CommandKind.RESET) == ResultCode.DONE
    assert machine.mode == "SAFE"


def test_a_loop_that_is_not_running_stands_missed_ticks_and_a_silent_supervisor() -> None:
    machine = bench(Mode.SAFE)
    machine.missed, machine.heartbeat_age = 1000, 60.0
    machine.tick()
    assert machine.mode == "SAFE"


def test_up_to_max_missed_ticks_are_made_good_in_virtual_time() -> None:
    """4 missed ticks at 1 ms: the circuit's time goes on by 5 ms (rounding only); 5 are allowed."""
    machine = bench(Mode.RUNNING)
    before = machine["t"]
    machine.missed = 4
    machine.tick()
    assert machine["t"] - before == pytest.approx(5 * DT, rel=1e-9)
    assert machine["time"] == pytest.approx(machine["tick"] * DT, rel=1e-12)
    assert machine.mode == "RUNNING"


def test_a_lost_supervisor_ramps_to_null_at_the_stop_rate() -> None:
    """stop_time 200 ms from full command: 0.005 per tick at 1 kHz."""
    machine = bench(Mode.RUNNING)
    machine.tick(CommandKind.SET_INPUT, 0, 1.0)
    machine.record("mode", 200)
    machine.heartbeat_age = 0.11
    commands = machine.record("valve.main.command", 200)
    assert np.diff(commands).min() == pytest.approx(-0.005, rel=1e-9)
    assert commands[-1] == 0.0


def test_a_trip_ramps_to_null_at_the_slew_rate() -> None:
    """50 per second: 0.05 per tick."""
    machine = bench(Mode.RUNNING)
    machine.tick(CommandKind.SET_INPUT, 0, 1.0)
    before = machine.record("valve.main.command", 200)[-1]
    machine.tick(CommandKind.ESTOP)
    assert machine["valve.main.command"] == pytest.approx(before - 0.05, rel=1e-9)
    assert machine.record("valve.main.command", 20)[-1] == 0.0


# --- limits ----------------------------------------------------------------------------------------------------------

P_A_HIGH = {"channel": "p_A", "max": "80 bar"}
MODES = {"warn": "RUNNING", "hold": "RUNNING", "ramp": "ARMED", "trip": "FAULT"}


def by_value(machine: Bench) -> None:
    machine.raw["p_A"] = 9.0  # 90 bar


def by_age(machine: Bench) -> None:
    machine.ages["p_A"] = 0.011


def by_rate(machine: Bench) -> None:
    machine.raw["p_A"] = 5.2  # 2 bar in a tick of 1 ms: 2000 bar/s


LIMITS: dict[Callable[[Bench], None], dict[str, str]] = {
    by_value: P_A_HIGH,
    by_age: {"channel": "p_A", "max_age": "10 ms"},
    by_rate: {"channel": "p_A", "max_rate": "1900 bar/s"},
}


SUFFIX: dict[Callable[[Bench], None], str] = {by_value: "", by_age: ".age", by_rate: ".rate"}


@pytest.mark.parametrize("violate", list(LIMITS))
@pytest.mark.parametrize("action", ["warn", "hold", "ramp", "trip"])
def test_a_limit_acts(violate: Callable[[Bench], None], action: str) -> None:
    machine = bench(Mode.RUNNING, limits={"odd": {**LIMITS[violate], "action": action}})
    machine.tick(CommandKind.SET_INPUT, 0, 0.5)
    command = machine.record("valve.main.command", 20)[-1]
    assert machine["warnings"] == 0
    violate(machine)
    machine.tick(CommandKind.SET_INPUT, 0, 0.9)
    assert machine["warnings"] == 1
    assert machine.mode == MODES[action]
    assert (machine["valve.main.command"] == command) == (action == "hold")
    if action == "trip":
        number = machine.rig.layout.limits.index("odd" + SUFFIX[violate])
        assert machine["fault"] == FIRST_LIMIT_FAULT + number


def test_limits_of_all_kinds_keep_still_within_their_bounds() -> None:
    machine = bench(
        Mode.RUNNING,
        limits={
            "value": {"channel": "p_A", "min": "50 bar", "max": "52 bar", "action": "trip"},
            "age": {"channel": "p_A", "max_age": "10 ms", "action": "trip"},
            "rate": {"channel": "p_A", "max_rate": "2001 bar/s", "action": "trip"},
        },
    )
    machine.raw["p_A"], machine.ages["p_A"] = 5.2, 0.01
    machine.tick()
    assert (machine.mode, machine["warnings"]) == ("RUNNING", 0)


def test_the_severest_action_wins() -> None:
    limits = {name: {**P_A_HIGH, "action": name} for name in ("trip", "warn", "ramp", "hold")}
    machine = bench(Mode.RUNNING, limits=limits)
    by_value(machine)
    machine.tick()
    assert (machine.mode, machine["warnings"]) == ("FAULT", 4)


def test_a_violated_limit_refuses_what_it_would_end_at_once() -> None:
    cases = (
        ("trip", ResultCode.LIMIT_ACTIVE, ResultCode.WRONG_MODE),
        ("ramp", ResultCode.DONE, ResultCode.LIMIT_ACTIVE),
        ("hold", ResultCode.DONE, ResultCode.DONE),
    )
    for action, arm, start in cases:
        machine = bench(Mode.SAFE, limits={"odd": {**P_A_HIGH, "action": action}})
        by_value(machine)
        assert machine.tick(CommandKind.ARM) == arm
        assert machine.tick(CommandKind.START) == start


def test_every_measured_channel_has_an_age_limit() -> None:
    """loop.max_age, action trip, unless a limit watches the channel's age; a fixed channel needs none."""
    rig = bench_rig({"limits": {"old": {"channel": "p_S", "max_age": "1 s", "action": "warn"}}})
    assert rig.layout.limits == ("old.age", "p_A.age", "Q_A.age")
    limit = rig.plan.limit[1]
    assert (limit.channel, limit.watched, limit.lower) == (0, Watched.AGE, -inf)
    assert (limit.upper, limit.action) == (0.02, Action.TRIP)


@pytest.mark.parametrize("break_it", ["raw is NaN", "age grows"])
def test_a_channel_that_is_not_sampled_trips_after_max_age(break_it: str) -> None:
    """20.5 ms at 1 kHz: 20 ticks without a sample are allowed."""
    machine = bench(Mode.RUNNING, loop={"max_age": "20.5 ms"})
    for k in range(1, 23):
        if break_it == "age grows":
            machine.ages["p_A"] = k * DT
        else:
            machine.raw["p_A"] = nan
        machine.tick()
        assert machine["channel.p_A"] == pytest.approx(50 * BAR)  # the last value is kept
        assert machine.mode == ("RUNNING" if k <= 20 else "FAULT"), k
    assert machine["fault"] == FIRST_LIMIT_FAULT + machine.rig.layout.limits.index("p_A.age")


# --- outputs ---------------------------------------------------------------------------------------------------------

LATE = "valve.main.unconfirmed"


def bench_with_confirmations(mode: int = Mode.SAFE, action: str = "trip") -> Bench:
    """The valve must be confirmed within 10 ms; a lamp is on while the rig is healthy."""
    lamp = {"device": "card", "output": "lamp", "raw": [0, 1], "on": "healthy"}
    return bench(
        mode,
        devices={"card": {"outputs": ["valve", "lamp"]}},
        valves={"main": {"max_age": "10 ms", "unconfirmed": action}},
        outputs={"lamp": lamp},
    )


def test_only_outputs_with_an_age_have_a_limit_where_nothing_is_outside_of_the_program() -> None:
    rig = bench_with_confirmations().rig
    assert rig.layout.limits[-1] == LATE
    assert not any("lamp" in name for name in rig.layout.limits)
    limit = rig.plan.limit[-1]
    assert (limit.watched, limit.channel, limit.upper, limit.action) == (Watched.CONFIRMATION, 0, 0.01, Action.TRIP)


@pytest.mark.parametrize("mode", [Mode.ARMED, Mode.RUNNING])
@pytest.mark.parametrize("action", ["warn", "ramp", "trip"])
def test_a_command_that_is_not_confirmed_in_time_acts(mode: Mode, action: str) -> None:
    machine = bench_with_confirmations(mode, action)
    machine.confirmed_ages["valve.main"] = 0.010
    machine.tick()
    assert machine["mode"] == mode
    machine.confirmed_ages["valve.main"] = 0.011
    machine.tick()
    expected = {"warn": mode, "ramp": Mode.ARMED, "trip": Mode.FAULT}[action]
    assert machine["mode"] == expected
    assert machine[f"limit.{LATE}"] == 1.0
    if action == "trip":
        assert machine["fault"] == FIRST_LIMIT_FAULT + machine.rig.layout.limits.index(LATE)
        assert machine.tick(CommandKind.RESET) == ResultCode.LIMIT_ACTIVE
        machine.confirmed_ages["valve.main"] = 0.0
        assert machine.tick(CommandKind.RESET) == ResultCode.DONE
        assert machine.mode == "SAFE"


def test_safe_is_what_the_device_has_confirmed() -> None:
    machine = bench_with_confirmations()
    machine.tick()
    assert machine["output.lamp"] == 1.0
    machine.confirmed_ages["valve.main"] = 0.5
    machine.tick()
    assert machine.mode == "SAFE_NOT_CONFIRMED"
    assert machine["output.lamp"] == 0.0  # not healthy
    machine.confirmed_ages["valve.main"] = 0.001
    machine.tick()
    assert machine.mode == "SAFE"


def test_disarmed_without_a_confirmation_is_not_safe() -> None:
    machine = bench_with_confirmations(Mode.RUNNING, "warn")
    machine.confirmed_ages["valve.main"] = 0.5
    assert machine.tick(CommandKind.DISARM) == ResultCode.DONE
    assert machine.mode == "SAFE_NOT_CONFIRMED"


def test_startup_lasts_until_every_monitored_output_is_confirmed() -> None:
    machine = Bench(bench_rig({"valves": {"main": {"max_age": "10 ms"}}}))
    machine.raw.update(p_A=5.0, p_S=8.0)
    machine.confirmed_ages["valve.main"] = inf
    machine.tick()
    assert machine.mode == "STARTUP"
    machine.confirmed_ages["valve.main"] = 0.0
    machine.tick()
    assert machine.mode == "SAFE"


def test_outputs_go_off_in_the_order_of_their_delays() -> None:
    """A block valve 5 ms and a pump 10 ms after the mode has ended, by a command as by a trip; on at once."""
    delays = {"block": "5 ms", "pump": "10 ms"}
    places = {name: {"device": "card", "output": name, "raw": [0, 1], "on": "armed"} for name in delays}
    outputs = {name: {**place, "off_delay": delays[name]} for name, place in places.items()}
    machine = bench(devices={"card": {"outputs": ["valve", *delays]}}, outputs=outputs)
    names = ("output.block", "output.pump")
    for ending in (CommandKind.DISARM, CommandKind.ESTOP):
        machine.tick()
        assert [machine[name] for name in names] == [0.0, 0.0]
        machine.tick(CommandKind.ARM)
        assert [machine[name] for name in names] == [1.0, 1.0]
        machine.tick(ending)
        seen = []
        for _ in range(12):
            seen.append(tuple(machine[name] for name in names))
            machine.tick()
        assert [seen.count(state) for state in ((1.0, 1.0), (0.0, 1.0), (0.0, 0.0))] == [5, 5, 2]
    machine.tick(CommandKind.RESET)
    machine.tick(CommandKind.ARM)
    machine.missed = 4
    machine.tick(CommandKind.DISARM)  # five ticks at once
    assert [machine[name] for name in names] == [1.0, 1.0]
    machine.missed = 0
    machine.tick()
    assert [machine[name] for name in names] == [0.0, 1.0]


def test_a_delay_is_for_outputs_that_a_mode_switches() -> None:
    relay = {"device": "card", "output": "relay", "raw": [0, 1], "on": "heartbeat", "off_delay": "1 s"}
    with pytest.raises(ConfigurationError, match="off_delay is for on = armed or running"):
        bench_rig({"devices": {"card": {"outputs": ["valve", "relay"]}}, "outputs": {"relay": relay}})


# --- ends of the stroke ----------------------------------------------------------------------------------------------

POSITION = {"device": "card", "source": "X", "scale": {"raw": [0, 10], "value": ["0 mm", "1000 mm"]}}
STROKE = {"channel": "x", "min": "100 mm", "max": "900 mm", "action": "stop", "valves": {"main": 1}}


def bench_with_stroke(x: float, strategy: str = "inverse_static", **stroke: Any) -> Bench:
    """RUNNING at this position (m); the circuit wants the flow, and with it the direction, of the input."""
    made = Bench(
        bench_rig(
            {
                "devices": {"card": {"columns": ["A", "S", "Q", "X"]}},
                "channels": {"x": POSITION},
                "limits": {"stroke": {**STROKE, **stroke}},
                "valves": {"main": {"bridge": {"strategy": strategy}}},
            }
        )
    )
    made.raw.update(p_A=5.0, p_S=10.0, x=10.0 * x)
    return made.run_to(Mode.RUNNING)


def command_after(machine: Bench, wanted: float) -> float:
    """Where the command is when it has come to rest."""
    machine.tick(CommandKind.SET_INPUT, 0, wanted)
    return float(machine.record("valve.main.command", 400)[-1])


@pytest.mark.parametrize(("x", "sign", "blocked"), [(0.901, 1, 1), (0.901, -1, -1), (0.099, 1, -1), (0.099, -1, 1)])
def test_beyond_the_end_only_the_way_back_is_free(x: float, sign: int, blocked: int) -> None:
    machine = bench_with_stroke(x, valves={"main": sign})
    free = bench_with_stroke(0.5)
    assert command_after(machine, float(blocked)) == 0.0
    assert int(machine["valve.main.saturation"]) & Saturation.NEAR_END
    assert command_after(machine, -float(blocked)) == command_after(free, -float(blocked)) != 0.0
    assert not int(machine["valve.main.saturation"]) & Saturation.NEAR_END
    assert machine["limit.stroke"] == 1.0
    assert (machine.mode, free["limit.stroke"]) == ("RUNNING", 0.0)


def test_before_the_end_the_command_is_reduced_in_proportion() -> None:
    """slow_down 200 mm: 50 mm before the end a quarter of the command remains. Beyond the end there is a warning."""
    for x, share in ((0.7, 1.0), (0.8, 0.5), (0.85, 0.25), (0.9, 0.0)):
        machine = bench_with_stroke(x, "manual", slow_down="200 mm")
        machine.rig.plan.valve[0].jog_limit = machine.rig.plan.valve[0].jog_time = 1.0
        machine.tick(CommandKind.JOG, 0, 1.0)
        assert machine.record("valve.main.command", 100)[-1] == pytest.approx(share, abs=1e-9)
        machine.tick(CommandKind.JOG, 0, -1.0)
        assert machine.record("valve.main.command", 100)[-1] == -1.0
        assert machine["warnings"] == 0.0
    machine = bench_with_stroke(0.9001, slow_down="200 mm")
    machine.tick()
    assert machine["warnings"] == 1.0


def test_the_flow_servo_does_not_wind_up_at_the_end() -> None:
    machine = bench_with_stroke(0.95, "flow_servo")
    assert command_after(machine, 1.0) == 0.0
    machine.tick(CommandKind.SET_INPUT, 0, -1.0)
    assert machine.record("valve.main.command", 1)[0] < 0.0  # at once, not when an integral has run down


def test_an_end_is_stronger_than_hold_and_no_matter_outside_of_running() -> None:
    machine = bench_with_stroke(0.5)
    before = command_after(machine, 1.0)
    machine.raw["x"] = 9.5
    machine.tick()
    assert machine["valve.main.command"] == pytest.approx(before - 0.05)  # at the slew limit
    machine.tick(CommandKind.STOP)
    machine.record("mode", 300)
    assert (machine.mode, machine["valve.main.command"]) == ("ARMED", 0.0)
    assert machine.tick(CommandKind.START) == ResultCode.DONE  # beyond the end it can be started, to be driven out


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"valves": {}}, r"limits\.stroke: action stop needs valves"),
        ({"valves": {"mian": 1}}, r"limits\.stroke\.valves\.mian: .*Did you mean main"),
        ({"valves": {"main": 2}}, r"limits\.stroke\.valves\.main: 2 is not one of 1 or -1"),
        ({"max_age": "1 s"}, "give max_age and max_rate a separate limit"),
        ({"slow_down": "1 bar"}, r"limits\.stroke\.slow_down: is in Pa"),
        ({"slow_down": "0 mm"}, "slow_down must be above 0"),
        ({"action": "warn"}, "valves requires action stop"),
    ],
)
def test_a_limit_that_can_not_stop_is_refused(change: dict[str, Any], reason: str) -> None:
    limit = {**STROKE, **change}
    with pytest.raises(ConfigurationError, match=reason):
        bench_rig(
            {
                "devices": {"card": {"columns": ["A", "X", "S", "Q"]}},
                "channels": {"x": POSITION},
                "limits": {"stroke": limit},
            }
        )


# --- channels --------------------------------------------------------------------------------------------------------


def test_readings_are_scaled_and_absolute_pressures_become_gauge() -> None:
    """0 … 10 V is 0 … 100 bar absolute: 5 V is 50 bar - 101325 Pa gauge."""
    machine = bench(channels={"p_A": {"absolute": True}}, limits={"odd": {**P_A_HIGH, "action": "warn"}})
    assert machine["channel.p_A"] == pytest.approx(50 * BAR - 101_325.0, rel=1e-12)
    for raw, active in ((7.99, 0.0), (8.01, 1.0)):  # the limit is absolute too
        machine.raw["p_A"] = raw
        machine.tick()
        assert machine["limit.odd"] == active


def test_the_filter_is_a_first_order_lag_that_starts_at_the_first_sample() -> None:
    """Implicit Euler: after n ticks of a unit step 1 - (T/(T + dt))^n, T = 10 ms; missed ticks count."""
    machine = bench(channels={"p_A": {"filter": "10 ms"}})
    assert machine["channel.p_A"] == pytest.approx(50 * BAR)
    machine.raw["p_A"] = 6.0
    values = machine.record("channel.p_A", 10)
    assert values[-1] == pytest.approx(BAR * (60 - 10 * (10 / 11) ** 10), rel=1e-12)
    machine.missed = 4
    assert machine.record("channel.p_A", 1)[0] == pytest.approx(BAR * (60 - 10 * (10 / 11) ** 10 * 10 / 15), rel=1e-12)


@pytest.mark.parametrize("bad", [nan, inf, -inf, 1.7e308])
def test_a_reading_that_gives_no_number_is_a_missing_sample(bad: float) -> None:
    machine = bench(Mode.RUNNING, channels={"p_A": {"filter": "10 ms"}})
    machine.raw["p_A"] = bad
    machine.tick()
    assert machine["channel.p_A"] == pytest.approx(50 * BAR)
    assert machine["stale.p_A"] == pytest.approx(DT)
    machine.raw["p_A"] = 5.0
    machine.tick()
    assert machine["channel.p_A"] == pytest.approx(50 * BAR)
    assert machine["stale.p_A"] == 0.0


@pytest.mark.parametrize("bad", [nan, inf])
def test_a_sample_without_an_age_is_a_missing_sample(bad: float) -> None:
    machine = bench(Mode.RUNNING)
    machine.ages["p_A"] = bad
    machine.record("mode", 30)
    assert machine.mode == "FAULT"


def test_the_rate_is_judged_over_the_time_between_samples() -> None:
    """A sensor that samples every 10 ms and rises by 1000 bar/s: 10 bar per sample, but never 10 000 bar/s."""
    machine = bench(Mode.RUNNING, limits={"odd": {"channel": "p_A", "max_rate": "1100 bar/s", "action": "trip"}})
    changes = []
    for k in range(41):
        machine.raw["p_A"], machine.ages["p_A"] = 5.0 + k // 10, DT * (k % 10)
        machine.tick()
        changes.append(machine["change.p_A"])
    assert machine.mode == "RUNNING"
    assert max(changes) == pytest.approx(1000 * BAR, rel=1e-9)


# --- outputs that are no valves --------------------------------------------------------------------------------------

OUTPUTS = {
    name: {"device": "card", "output": name, "raw": [0.5, 5], "on": name}
    for name in ("armed", "running", "healthy", "heartbeat")
}


def bench_with_outputs(mode: int = Mode.SAFE, **loop: Any) -> Bench:
    """0.5 V is off, 5 V on."""
    device = {"card": {"outputs": ["valve", *OUTPUTS]}}
    return bench(mode, outputs=OUTPUTS, devices=device, loop=loop)


def outputs(machine: Bench) -> list[float]:
    return [machine[f"output.{name}"] for name in OUTPUTS]


def test_outputs_are_on_in_their_modes_and_the_heartbeat_changes_in_every_tick() -> None:
    machine = bench_with_outputs(Mode.SAFE)
    assert outputs(machine) == [0.5, 0.5, 5.0, 5.0]
    for command, on in ((CommandKind.ARM, "armed"), (CommandKind.START, "running")):
        before = outputs(machine)
        machine.tick(command)
        assert machine[f"output.{on}"] == 5.0
        assert before[3] != machine["output.heartbeat"]
    assert set(np.diff(machine.record("output.heartbeat", 50))) == {-4.5, 4.5}
    machine.tick(CommandKind.STOP)
    assert outputs(machine)[:3] == [5.0, 0.5, 5.0]
    machine.tick(CommandKind.DISARM)
    assert outputs(machine)[:3] == [0.5, 0.5, 5.0]


def test_without_samples_all_outputs_are_off() -> None:
    machine = Bench(bench_rig({"outputs": OUTPUTS, "devices": {"card": {"outputs": ["valve", *OUTPUTS]}}}))
    machine.raw["p_A"] = nan
    for _ in range(3):
        machine.tick()
        assert outputs(machine) == [0.5] * 4


@pytest.mark.parametrize("mode", [Mode.SAFE, Mode.ARMED, Mode.RUNNING])
@pytest.mark.parametrize("fault", ["device_error", "heartbeat_age", "missed", "operator", "age", "diverged"])
def test_the_heartbeat_stops_in_the_tick_of_any_fault(fault: str, mode: int) -> None:
    """In SAFE, where nothing latches, it stops for as long as there is what would trip."""
    machine = bench_with_outputs(mode)
    machine.record("mode", 5)
    command = CommandKind.NOTHING
    if fault == "operator":
        command = CommandKind.ESTOP
    elif fault == "age":
        machine.ages["p_A"] = 0.021
    elif fault == "diverged":
        machine.row[machine.rig.plan.layout[0].circuit] = nan
    else:
        setattr(machine, fault, {"device_error": 1.0, "heartbeat_age": 0.2, "missed": 6}[fault])
    machine.tick(command)
    if fault == "age" and mode == Mode.SAFE:  # a limit is no fault before the rig is armed
        assert machine["output.healthy"] == 5.0
        return
    assert outputs(machine) == [0.5] * 4
    machine.missed, machine.heartbeat_age, machine.device_error = 0, 0.0, 0.0
    assert set(machine.record("output.heartbeat", 10)) == ({0.5} if machine.mode == "FAULT" else {0.5, 5.0})


def test_the_heartbeat_goes_on_after_missed_ticks() -> None:
    machine = bench_with_outputs(Mode.RUNNING)
    before = machine["output.heartbeat"]
    machine.missed = 1
    assert [*machine.record("output.heartbeat", 2)] == [5.5 - before, before]


def test_an_output_is_refused_that_drives_something_else_too() -> None:
    for taken in ("valve", "lamp"):
        table = {
            n: {"device": "card", "output": o, "raw": [0, 1], "on": "armed"} for n, o in (("a", "lamp"), ("b", taken))
        }
        with pytest.raises(ConfigurationError, match=r"outputs\.b\.output: .* is driven by this output too"):
            bench_rig({"outputs": table, "devices": {"card": {"outputs": ["valve", "lamp"]}}})


# --- operator inputs and work cycle ----------------------------------------------------------------------------------


def test_inputs_are_at_their_initial_values_unless_running() -> None:
    machine = bench(Mode.RUNNING, inputs={"flow": {"initial": 0.25}})
    assert machine["input.flow"] == 0.25
    machine.tick(CommandKind.SET_INPUT, 0, 0.75)
    assert machine["input.flow"] == 0.75
    machine.tick(CommandKind.STOP)
    assert machine["input.flow"] == 0.25
    assert machine["valve.main.flow_virtual"] == pytest.approx(10 * L_MIN)


@pytest.mark.parametrize(("number", "value"), [(1, 0.5), (-1, 0.5), (nan, 0.5), (0, nan), (0, inf)])
def test_no_input_that_is_not_there_or_no_number(number: float, value: float) -> None:
    machine = bench(Mode.RUNNING)
    assert machine.tick(CommandKind.SET_INPUT, number, value) == ResultCode.BAD_VALUE
    assert machine["input.flow"] == 0.0


def test_an_input_keeps_within_its_range() -> None:
    machine = bench(Mode.RUNNING, inputs={"flow": {"range": [-0.5, 0.5]}})
    machine.tick(CommandKind.SET_INPUT, 0, 3.0)
    assert machine["input.flow"] == 0.5


POINTS = [(1.0, 2.0), (2.0, 4.0), (4.0, -4.0)]
EXPECTED = {
    # time: linear, step (the cubic STEP, s²(3 - 2s)), hold
    0.0: (2.0, 2.0, 2.0),
    1.0: (2.0, 2.0, 2.0),
    1.25: (2.5, 2.0 + 2.0 * 0.15625, 2.0),
    2.0: (4.0, 4.0, 4.0),
    3.0: (0.0, 0.0, 4.0),
    3.5: (-2.0, 4.0 - 8.0 * 0.84375, 4.0),
    4.0: (-4.0, -4.0, -4.0),
    9.0: (-4.0, -4.0, -4.0),
}


@pytest.mark.parametrize("shape", [Shape.LINEAR, Shape.SMOOTH, Shape.JUMP])
def test_the_shapes_of_a_work_cycle(shape: int) -> None:
    """By hand, plain Python; another input's points before and after are not taken; exact but for rounding."""
    lines = [(0, 0, 9, 0), *[(1, t, value, shape) for t, value in POINTS], (2, 0, 9, 0)]
    table = table_of(CyclePoint, [dict(zip(CyclePoint.names(), (*line, 0.0, 0.0), strict=True)) for line in lines])
    for t, values in EXPECTED.items():
        assert cycle_value(table, 1, t, 7.0) == pytest.approx(values[shape], abs=1e-12)
    assert cycle_value(table, 3, 1.0, 7.0) == 7.0  # not driven by the cycle


def test_a_work_cycle_ends_and_leaves_its_last_value() -> None:
    machine = bench(Mode.RUNNING, cycle=CYCLE)
    machine.tick(CommandKind.CYCLE, 1.0)
    values = [machine["input.flow"], *machine.record("input.flow", 12)]
    assert values == pytest.approx([min(0.1 * k, 1.0) for k in range(13)], abs=1e-9)
    assert machine["cycle_time"] == -1.0
    machine.tick(CommandKind.SET_INPUT, 0, 0.3)
    assert machine["input.flow"] == 0.3


def test_a_work_cycle_repeats_without_losing_time() -> None:
    """10 ms long at 1 ms ticks: the same values again every 10 ticks."""
    machine = bench(Mode.RUNNING, cycle={**CYCLE, "repeat": True})
    machine.tick(CommandKind.CYCLE, 1.0)
    values = machine.record("input.flow", 45)
    assert values[10:40] == pytest.approx(np.tile(values[10:20], 3), abs=1e-9)
    assert machine.tick(CommandKind.CYCLE, 0.0) == ResultCode.DONE
    assert machine["cycle_time"] == -1.0


def test_a_stop_ends_the_work_cycle() -> None:
    machine = bench(Mode.RUNNING, cycle={**CYCLE, "repeat": True})
    machine.tick(CommandKind.CYCLE, 1.0)
    machine.tick(CommandKind.STOP)
    assert (machine["cycle_time"], machine["input.flow"]) == (-1.0, 0.0)
    machine.tick(CommandKind.START)
    assert machine.record("input.flow", 5)[-1] == 0.0


def test_without_a_work_cycle_none_is_started() -> None:
    assert bench(Mode.RUNNING).tick(CommandKind.CYCLE, 1.0) == ResultCode.BAD_VALUE


# --- the virtual circuit ---------------------------------------------------------------------------------------------


def test_the_circuit_gets_the_measured_pressure_and_its_flow_reaches_the_valve() -> None:
    """At rest the pump's 10 l/min leave through the throttle: s is 35 bar·(10/20)² above the measured 50 bar."""
    machine = bench(Mode.RUNNING, circuit=SUPPLIED)
    machine.record("mode", 2000)
    assert machine["rig.A.p"] == machine["channel.p_A"] == pytest.approx(50 * BAR)
    assert machine["s.p"] == pytest.approx(58.75 * BAR, rel=1e-6)
    assert machine["valve.main.flow_virtual"] == pytest.approx(10 * L_MIN, rel=1e-6)


def test_a_circuit_that_diverges_trips_and_starts_anew() -> None:
    """A spool of 100 kHz by explicit Euler at 1 ms: each step multiplies its speed by about -1000."""
    stiff = {
        "solver": {"integrator": "euler", "substeps": 1},
        "components": {
            "tank": TANK,
            "s": {"type": "pressure_source", "ports": {"P": "s"}, "pressure": "100 bar", "command": 1},
            "valve": {
                "type": "servo_valve",
                "ports": {"P": "s", "T": "t", "A": "rig.A", "B": "t"},
                "command": "flow",
                "nominal_flow": {"flow": "60 l/min", "drop": "35 bar", "per": "edge"},
                "f90": "100 kHz",
            },
        },
    }
    machine = bench(Mode.RUNNING, circuit=stiff)
    machine.tick(CommandKind.SET_INPUT, 0, 0.4)
    modes = machine.record("mode", 150)
    commands = machine.record("valve.main.command", 50)
    assert modes[-1] == Mode.FAULT
    assert machine["fault"] == FaultCode.DIVERGED
    assert machine["valve.W"] == 0.0  # its initial value; the input is back at 0, so it stays there
    assert commands[-1] == 0.0
    assert np.all(np.isfinite(machine.row[machine.rig.plan.layout[0].circuit :]))
    assert machine.tick(CommandKind.RESET) == ResultCode.DONE


# --- swap ------------------------------------------------------------------------------------------------------------


def test_a_swap_keeps_states_of_the_same_name_and_starts_the_new_ones() -> None:
    machine = bench(Mode.RUNNING, circuit=SUPPLIED)
    machine.raw["p_A"] = 10.0  # 100 bar: the relief valve is open
    machine.record("mode", 500)
    kept = {name: machine[name] for name in ("s.p", "relief.K", "t", "rig.A.p", "rig.A.q")}
    assert kept["relief.K"] > 0.0
    changes = {"pump": {"command": 0.5}, "extra": {"type": "volume", "ports": {"P": "n"}, "volume": "1 l"}}
    machine.swap(merged(SUPPLIED, {"components": changes, "nodes": {"n": {"pressure": "7 bar"}}}))
    assert {name: machine[name] for name in kept} == kept
    assert machine["n.p"] == 7 * BAR
    assert machine["pump.command"] == 0.5  # a constant is the new circuit's
    assert machine.tick(CommandKind.SWAP, 2.0) == ResultCode.DONE
    assert machine["circuit_version"] == 2.0


def test_a_swap_leaves_nothing_of_the_old_circuit_behind() -> None:
    machine = bench(Mode.RUNNING, circuit=SUPPLIED)
    machine.record("mode", 100)
    machine.swap(CIRCUIT)
    first = machine.rig.plan.layout[0].circuit
    assert np.all(machine.row[first + len(machine.packed.values) :] == 0.0)
    machine.tick(CommandKind.SWAP, 2.0)
    assert np.all(machine.row[first + len(machine.packed.names) :] == 0.0)


def test_a_swap_there_and_back_goes_on_as_if_nothing_had_been() -> None:
    """The same circuit swapped in: not one bit of the next tick differs but for the version."""
    machine, other = bench(Mode.RUNNING, circuit=SUPPLIED), bench(Mode.RUNNING, circuit=SUPPLIED)
    for each in (machine, other):
        each.record("mode", 50)
    machine.swap(SUPPLIED)
    machine.tick()
    other.tick()
    assert machine.row.tobytes() == other.row.tobytes()


def test_a_swap_keeps_the_command_within_its_slew() -> None:
    """The virtual flow jumps from 10 to 40 l/min; the command moves by 0.05 per tick at most."""
    strong = merged(SUPPLIED, {"components": {"throttle": {"nominal_flow": {"flow": "80 l/min"}}}})
    machine = bench(Mode.RUNNING, circuit=SUPPLIED, valves={"main": {"bridge": {"strategy": "inverse_lag"}}})
    machine.raw["p_A"] = 0.5
    machine.record("mode", 5)
    commands = [machine["valve.main.command"]]
    for _ in range(3):
        machine.swap(strong)
        machine.tick(CommandKind.SWAP, 2.0)
        commands += [machine["valve.main.command"], *machine.record("valve.main.command", 20)]
        machine.swap(SUPPLIED)
        machine.tick(CommandKind.SWAP, 3.0)
        commands += [machine["valve.main.command"], *machine.record("valve.main.command", 20)]
    steps = np.abs(np.diff(commands))
    assert steps.max() == pytest.approx(0.05)
    assert machine.mode == "RUNNING"


def test_a_circuit_too_large_for_the_row_is_refused() -> None:
    rig = bench_rig()
    volumes = {f"v{k}": {"type": "volume", "ports": {"P": f"n{k}"}, "volume": "1 l"} for k in range(300)}
    with pytest.raises(ConfigurationError, match=r"the circuit has \d+ values, the running server has space for 256"):
        rig.pack(rig.read_circuit({"components": volumes}))


def test_a_large_first_circuit_has_room_for_another_like_it() -> None:
    volumes = {f"v{k}": {"type": "volume", "ports": {"P": f"n{k}"}, "volume": "1 l"} for k in range(300)}
    rig = bench_rig(circuit={"components": volumes})
    assert rig.layout.circuit_space == 2 * len(rig.packed.names)
    assert rig.layout.width == len(rig.layout.names) + rig.layout.circuit_space


# --- a pure function of the row --------------------------------------------------------------------------------------


def given_inputs(machine: Bench) -> list[int]:
    """Columns that are set from outside."""
    layout = machine.rig.layout
    return [*map(COLUMN.__getitem__, INPUTS), *layout.section("raw").values(), *layout.section("age").values()]


def log(strategy: str, ticks: int, seed: int) -> tuple[Bench, Floats, list[Floats]]:
    """A run with noisy sensors, missing samples, missed ticks and random commands; its rows and commands."""
    machine = bench(
        Mode.RUNNING,
        circuit=SUPPLIED,
        cycle={**CYCLE, "repeat": True},
        valves={"main": {"dither": {"amplitude": 0.02}, "bridge": {"strategy": strategy}}},
    )
    random = np.random.default_rng(seed)
    rows, commands = [machine.row.copy()], [no_command()]
    for _ in range(ticks):
        machine.raw.update(p_A=random.uniform(3, 8), p_S=nan if random.random() < 0.1 else 8.0, Q_A=random.normal())
        machine.ages["p_A"] = random.uniform(0, 0.01)
        machine.missed = int(random.integers(0, 3))
        kind = int(
            random.choice(
                [
                    CommandKind.NOTHING,
                    CommandKind.NOTHING,
                    CommandKind.SET_INPUT,
                    CommandKind.CYCLE,
                    CommandKind.STRATEGY,
                    CommandKind.STOP,
                    CommandKind.START,
                    CommandKind.JOG,
                ]
            )
        )
        first = float(random.integers(0, 2)) if kind == CommandKind.CYCLE else 0.0
        second = float(random.integers(0, 5)) if kind == CommandKind.STRATEGY else random.uniform(-1, 1)
        before = machine.sequence
        machine.tick(kind, first, second)
        rows.append(machine.row.copy())
        record = no_command()
        if machine.sequence > before:
            order = command_in(record)
            order.kind, order.a, order.b = kind, first, second
            order.sequence = machine.sequence
        commands.append(record)
    return machine, np.array(rows), commands


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_from_any_logged_row_the_tick_gives_the_next_one_bit_for_bit(strategy: str) -> None:
    machine, rows, commands = log(strategy, 300, seed=len(strategy))
    rig, columns = machine.rig, given_inputs(machine)
    for k in range(1, len(rows)):
        row = rows[k - 1].copy()
        row[columns] = rows[k][columns]
        work = np.full_like(work_array(rig.packed, rig.plan), nan)  # what is in it must not matter
        program().tick(rig.plan.block, rig.packed.index, rig.packed.value, row, work, commands[k].copy())
        assert row.tobytes() == rows[k].tobytes(), f"row {k} differs in {np.flatnonzero(row != rows[k])}"
    assert len(set(headers(rows)["mode"])) > 1  # the run went through several modes


@given(raw=st.lists(st.floats(0, 10), min_size=3, max_size=3), second=st.floats(-1, 1))
def test_the_plan_and_the_circuit_are_left_alone(raw: list[float], second: float) -> None:
    machine = bench(Mode.RUNNING, circuit=SUPPLIED)
    constants = [machine.rig.plan.block, machine.packed.index, machine.packed.value]
    before = [array.tobytes() for array in constants]
    machine.raw.update(zip(machine.raw, raw, strict=True))
    machine.tick(CommandKind.SET_INPUT, 0, second)
    assert [array.tobytes() for array in constants] == before
