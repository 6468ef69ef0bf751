"""The excitation of ``hilserver identify`` keeps away from the limits of the pressures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from lift_bench import lift
from rig_bench import BAR

from hilserver.identify.excitation import NEAR_MIDDLE, Excitation, Extent, RunEnded, by_hand, groups_of
from hilserver.identify.recorded import Recording
from hilserver.identify.simulated_excitation import LockstepBench, recorded_excitation
from hilserver.rig.rig import Rig


def heavy(bore: float, rod: float, stroke: float, mass: float, flow: float, dead: float, limit: float) -> Rig:
    """A lift with this cylinder (mm, mm, m), mass (kg), valves (l/min), dead volumes (l) and limits (bar).

    It starts in balance.
    """
    area = np.pi / 4 * (bore * 1e-3) ** 2
    weight = mass * 9.80665 / area / BAR
    cylinder = {"bore": f"{bore} mm", "rod_diameter": f"{rod} mm", "stroke": f"{stroke} m"}
    cylinder |= {f"dead_volume_{side}": f"{dead} l" for side in "AB"}
    valve = {"nominal_flow": {"flow": f"{flow} l/min", "drop": "35 bar", "per": "edge"}}
    pressures = {"A": weight + 15.0 * (1.0 - (rod / bore) ** 2), "B": 15.0}
    nodes: dict[str, Any] = {port: {"pressure": f"{p} bar"} for port, p in pressures.items()}
    nodes["rod"] = {"position": f"{0.25 * stroke} m"}
    sensors = {f"p_{each}": {"value": ["0 bar", "400 bar"]} for each in "ABST"}
    channels = {name: {"scale": {"raw": [0, 10], **sensor}} for name, sensor in sensors.items()}
    load = {"cylinder": cylinder, "load": {"mass": f"{mass - 10.0} kg"}}
    drive = {"components": {"valve_A": valve, "valve_B": valve}}
    rig = {
        "cylinders": {"lift": {**cylinder, "mass": f"{mass} kg"}},
        "valves": {"A": valve, "B": valve},
        "limits": {f"p_{port}_high": {"max": f"{limit} bar"} for port in "AB"},
        "channels": channels,
        "devices": {"rig": {"sensors": sensors}},
    }
    return lift({"rig": rig, "devices": {"rig": {"machine": {"components": load, "nodes": nodes}, "drive": drive}}})


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers",
    [
        (80, 54, 1.0, 1606, 150, 1.74, 231),
        (32, 19, 0.3, 715, 20, 0.05, 224),
        (40, 24, 0.5, 857, 28, 0.48, 228),
        (50, 30, 0.3, 1988, 96, 0.08, 246),
    ],
    ids=lambda numbers: f"{numbers[3]:g} kg",
)
def test_heavy_loads_do_not_trip(numbers: tuple[float, ...]) -> None:
    """The supply is 210 bar: limits are little above it. Each of these rigs tripped once."""
    recording = recorded_excitation(heavy(*numbers), ["A", "B"], Extent(40.0, 0.6))
    assert np.abs(recording.commands["A"]).max() > 0.02
    assert max(recording.channels[f"p_{port}"].max() for port in "AB") > 0.5 * 210 * BAR


class LimitedBench:
    """A piston in the middle, whose pressure comes near its limit as soon as a command exceeds a level."""

    reaction = 0.0

    def __init__(self, rig: Rig, level: float) -> None:
        self.rig, self.level = rig, level
        self.held: list[tuple[float, float]] = []
        self._is_high = False

    def hold(self, commands: Mapping[str, float], seconds: float) -> None:
        self.held.append((commands["A"], seconds))
        self._is_high |= abs(commands["A"]) > self.level

    def now(self, channel: str) -> float:
        return {"x": 0.5, "p_S": 210 * BAR}[channel]

    def highest(self, channel: str) -> float:
        was_high, self._is_high = self._is_high and channel == "p_B", self._is_high and channel != "p_B"
        return 239 * BAR if was_high else 100 * BAR

    def recording(self) -> Recording:
        raise AssertionError


def test_after_a_high_pressure_all_commands_are_smaller() -> None:
    """Also the rest of the staircase in which it occurred; and the piston is slowed down in steps."""
    rig = lift()
    bench = LimitedBench(rig, 0.15)
    (group,) = groups_of(rig, ["A", "B"])
    Excitation(rig, bench, group, 0.6).run(20.0)
    levels = [abs(level) for level, _ in bench.held]
    first = next(k for k, level in enumerate(levels) if level > 0.15)
    assert 0.15 < max(levels[: first + 1]) < 0.2
    assert levels[first + 1 : first + 4] == sorted(levels[first + 1 : first + 4], reverse=True)
    assert max(levels[first + 1 :]) <= 0.7 * levels[first] / 0.75 + 1e-12


@pytest.mark.parametrize("seconds", [10.0, 20.0, 60.0])
def test_each_round_has_all_its_parts(seconds: float) -> None:
    """Also where the piston begins far from the middle, and in short sequences: small steps and random ones."""
    recording = recorded_excitation(lift(), ["A", "B"], Extent(seconds, 0.3, end_stops=False))
    command, x = recording.commands["A"], recording.channels["x"]
    begin = int(np.argmax(np.abs(x - 0.5) < NEAR_MIDDLE * 0.35))
    lasting = 1e-3 * len(command[begin:])
    assert seconds < lasting < seconds + 1.5
    for part in np.array_split(command[begin : begin + round(1e3 * seconds)], 4):
        assert part.min() < -0.06
        assert part.max() > 0.06
        assert len(np.unique(np.round(part, 6))) > 15


def test_both_ends_are_reached_where_a_limit_is_little_above_the_supply() -> None:
    """There, one port has the pressure of the supply, 210 bar: nothing moves, so this is no reason to move less."""
    limits = {"limits": {f"p_{port}_high": {"max": "218 bar"} for port in "AB"}}
    recording = recorded_excitation(lift({"rig": limits}), ["A", "B"], Extent(20.0, 0.3))
    x = recording.channels["x"]
    assert x.min() < 1e-3
    assert x.max() > 0.999
    assert abs(x[-1] - 0.5) < 0.25


@pytest.mark.parametrize(("action", "mode"), [("ramp", "ARMED"), ("trip", "FAULT")])
def test_the_limit_that_ends_the_sequence_is_named(action: str, mode: str) -> None:
    """Without a trip, it had said "ended in mode ARMED" only."""
    rig = lift({"rig": {"limits": {"high": {"channel": "p_A", "max": "60 bar", "action": action}}}})
    bench = LockstepBench(by_hand(rig, 0.5))
    with pytest.raises(RunEnded, match=rf"has ended in mode {mode}: limit high after [\d.]+ s\."):
        bench.hold({"A": 0.5, "B": 0.0}, 5.0)


def limited_to(pressure: str) -> Rig:
    return lift({"rig": {"limits": {f"p_{port}_high": {"max": pressure} for port in "AB"}}})


def test_a_simulated_rig_that_trips_is_moved_again_with_smaller_commands() -> None:
    said: list[str] = []
    recording = recorded_excitation(
        limited_to("150 bar"), ["A", "B"], Extent(8.0, 0.6, end_stops=False), tell=said.append
    )
    (repeated,) = said
    smaller = float(repeated.split("--largest ")[1].split()[0])
    assert "in mode FAULT: limit p_B_high after" in repeated
    assert 0.5 * smaller < max(np.abs(command).max() for command in recording.commands.values()) <= smaller
    assert recording.duration > 8.0


def test_what_was_recorded_before_a_trip_in_the_extension_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the ends of the stroke, with a limit that the piston violates there."""
    said: list[str] = []
    monkeypatch.setattr("hilserver.identify.excitation.limits_before_the_ends", lambda *_: [])
    rig = lift({"rig": {"limits": {"x_low": {"channel": "x", "min": "20 mm", "action": "trip"}}}})
    recording = recorded_excitation(rig, ["A", "B"], Extent(8.0, 0.3), tell=said.append)
    assert [re.sub(r"[\d.]+ s", "T", each.split(": ", 1)[1]) for each in said] == [
        "the sequence of commands has ended in mode FAULT: limit x_low after T. "
        "What was recorded until then is evaluated."
    ]
    assert recording.channels["x"].min() < 0.021
    assert not recording.known[-1]
    assert np.count_nonzero(recording.known) * recording.dt > 8.0
