"""Test sequences on logs: what was refused there, and what ended the run, is reported as where the log was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from lift_bench import lift

from hilserver.rig.rig import Rig
from hilserver.sequences.check import FAILED, PASSED, SKIPPED, SequenceResult
from hilserver.sequences.logged import check_log
from hilserver.sequences.logged_commands import LoggedCommand, commands_in, find_run, wanted_of
from hilserver.sequences.model import Sequence, load_sequence
from hilserver.sequences.report import ending_lines
from hilserver.sequences.simulated import simulate_sequence
from hilserver.tick.codes import CommandKind, Mode, ResultCode

START = '[[step]]\nat = "0.1 s"\nsend = "arm"\n[[step]]\nat = "0.2 s"\nname = "start"\nsend = "start"\n'
UPWARDS = '[inputs.joystick]\nshape = "step"\npoints = [["0.4 s", 0], ["0.6 s", 0.6], ["1 s", 0.6], ["1.1 s", 0]]\n'
RUNNING = '[[expect]]\nchannel = "mode"\nvalue = "RUNNING"\nafter = "start"\nuntil = "50 ms"\n'
ARMED = '[[expect]]\nchannel = "mode"\nvalue = "ARMED"\nat = "0.15 s"\nuntil = "0.18 s"\n'
Load = Callable[[str], Sequence]


@pytest.fixture
def sequence(tmp_path: Path) -> Load:
    def load(text: str) -> Sequence:
        (tmp_path / "test.toml").write_text(text)
        return load_sequence(tmp_path / "test.toml")

    return load


def step(at: str, send: str, **keys: str) -> str:
    return "\n".join((f'[[step]]\nat = "{at}"\nsend = "{send}"', *(f"{k} = {v}" for k, v in keys.items()), ""))


def limited(action: str, bar: float) -> Rig:
    limit = {"channel": "p_A", "max": f"{bar} bar", "action": action}
    return lift({"rig": {"limits": {"high": limit}}})


def both_ways(file: Sequence, rig: Rig, folder: Path) -> tuple[SequenceResult, SequenceResult]:
    """Simulated, and by the log of that."""
    done = simulate_sequence(file, rig, folder / "run.arrow")
    return done, check_log(file, folder / "run.arrow")


def outcomes(done: SequenceResult) -> list[str]:
    return [verdict.outcome for verdict in done.verdicts]


@pytest.mark.parametrize(("action", "mode"), [("ramp", "ARMED"), ("trip", "FAULT")])
def test_the_limit_that_ended_the_run_is_named(action: str, mode: str, sequence: Load, tmp_path: Path) -> None:
    """So is the step that was refused for that reason, with which the sequence ended."""
    text = f'length = "1.5 s"\n{START}{step("1.2 s", "stop")}{UPWARDS}{RUNNING}'
    done, again = both_ways(sequence(text), limited(action, 40.0), tmp_path)
    assert [how for _, how in done.endings] == [f"{mode}: limit high"]
    assert again.endings == done.endings
    assert ending_lines(again) == ending_lines(done)
    assert again.moments == done.moments
    assert again.verdicts == done.verdicts
    assert f"stop needs RUNNING, the mode is {mode}" in again.verdicts[3].found


def test_the_local_enable_that_ended_the_run_is_named(sequence: Load, tmp_path: Path) -> None:
    """It is switched off where the piston passes 0.4 m."""
    key = {"device": "rig", "source": "x", "scale": {"raw": [0, 10], "value": [0.9, -0.1]}}
    rig = lift({"rig": {"channels": {"key": key}, "enable": {"channel": "key", "action": "ramp"}}})
    course = '[inputs.joystick]\npoints = [["0.3 s", 0], ["0.4 s", 0.8]]\n'
    done, again = both_ways(sequence(f'length = "2 s"\n{START}{course}{RUNNING}'), rig, tmp_path)
    assert [how for _, how in done.endings] == ["SAFE: the local enable was switched off"]
    assert again.endings == done.endings


def test_a_refused_step_is_refused_by_the_log_too(sequence: Load, tmp_path: Path) -> None:
    """With the limit that is the reason; the sequence ended there, so that its other steps are not in the log."""
    text = f'length = "0.6 s"\n{START}{step("0.4 s", "stop")}{ARMED}{RUNNING}'
    done, again = both_ways(sequence(text), limited("ramp", 1.0), tmp_path)
    assert outcomes(done) == [PASSED, FAILED, SKIPPED, PASSED, SKIPPED]
    assert again.verdicts == done.verdicts
    assert "(violated: high)" in again.verdicts[1].found
    assert again.moments == done.moments


def test_a_later_refused_command_is_not_taken_for_the_run(sequence: Load, tmp_path: Path) -> None:
    """The log also has an arm that was refused, since the rig was running; the sequence is found before it."""
    file = sequence(f'length = "2 s"\n{START}{step("1.6 s", "arm", refused="true")}{RUNNING}')
    simulate_sequence(file, lift(), tmp_path / "run.arrow")
    again = check_log(sequence(f"{step('0.1 s', 'arm')}{ARMED}"), tmp_path / "run.arrow")
    assert outcomes(again) == [PASSED, PASSED], again.verdicts
    assert again.where.endswith("a later start of the sequence was refused")


def test_what_happens_after_the_sequence_is_not_part_of_it(sequence: Load, tmp_path: Path) -> None:
    """The log goes on: the limit is reached later than the end of the sequence."""
    long = sequence(f'length = "1.5 s"\n{START}{UPWARDS}{RUNNING}')
    ((at, _),) = simulate_sequence(long, limited("trip", 40.0), tmp_path / "run.arrow").endings
    assert at > 0.4
    again = check_log(sequence(f'length = "0.4 s"\n{START}{RUNNING}'), tmp_path / "run.arrow")
    assert again.endings == ()
    assert outcomes(again) == [PASSED] * 3


@pytest.mark.parametrize(
    ("refused", "found"),
    [
        (("0.15 s", "arm", {}), "refused, as expected: not possible in this mode (arm needs SAFE, the mode is ARMED)."),
        (("0.3 s", "reset", {}), "refused, as expected: not possible in this mode (reset needs FAULT, the mode is"),
        (("0.3 s", "jog", {"valve": '"A"', "command": "0.99"}), "is beyond the valve's jog limit"),
        (("0.15 s", "set_input", {"input": '"joystick"', "value": "0.5"}), "set_input needs RUNNING"),
    ],
)
def test_an_expected_refusal_is_verified(
    refused: tuple[str, str, Mapping[str, Any]], found: str, sequence: Load, tmp_path: Path
) -> None:
    """Also where the loop has not got the command, if its value is beyond what the rig of the log allows."""
    at, command, keys = refused
    file = sequence(f'length = "0.5 s"\n{START}{step(at, command, **keys, refused="true")}{UPWARDS}{RUNNING}')
    done, again = both_ways(file, lift(), tmp_path)
    assert outcomes(done) == [PASSED] * 4, done.verdicts
    assert again.verdicts == done.verdicts
    assert any(found in verdict.found for verdict in again.verdicts), again.verdicts


def test_a_command_that_should_have_been_refused_is_found(sequence: Load, tmp_path: Path) -> None:
    text = f'length = "0.6 s"\n{START}{step("0.4 s", "stop", refused="{}")}{RUNNING}'
    simulate_sequence(sequence(text.format("false")), lift(), tmp_path / "run.arrow")
    again = check_log(sequence(text.format("true")), tmp_path / "run.arrow")
    assert outcomes(again) == [PASSED, PASSED, FAILED, PASSED]
    assert again.verdicts[2].found == "carried out, but it should have been refused."


def test_a_sequence_of_refused_commands_only_is_found(sequence: Load, tmp_path: Path) -> None:
    steps = step("0.1 s", "start", refused="true") + step("0.2 s", "reset", refused="true")
    done, again = both_ways(sequence(f'length = "0.4 s"\n{steps}'), lift(), tmp_path)
    assert outcomes(done) == [PASSED, PASSED]
    assert again.verdicts == done.verdicts


def test_a_refusal_that_no_log_has_is_skipped(sequence: Load, tmp_path: Path) -> None:
    """A circuit that can't be built does not reach the loop."""
    switch = step("0.3 s", "switch", component='"relief"', set='{ opening_pressure = "20 l/min" }', refused="true")
    done, again = both_ways(sequence(f'length = "0.5 s"\n{START}{switch}{RUNNING}'), lift(), tmp_path)
    assert outcomes(done) == [PASSED] * 4
    assert outcomes(again) == [PASSED, PASSED, SKIPPED, PASSED]
    assert "before they reach the real-time loop" in again.verdicts[2].found


def test_a_refused_reaction_is_found_whether_its_second_part_was_given_or_not(sequence: Load, tmp_path: Path) -> None:
    """A reaction is two commands to the loop; a server does not give the second one if the first is refused."""
    keys = {"reaction": '"r"', "when": '"x > 0.9 m"', "then": '"stop"', "refused": "true"}
    file = sequence(f'length = "0.5 s"\n{step("0.05 s", "react", **keys)}{START}{RUNNING}')
    done, again = both_ways(file, lift({"rig": {"loop": {"reactions": 1}}}), tmp_path)
    assert outcomes(done) == [PASSED] * 4, done.verdicts
    assert again.verdicts == done.verdicts
    commands, _ = commands_in(tmp_path / "run.arrow")
    first, second, *others = (commands[tick] for tick in sorted(commands))
    assert (first.record[0], second.record[0]) == (CommandKind.REACT_WHEN, CommandKind.REACT_THEN)
    wanted = [wanted_of(step, lift()) for step in file.steps]
    for given in ([first, second, *others], [first, *others]):
        run = find_run(file.steps, wanted, given, 1e-3, file.length)
        assert run is not None
        assert run.taken[0].is_refused
        assert run.taken[0].tick == given[-3].tick


def test_the_last_run_without_a_refusal_counts(sequence: Load) -> None:
    """Of these runs of arm and start, the second one: in the third, the start was refused; the fourth was not armed."""
    file = sequence(f'length = "0.5 s"\n{START}{RUNNING}')
    wanted = [wanted_of(step, lift()) for step in file.steps]
    done, refused = ResultCode.DONE, ResultCode.LIMIT_ACTIVE

    def run(number: int, armed: int, started: int) -> list[LoggedCommand]:
        results = zip((100, 200), wanted, (armed, started), strict=True)
        return [LoggedCommand(5000.0 * number + at, what.record, r, Mode.SAFE) for at, what, r in results]

    runs = [run(0, done, done), run(1, done, done), run(2, done, refused), run(3, refused, refused)[:1]]
    for count, first, later in ((1, 0.0, False), (2, 5000.0, False), (3, 5000.0, True), (4, 5000.0, True)):
        found = find_run(file.steps, wanted, [each for one in runs[:count] for each in one], 1e-3, file.length)
        assert found is not None
        assert (found.first, found.later) == (first, later)
    furthest = find_run(file.steps, wanted, runs[2] + runs[3], 1e-3, file.length)
    assert furthest is not None
    assert (furthest.first, [each.is_refused for each in furthest.taken.values()]) == (10000.0, [False, True])
