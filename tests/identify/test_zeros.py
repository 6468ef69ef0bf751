"""Zero errors of pressure sensors are found where the piston is held at the ends of its stroke."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Command
from lift_bench import lift
from scipy.optimize import brentq
from unknown_rigs import changed_rig

from hilserver.identify.excitation import Excitation, Extent, by_hand, groups_of, limits_before_the_ends
from hilserver.identify.influences import ACCURACY, uniform
from hilserver.identify.recorded import Recording
from hilserver.identify.simulated_excitation import LockstepBench, recorded_excitation
from hilserver.identify.zeros import (
    PortAtRest,
    connections,
    implausible,
    without_zero_errors,
    zero_errors,
)
from hilserver.numerics.flow_of_arrays import orifice_law
from hilserver.rig.rig import Rig
from hilserver.units import BAR, L_MIN, to_si

CONFIG = Path(__file__).parents[2] / "config"
SENSORS = ("p_A", "p_B", "p_S", "p_T")
SUPPLY = 140e5
"""Pa, in the drawn examples."""
OPENINGS = (0.24, 0.33, 0.45, 0.6)


def excitation_of(rig: Rig) -> Excitation:
    bench = LockstepBench(by_hand(rig, 0.6))
    (group,) = groups_of(rig, ["A", "B"])
    return Excitation(rig, bench, group, 0.6)


def at_the_ends(rig: Rig, bound: float = np.inf) -> Recording:
    """The part of the excitation that brings the piston to both ends. ``bound`` of the commands while it moves."""
    excitation = excitation_of(rig)
    excitation.run(0.0)
    excitation.bound = bound
    excitation.to_the_ends()
    assert isinstance(excitation.bench, LockstepBench)
    return excitation.bench.recording()


def true_zero(rig: Rig, sensor: str) -> float:
    """What a simulated sensor reads without pressure, Pa: its range of 250 bar begins that much lower."""
    low, high = (to_si(value, "Pa") for value in rig.sources["rig"]["devices"]["rig"]["sensors"][sensor]["value"])
    return -low * 250.0 * BAR / (high - low)


def offsets(**bar: float) -> dict[str, Any]:
    """Sensors that read this much too much."""
    sensors = {name: {"value": [f"{-more!r} bar", f"{250.0 - more!r} bar"]} for name, more in bar.items()}
    return {"rig": {"devices": {"rig": {"sensors": sensors}}}}


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "tolerance"), [(None, 0.01), (202, 0.1)], ids=["zeros", "all unknowns"])
def test_sensors_are_brought_into_agreement(seed: int | None, tolerance: float) -> None:
    """Exactly on a rig without other errors; nearly beside gain errors, noise, leakage, hoses and hysteresis, too."""
    rig = lift(offsets(p_A=0.5, p_B=-0.4, p_S=0.3, p_T=-0.2)) if seed is None else changed_rig("lift", seed)
    zeros = zero_errors(rig, connections(rig, at_the_ends(rig)))
    assert sorted(zeros) == sorted(SENSORS)
    for one, other in combinations(("p_A", "p_B", "p_T"), 2):
        true, found = true_zero(rig, one) - true_zero(rig, other), zeros[one].value - zeros[other].value
        assert abs(true) > 0.15 * BAR  # else there were nothing to find
        assert found == pytest.approx(true, abs=tolerance * BAR)
    for name, zero in zeros.items():
        assert abs(zero.value - true_zero(rig, name)) < 3.0 * zero.deviation, name


def drop(law: float) -> float:
    """The drop of an orifice with this flow over flow coefficient, by bisection of the law with its transition."""
    return float(brentq(lambda p: float(orifice_law(np.array(p), 1e5)) - law, 0.0, 100e5, xtol=0.1))


def drawn(random: np.random.Generator, rig: Rig) -> tuple[dict[str, float], list[PortAtRest]]:
    """True zeros, and what four sensors with drawn errors show at both ends, leakage past the piston included."""
    zeros = {name: random.uniform(-1.0, 1.0) * ACCURACY * rig.settings.channels[name].span() for name in SENSORS}
    gains = {name: random.uniform(-1.0, 1.0) * ACCURACY for name in SENSORS}
    C, overlap = 60.0 * L_MIN / np.sqrt(35e5), random.uniform(0.0, 0.03)
    leakage = random.uniform(0.0, 0.02) * L_MIN / BAR * SUPPLY

    def read(name: str, pressure: float) -> float:
        return zeros[name] + (1.0 + gains[name]) * pressure + random.normal(0.0, 0.01e5)

    found = []
    for valve, port in (("A", "p_A"), ("B", "p_B")):
        for line, pressure, sign in (("p_S", SUPPLY, 1.0), ("p_T", 0.5e5, -1.0)):
            for u in OPENINGS:
                at_port, at_line = (
                    read(port, pressure - sign * drop(leakage / (C * (u - overlap)))),
                    read(line, pressure),
                )
                found.append(PortAtRest(0, valve, port, line, sign * u, at_port - at_line, at_line))
    return zeros, found


def test_the_stated_deviations_are_those_of_drawn_sensors() -> None:
    """Over 200 draws: 95 % intervals hold the truth, and the errors left are smaller than with zeros taken for true."""
    random, rig = np.random.default_rng(7), lift()
    inside, left, before = [], [], []
    for _ in range(200):
        true, found = drawn(random, rig)
        zeros = zero_errors(rig, found)
        for name in SENSORS:
            error = zeros[name].value - true[name]
            inside.append(abs(error) < 1.96 * zeros[name].deviation)
            left.append(error)
            before.append(true[name])
    assert 0.92 < np.mean(inside) < 0.98
    assert np.std(left) < 0.65 * np.std(before)
    assert np.std(before) == pytest.approx(uniform(ACCURACY * rig.settings.channels["p_A"].span()), rel=0.1)


def test_a_blocked_line_is_named_and_used_for_nothing() -> None:
    """A shut-off valve before port B holds 60 bar there."""
    rig = lift()
    _, found = drawn(np.random.default_rng(3), rig)
    blocked = [replace(c, difference=60e5) if (c.port, c.line) == ("p_B", "p_T") else c for c in found]
    assert {(c.port, c.line) for c in implausible(rig, blocked)} == {("p_B", "p_T")}
    assert implausible(rig, found) == []


@pytest.mark.slow
def test_the_recording_loses_them() -> None:
    """Its end with the ends of the stroke, too, if they come late; sooner, the whole of it is evaluated."""
    rig = lift(offsets(p_A=0.5, p_B=-0.6))
    recording = at_the_ends(rig)
    corrected = without_zero_errors(rig, recording)
    assert len(corrected.known) == len(recording.known)
    for name in SENSORS:
        moved = recording.channels[name] - corrected.channels[name]
        assert np.ptp(moved) < 1.0
        assert moved[0] == pytest.approx(corrected.zeros[name].value)
    agreeing = connections(rig, corrected)
    assert max(abs(c.difference) for c in agreeing if c.line == "p_T") < 0.02 * BAR
    assert corrected.notes == ()
    before, first = 10_000, min(c.tick for c in agreeing)
    longer = replace(
        recording,
        commands={name: np.pad(u, (before, 0)) for name, u in recording.commands.items()},
        channels={name: np.pad(y, (before, 0), mode="edge") for name, y in recording.channels.items()},
        known=np.pad(recording.known, (before, 0), constant_values=True),
    )
    late = without_zero_errors(rig, longer)
    assert {len(values) for values in (late.known, *late.commands.values(), *late.channels.values())} == {
        before + first
    }
    assert {name: zero.value for name, zero in late.zeros.items()} == pytest.approx(
        {name: zero.value for name, zero in corrected.zeros.items()}
    )


@pytest.mark.parametrize(
    ("low", "action", "kept"), [("20 mm", "trip", True), ("-5 mm", "trip", False), ("20 mm", "warn", False)]
)
def test_limits_of_the_position_keep_the_piston_from_its_ends(low: str, action: str, kept: bool) -> None:
    rig = lift({"rig": {"limits": {"x_low": {"channel": "x", "min": low, "action": action}}}})
    assert limits_before_the_ends(rig, rig.settings.cylinders["lift"]) == (["x_low"] if kept else [])
    recording = recorded_excitation(rig, ["A"], Extent(1.0, 0.6))
    assert (connections(rig, recording) == []) == kept


def test_the_command_says_which_limits(hilserver: Command, tmp_path: Path) -> None:
    """Before anything is moved."""
    shutil.copytree(CONFIG, tmp_path / "config")
    file = tmp_path / "config" / "rigs" / "lift.toml"
    limit = 'x_low = { channel = "x", min = "20 mm", action = "trip" }'
    file.write_text(file.read_text().replace("[limits]\n", f"[limits]\n{limit}\n"))
    said = hilserver("identify", file, "--end-stops")
    assert said.code == 2
    assert "limits.x_low" in said.err
    assert "calibrate --tare" in said.err


def test_the_ends_tell_the_zeros_even_if_the_piston_has_to_move_slowly() -> None:
    """A pressure near its limit has reduced the commands to 8 %: at the ends, nothing moves: the valves may open."""
    rig = lift(offsets(p_A=0.7))
    recording = without_zero_errors(rig, at_the_ends(rig, bound=0.08))
    assert recording.zeros["p_A"].value == pytest.approx(true_zero(rig, "p_A"), abs=0.3 * BAR)


def test_it_is_said_if_the_piston_was_not_at_its_ends() -> None:
    rig = lift()
    excitation = excitation_of(rig)
    excitation.run(2.0)
    assert isinstance(excitation.bench, LockstepBench)
    recording = excitation.bench.recording()
    corrected = without_zero_errors(rig, recording)
    assert corrected.zeros == {}
    (note,) = corrected.notes
    assert "--end-stops" in note
    assert "calibrate --tare" in note
