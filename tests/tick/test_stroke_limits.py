"""Limits that stop a valve before the end of the stroke; only the way back is free."""

from __future__ import annotations

from typing import Any

import pytest
from rig_bench import Bench, bench_rig

from hilserver.errors import ConfigurationError
from hilserver.tick.codes import CommandKind, Mode, ResultCode, Saturation

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


def test_stroke_limits_override_hold_and_act_only_while_running() -> None:
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
        ({"slow_down": "1 bar"}, r"limits\.stroke\.slow_down: is in bar"),
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
