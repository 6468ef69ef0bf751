"""Modes and commands of the tick: every command in every mode, faults and how they are reset."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from component_bench import program
from rig_bench import DT, Bench
from tick_bench import CYCLE, bench

from hilserver.tick.codes import CommandKind, FaultCode, Mode, ResultCode
from hilserver.tick.program import no_command, work_array
from hilserver.tick.row import header

# --- modes and commands ----------------------------------------------------------------------------------------------

W, D = ResultCode.WRONG_MODE, ResultCode.DONE
NOT_READY: list[tuple[int, int | None]] = [
    (W, None), (W, None), (W, None), (ResultCode.BAD_VALUE, None), (W, None), (W, None)
]  # fmt: skip
TABLE: dict[int, list[tuple[int, int | None]]] = {
    # in STARTUP, SAFE, ARMED, RUNNING, FAULT, SAFE_NOT_CONFIRMED: the result and the mode after it (None: the same)
    CommandKind.ARM: [(W, None), (D, Mode.ARMED), (W, None), (W, None), (W, None), (ResultCode.NOT_CONFIRMED, None)],
    CommandKind.DISARM: [(W, None), (W, None), (D, Mode.SAFE), (D, Mode.SAFE), (W, None), (W, None)],
    CommandKind.START: [(W, None), (W, None), (D, Mode.RUNNING), (W, None), (W, None), (W, None)],
    CommandKind.STOP: [(W, None), (W, None), (W, None), (D, Mode.ARMED), (W, None), (W, None)],
    CommandKind.RESET: [(W, None), (W, None), (W, None), (W, None), (D, Mode.SAFE), (W, None)],
    CommandKind.SET_INPUT: [(W, None), (W, None), (W, None), (D, None), (W, None), (W, None)],
    CommandKind.STRATEGY: [(D, None)] * 6,
    CommandKind.CODE: [(D, None)] * 6,
    CommandKind.JOG: [(W, None), (W, None), (W, None), (ResultCode.NOT_MANUAL, None), (W, None), (W, None)],
    CommandKind.CYCLE: [(W, None), (W, None), (W, None), (D, None), (W, None), (W, None)],
    CommandKind.SWAP: [(D, None)] * 6,
    CommandKind.TRIP: [(D, Mode.FAULT)] * 6,
    CommandKind.REACT_WHEN: [(W, None), (W, None), (D, None), (D, None), (W, None), (W, None)],
    CommandKind.REACT_THEN: [(W, None), (W, None), (D, None), (D, None), (W, None), (W, None)],
    CommandKind.RELEASE: [(D, None)] * 6,
    CommandKind.PLAY_TARGET: NOT_READY,
    CommandKind.PLAY_DRIVE: NOT_READY,
    CommandKind.PLAY: NOT_READY,
    CommandKind.PLAY_END: [(W, None)] * 6,
    99: [(ResultCode.UNKNOWN_COMMAND, None)] * 6,
}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("command", list(TABLE))
def test_every_command_in_every_mode(command: int, mode: int) -> None:
    valves = {"main": {"max_age": "10 ms", "unconfirmed": "warn"}}
    machine = bench(cycle=CYCLE, valves=valves, loop={"reactions": 1, "playouts": 1})
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
    machine.tick(CommandKind.TRIP)
    machine.device_error = 1
    machine.tick()
    machine.device_error = 0
    machine.record("mode", 100)
    assert (machine.mode, machine["fault"]) == ("FAULT", FaultCode.OPERATOR)


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


def test_a_heartbeat_age_that_is_not_a_number_counts_as_lost() -> None:
    machine = bench(Mode.RUNNING)
    row, rig = machine.row, machine.rig
    header(row).heartbeat_age = nan
    work = work_array(rig.packed, rig.plan)
    program().tick(rig.plan.block, rig.packed.index, rig.packed.value, row, work, no_command())
    assert machine.mode == "FAULT"
    assert np.isfinite(machine["valve.main.command"])


def test_reset_before_all_samples_came_leads_to_startup() -> None:
    machine = Bench()
    machine.raw["p_A"] = nan
    machine.device_error = 1
    machine.tick()
    machine.device_error = 0
    assert machine.tick(CommandKind.RESET) == ResultCode.LIMIT_ACTIVE  # the age limit of p_A
    machine.raw["p_A"] = 5.0
    assert machine.tick(CommandKind.RESET) == ResultCode.DONE
    assert machine.mode == "SAFE"


def test_outside_running_missed_ticks_and_a_silent_supervisor_do_not_trip() -> None:
    machine = bench(Mode.SAFE)
    machine.missed, machine.heartbeat_age = 1000, 60.0
    machine.tick()
    assert machine.mode == "SAFE"


def test_up_to_max_missed_ticks_the_virtual_time_catches_up() -> None:
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
    machine.tick(CommandKind.TRIP)
    assert machine["valve.main.command"] == pytest.approx(before - 0.05, rel=1e-9)
    assert machine.record("valve.main.command", 20)[-1] == 0.0
