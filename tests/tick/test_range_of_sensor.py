"""Pressures beyond the range of their sensor: the reading is at its end, and the true pressure is not known."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from lift_bench import FILE, lift
from rig_bench import BAR, Bench, bench_rig

from hilserver.compiler import standard_program
from hilserver.fidelity.comparison import Comparison
from hilserver.fidelity.segments import CircuitRows, CycleSegment, passes, trip_in
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.rig.watches import AT_END, MOVED, motions
from hilserver.tick.codes import CommandKind, Learning, Mode, Unseen
from hilserver.units import ATMOSPHERE
from hilserver.virtual_commissioning.sensor_ranges import outside_ranges

DEMO = FILE.with_name("demo.toml")


def sucking(lowest: str) -> Rig:
    """A load of 1.5 t pulls the rod out, and a check valve lets the oil in for which the virtual pump is too small.

    Port A is at -0.7 bar for three quarters of the run. ``lowest``: where the range of the sensors begins.
    """
    ends = {"value": [lowest, "250 bar"]}
    suction = {
        "type": "check_valve",
        "ports": {"A": "tank", "B": "rig.A"},
        "nominal_flow": {"flow": "60 l/min", "drop": "1 bar"},
        "cracking_pressure": "0.02 bar",
    }
    machine: dict[str, Any] = {
        "components": {"load": {"direction": "-90 deg", "mass": "1500 kg"}},
        "nodes": {"A": {"pressure": "10 bar"}, "B": {"pressure": "110 bar"}, "rod": {"position": "0.2 m"}},
    }
    rig = {
        "channels": {port: {"scale": ends, "watch": {"stuck": "trip"}} for port in ("p_A", "p_B")},
        "devices": {"rig": {"sensors": {"p_A": ends, "p_B": ends}}},
        "cylinders": {"lift": {"mass": "1510 kg"}},
    }
    points = [["0 s", 0.0], ["0.5 s", 0.0], ["1 s", 0.3], ["3 s", 0.3], ["3.5 s", 0.0], ["4 s", 0.0]]
    return lift(
        {
            "circuit": {"components": {"suction": suction, "pump": {"max_flow": "3 l/min"}}},
            "cycle": {"inputs": {"joystick": {"points": points}}},
            "devices": {"rig": {"machine": machine}},
            "rig": rig,
        }
    )


@functools.cache
def bridged(lowest: str, strategy: str) -> tuple[CircuitRows, dict[str, float]]:
    """The rows of a run, and the errors (NRMSE) by quantity."""
    rig = sucking(lowest)
    comparison = Comparison.of(rig, standard_program())
    record, true_values = comparison.bridged(rig, strategy)
    assert trip_in(record, rig) is None
    segment, _ = comparison.evaluated(record, true_values, CycleSegment(passes(record)[0], 0.0))
    assert -0.8 * BAR < segment.reference["pressure A"].min() < -0.6 * BAR
    return record, {name: deviation.nrmse for name, deviation in segment.deviations.items()}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["prediction", "feedback", "adaptive"])
def test_a_reading_at_the_end_of_its_range_is_not_taken_as_exact(strategy: str) -> None:
    """With sensors from 0 bar, the flow of `feedback` was 42 % off, that of `adaptive` 45 %; from -1 bar, 0.1 %."""
    assert bridged("-1 bar", strategy)[1]["flow A"] < 0.005
    errors = bridged("0 bar", strategy)[1]
    assert errors["flow A"] < 0.02
    assert errors["position rod"] < 0.005


@pytest.mark.slow
@pytest.mark.parametrize(("lowest", "at_end"), [("-1 bar", False), ("0 bar", True)])
def test_a_healthy_sensor_at_the_end_of_its_range_is_not_stuck(lowest: str, at_end: bool) -> None:
    record, _ = bridged(lowest, "feedback")
    assert (np.mean(record.columns["channel_end.p_A"] == -1) > 0.5) == at_end
    assert not record.columns["limit.p_A.stuck"].any()


@pytest.mark.slow
def test_nothing_is_learned_while_a_sensor_is_at_the_end_of_its_range() -> None:
    """The delay was learned as -1 ms or 4 ms, at the end of what is possible."""
    columns = bridged("0 bar", "adaptive")[0].columns
    held = columns["valve.A.learning"] == Learning.END_OF_RANGE
    assert np.mean(held) > 0.5
    for name in ("delay", "gain_PA", "null"):
        assert (np.diff(columns[f"valve.A.{name}"])[held[1:]] == 0.0).all(), name


@pytest.mark.slow
def test_nothing_is_learned_while_free_air_makes_the_oil_soft() -> None:
    """What the oil takes up at low pressure was taken for another gain of the valve, which then stayed wrong."""
    columns = bridged("-1 bar", "adaptive")[0].columns
    soft = np.isin(columns["valve.A.unseen"], (Unseen.SOFT_OIL, Unseen.VOID))
    assert np.mean(soft == (columns["port.A"] < 5.0 * BAR)) > 0.99
    assert np.mean(soft) > 0.1
    tracked = columns["valve.A.learning"] == Learning.TRACKED
    assert not tracked[soft].any()
    assert not columns["valve.A.unexplained"][soft].any(), "what went before is not continued afterwards"


@pytest.mark.parametrize("before", [2.0, 0.0])
def test_a_dead_sensor_at_the_end_of_its_range_trips(before: float) -> None:
    """0 V may also be a pressure below 0 bar, but not where the reading comes from 50 bar: that of a dead sensor.

    If the sensor is dead from the start, the estimate shows it, which needs flows that no valve passes.
    """
    bench = Bench(load_rig(DEMO))
    bench.raw |= {"p_A": before, "p_B": 2.0, "p_S": 5.6, "p_T": 0.02, "Q_A": 0.0, "x": 5.0}
    bench.run_to(Mode.RUNNING)
    stroke = motions(bench.rig.settings)["p_A"].volume / MOVED["pressure"]
    least, passed = bench.rig.plan.channel[0].least_flow, 0.0
    bench.raw["p_A"] = 0.0
    for _ in range(20_000):
        bench.raw["x"] = 5.0 + 1e-3 * (bench["tick"] % 7)  # the other sensors are not stuck
        bench.raw["p_B"] = 2.0 + 1e-3 * (bench["tick"] % 5)
        bench.raw["Q_A"] = 1e-3 * (bench["tick"] % 3)
        bench.tick(CommandKind.SET_INPUT, 0, 0.6)
        passed += max(abs(bench["valve.main.flow_expected"]) - least, 0.0) * 1e-3
        if bench["limit.p_A.stuck"]:
            break
    assert bench["channel_beyond.p_A"] == -1
    if before > 0.0:
        assert passed == pytest.approx(MOVED["pressure"] * stroke, rel=0.1)
    assert passed < 0.5 * AT_END * stroke


@pytest.mark.parametrize(
    ("bar", "end"), [(0.0, -1), (0.04, -1), (-0.5, -1), (0.06, 0), (50.0, 0), (99.94, 0), (99.96, 1), (105.0, 1)]
)
def test_the_ends_of_a_range(bar: float, end: int) -> None:
    """0 … 100 bar: 0.05 % of it from the end are the sensor's own error."""
    bench = Bench()
    bench.raw |= {"p_A": bar / 10.0, "p_S": 8.0}
    bench.tick()
    assert bench["channel_end.p_A"] == end


def test_a_tare_shifts_the_ends_with_the_readings() -> None:
    bench = Bench(bench_rig({"channels": {"p_A": {"tare": "2 bar"}}}))
    bench.raw |= {"p_A": 0.0, "p_S": 8.0}
    bench.tick()
    assert bench["channel.p_A"] == pytest.approx(-2.0 * BAR)
    assert bench["channel_end.p_A"] == -1


def test_virtual_commissioning_names_the_sensors_that_do_not_measure_far_enough() -> None:
    found = {"rest": {"A": (-0.6e5, 80e5)}, "step": {"A": (-0.8e5, 260e5), "B": (0.0, 250e5)}}
    low, high = outside_ranges(sucking("0 bar").settings, found)
    assert low == (
        "In the reference simulation, port A reaches -0.8 bar (case “step”), but channel p_A only measures from 0 bar: "
        "readings there are not the true pressure. Use a sensor that measures from -1 bar."
    )
    assert "port A reaches 260 bar (case “step”), but channel p_A only measures up to 250 bar" in high
    assert not list(outside_ranges(sucking("-1 bar").settings, {"rest": {"A": (-0.8e5, 80e5)}}))


def test_a_sensor_of_absolute_pressure_is_named_with_absolute_pressures() -> None:
    """0.8 … 10.8 bar absolute: "measures from 0.8 bar … use one from -1 bar" mixed two references."""
    scale = {"raw": [0, 10], "value": ["0.8 bar", "10.8 bar"]}
    settings = bench_rig({"channels": {"p_A": {"absolute": True, "scale": scale}}}).settings
    low, high = outside_ranges(settings, {"step": {"A": (0.2 * BAR - ATMOSPHERE, 12.0 * BAR - ATMOSPHERE)}})
    assert "port A reaches 0.2 bar absolute (case “step”), but channel p_A only measures from 0.8 bar absolute" in low
    assert low.endswith("Use a sensor that measures from 0 bar absolute.")
    assert "port A reaches 12 bar absolute (case “step”), but channel p_A only measures up to 10.8 bar absolute" in high
