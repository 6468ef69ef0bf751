"""Commands are given in one call of the compiled program: the same run, bit for bit, as with a call for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from service_harness import rig_text

from hilserver.record.reader import LogReader
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.sequences.check import SKIPPED
from hilserver.sequences.model import load_sequence
from hilserver.sequences.simulated import _Bench, simulate_sequence
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind, Mode

STEP = '[[step]]\nat = "{}"\nsend = "{}"\n'
START = STEP.format("0.05 s", "arm") + STEP.format("0.1 s", "start")
INPUTS = """
[inputs.joystick]
shape = "step"
points = [["0.15 s", 0.0], ["0.225 s", 0.6], ["0.35 s", 0.5], ["0.45 s", -0.2]]
[[expect]]
channel = "valve.main.command"
min = -1.0
"""
REFUSED = "refused = true\n"
STRATEGY = '[[step]]\nat = "0.21 s"\nsend = "strategy"\nvalve = "main"\nstrategy = "{}"\n'
SWITCH = '[[step]]\nat = "0.25 s"\nsend = "switch"\ncomponent = "relief"\nset = {{ opening_pressure = "{}" }}\n'
REACTION = (
    '[[step]]\nat = "0.075 s"\nsend = "react"\nreaction = "end"\nwhen = "input.joystick > 0.3"\nthen = "{}"\n'
    '[[step]]\nat = "0.325 s"\nsend = "release"\nreaction = "end"\n'
)
CASES = {
    "nothing happens": "",
    "a step between": STEP.format("0.2 s", "stop") + STEP.format("0.3 s", "start"),
    "a reaction stops": REACTION.format("stop") + STEP.format("0.35 s", "start"),
    "a reaction trips": REACTION.format("trip"),
    "a sensor fails": '[[fault]]\nat = "0.2 s"\nfault = "silent"\nsensor = "p_A"\n',
    "ticks are missed": '[[fault]]\nat = "0.205 s"\nfault = "missed"\nticks = 3\n',
    "never running": None,
    "a step is refused": STEP.format("0.2 s", "start") + STEP.format("0.25 s", "stop"),
    "a step has to be refused": STEP.format("0.2 s", "start") + REFUSED + STEP.format("0.4 s", "arm") + REFUSED,
    "a step is carried out that had to be refused": STEP.format("0.2 s", "stop") + REFUSED,
    "steps at the same time": STEP.format("0.2 s", "stop")
    + STEP.format("0.2 s", "disarm")
    + STEP.format("0.2 s", "arm"),
    "another strategy": STRATEGY.format("inverse_static"),
    "no such strategy": STRATEGY.format("feedforward") + REFUSED,
    "no such strategy, unexpectedly": STRATEGY.format("feedforward") + STEP.format("0.4 s", "stop"),
    "a switch": SWITCH.format("120 bar"),
    "a refused switch": SWITCH.format("20 l/min") + REFUSED + SWITCH.format("120 bar").replace("0.25", "0.253"),
    "a refused switch, unexpectedly": SWITCH.format("20 l/min") + STEP.format("0.4 s", "stop"),
    "ticks are missed before a step": '[[fault]]\nat = "0.205 s"\nfault = "missed"\nticks = 3\n'
    + STEP.format("0.206 s", "stop"),
}
ENDS = {
    "a step between",
    "a reaction stops",
    "a reaction trips",
    "never running",
    "a step is refused",
    "steps at the same time",
    "no such strategy, unexpectedly",
    "a refused switch, unexpectedly",
    "ticks are missed before a step",
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    folder = tmp_path_factory.mktemp("rig")
    room = {"rate =": 'rate = "1 kHz"\nheartbeat_timeout = "2.5 s"\nreactions = 1'}
    (folder / "rig.toml").write_text(rig_text("together", folder, room))
    return load_rig(folder / "rig.toml")


@pytest.mark.parametrize("period", ["20 ms", "0.5 ms", "12.5 ms"])
@pytest.mark.parametrize("case", CASES)
def test_the_log_and_the_verdicts_are_those_of_one_call_for_each(
    case: str, period: str, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the rig leaves RUNNING in between, and with several values per tick."""
    file, between = tmp_path / "sequence.toml", CASES[case]
    steps = STEP.format("0.05 s", "arm") if between is None else START + between
    file.write_text(f'length = "0.55 s"\ninput_period = "{period}"\n{steps}{INPUTS}')
    sequence, found = load_sequence(file), []
    kept = simulate_sequence(sequence, rig)  # of the rows, only the columns that are looked at
    for name in ("together", "alone"):
        if name == "alone":
            monkeypatch.setattr(_Bench, "_can_follow", lambda bench, action, play: False)
        path = tmp_path / f"{name}.arrow"
        done, log = simulate_sequence(sequence, rig, path), LogReader(path).read_all()
        columns = {name: values.tobytes() for name, values in log.columns.items()}
        found.append((done.verdicts, done.moments, repr(log.events), columns))
        assert (kept.verdicts, kept.moments) == (done.verdicts, done.moments)
    assert found[0] == found[1]
    assert (case in ENDS) == any(verdict.outcome == SKIPPED for verdict in found[0][0])


def test_a_command_is_taken_in_its_tick_and_only_in_its_mode(rig: Rig) -> None:
    """After 5 and 9 ticks; the run ends before the one that needs RUNNING, after a stop in between."""
    run = LockstepRun(rig)
    run.run(100)
    run.start()
    run.command(CommandKind.CYCLE, 0.0)
    run.run(1)
    joystick = rig.layout.column("input.joystick")
    run.command(CommandKind.SET_INPUT, 0.0, 0.25, after=5)
    run.command(CommandKind.SET_INPUT, 0.0, -0.5, after=9, mode=Mode.RUNNING)
    changes = np.flatnonzero(np.diff(run.run(20)[:, joystick], prepend=0.0))
    assert changes.tolist() == [5, 9]
    run.command(CommandKind.STOP, after=3)
    run.command(CommandKind.SET_INPUT, 0.0, 0.75, after=8, mode=Mode.RUNNING)
    run.command(CommandKind.DISARM, after=12)
    rows = run.run(20)
    assert (len(rows), run.mode) == (8, "ARMED")
    rows = run.run(20)
    assert (len(rows), run.mode) == (20, "ARMED")
    assert 0.75 not in rows[:, joystick]
