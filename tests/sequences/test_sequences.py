"""Test sequences: what they expect is judged rightly; simulated, live and by a log they say the same."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from command_line import Command
from lift_bench import lift
from service_harness import Server, rig_text

from hilserver.client import connect
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.sequences.check import FAILED, PASSED, SKIPPED, RecordedChannels, SequenceResult, Verdict, judged
from hilserver.sequences.live import run_live
from hilserver.sequences.logged import check_log
from hilserver.sequences.model import InputValue, Sequence, load_sequence
from hilserver.sequences.report import ending_lines, junit
from hilserver.sequences.simulated import simulate_sequence
from hilserver.sequences.table import JUST_BEFORE
from hilserver.tick.codes import Mode

ROOT = Path(__file__).parents[2]
RELIEF = ROOT / "config/sequences/relief.toml"
RIG = ROOT / "config/rigs/demo.toml"
HIGH_UP = '[limits.high_up]\nchannel = "x"\nmax = "750 mm"\naction = "ramp"\n'
"""A limit that the example does not reach."""
START = '[[step]]\nat = "0.1 s"\nsend = "arm"\n[[step]]\nat = "0.2 s"\nname = "start"\nsend = "start"\n'


@pytest.fixture
def sequence(tmp_path: Path) -> Callable[[str], Sequence]:
    def load(text: str, name: str = "test.toml") -> Sequence:
        (tmp_path / name).write_text(text)
        return load_sequence(tmp_path / name)

    return load


Load = Callable[..., Sequence]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """The demo's rig with limits that take no heed of a busy machine: no time passes by itself in a simulation."""
    folder = tmp_path_factory.mktemp("strict")
    changes = {"max_missed =": "max_missed = 100", "max_age =": 'max_age = "100 ms"', "rate =": 'rate = "500 Hz"'}
    text = rig_text("strict", folder, changes)
    (folder / "strict.toml").write_text(text)
    return load_rig(folder / "strict.toml")


def outcomes(done: SequenceResult) -> list[str]:
    return [verdict.outcome for verdict in done.verdicts]


# --- judging ---------------------------------------------------------------------------------------------------------

TIME = np.arange(0.0, 2.0, 0.1)
"""s; ramp: 10 bar/s from 0 on, up to 10 bar."""
RAMP = RecordedChannels(
    TIME,
    {
        "p": np.minimum(10e5 * TIME, 10e5),
        "hole": np.where(np.abs(TIME - 1.0) < 0.05, np.nan, 1.0),
        "mode": 0.0 * TIME + 3,
    },
    {"p": "Pa", "hole": "", "mode": ""},
)


@pytest.mark.parametrize(
    ("expectation", "outcome", "found"),
    [
        ('channel = "p"\nmax = "10 bar"', PASSED, "0 bar … 10 bar from 0 to 1.9 s."),
        ('channel = "p"\nmin = "5 bar"', FAILED, "worst value 0 bar, expected ≥ 5 bar; first at 0 s, 5 of 20 samples."),
        ('channel = "p"\nmin = "5 bar"\nat = "0.5 s"', PASSED, "5 bar … 10 bar from 0.5 to 1.9 s."),
        ('channel = "p"\nmin = "5 bar"\ndelay = "0.8 s"', PASSED, "after 500 ms of 800 ms; then 8 bar … 10 bar"),
        ('channel = "p"\nmin = "5 bar"\ndelay = "0.4 s"', FAILED, "worst value 4 bar"),
        ('channel = "p"\nvalue = "3 bar"\ntolerance = "1 bar"\nat = "0.2 s"\nuntil = "0.4 s"', PASSED, "2 bar … 4 bar"),
        ('channel = "p"\nvalue = "3 bar"\ntolerance = "0.9 bar"\nat = "0.2 s"\nuntil = "0.4 s"', FAILED, "3 bar ± 0.9"),
        ('channel = "p"\nvalue = "10 bar"\nat = "1.2 s"\nuntil = "1.2 s"', PASSED, "10 bar from 1.2 to 1.2 s"),
        ('channel = "p"\nvalue = "7 bar"\ntolerance = "0.1 bar"\nat = "0.65 s"\nuntil = "0.66 s"', PASSED, "7 bar"),
        ('channel = "p"\nmin = 5', FAILED, "p is measured in Pa, not in no unit"),
        ('channel = "p"\nmin = "5 bar"\nat = "3 s"', FAILED, "nothing was recorded after 3 s"),
        ('channel = "P"\nmin = "5 bar"', FAILED, 'no channel "P". Did you mean p?'),
        ('channel = "hole"\nvalue = 1', FAILED, "no valid value, expected 1; first at 1 s, 1 of 20 samples"),
        ('channel = "hole"\nvalue = 1\nuntil = "0.9 s"', PASSED, "1 from 0 to 0.9 s"),
        ('channel = "mode"\nvalue = "RUNNING"', PASSED, "RUNNING"),
        ('channel = "mode"\nvalue = "FAULT"', FAILED, "worst value RUNNING, expected FAULT"),
        ('channel = "p"\nafter = "go"\nmin = "5 bar"', PASSED, "from 0.5 to 1.9 s"),
        ('channel = "p"\nafter = "never"\nmin = "5 bar"', FAILED, "the step never was not carried out"),
    ],
)  # fmt: skip
def test_an_expectation_is_judged(expectation: str, outcome: str, found: str, sequence: Load) -> None:
    """By a ramp of 10 bar/s, whose value at any time is known."""
    steps = "".join(f'[[step]]\nat = "0 s"\nname = "{name}"\nsend = "arm"\n' for name in ("go", "never"))
    (verdict,) = judged(sequence(f"{steps}[[expect]]\n{expectation}\n"), RAMP, {"go": 0.5})
    assert verdict.outcome == outcome, verdict
    assert found in verdict.found


def test_a_sequence_without_results_fails(sequence: Load) -> None:
    file = sequence('[[expect]]\nchannel = "p"\nmin = "0 bar"\n')
    assert not SequenceResult(file, "", RAMP, (), (Verdict("a", SKIPPED, ""),)).ok
    assert not SequenceResult(file, "", RAMP, (), (Verdict("a", PASSED, ""), Verdict("b", FAILED, ""))).ok
    assert SequenceResult(file, "", RAMP, (), (Verdict("a", PASSED, ""),)).ok


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[step]]\nat = "1 s"\nsend = "amr"', r"step\[0\]: \"amr\": unknown command. Did you mean arm"),
        ('[[step]]\nat = "1 s"', r"step\[0\].send: missing"),
        ('[[step]]\nat = "1 bar"\nsend = "arm"', r"step\[0\].at: .*wrong unit"),
        ('[[step]]\nat = "1 s"\nsend = "jog"\nvalve = "main"\ncommand = 2', "command: 2 is out of range"),
        ('[[step]]\nat = "1 s"\nsend = "arm"', "no expectation"),
        ('[[expect]]\nchannel = "p"', "give either value"),
        ('[[expect]]\nchannel = "p"\nmin = "3 bar"\nmax = "2 bar"', "min is above max"),
        ('[[expect]]\nchannel = "p"\nmin = "3 bar"\nmax = "2 mm"', "different units"),
        ('[[expect]]\nchannel = "p"\nvalue = 1\nafter = "x"', r"expect\[0\].after: \"x\" is not the name of a step"),
        ('[[expect]]\nchannel = "p"\nvalue = 1\nat = "1 s"\nuntil = "0.5 s"', "until is before"),
        ('[[expect]]\nchannel = "mode"\nvalue = "RUN"', "not a mode. Did you mean RUNNING"),
        ('[[fault]]\nat = "1 s"\nfault = "silent"', "silent requires sensor"),
        ('[[fault]]\nat = "1 s"\nfault = "missed"\nticks = 2\nsensor = "p_A"', "sensor is not used with missed"),
        ('length = "2 s"\n[[step]]\nat = "3 s"\nsend = "arm"', r"step\[0\].at: 3 s is after the end .* length is 2 s"),
        ('length = "2 s"\n[[fault]]\nat = "3 s"\nfault = "missed"\nticks = 2', r"fault\[0\].at: 3 s is after the end"),
        ('length = "2 s"\n[[expect]]\nchannel = "p"\nvalue = 1\nat = "3 s"', r"expect\[0\].at: 3 s is after the end"),
        (
            'length = "2 s"\n[[expect]]\nchannel = "p"\nvalue = 1\nuntil = "30 s"',
            r"expect\[0\].until: 30 s is after the end",
        ),
        ('[[fualt]]\nat = "1 s"', "fualt: unknown key. Did you mean fault"),
    ],
)
def test_errors_in_a_file_are_reported(text: str, problem: str, sequence: Load) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        sequence(text)


TABLE = """\
time, joystick, send, circuit.supply.p max (bar), mode min
0,,,,
0.1,,arm,,
0.2,,start,,
0.3,,,165,3
0.5,0.4,,165,3
1,,"switch component=relief set.opening_pressure=""100 bar"" ",,
1.2,,,118,3
1.5,0,,118,3
"""


def test_a_table_is_equivalent_to_toml(sequence: Load) -> None:
    table = sequence(TABLE, "table.csv")
    assert [step.command.name for step in table.steps] == ["arm", "start", "switch"]
    assert table.length == 1.5
    limits = [e for e in table.settings.expect if e.channel == "circuit.supply.p"]
    assert [(e.at, e.until, e.upper) for e in limits] == [
        (0.3, 0.5 - JUST_BEFORE, 165e5),
        (0.5, 1.0 - JUST_BEFORE, 165e5),
        (1.2, 1.5 - JUST_BEFORE, 118e5),
        (1.5, None, 118e5),
    ]
    done = simulate_sequence(table, load_rig(RIG))
    assert done.ok, done.verdicts
    x = done.recorded.channels["input.joystick"]
    assert x[np.searchsorted(done.recorded.time, [0.4985, 0.5005, 1.4985])].tolist() == [0.0, 0.4, 0.4]
    assert x[-1] == 0.0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("t,send\n1,arm\n", "a column time"),
        ("time,send\nsoon,arm\n", 'csv:2: time "soon": can\'t be read'),
        ("time,send\n1,arm\n1,start\n", "csv:3: time: the times must increase"),
        ('time,send\n"0\n\n",arm\n"soon\n",arm\n', 'csv:5: time "soon": can\'t be read'),
        ("time,p max (bar)\n\n0,\n1,much\n", 'csv:4: p max .bar.: "much" is not a number'),
        ("time,send\n1,set_input joystick\n", '"joystick" is not of the form key=value'),
        ("time,send\n1,arm,5\n", "3 cells for 2 columns"),
        ("time,fault\n1,stuk sensor=x\n", "fault.0..fault: .*stuck"),
        ("time,mode value\n1,RUNING\n", "Did you mean RUNNING"),
        ("time,delay,p max (bar)\n1,1,5\n1.5,,\n", "no time is left"),
    ],
)
def test_errors_in_a_table_are_reported(text: str, problem: str, sequence: Load) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        sequence(text, "table.csv")


def test_inputs_follow_their_course(sequence: Load) -> None:
    """A straight line is met at each value that is sent; between two, the last one holds for one period."""
    file = sequence(
        'input_period = "20 ms"\n[inputs.joystick]\npoints = [["0.5 s", 0], ["1 s", 1], ["1.51 s", 1]]\n'
        '[[expect]]\nchannel = "p"\nvalue = 1\n'
    )
    values = [action for action in file.actions if isinstance(action, InputValue)]
    assert (values[0].at, values[0].command.value) == (0.5, 0.0)
    assert all(v.command.value == pytest.approx(min(2.0 * (v.at - 0.5), 1.0)) for v in values)
    assert len(values) == 26  # 0.5 ... 1.0 s; then nothing changes
    assert file.length == 1.51


# --- simulated -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def relief(tmp_path_factory: pytest.TempPathFactory) -> SequenceResult:
    """The example, simulated, with its log."""
    return simulate_sequence(load_sequence(RELIEF), load_rig(RIG), tmp_path_factory.mktemp("relief") / "run.arrow")


def test_the_example_passes_and_is_the_same_in_every_run(relief: SequenceResult) -> None:
    assert relief.ok, relief.verdicts
    assert outcomes(relief) == [PASSED] * 11
    again = simulate_sequence(load_sequence(RELIEF), load_rig(RIG))
    assert again.verdicts == relief.verdicts
    for name, values in relief.recorded.channels.items():
        np.testing.assert_array_equal(values, again.recorded.channels[name])
    taken = np.flatnonzero(relief.recorded.channels["mode"] == 3)[0]
    assert relief.recorded.time[taken] == pytest.approx(0.2)


def test_its_log_gives_the_same_verdicts(relief: SequenceResult, sequence: Load) -> None:
    done = check_log(relief.sequence, Path(relief.log))
    judged_by_log = [v for v in done.verdicts if v.outcome == PASSED]
    assert judged_by_log == [v for v in relief.verdicts if "refused" not in v.found]
    for name, values in relief.recorded.channels.items():
        np.testing.assert_array_equal(values, done.recorded.channels[name])
    other = sequence(START.replace("0.2 s", "1.5 s") + '[[expect]]\nchannel = "mode"\nvalue = "SAFE"\n')
    with pytest.raises(HilserverError, match="does not contain the steps"):
        check_log(other, Path(relief.log))


def test_a_refused_step_ends_the_sequence(sequence: Load) -> None:
    file = sequence(
        START.replace('send = "arm"', 'send = "reset"')
        + '[[expect]]\nchannel = "mode"\nvalue = "SAFE"\nuntil = "50 ms"\n'
        + '[[expect]]\nchannel = "mode"\nvalue = "RUNNING"\nafter = "start"\n'
    )
    done = simulate_sequence(file, load_rig(RIG))
    assert outcomes(done) == [FAILED, SKIPPED, PASSED, SKIPPED]
    assert "reset needs FAULT, the mode is SAFE" in done.verdicts[0].found
    accepted = sequence('[[step]]\nat = "0.1 s"\nsend = "arm"\nrefused = true\n')
    assert "should have been refused" in simulate_sequence(accepted, load_rig(RIG)).verdicts[0].found


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ('fault = "silent"\nsensor = "p_A"', 'channel = "mode"\nvalue = "FAULT"\nafter = "it"\ndelay = "150 ms"'),
        ('fault = "reads"\nsensor = "p_A"\nraw = 9.9', 'channel="mode"\nvalue = "FAULT"\nafter = "it"\ndelay = "3 ms"'),
        ('fault = "stuck"\nsensor = "x"', 'channel = "x"\nvalue = "291.6 mm"\ntolerance = "0.5 mm"\nafter = "it"'),
        ('fault = "jammed"\nactuator = "valve"', 'channel = "x"\nmin = "400 mm"\nat = "2.4 s"'),
        ('fault = "unplugged"', 'channel = "mode"\nvalue = "FAULT"\nafter = "it"\ndelay = "150 ms"'),
        ('fault = "missed"\nticks = 150', 'channel = "mode"\nvalue = "FAULT"\nafter = "it"\ndelay = "160 ms"'),
    ],
)  # fmt: skip
def test_faults(fault: str, expected: str, sequence: Load, strict: Rig) -> None:
    """Each is seen by what it does; without it, the same expectation fails."""
    course = '[inputs.joystick]\nshape = "step"\npoints = [["0.4 s", 0], ["0.6 s", 0.6], ["1 s", 0.6], ["1.1 s", 0]]\n'
    text = f'length = "2.5 s"\n{START}{course}[[expect]]\n{expected}\n'
    assert simulate_sequence(sequence(f'{text}[[fault]]\nat = "1 s"\nname = "it"\n{fault}\n'), strict).ok
    nothing = '[[fault]]\nat = "1 s"\nname = "it"\nfault = "healed"\nsensor = "p_A"\n'
    assert not simulate_sequence(sequence(text + nothing), strict).ok


@pytest.mark.parametrize(("action", "mode"), [("ramp", "ARMED"), ("trip", "FAULT"), ("warn", "")])
def test_the_limit_that_ends_the_run_is_named(action: str, mode: str, sequence: Load) -> None:
    course = '[inputs.joystick]\nshape = "step"\npoints = [["0.4 s", 0], ["0.6 s", 0.6], ["1 s", 0.6], ["1.1 s", 0]]\n'
    file = sequence(f'length = "1.5 s"\n{START}{course}[[expect]]\nchannel = "mode"\nvalue = "RUNNING"\nat = "1 s"\n')
    limit = {"channel": "p_A", "max": "40 bar", "action": action}
    done = simulate_sequence(file, lift({"rig": {"limits": {"high": limit}}}))
    assert [how for _, how in done.endings] == ([f"{mode}: limit high"] if mode else [])
    if mode:
        (line,) = ending_lines(done)
        assert line == f"At {done.endings[0][0]:.4g} s, the mode changed to {mode}: limit high."
        modes = done.recorded.channels["mode"]
        (left,) = np.flatnonzero((modes[:-1] == Mode.RUNNING) & (modes[1:] == Mode[mode])) + 1
        assert done.endings[0][0] == pytest.approx(done.recorded.time[left])
        assert line in junit([done])


def test_what_ends_armed_is_named(sequence: Load) -> None:
    """The start is refused because the mode is FAULT: why it is, stands in another line."""
    course = 'length = "1 s"\n[[fault]]\nat = "0.2 s"\nfault = "reads"\nsensor = "p_A"\nraw = 9.9\n'
    steps = START.replace('"0.2 s"', '"0.4 s"')
    file = sequence(f'{course}{steps}[[expect]]\nchannel = "mode"\nvalue = "RUNNING"\nat = "0.5 s"\n')
    done = simulate_sequence(file, lift())
    assert [how for _, how in done.endings] == ["FAULT: limit p_A_high"]
    assert 0.2 <= done.endings[0][0] <= 0.25


def test_times_are_true_after_missed_ticks(sequence: Load, strict: Rig) -> None:
    """100 ticks (0.2 s) are missing from 0.6 s on: what follows is in time, or with the first tick after them."""
    missed = '[[fault]]\nat = "0.6 s"\nfault = "missed"\nticks = 100\n'
    stop = '[[step]]\nat = "1 s"\nname = "end"\nsend = "stop"\n'
    ended = '[[expect]]\nafter = "end"\nchannel = "mode"\nvalue = "ARMED"\n'
    done = simulate_sequence(sequence(f'length = "1.4 s"\n{START}{stop}{missed}{ended}'), strict)
    modes = done.recorded.channels["mode"]
    (left,) = np.flatnonzero((modes[:-1] == Mode.RUNNING) & (modes[1:] == Mode.ARMED)) + 1
    assert done.recorded.time[left] == pytest.approx(1.0)
    assert done.ok, done.verdicts
    assert "carried out at 1 s" in done.verdicts[2].found


def test_the_end_after_missed_ticks_has_its_time(sequence: Load) -> None:
    limit = {"channel": "x", "max": "350 mm", "action": "ramp"}
    course = '[inputs.joystick]\npoints = [["0.3 s", 0], ["0.4 s", 0.5]]\n'
    missed = '[[fault]]\nat = "0.5 s"\nfault = "missed"\nticks = 3\n'
    expected = '[[expect]]\nchannel = "mode"\nvalue = "RUNNING"\nat = "1.5 s"\n'
    done = simulate_sequence(
        sequence(f'length = "2 s"\n{START}{course}{missed}{expected}'), lift({"rig": {"limits": {"high": limit}}})
    )
    modes = done.recorded.channels["mode"]
    (left,) = np.flatnonzero((modes[:-1] == Mode.RUNNING) & (modes[1:] == Mode.ARMED)) + 1
    assert done.endings[0][0] == pytest.approx(done.recorded.time[left], abs=1e-9)


def test_a_rig_that_does_not_get_ready_is_named_with_the_reason(sequence: Load) -> None:
    rig = lift({"rig": {"channels": {"p_A": {"valid": ["0 bar", "1 bar"]}}}})
    file = sequence(f'length = "1 s"\n{START}[[expect]]\nchannel = "mode"\nvalue = "RUNNING"\nat = "0.5 s"\n')
    with pytest.raises(HilserverError, match=r"not SAFE: channel p_A: \S+ bar is outside its valid range"):
        simulate_sequence(file, rig)


def test_a_refused_start_names_the_limit(sequence: Load) -> None:
    limits = {f"high_{end}": {"channel": "p_A", "max": f"{end} bar", "action": "ramp"} for end in (1, 200)}
    file = sequence(f'length = "0.5 s"\n{START}[[expect]]\nchannel = "mode"\nvalue = "RUNNING"\nat = "0.3 s"\n')
    done = simulate_sequence(file, lift({"rig": {"limits": limits}}))
    assert outcomes(done)[1] == FAILED
    assert done.verdicts[1].found.endswith("remove the cause first (violated: high_1)."), done.verdicts[1]


@pytest.mark.parametrize(("action", "mode"), [("refuse", ""), ("ramp", "SAFE"), ("trip", "FAULT")])
def test_the_local_enable_that_ends_the_run_is_named(action: str, mode: str, sequence: Load) -> None:
    """It is switched off where the piston passes 0.4 m."""
    key = {"device": "rig", "source": "x", "scale": {"raw": [0, 10], "value": [0.9, -0.1]}}
    rig = lift({"rig": {"channels": {"key": key}, "enable": {"channel": "key", "action": action}}})
    course = '[inputs.joystick]\npoints = [["0.3 s", 0], ["0.4 s", 0.8]]\n'
    steps = START + '[[step]]\nat = "1.9 s"\nsend = "disarm"\nrefused = true\n' * bool(mode)
    file = sequence(f'length = "2 s"\n{steps}{course}[[expect]]\nchannel = "mode"\nvalue = "RUNNING"\nat = "1 s"\n')
    done = simulate_sequence(file, rig)
    assert [how for _, how in done.endings] == ([f"{mode}: the local enable was switched off"] if mode else [])


def test_a_device_is_plugged_in_again_by_a_table(sequence: Load, strict: Rig) -> None:
    """Its samples grow old, the rig trips; healed and reset it runs again. Faults and delays stand in columns."""
    table = (
        "time,send,fault,delay,mode value\n0.1,arm,,,ARMED\n0.2,start,,,RUNNING\n0.5,,unplugged,0.15,FAULT\n"
        "1.0,,healed,,FAULT\n1.2,reset,,0.2,SAFE\n1.5,arm,,,\n1.6,start,,,RUNNING\n1.8,,stuck sensor=x,,RUNNING\n"
        "2,,,,\n"
    )
    done = simulate_sequence(sequence(table, "plug.csv"), strict)
    assert done.ok, done.verdicts
    assert outcomes(done) == [PASSED] * 12
    assert [what for _, what in done.moments] == [
        "arm", "start", "unplugged", "FAULT: limit p_A.age", "healed", "reset", "arm", "start", "stuck x"
    ]  # fmt: skip
    (late,) = (verdict for verdict in done.verdicts if "150 ms" in verdict.found)
    assert re.search(r"reached after \d+ ms of 150 ms", late.found)


def test_unknown_names_of_the_rig_are_reported(sequence: Load) -> None:
    text = (
        '[inputs.lever]\npoints = [["0 s", 0], ["1 s", 1]]\n[[fault]]\nat = "1 s"\nfault = "silent"\nsensor = "p_X"\n'
        '[[fault]]\nat = "1 s"\nfault = "jammed"\nactuator = "valve"\ndevice = "io"\n'
        '[[expect]]\nchannel = "p"\nmin = 1\n'
    )
    with pytest.raises(ConfigurationError) as error:
        simulate_sequence(sequence(text), load_rig(RIG))
    assert [problem.key for problem in error.value.problems] == ["inputs.lever", "fault[0].sensor", "fault[1].device"]


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_command_writes_report_and_junit(tmp_path: Path, hilserver: Command, sequence: Load) -> None:
    bad = sequence(
        f'rig = "{RIG}"\n{START}[[expect]]\nname = "a < b\\u0001"\nchannel = "x"\nmax = "1 mm"\n', "bad.toml"
    )
    said = hilserver("test", RELIEF, bad.file, "--junit", tmp_path / "results.xml", "-o", tmp_path / "out")
    assert said.code == 1, said.err
    assert "FAILED  a < b" in said.out
    assert "relief.toml: 11 passed (simulated: " in said.out
    suites = ElementTree.parse(tmp_path / "results.xml").getroot()
    counts = [(suite.get("tests"), suite.get("failures"), suite.get("skipped")) for suite in suites]
    assert counts == [("11", "0", "0"), ("3", "1", "0")]
    assert [suites.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["14", "1", "0", "0"]
    assert float(suites.get("time", "")) == pytest.approx(sum(float(s.get("time", "")) for s in suites), abs=0.002)
    (failure,) = suites.iter("failure")
    assert failure.text == f"a < b\ufffd: {failure.get('message')}"
    for suite in suites:
        assert len(suite.findall("testcase")) == int(suite.get("tests", ""))
        assert len(suite.findall("testcase/failure")) == int(suite.get("failures", ""))
    (page,) = (tmp_path / "out").glob("relief-*.html")
    assert "data:image/png;base64," in page.read_text()
    assert "the valve ends at null" in page.read_text()
    log, verdicts = next((tmp_path / "out").glob("relief-*.arrow")), page.read_text()
    assert hilserver("report", log, "-o", tmp_path / "out").code == 0
    assert page.read_text() == verdicts, "the report on its log has another name"
    assert hilserver("test", RELIEF, "--log", log, "-o", tmp_path / "out").code == 0
    assert "choose one" in hilserver("test", RELIEF, "--log", log, "--rig", RIG).err


# --- live ------------------------------------------------------------------------------------------------------------


@pytest.mark.realtime
def test_the_example_passes_on_a_running_server(tmp_path: Path, sequence: Load) -> None:
    """Afterwards the rig is as it was: SAFE, with its circuit. Its log gives the verdicts once more."""
    for attempt in range(6):  # its times are real ones: a machine that stands still meanwhile spoils them
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with ExitStack() as stack:  # each from the start position: a second run would lift the load to the stop
            server = stack.enter_context(Server(folder, changes={"[arming]": f"{HIGH_UP}[arming]"}))
            client = stack.enter_context(connect(server.name, f"127.0.0.1:{server.port}"))
            circuit, before = client.circuit.source, client.circuit.version
            done = client._do(run_live(load_sequence(RELIEF), client._session))
            missed = client.state.missed_ticks
            if done.ok and (missed <= 2 or attempt == 5):  # each moves the command a little
                running = stack.pop_all()
                break
    assert done.ok, [verdict for verdict in done.verdicts if verdict.outcome != PASSED]
    with running:
        assert outcomes(done) == [PASSED] * 11
        assert client.wait(lambda state: state.mode == "SAFE").fault is None
        client.wait(lambda _: client.circuit.source == circuit)
        assert client.circuit.version == before + 2  # the sequence's, and the way back
        at_the_end = sequence(
            '[[step]]\nat = "0 s"\nsend = "strategy"\nvalve = "main"\nstrategy = "inverse_lag"\n'
            '[[step]]\nat = "0.1 s"\nsend = "switch"\ncomponent = "relief"\nset = { opening_pressure = "90 bar" }\n'
            '[[expect]]\nchannel = "mode"\nvalue = "SAFE"\nuntil = "0.1 s"\n'
        )
        assert client._do(run_live(at_the_end, client._session)).ok
        client.wait(lambda _: client.circuit.version == before + 4)
        assert client.circuit.source == circuit
        strategy = load_rig(RIG).settings.valves["main"].bridge.strategy
        assert strategy != "inverse_lag"
        client.wait(lambda state: state.strategies == {"main": strategy})
        upwards = f'length = "2 s"\n{START}[inputs.joystick]\npoints = [["0.2 s", 0], ["0.3 s", 0.8]]\n'
        expected = '[[expect]]\nchannel = "x"\nmax = "0.9 m"\n'
        ended = client._do(run_live(sequence(upwards + expected), client._session))
        assert [how for _, how in ended.endings] == ["ARMED: limit high_up"]
        faulty = sequence(
            '[[fault]]\nat = "1 s"\nfault = "missed"\nticks = 3\n[[expect]]\nchannel = "mode"\nvalue = "SAFE"\n'
        )
        with pytest.raises(HilserverError, match="in a simulation only"):
            client._do(run_live(faulty, client._session))
        client.arm()
        client.wait(lambda state: state.mode == "ARMED")
        with pytest.raises(HilserverError, match="starts in SAFE"):
            client._do(run_live(load_sequence(RELIEF), client._session))
        client.disarm()
        (log,) = server.logs
    again = check_log(load_sequence(RELIEF), log)
    failed = [verdict for verdict in again.verdicts if verdict.outcome not in (PASSED, SKIPPED)]
    print(f"{missed} ticks missed in the last attempt; in every tick of the log, these failed: {failed}")
    assert not failed or missed > 2
    assert sum(verdict.outcome == SKIPPED for verdict in again.verdicts) == len(again.verdicts) - 10
