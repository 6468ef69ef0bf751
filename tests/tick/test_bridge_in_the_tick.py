"""The bridge in the tick: jogging, change of strategy, polarity, dither, hold, and the last word on the command."""

from __future__ import annotations

from itertools import permutations
from math import exp, inf, nan, pi, sin
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig_bench import BAR, DT, Bench, bench_rig
from valve_bench import ASYMMETRICAL, flow_of, valve

from hilserver.rig.build import load_rig
from hilserver.rig.rig import at_speed
from hilserver.tick.bridge.strategies import STRATEGY_NAMES, Strategy
from hilserver.tick.codes import CommandKind, FaultCode, Mode, ResultCode, Saturation
from hilserver.tick.outputs import raw_output
from hilserver.tick.row import ValveState

# --- in the tick -----------------------------------------------------------------------------------------------------


def running(strategy: str, **changes: Any) -> Bench:
    """A rig RUNNING with this strategy, p_A 50 bar, p_S 160 bar, a measured flow of 0 (unless the test sets it)."""
    bridge = {"strategy": strategy, **changes.pop("bridge", {})}
    bench = Bench(bench_rig({"valves": {"main": {**changes, "bridge": bridge}}}))
    bench.raw.update(p_A=5.0, p_S=8.0)
    return bench.run_to(Mode.RUNNING)


def test_manual_is_limited_and_needs_to_be_renewed() -> None:
    """Hold to run: jog_limit 0.1, jog_time 50 ms; fade 0 so that the command is the jog itself."""
    bench = running("manual", bridge={"jog_limit": 0.1, "jog_time": "50 ms", "fade": "0 s"})
    assert bench.tick(CommandKind.JOG, 0, 0.8) == ResultCode.DONE
    commands = bench.record("valve.main.command", 100)
    assert commands.max() == 0.1
    assert np.all(commands[10:48] == 0.1)
    assert np.all(commands[60:] == 0.0)
    bench.tick(CommandKind.JOG, 0, -0.05)
    for _ in range(4):  # renewed in time, it goes on
        assert np.all(bench.record("valve.main.command", 40)[10:] == -0.05)
        bench.tick(CommandKind.JOG, 0, -0.05)


@pytest.mark.parametrize("speed", [0.2, 1.0, 10.0])
def test_a_jog_ends_by_the_clock_at_any_speed(speed: float) -> None:
    """Who holds a button renews it by the clock, however fast the rig runs."""
    bench = Bench(at_speed(load_rig(Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"), speed))
    bench.raw |= {"p_A": 2.0, "p_B": 2.0, "p_S": 5.6, "p_T": 0.02, "Q_A": 0.0, "x": 5.0}
    bench.run_to(Mode.RUNNING)
    bench.tick(CommandKind.STRATEGY, 0, Strategy["manual"])
    bench.tick(CommandKind.JOG, 0, 0.05)
    held = np.flatnonzero(bench.record("valve.main.jog", 6000))[-1]
    assert held * DT / speed == pytest.approx(0.5, abs=5.0 * DT / speed)


def test_missed_ticks_count_for_the_jog() -> None:
    bench = running("manual", bridge={"jog_time": "50 ms", "fade": "0 s"})
    bench.tick(CommandKind.JOG, 0, 0.1)
    bench.missed = 4
    assert bench.record("valve.main.jog", 12)[-1] == 0.0  # 12 ticks of 5 ms


def test_the_spool_is_known_after_missed_ticks() -> None:
    """Against the exact lag of the commands that were held: during missed ticks the last one, not the next."""
    bench = running("manual", delay="2.5 ms", bridge={"jog_limit": 1.0, "jog_time": "1 s", "fade": "0 s"})
    random, grid, lag = np.random.default_rng(2), 4, 1.0 / (2 * np.pi * 70)
    held, spools, found = [0.0] * 8 * grid, [0.0], []
    for _ in range(200):
        bench.missed = int(random.choice([0, 0, 0, 1, 2, 5]))
        held += [bench["valve.main.command"]] * (bench.missed + 1) * grid
        for command in held[-(bench.missed + 1) * grid - round(2.5 * grid) : -round(2.5 * grid)]:
            spools.append(command + (spools[-1] - command) * np.exp(-DT / grid / lag))
        bench.tick(CommandKind.JOG, 0, random.uniform(-1.0, 1.0))
        found.append([bench["valve.main.spool"], spools[-1]])
    estimated, exact = np.array(found).T
    assert np.ptp(exact) > 0.3
    assert estimated == pytest.approx(exact, abs=1e-9)


def test_jog_needs_the_manual_strategy() -> None:
    assert running("inverse_static").tick(CommandKind.JOG, 0, 0.1) == ResultCode.NOT_MANUAL


@pytest.mark.parametrize(("first", "second"), list(permutations(STRATEGY_NAMES, 2)))
def test_a_change_of_strategy_while_running_is_bumpless(first: str, second: str) -> None:
    """From a settled command no tick moves it by more than a fifth of its slew (0.05 per tick).

    The fade (50 ms) moves the difference of two strategies, here up to 1/2, by 2 % of it per tick: 0.01.
    """
    bench = running(first, leakage={"flow": "1 l/min", "drop": "70 bar", "per": "edge"})
    bench.raw["Q_A"] = 3.0  # 18 l/min are measured, 20 asked for: the strategies disagree
    bench.tick(CommandKind.SET_INPUT, 0, 0.5)
    for _ in range(60):
        bench.tick(CommandKind.JOG, 0, 0.1) if first == "manual" else bench.tick()
    before = bench["valve.main.command"]
    assert bench.tick(CommandKind.STRATEGY, 0, Strategy[second]) == ResultCode.DONE
    commands = np.array([before, bench["valve.main.command"], *bench.record("valve.main.command", 100)])
    assert abs(commands[1] - commands[0]) <= 0.01
    assert np.abs(np.diff(commands)).max() <= 0.2 * 50.0 * DT
    assert bench["valve.main.strategy"] == Strategy[second]


def test_a_second_start_is_bumpless() -> None:
    """The lead of a strategy that starts anew must not remember the opening of the run before (regression)."""
    bench = running("inverse_lag")
    bench.tick(CommandKind.SET_INPUT, 0, 1.0)
    bench.record("valve.main.command", 300)
    bench.tick(CommandKind.STOP)
    bench.record("valve.main.command", 500)
    bench.tick(CommandKind.START)
    assert np.abs(bench.record("valve.main.command", 100)).max() < 1e-12


def test_a_valve_without_flow_channel_refuses_the_flow_servo() -> None:
    bench = running("inverse_static", flow=None)
    assert bench.tick(CommandKind.STRATEGY, 0, Strategy.flow_servo) == ResultCode.BAD_VALUE
    assert bench["valve.main.strategy"] == Strategy.inverse_static


@pytest.mark.parametrize(
    ("valve_number", "wanted"), [(1, 0), (-1, 0), (0, len(STRATEGY_NAMES)), (0, -1), (nan, 0), (0, nan)]
)
def test_strategy_for_an_unknown_valve_is_refused(valve_number: float, wanted: float) -> None:
    bench = running("inverse_static")
    assert bench.tick(CommandKind.STRATEGY, valve_number, wanted) == ResultCode.BAD_VALUE
    assert bench["valve.main.strategy"] == Strategy.inverse_static


# --- the last word ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("polarity", "null", "expected"), [(1, 0.0, 2.5), (-1, 0.0, -2.5), (1, 0.1, 3.5), (-1, 0.1, -1.5)]
)
def test_polarity_and_null_offset_shape_the_raw_output(polarity: int, null: float, expected: float) -> None:
    """Command 0.25, -10 … 10 V: raw = 10·(polarity·command + null), never beyond ±10."""
    v = valve(polarity=polarity, null=null)
    assert raw_output(0.25, v) == pytest.approx(expected, rel=1e-12)
    assert abs(raw_output(1.0, v)) <= 10.0
    assert abs(raw_output(-1.0, v)) <= 10.0


def test_a_current_output_is_at_null_before_the_first_tick() -> None:
    """4 … 20 mA, null at 12 mA: the row before the first tick must not say 0 mA, which is full command and beyond."""
    bench = Bench(bench_rig({"valves": {"main": {"raw": [4, 20], "safe": 0.25}}}))
    assert bench["valve.main.output"] == 14.0
    assert bench["valve.main.command"] == 0.25


def test_dither_has_its_amplitude_and_frequency_and_only_while_running() -> None:
    """0.05 at 50 Hz on a standing command: a sine of that amplitude, 20 ticks a period (rounding only)."""
    bench = running("inverse_static", dither={"amplitude": 0.05, "frequency": "50 Hz"}, slew="500 1/s")
    commands = bench.record("valve.main.command", 200)
    last = bench["tick"]
    expected = 0.05 * np.sin(2 * pi * np.arange(last - 199, last + 1) / 20)
    assert commands == pytest.approx(expected, abs=1e-9)
    bench.tick(CommandKind.STOP)
    assert bench.record("valve.main.command", 100)[-1] == 0.0


def test_dither_stays_within_the_range() -> None:
    bench = running("inverse_static", dither={"amplitude": 0.2, "frequency": "50 Hz"}, range=[-0.1, 0.1])
    commands = bench.record("valve.main.command", 100)
    assert np.abs(commands).max() == 0.1
    assert int(bench.block.saturation) in (0, Saturation.RANGE, Saturation.SLEW, Saturation.RANGE | Saturation.SLEW)


def test_hold_freezes_the_command_and_releases_it_without_a_bump() -> None:
    """Held for 500 ms against a flow servo: no wind-up, so the command goes on from where it was held."""
    limits = {"odd": {"channel": "p_S", "max": "170 bar", "action": "hold"}}
    bench = Bench(bench_rig({"limits": limits, "valves": {"main": {"bridge": {"strategy": "flow_servo"}}}}))
    bench.raw.update(p_A=5.0, p_S=8.0, Q_A=1.0)
    bench.run_to(Mode.RUNNING)
    bench.tick(CommandKind.SET_INPUT, 0, 0.2)
    bench.record("valve.main.command", 20)
    bench.raw["p_S"] = 9.0  # 180 bar
    held = bench.record("valve.main.command", 500)
    assert np.all(held == held[0])
    assert bench.mode == "RUNNING"
    bench.raw["p_S"] = 8.0
    assert abs(bench.record("valve.main.command", 1)[0] - held[0]) < 0.005


anything = st.one_of(st.floats(-20, 20), st.sampled_from([nan, inf, -inf, 1e308, -1e308, 1e-320, 0.0]))


@given(
    strategy=st.sampled_from(range(5)),
    inputs=st.lists(st.tuples(anything, anything, anything, anything), min_size=5, max_size=30),
    limits=st.sampled_from([(-1.0, 1.0, "50 1/s"), (-0.3, 0.6, "5 1/s"), (0.0, 1.0, "900 1/s")]),
)
def test_the_command_is_always_finite_and_within_range_and_slew(
    strategy: int, inputs: list[tuple[float, float, float, float]], limits: tuple[float, float, str]
) -> None:
    low, high, slew = limits
    dither = {"amplitude": 0.1, "frequency": "77 Hz"}
    bench = running("inverse_lag_leakage", range=[low, high], slew=slew, dither=dither, **ASYMMETRICAL)
    bench.tick(CommandKind.STRATEGY, 0, strategy)
    last, step = bench["valve.main.command"], float(bench.rig.plan.valve[0].slew_rate) * DT
    for number, (p_A, p_S, flow, wanted) in enumerate(inputs):
        bench.raw.update(p_A=p_A, p_S=p_S, Q_A=flow)
        bench.tick(CommandKind.JOG if number % 2 and strategy == Strategy.manual else CommandKind.SET_INPUT, 0, wanted)
        command, output = bench["valve.main.command"], bench["valve.main.output"]
        assert low <= command <= high
        assert abs(command - last) <= step * (1 + 1e-12)
        assert abs(output) <= 10.0
        last = command
    bench.raw.update(p_A=5.0, p_S=8.0, Q_A=0.0)
    bench.record("valve.main.command", 50)
    kept = ("demand", "command", "spool", "integral", "flow_filtered", "jog", "jog_left", "output")
    assert all(
        np.isfinite(getattr(bench.block, field)) for field in kept
    )  # nothing of it is left behind in the bridge's memory


@pytest.mark.slow
@pytest.mark.parametrize("field", sorted(set(ValveState.names()) - {*ValveState.whole(), "command"}))
@pytest.mark.parametrize("strategy", range(len(STRATEGY_NAMES)))
@pytest.mark.parametrize("poison", [nan, inf])
def test_non_finite_values_in_the_bridge_end_at_null_or_recover(field: str, strategy: int, poison: float) -> None:
    """Should a bridge's memory ever hold NaN: the command stays finite; it trips or goes on, and runs after reset."""
    bench = running("inverse_lag_leakage", **ASYMMETRICAL)
    bench.tick(CommandKind.STRATEGY, 0, strategy)
    bench.tick(CommandKind.SET_INPUT, 0, 0.3)
    setattr(bench.block, field, poison)
    commands = bench.record("valve.main.command", 300)
    assert np.all(np.isfinite(commands))
    assert np.abs(np.diff(commands)).max() <= 0.05 * (1 + 1e-12)
    if bench.mode == "FAULT":
        assert bench["fault"] == FaultCode.BRIDGE
        assert commands[-1] == 0.0
        assert bench.tick(CommandKind.RESET) == ResultCode.DONE
        bench.tick(CommandKind.ARM)
        bench.tick(CommandKind.START)
        bench.record("valve.main.command", 20)
    assert bench.mode == "RUNNING"


def test_sine_reaches_the_valve() -> None:
    """All together on a lagging spool: the virtual flow is passed within 2 % of its amplitude (10 Hz, f45 = 70 Hz)."""
    bench = running("inverse_lag", bridge={"lead_filter": "0 s"})
    bench.raw["p_A"] = 8.0  # half of p_S: both edges have the same drop, W has no kink at 0
    v = bench.rig.plan.valve[0]
    asked, passed, spool = np.empty(1000), np.empty(1000), 0.0
    share = 1.0 - exp(-DT / v.tau)
    for k in range(1000):
        bench.tick(CommandKind.SET_INPUT, 0, 0.5 * sin(2 * pi * 10 * k * DT))
        asked[k] = bench["valve.main.flow_virtual"]
        passed[k] = flow_of(spool, 80 * BAR, 160 * BAR, 0.0, v)
        spool += (bench["valve.main.command"] - spool) * share
    assert np.abs(passed - asked)[500:].max() < 0.02 * np.abs(asked).max()
