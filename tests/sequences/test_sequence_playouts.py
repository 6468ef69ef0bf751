"""Playouts in test sequences: the recorded response, fitted by others' equations, is that which was wanted."""

from __future__ import annotations

import cmath
from math import degrees
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_harness import rig_text

from hilserver.errors import ConfigurationError, HilserverError
from hilserver.fidelity.measures import sine_at
from hilserver.protocol.commands import BeginPlayout, EndPlayout
from hilserver.protocol.published import PlayoutStatus
from hilserver.record.reader import LogReader
from hilserver.rig.build import load_rig
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Rig
from hilserver.sequences.check import PASSED
from hilserver.sequences.logged import check_log
from hilserver.sequences.model import load_sequence
from hilserver.sequences.simulated import simulate_sequence
from hilserver.service.playouts import PlayoutTable
from hilserver.service.telemetry_samples import channel_columns
from hilserver.simulation.replay import replay_log
from hilserver.tick.codes import Mode, PlayoutState
from hilserver.tick.row import header, playout_memory

ROOM = {"rate =": 'rate = "1 kHz"\nplayouts = 2'}
SEQUENCE = """
length = "17 s"

[[step]]
at = "0.1 s"
send = "arm"

[[step]]
at = "0.2 s"
send = "start"

[[step]]
at = "0.5 s"
send = "play"
playout = "shake"
input = "joystick"
channel = "x"
amplitude = "6 mm"
phase = 30.0
frequency = "4 Hz"
cycles = 60
drive = 0.2
tolerance = 0.03
block = 4
centre = "300 mm"
centre_per = "300 mm"

[[expect]]
channel = "mode"
after = "shake"
value = "RUNNING"
until = "0.2 s"

[[expect]]
channel = "input.joystick"
after = "shake"
min = -0.2
max = 0.2
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    folder = tmp_path_factory.mktemp("rig")
    (folder / "rig.toml").write_text(rig_text("shaking", folder, ROOM))
    return load_rig(folder / "rig.toml")


def test_the_response_has_the_amplitude_and_phase_that_are_wanted(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "shake.toml").write_text(SEQUENCE + '[[expect]]\nchannel = "mode"\nvalue = "RUNNING"\nat = "0.3 s"\n')
    path, sequence = tmp_path / "run.arrow", load_sequence(tmp_path / "shake.toml")
    done = simulate_sequence(sequence, rig, path)
    assert [verdict.outcome for verdict in done.verdicts] == [PASSED] * 6, done.verdicts
    log = LogReader(path).read_all()
    columns, told = log.columns, [event for _, event in log.events if event["kind"] == "playout"]
    assert [(event["name"], event["state"]) for event in told] == [("shake", "CONTROLLED"), ("shake", "COMPLETED")]
    assert told[1]["cycles"] == columns["playout.0.count"][-1] == 60
    last = np.flatnonzero(columns["playout.0.count"] == 59)  # the last whole cycle, of 250 ticks
    assert len(last) == 250
    time, x = columns["tick"][last] * 1e-3, columns["channel.x"][last]
    response = sine_at(time, x, 4.0) * 1j  # against a sine, not a cosine
    assert abs(response) == pytest.approx(6e-3, rel=0.03)
    assert degrees(cmath.phase(response)) == pytest.approx(30.0, abs=3.0)
    assert float(np.mean(x)) == pytest.approx(0.3, abs=0.01)
    assert replay_log(path).differences == ()
    again = check_log(sequence, path)
    assert [verdict.outcome for verdict in again.verdicts] == [PASSED] * 6, again.verdicts
    assert [moment for moment in again.moments if "shake" in moment[1]] == [
        moment for moment in done.moments if "shake" in moment[1]
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"channel": "p"}, "is not a channel"),
        ({"amplitude": "6 bar"}, "amplitude: x is measured in m"),
        ({"amplitude": "-6 mm"}, "is not above 0"),
        ({"frequency": "4 s"}, "is not a frequency"),
        ({"frequency": "80 Hz"}, "80 Hz is out of range: it must be between 1e-05 and 50 Hz"),
        ({"frequency": "1e-320 Hz"}, "is out of range"),
        ({"input": "lever"}, "no input"),
        ({"mean": 1.0}, "is not within"),
        ({"limit": 0.6, "mean": 0.5}, "leaves the input's range"),
        ({"drive": 0.3, "limit": 0.2}, "above the limit"),
        ({"counted": 80}, "80 of 80 cycles are done already"),
        ({"centre": "3 bar", "centre_per": "1 mm"}, "centre: x is measured in m"),
        ({"centre": "300 mm", "centre_per": "0 mm"}, "must be a change"),
    ],
)
def test_wrong_playouts_are_refused(change: dict[str, Any], problem: str, rig: Rig) -> None:
    table, row = PlayoutTable(rig, channel_columns(rig)), first_row(rig.layout, rig.plan, rig.packed)
    with pytest.raises(ConfigurationError, match=problem):
        table.prepare(begun(**change), rig.packed, row)


def begun(**change: Any) -> BeginPlayout:
    right = {"playout": "shake", "input": "joystick", "channel": "x", "amplitude": "6 mm", "frequency": "4 Hz"}
    return BeginPlayout(**{**right, "cycles": 80, **change})


def test_one_playout_moves_an_input(rig: Rig) -> None:
    """A refused one leaves the names alone: the state of a finished playout is not shown under another name."""
    table, row = PlayoutTable(rig, channel_columns(rig)), first_row(rig.layout, rig.plan, rig.packed)
    head, playout = header(row), playout_memory(rig.plan, row, 0)
    head.mode = Mode.RUNNING
    table.prepare(begun(), rig.packed, row)
    playout.state, playout.ticks = PlayoutState.CONTROLLED, 250
    with pytest.raises(ConfigurationError, match="joystick is moved by playout shake: end it first"):
        table.prepare(begun(playout="other"), rig.packed, row)
    playout.state, head.cycle_time = PlayoutState.COMPLETED, 0.5
    with pytest.raises(ConfigurationError, match="joystick is moved by the work cycle: stop it first"):
        table.prepare(begun(playout="other"), rig.packed, row)
    head.mode = Mode.ARMED
    with pytest.raises(HilserverError, match="play needs RUNNING, the mode is ARMED"):
        table.prepare(begun(playout="other"), rig.packed, row)
    assert list(table.status(row)) == ["shake"]


def test_a_response_that_is_not_a_number_can_be_published(rig: Rig) -> None:
    table, row = PlayoutTable(rig, channel_columns(rig)), first_row(rig.layout, rig.plan, rig.packed)
    playout = playout_memory(rig.plan, row, 0)
    playout.state, playout.ticks, playout.wanted_sin = PlayoutState.DEVIATED, 250, 1.0
    playout.measured_sin = np.nan
    known = PlayoutStatus.model_validate_json(table.status(row)["0"].payload())
    assert (known.amplitude, known.phase_error) == (None, None)


def test_only_a_playout_that_runs_can_be_ended(rig: Rig) -> None:
    table, row = PlayoutTable(rig, channel_columns(rig)), first_row(rig.layout, rig.plan, rig.packed)
    with pytest.raises(ConfigurationError, match='no playout "shake" is running'):
        table.end(EndPlayout(playout="shake"), row)
    assert table.status(row) == {}
