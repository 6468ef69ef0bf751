"""Outputs of the tick: confirmed, switched by the mode, delayed, the heartbeat."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from rig_bench import Bench, bench_rig
from tick_bench import bench

from hilserver.errors import ConfigurationError
from hilserver.tick.codes import FIRST_LIMIT_FAULT, Action, CommandKind, Mode, ResultCode, Watched

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


def test_simulated_outputs_are_monitored_only_with_a_max_age() -> None:
    rig = bench_with_confirmations().rig
    assert not any("lamp" in name for name in rig.layout.limits)
    limit = rig.plan.limit[rig.layout.limits.index(LATE)]
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
    for ending in (CommandKind.DISARM, CommandKind.TRIP):
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
    with pytest.raises(ConfigurationError, match='off_delay requires on = "armed" or "running"; with "heartbeat"'):
        bench_rig({"devices": {"card": {"outputs": ["valve", "relay"]}}, "outputs": {"relay": relay}})


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
        command = CommandKind.TRIP
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
    machine.missed, machine.heartbeat_age, machine.device_error = 0, 0.0, 0
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
