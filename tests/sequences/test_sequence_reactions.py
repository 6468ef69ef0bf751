"""Reactions in test sequences: simulated, on a server and by a log they fire in the tick that their condition names."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_harness import Server, rig_text

from hilserver.client import connect
from hilserver.protocol.commands import Arm, React, Release, SwitchCircuit
from hilserver.record.reader import LogReader, LogTable
from hilserver.record.row_events import DISARMED
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.sequences.check import FAILED, PASSED, SKIPPED, SequenceResult
from hilserver.sequences.live import run_live
from hilserver.sequences.logged import check_log
from hilserver.sequences.model import Sequence, load_sequence
from hilserver.sequences.simulated import simulate_sequence
from hilserver.simulation.replay import replay_log

ROOM = {"rate =": 'rate = "1 kHz"\nheartbeat_timeout = "2.5 s"\nreactions = 3'}
START = '[[step]]\nat = "0.1 s"\nsend = "arm"\n[[step]]\nat = "0.2 s"\nsend = "start"\n'
LIFT = '[inputs.joystick]\nshape = "step"\npoints = [["0.5 s", 0], ["0.7 s", 0.5]]\n'
TURN = (
    '[[step]]\nat = "0.3 s"\nsend = "react"\nreaction = "turn"\nwhen = "x > 310 mm"\n'
    'then = "set"\ninput = "joystick"\nvalue = -0.3\nramp = "0.1 s"\n'
)
END = (
    '[[step]]\nat = "0.4 s"\nsend = "react"\nreaction = "down again"\nwhen = "x < 300 mm"\nedge = true\nthen = "stop"\n'
)
LATE = '[[step]]\nat = "{at}"\nname = "on"\nsend = "start"\n'
EXPECT = (
    '[[expect]]\nchannel = "input.joystick"\nafter = "turn"\nat = "100 ms"\nuntil = "110 ms"\nvalue = -0.3\n'
    '[[expect]]\nchannel = "mode"\nafter = "down again"\nvalue = "ARMED"\n'
)
SequenceOf = Callable[..., Sequence]


@pytest.fixture
def up_and_down(tmp_path: Path) -> SequenceOf:
    """Lifts until 310 mm, lowers until 300 mm, where the run is stopped: a step after that is not carried out."""

    def make(length: str = "4 s", late: str = "3.5 s") -> Sequence:
        file = tmp_path / "sequence.toml"
        file.write_text(f'length = "{length}"\n{START}{TURN}{END}{LATE.format(at=late) if late else ""}{LIFT}{EXPECT}')
        return load_sequence(file)

    return make


@pytest.fixture(scope="module")
def reacting(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    folder = tmp_path_factory.mktemp("rig")
    (folder / "rig.toml").write_text(rig_text("reacting", folder, ROOM))
    return load_rig(folder / "rig.toml")


def outcomes(done: SequenceResult) -> list[str]:
    return [verdict.outcome for verdict in done.verdicts]


def fired(log: LogTable) -> list[tuple[int, str]]:
    """Row and name of each reaction in a log."""
    return [(row, event["name"]) for row, event in log.events if event["kind"] == "reaction"]


def test_simulated_it_fires_where_the_log_says_and_replays_bit_for_bit(
    up_and_down: SequenceOf, reacting: Rig, tmp_path: Path
) -> None:
    file, path = up_and_down(), tmp_path / "run.arrow"
    done = simulate_sequence(file, reacting, path)
    assert outcomes(done) == [PASSED] * 4 + [SKIPPED] + [PASSED] * 2, done.verdicts
    assert "reaction down again has ended the run" in done.verdicts[4].found
    log = LogReader(path).read_all()
    check_rows(log)
    replayed = replay_log(path)
    assert replayed.same_program
    assert replayed.differences == ()
    assert replayed.compared == replayed.rows == len(log.columns["tick"])
    again = check_log(file, path)
    assert again.verdicts == done.verdicts
    assert [moment for moment in again.moments if moment[1] in ("turn", "down again")] == [
        moment for moment in done.moments if moment[1] in ("turn", "down again")
    ]


def check_rows(log: LogTable) -> None:
    """The row of each reaction is the first one at which its condition holds, and it acts there."""
    columns = log.columns
    (turned, first), (ended, second) = fired(log)
    assert (first, second) == ("turn", "down again")
    x, mode, joystick = columns["channel.x"], columns["mode"], columns["input.joystick"]
    armed = int(np.argmax(columns["reaction.0.state"] == 2))
    assert turned == armed + int(np.argmax(x[armed:] > 0.31))
    assert turned > armed
    assert joystick[turned] < joystick[turned - 1] == joystick[turned - 5]
    begun = turned + int(np.argmax(x[turned:] >= 0.3))  # beyond the level first, for the edge
    assert ended == begun + int(np.argmax(x[begun:] < 0.3))
    assert (mode[ended - 1], mode[ended]) == (3, 2)
    assert joystick[ended] == 0.0


def test_a_reaction_that_never_fires_fails_what_is_expected_after_it(up_and_down: SequenceOf, reacting: Rig) -> None:
    done = simulate_sequence(up_and_down("0.6 s", late=""), reacting)
    late = [verdict for verdict in done.verdicts if verdict.outcome == FAILED]
    assert any("the reaction turn did not fire" in verdict.found for verdict in late), done.verdicts


OTHER = (
    '[components]\ntank = {type = "tank", ports = {T = "t"}}\n'
    'source = {type = "flow_source", ports = {P = "rig.A", T = "t"}, flow = "1 l/min", command = "joystick"}\n'
)
WATCH = React(reaction="watch", when="circuit.supply.p > 500 bar", then="trip")
SWITCHED = (
    '[[step]]\nat = "0.3 s"\nsend = "react"\nreaction = "overload"\nwhen = "circuit.supply.p > 500 bar"\n'
    'then = "stop"\n'
    '[[step]]\nat = "0.4 s"\nsend = "set_parameter"\ncomponent = "relief"\nset = {opening_pressure = "150 bar"}\n'
    f'[[step]]\nat = "0.5 s"\nsend = "switch_circuit"\n{OTHER.replace("[", "[step.circuit.")}'
    '[[expect]]\nchannel = "mode"\nat = "0.3 s"\nvalue = "RUNNING"\n'
)


def test_a_switch_that_disarms_a_reaction_is_told(reacting: Rig, tmp_path: Path) -> None:
    """Other parameters of the same circuit leave it armed."""
    (tmp_path / "sequence.toml").write_text(f'length = "0.7 s"\n{START}{SWITCHED}')
    path, sequence = tmp_path / "run.arrow", load_sequence(tmp_path / "sequence.toml")
    done = simulate_sequence(sequence, reacting, path)
    assert outcomes(done) == [PASSED] * 6, done.verdicts
    (moment,) = [text for _, text in done.moments if "disarmed" in text]
    assert moment == "overload is disarmed by a switch of the circuit"
    log = LogReader(path).read_all()
    (told,) = [(row, event["name"]) for row, event in log.events if event["kind"] == DISARMED]
    assert told == (int(np.argmax(log.columns["circuit_version"] == 3)), "overload")
    assert replay_log(path).differences == ()
    assert done.moments == check_log(sequence, path).moments


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"when": "p_a > 200 bar"}, '"p_a" is not a channel. Did you mean p_A'),
        ({"when": "p_A >= 200 bar"}, "write > or <"),
        ({"when": "p_A 200 bar"}, "is not a condition"),
        ({"when": "p_A > 200"}, "p_A is measured in Pa, not in no unit"),
        ({"when": "p_A > 200 mm"}, "p_A is measured in Pa, not in m"),
        ({"when": "mode > 2"}, '"mode" is not a channel'),
        ({"when": "valve.main.saturation > 2"}, "is not a channel"),
        ({"hysteresis": "1 mm"}, "hysteresis: has another unit"),
        ({"hysteresis": "-1 bar"}, "is below 0"),
        ({"hold": "1 bar"}, "is not a time"),
        ({"input": "lever"}, 'no input "lever"'),
        ({"value": 3}, "out of range"),
        ({"then": "stop", "input": None, "value": None, "repeat": True}, "repeat: is not used with stop"),
        ({"then": "hold", "input": None, "value": None, "repeat": True, "when": "circuit.supply.p > 1 bar"}, ""),
        ({"when": "circuit.supply.p > 100 bar"}, ""),
        ({"when": "circuit.suply.p > 100 bar"}, "Did you mean circuit.supply.p"),
    ],
)
def test_wrong_reactions_are_refused(change: dict[str, Any], problem: str, reacting: Rig) -> None:
    from hilserver.errors import ConfigurationError
    from hilserver.rig.plan import first_row
    from hilserver.service.reactions import ReactionTable
    from hilserver.service.telemetry_samples import channel_columns

    right = {"reaction": "r", "when": "p_A > 100 bar", "then": "set", "input": "joystick", "value": 0.0}
    table = ReactionTable(reacting, channel_columns(reacting))
    row = first_row(reacting.layout, reacting.plan, reacting.packed)
    command = React(**{**right, **change})
    if not problem:
        first, _ = table.prepare(command, reacting.packed, row)
        assert first.first == 0.0
        assert first.second == len(reacting.layout.names) + reacting.packed.names.index("supply.p")
        return
    with pytest.raises(ConfigurationError, match=problem):
        table.prepare(command, reacting.packed, row)


TRIGGER = """
[recording.triggers.running]
mode = "RUNNING"
before = "0.2 s"
after = "0.5 s"
"""


@pytest.mark.realtime
def test_live_the_log_is_the_judge(up_and_down: SequenceOf, tmp_path: Path) -> None:
    """And a triggered recording lies beside it: to the recording, a trigger that waits is no gap."""
    text = rig_text("{name}", tmp_path, ROOM) + TRIGGER
    with Server(tmp_path, text=text) as server, connect(server.name, f"127.0.0.1:{server.port}") as client:
        done = client._do(run_live(up_and_down("4.8 s", "4.5 s"), client._session))
        assert outcomes(done) == [PASSED] * 4 + [SKIPPED] + [PASSED] * 2, done.verdicts
        state = client.wait(lambda state: state.mode == "SAFE")
        assert any("reaction down again has ended the run" in text for text in state.warnings)
        assert not any("not recorded" in text for text in state.warnings)
        with pytest.raises(Exception, match="release it"):
            client.arm()
        told = [event for event in client._session.events if "triggered recording: " in event.text]
        assert [event.kind for event in told] == ["info"]
        for command in (Release(), Arm(), WATCH, SwitchCircuit(circuit=tomllib.loads(OTHER))):
            assert client._do(client._session.request(command)).ok
        client.wait(lambda _: any("watch" in event.details.values() for event in client._session.events))
        (lost,) = [event for event in client._session.events if "watch" in event.details.values()]
        assert (lost.kind, lost.text.partition(":")[0]) == ("warning", "reaction watch is disarmed")
        server.kill("supervisor", number=15)
        assert server.wait_exit() == 0
        log = LogReader(server.logs[0]).read_all()
    check_rows(log)
    ticks = {name: int(log.columns["tick"][row]) for row, name in fired(log)}
    first = int(log.columns["tick"][int(np.argmax(log.columns["mode"] == 2))]) - round(0.1 / 1e-3)
    moments = {name: at for at, name in done.moments}
    assert {name: round((tick - first) * 1e-3, 6) for name, tick in ticks.items()} == {
        name: round(moments[name], 6) for name in ticks
    }
    assert replay_log(server.logs[0]).differences == ()
    (path,) = (tmp_path / "logs" / "cuts").glob(f"*_{server.name}_running.arrow")
    cut, at = LogReader(path).read_all(), int(np.argmax(log.columns["mode"] == 3))
    assert cut.columns["tick"].tolist() == log.columns["tick"][max(at - 200, 0) : at + 501].tolist()
    assert replay_log(path).differences == ()
