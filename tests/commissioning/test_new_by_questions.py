"""``hilserver new`` by questions: in a terminal, and by a file or options without one."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
import tomllib
from math import log10
from pathlib import Path

import pytest
from command_line import Command
from random_answers import random_answers

from hilserver.cli.new import answers_in, catalogue_valves
from hilserver.commissioning.answered_rig import TEMPLATES, answered_texts
from hilserver.commissioning.new_rig import RIG, example_texts, refuse_impossible
from hilserver.commissioning.questions import OWN, QUESTIONS, Answers, completed, given_answers
from hilserver.toml import read_toml

EXAMPLES = Path(__file__).parents[2] / "config/rigs"
RANDOM_RIGS = 6
PATIENCE = 300.0


class Terminal:
    """``hilserver`` on a terminal of its own, as a user types at it."""

    def __init__(self, *arguments: str | Path) -> None:
        self._own, its = pty.openpty()
        termios.tcsetwinsize(its, (24, 80))
        command = (sys.executable, "-c", "from hilserver.cli import main; main()", *map(str, arguments))
        self._process = subprocess.Popen(
            command, stdin=its, stdout=its, stderr=its, start_new_session=True, preexec_fn=self._take_terminal
        )
        os.close(its)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.shown = ""

    @staticmethod
    def _take_terminal() -> None:
        import fcntl

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def until(self, wanted: str) -> str:
        """Read until this is shown; returns what has been shown since the last time, up to it, as one line."""
        end = time.monotonic() + PATIENCE
        while wanted not in self.shown:
            assert self._reads(end), self.shown
        found, _, self.shown = self.shown.partition(wanted)
        assert all(len(line) <= 80 or line.startswith("Written: ") for line in found.splitlines()), found
        return " ".join(found.split())

    def _reads(self, end: float) -> bool:
        """Read what comes next, until then; whether anything came."""
        readable, _, _ = select.select([self._own], [], [], max(end - time.monotonic(), 0.0))
        try:
            new = os.read(self._own, 4096) if readable else b""
        except OSError:  # its program has ended
            new = b""
        self.shown = (self.shown + self._decoder.decode(new)).replace("\r\n", "\n")
        return bool(new)

    def enter(self, text: str) -> None:
        """Type a line."""
        os.write(self._own, f"{text}\n".encode())

    def press(self, key: bytes) -> None:
        """Press a key."""
        os.write(self._own, key)

    def ended(self) -> int:
        """Wait for the end; returns the exit code."""
        end = time.monotonic() + PATIENCE
        while self._reads(end):
            pass
        return self._process.wait(PATIENCE)

    def interrupted(self) -> int:
        """Press Ctrl-C until it ends: Python misses one in the moment in which it begins to wait for a key."""
        end = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < end:
            self.press(b"\x03")
            self._reads(time.monotonic() + 1.0)
        return self.ended()

    def close(self) -> None:
        """End it in any case."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        os.close(self._own)


def written(answers: Answers) -> dict[Path, str]:
    """The texts of the files of a rig from these answers."""
    return answered_texts(example_texts(EXAMPLES / f"{TEMPLATES[answers['servo_valves']]}.toml"), RIG, answers)


def prompt(key: str, default: str) -> str:
    return f"{key} [{default}]: "


def test_the_dialogue_asks_again_with_the_reason_until_an_answer_is_possible(tmp_path: Path) -> None:
    terminal = Terminal("new", tmp_path / "lab", "--ask", "--answer", "driver=simulated")
    try:
        said = terminal.until(prompt("servo_valves", "one"))
        assert "name = lab" in said  # that of the folder
        assert "2 two: two servo valves, one for each port" in said
        terminal.enter("2")
        said = terminal.until(prompt("servo_valve", OWN))
        number = re.search(r"(\d+) Moog G772, 38 l/min: flow 38 l/min, drop 35 bar", said)
        assert number is not None, said
        terminal.enter(number[1])
        said = terminal.until(prompt("damping", "0.8"))
        assert "flow = 38 l/min (datasheet of Moog G772, 38 l/min)" in said  # what the catalogue states is not asked
        for _ in ("damping", "leakage", "leakage_drop", "overlap"):
            terminal.enter("")
        terminal.until(prompt("bore", "63 mm"))
        terminal.enter("1 bar")  # a wrong unit
        assert '"1 bar" has the wrong unit: this value is measured in m' in terminal.until(prompt("bore", "63 mm"))
        terminal.enter("80 mm")
        terminal.until(prompt("rod_diameter", "46 mm"))  # it fits the bore
        terminal.enter("90 mm")  # right alone, but not together with the bore
        assert "rod_diameter must be smaller than bore" in terminal.until(prompt("rod_diameter", "46 mm"))
        terminal.enter("45 mm")
        for _ in ("stroke", "dead_volume", "supply_pressure"):
            terminal.enter("")
        terminal.until(prompt("mass", "1000 kg"))
        terminal.enter("30 t")
        assert "it could not be moved" in terminal.until(prompt("mass", "1000 kg"))
        for _ in range(8):  # to the end
            terminal.enter("")
        terminal.until("Next: hilserver check")
        assert terminal.ended() == 0
    finally:
        terminal.close()
    rig = read_toml(tmp_path / "lab/rig.toml")
    assert rig["cylinders"]["lift"]["rod_diameter"] == "45 mm"
    assert rig["valves"]["B"]["nominal_flow"] == {"flow": "38 l/min", "drop": "35 bar", "per": "edge"}
    text = (tmp_path / "lab/rig.toml").read_text()
    assert re.search(r'\nbore = "80 mm" +# answered\n', text)
    assert re.search(r'\nstroke = "1 m" +# assumed\n', text)
    assert "# flow, drop, per: datasheet of Moog G772, 38 l/min" in text
    assert 'name = "lab"                                  # name of the folder\n' in text


def test_an_interrupted_dialogue_creates_nothing(tmp_path: Path) -> None:
    terminal = Terminal("new", tmp_path / "lab", "--ask")
    try:
        terminal.until(prompt("servo_valves", "one"))
        assert terminal.interrupted() != 0
    finally:
        terminal.close()
    assert not list(tmp_path.iterdir())


def test_without_a_terminal_it_says_what_to_use(tmp_path: Path, hilserver: Command) -> None:
    said = hilserver("new", tmp_path / "lab", "--ask")
    assert said.code == 2
    assert "--answers FILE or --answer KEY=VALUE" in said.err
    assert not list(tmp_path.iterdir())


def test_answers_of_a_file_and_options_make_the_rig_and_its_own_file_makes_it_again(
    tmp_path: Path, hilserver: Command
) -> None:
    (tmp_path / "mine.toml").write_text('[answers]\ndriver = "ni"\nsignal = "current"\nat_x = "ai7"\nvalve_full = 5\n')
    given = (
        "--name",
        "lab",
        "--answers",
        tmp_path / "mine.toml",
        "--answer",
        "flow_range=80 l/min",
        "--flow",
        "30 l/min",
    )
    said = hilserver("new", tmp_path / "lab", *given)
    assert said.code == 0, said.err
    rig = read_toml(tmp_path / "lab/rig.toml")
    assert rig["name"] == "lab"
    assert rig["devices"]["rig"]["inputs"]["x"] == {"channel": "ai7", "signal": "current", "range": [0, 0.02]}
    assert rig["channels"]["Q_A"]["scale"] == {"current": ["-80 l/min", "80 l/min"]}
    assert rig["valves"]["main"]["nominal_flow"]["flow"] == "30 l/min"
    assert rig["valves"]["main"]["raw"] == [-5, 5]
    assert hilserver("check", tmp_path / "lab/test.toml").code == 0
    assert "hilserver channels rig.toml" in (tmp_path / "lab/README.md").read_text()
    assert "| 5 | answered |" in (tmp_path / "lab/README.md").read_text()
    again = written(completed(given_answers(answers_in(tmp_path / "lab/answers.toml"), catalogue_valves(None))))
    assert {path: (tmp_path / "lab" / path).read_text() for path in again} == again


def test_the_test_sequence_of_a_rig_from_answers_passes(tmp_path: Path, hilserver: Command) -> None:
    """Also where the rod would reach its end with the commands of the template."""
    answers = ("bore=32 mm", "stroke=200 mm", "mass=100 kg", "servo_valves=two")
    given = [word for each in answers for word in ("--answer", each)]
    assert hilserver("new", tmp_path / "lab", *given).code == 0
    said = hilserver("test", tmp_path / "lab/test.toml", "--output", tmp_path)
    assert said.code == 0, said.out


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("borre=63 mm", "borre: is not a question. Did you mean bore?"),
        ("servo_valve=Moog G772", "servo_valve: "),
        ("at_x=ai3", "at_x: is not asked here"),
        ("drop=0.5 bar", "below the transition_pressure of 1 bar"),
        ("mass=80 t", "it could not be moved"),
        ("bore", "write KEY=VALUE"),
        ("flow=-5 l/min", 'flow: "-5 l/min" is out of range'),
        ("pressure_limit=300 bar", "beyond the range of the sensors (250 bar): it would never trip"),
        ("pressure_range=100 bar", "does not cover supply_pressure (140 bar)"),
        ("position_range=500 mm", "does not cover stroke (1 m)"),
        ("f3=200 Hz", "too far above f90 (80 Hz)"),
        ("driver=modbus at_p_A=1", "at_p_B: register 1 is already used by at_p_A"),
        ("driver=modbus host=192.168.0.20:502", "omit the port"),
        ("driver=modbus rate=0.001Hz", "rate: "),
        ("driver=ni device=Dev1/ai0", "name only the card"),
        ("driver=ni valve_signal=live_zero valve_full=10", "valve_full: is not asked here"),
    ],
)
def test_an_answer_that_is_not_possible_creates_nothing(
    answer: str, reason: str, tmp_path: Path, hilserver: Command
) -> None:
    each = re.split(r" (?=\w+=)", answer)
    said = hilserver("new", tmp_path / "lab", *(word for one in each for word in ("--answer", one)))
    assert said.code == 2
    assert reason in said.err
    assert not list(tmp_path.iterdir())


def test_a_device_that_is_too_slow_is_refused_as_by_check(tmp_path: Path, hilserver: Command) -> None:
    said = hilserver("new", tmp_path / "lab", "--answer", "driver=modbus", "--answer", "rate=20 Hz")
    assert said.code == 2
    assert "rate: rig (20 Hz) is too slow for this circuit" in said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("driver", "raw", "safe"), [("ni", [0.004, 0.02], 0.012), ("modbus", [0, 27648], 13824)], ids=["ni", "modbus"]
)
@pytest.mark.parametrize("valves", ["one", "two"])
def test_a_command_of_4_to_20_ma_is_12_ma_where_it_is_safe(
    driver: str, raw: list[float], safe: float, valves: str
) -> None:
    answers = completed(given_answers({"driver": driver, "valve_signal": "live_zero", "servo_valves": valves}, {}))
    rig = tomllib.loads(written(answers)[RIG])
    assert [valve["raw"] for valve in rig["valves"].values()] == [raw] * len(answers.outputs)
    outputs = rig["devices"]["rig"]["outputs"].values()
    assert [output["safe"] for output in outputs] == [safe] * len(answers.outputs)
    assert [output.get("signal") for output in outputs] == ["current" if driver == "ni" else None] * len(outputs)


def test_the_damping_follows_from_the_two_frequencies_of_the_bode_plot() -> None:
    """A second-order spool with this damping ratio has fallen by 3 dB at f3."""
    answers = completed(given_answers({"f90": "100 Hz", "f3": "60 Hz"}, {}))
    damping, ratio = answers.value("damping"), 0.6
    assert answers.origins["damping"] == "assumed"
    assert 20 * log10(abs(1 / (1 - ratio**2 + 2j * damping * ratio))) == pytest.approx(-3.01, abs=0.05)


@pytest.mark.parametrize("driver", ["simulated", "ni", "modbus"])
@pytest.mark.parametrize("valves", ["one", "two"])
def test_the_rig_file_is_laid_out_as_a_person_would(driver: str, valves: str) -> None:
    answers = completed(given_answers({"driver": driver, "servo_valves": valves, "flow_range": "90 l/min"}, {}))
    texts = written(answers)
    for text in texts.values():
        assert not re.search(r"\} {2,}\}|\{\w|= *\{ *\}|,\w", text)
    assert re.search(r"\ndamping = .*\n(overlap|leakage) = .*\n(overlap|leakage) = ", texts[RIG])
    assert re.search(r"\np_B_high = .*\nstroke = .* # calculated from stroke: assumed\n", texts[RIG])


def test_random_answers_make_rigs_without_problems() -> None:
    catalogue = catalogue_valves(None)
    for seed in range(RANDOM_RIGS):
        refuse_impossible(random_answers(catalogue, seed), EXAMPLES)


def test_every_question_explains_itself_and_has_a_default_that_is_possible() -> None:
    for question in QUESTIONS.values():
        assert question.text[-1] in ".?:"
        assert len(question.text) <= 110
    for driver in ("simulated", "ni", "modbus"):
        answers = completed(given_answers({"driver": driver}, {}))
        assert answers["driver"] == driver
        assert {"name", "bore", "mass"} <= answers.texts.keys()


def test_values_of_the_catalogue_are_taken_unless_they_are_answered() -> None:
    valves = {"V": {"source": "a page", "flow": "20 l/min", "drop": "5 bar"}}
    answers = completed(given_answers({"servo_valve": "V", "drop": "7 bar"}, valves))
    assert (answers["flow"], answers.origins["flow"]) == ("20 l/min", "datasheet of V")
    assert (answers["drop"], answers.origins["drop"]) == ("7 bar", "answered")
    assert answers.origins["f90"] == "assumed"


def test_a_file_without_the_table_of_answers_is_refused(tmp_path: Path, hilserver: Command) -> None:
    (tmp_path / "flat.toml").write_text('bore = "63 mm"\n')
    said = hilserver("new", tmp_path / "lab", "--answers", tmp_path / "flat.toml")
    assert said.code == 2
    assert "bore: belongs in the table [answers]." in said.err
    (tmp_path / "right.toml").write_text('[answers]\nbore = "63 mm"\n')
    assert answers_in(tmp_path / "right.toml") == {"bore": "63 mm"}
