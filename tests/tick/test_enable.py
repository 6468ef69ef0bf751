"""The local enable: without it nobody arms or starts the rig; when it goes off, the rig refuses, ramps or trips."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
import pytest
from rig_bench import DT, Bench, bench_rig

from hilserver.errors import ConfigurationError
from hilserver.tick.codes import CommandKind, FaultCode, Mode, ResultCode

DEVICE = {"columns": ["A", "S", "Q", "key"]}
KEY = {"device": "card", "source": "key", "scale": {"raw": [0, 1], "value": [0, 1]}}


def bench(action: str | None = None, **changes: Any) -> Bench:
    """A rig with a key switch that is on, in SAFE."""
    enable = {"channel": "key"} | ({"action": action} if action else {})
    made = Bench(bench_rig({"channels": {"key": KEY}, "enable": enable, **changes, "devices": {"card": DEVICE}}))
    made.raw.update(p_A=5.0, p_S=8.0, key=1.0)
    made.tick()
    assert made.mode == "SAFE"
    return made


def running(action: str | None = None, **changes: Any) -> Bench:
    """The same, RUNNING with an open valve."""
    made = bench(action, **changes)
    assert made.tick(CommandKind.ARM) == made.tick(CommandKind.START) == ResultCode.DONE
    assert made.tick(CommandKind.SET_INPUT, 0.0, 1.0) == ResultCode.DONE
    made.record("mode", 100)
    assert made.block.command > 0.2
    return made


@pytest.mark.parametrize("action", ["refuse", "ramp", "trip"])
def test_a_disabled_rig_refuses_to_arm_and_to_start(action: str) -> None:
    machine = bench(action)
    machine.raw["key"] = 0.0
    assert machine.tick(CommandKind.ARM) == ResultCode.NOT_ENABLED
    assert machine.mode == "SAFE"  # being off is no fault: so a rig stands when nobody works at it
    machine.raw["key"] = 1.0
    assert machine.tick(CommandKind.ARM) == ResultCode.DONE
    machine.raw["key"] = 0.0
    assert machine.tick(CommandKind.START) == ResultCode.NOT_ENABLED
    assert machine.mode == {"refuse": "ARMED", "ramp": "SAFE", "trip": "FAULT"}[action]


def test_a_wrong_mode_is_reported_before_the_local_enable() -> None:
    machine = bench()
    machine.raw["key"] = 0.0
    assert machine.tick(CommandKind.START) == ResultCode.WRONG_MODE


def test_action_refuse_does_not_stop_a_running_rig() -> None:
    machine = running("refuse")
    machine.raw["key"] = 0.0
    assert (machine.record("mode", 50) == Mode.RUNNING).all()
    assert machine.tick(CommandKind.STOP) == ResultCode.DONE  # and stops it as ever
    assert machine.tick(CommandKind.START) == ResultCode.NOT_ENABLED


def test_action_ramp_goes_to_null_in_the_stop_time_and_to_safe() -> None:
    machine = running("ramp", valves={"main": {"stop_time": "200 ms", "slew": "50 1/s"}})
    machine.raw["key"] = 0.0
    before = machine.block.command
    command = np.r_[before, machine.record("valve.main.command", 250)]
    assert machine.mode == "SAFE"
    assert -np.diff(command).min() == pytest.approx(DT / 0.2)
    assert command[-1] == 0.0
    machine.raw["key"] = 1.0
    machine.record("mode", 100)
    assert machine.mode == "SAFE"  # on again, it starts nothing
    assert machine.tick(CommandKind.ARM) == machine.tick(CommandKind.START) == ResultCode.DONE


def test_action_trip_is_the_default_and_latches() -> None:
    machine = running()
    machine.raw["key"] = 0.0
    machine.tick()
    assert (machine.mode, machine["fault"]) == ("FAULT", FaultCode.ENABLE)
    machine.raw["key"] = 1.0
    machine.record("mode", 50)
    assert machine.mode == "FAULT"
    assert machine.tick(CommandKind.RESET) == ResultCode.DONE
    assert machine.mode == "SAFE"


def test_a_fault_can_be_reset_while_it_is_off() -> None:
    machine = running()
    machine.raw["key"] = 0.0
    machine.tick()
    assert machine.tick(CommandKind.RESET) == ResultCode.DONE
    assert machine.mode == "SAFE"
    assert machine.tick(CommandKind.ARM) == ResultCode.NOT_ENABLED


@pytest.mark.parametrize(
    ("limits", "last_fresh"), [({}, 20), ({"key_age": {"max_age": "8.5 ms", "action": "warn"}}, 8)]
)
def test_a_stale_enable_sample_counts_as_off(limits: Any, last_fresh: int) -> None:
    limits = {name: {"channel": "key", **limit} for name, limit in limits.items()}
    machine = running("ramp", limits=limits, loop={"max_age": "20.5 ms"})
    machine.raw["key"] = nan
    for age in range(1, 30):
        machine.tick()
        assert (machine.mode == "RUNNING") == (age <= last_fresh), age


def test_an_analog_enable_switches_at_half() -> None:
    machine = bench(channels={"key": {**KEY, "scale": {"raw": [0, 10], "value": [0, 1]}}})
    for volts, result in ((4.99, ResultCode.NOT_ENABLED), (5.01, ResultCode.DONE)):
        machine.raw["key"] = volts
        assert machine.tick(CommandKind.ARM) == result


def test_a_rig_without_one_is_always_enabled() -> None:
    machine = Bench()
    machine.raw.update(p_A=5.0, p_S=8.0)
    machine.run_to(Mode.RUNNING)


@pytest.mark.parametrize(
    ("enable", "text"),
    [
        ({"channel": "kye"}, 'enable.channel: "kye" is not a channel. Did you mean key?'),
        (
            {"channel": "p_A"},
            'enable.channel: channel "p_A" has the unit bar; a channel with no unit is required here.',
        ),
        (
            {"channel": "fixed"},
            'enable.channel: channel "fixed" has a fixed value; a measured channel is required here.',
        ),
        ({"channel": "key", "action": "hold"}, "enable.action"),
        ({}, "enable.channel"),
    ],
)
def test_refused_settings(enable: dict[str, str], text: str) -> None:
    channels = {"key": KEY, "fixed": {"value": 1}}
    with pytest.raises(ConfigurationError) as refused:
        bench_rig({"channels": channels, "enable": enable, "devices": {"card": DEVICE}})
    assert text in str(refused.value)
