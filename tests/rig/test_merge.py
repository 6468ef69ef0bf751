"""Identified values are merged into the rig file: nothing else in it changes."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from command_line import Command
from pages import only

from hilserver.errors import HilserverError
from hilserver.identify import identification
from hilserver.identify.identification import Identified, identify_valve
from hilserver.identify.recorded import Recording
from hilserver.rig.build import load_rig
from hilserver.rig.merge import difference, merged, replace_keeping_copy
from hilserver.rig.rig import Rig

CONFIG = Path(__file__).parents[2] / "config"
TODAY = date(2026, 11, 23)
NOW = datetime(2026, 11, 23, 21, 52, 12, tzinfo=UTC)
RIG = """# our rig
name = "lab"

[valves.main]  # the large one
port = "A"
f45 = "60 Hz"  # datasheet, page 3
delay = "1 ms"
nominal_flow = { flow = "60 l/min", drop = "35 bar", per = "edge" }

[valves.main.bridge]
strategy = "feedback"
gain = 0.3  # by hand

[valves.other]
f45 = "30 Hz"
"""
FRAGMENT = """# hilserver identify
[valves.main]
nominal_flow = { flow = "57 l/min", drop = "35 bar", per = "edge" }    # ± 0.3 l/min
delay = "1.4 ms"      # ± 0.02 ms
f90 = "70 Hz"         # ± 0.5 Hz
# null: not identifiable from this recording

[valves.main.bridge]
gain = 0.27
integral_time = "2 ms"
"""


def test_values_in_inline_tables_keep_the_spaces_of_the_file() -> None:
    rig = """[valves.main]
bridge = { strategy = "feedback" }
[channels]
x = { device = "rig", scale = { raw = [0, 10] } }
p = {device = "rig"}
"""
    fragment = """[valves.main.bridge]
feedback_time = "46 ms"  # ± 1 ms
gain = 0.3
[channels.x]
noise = "0.1 mm"
delay = "2 ms"
[channels.p]
noise = "1 bar"
"""
    after = merged(rig, fragment, {}, TODAY).splitlines()
    assert after[1] == 'bridge = { strategy = "feedback", feedback_time = "46 ms", gain = 0.3 }'
    assert after[3] == 'x = { device = "rig", scale = { raw = [0, 10] }, noise = "0.1 mm", delay = "2 ms" }'
    assert after[4] == 'p = {device = "rig", noise = "1 bar"}'
    again = merged("\n".join(after), fragment.replace("46", "47"), {}, TODAY).splitlines()
    assert again[1] == after[1].replace("46", "47"), "a value that is replaced"


def test_merging_changes_only_the_identified_values() -> None:
    after = merged(RIG, FRAGMENT, {"main": ("f45",)}, TODAY)
    expected = tomllib.loads(RIG)
    del expected["valves"]["main"]["f45"]
    identified = tomllib.loads(FRAGMENT)["valves"]["main"]
    bridge = expected["valves"]["main"]["bridge"] | identified.pop("bridge")
    expected["valves"]["main"] |= identified | {"bridge": bridge}
    assert tomllib.loads(after) == expected
    for line in ("# our rig", "[valves.main]  # the large one", "gain = 0.27  # by hand; identified on 2026-11-23"):
        assert line in after.splitlines()
    assert 'delay = "1.4 ms"  # ± 0.02 ms, identified on 2026-11-23' in after.splitlines()
    assert "not identifiable" not in after


def test_merging_is_idempotent() -> None:
    once = merged(RIG, FRAGMENT, {"main": ("f45",)}, TODAY)
    assert merged(once, FRAGMENT, {"main": ("f45",)}, date(2026, 12, 1)) == once


def test_a_new_value_replaces_the_note_of_an_earlier_one() -> None:
    """Its standard deviation and day would be wrong; the user's own comment stays."""
    once = merged(RIG, FRAGMENT, {"main": ("f45",)}, TODAY)
    other = FRAGMENT.replace("1.4 ms", "1.5 ms").replace("0.02 ms", "0.03 ms").replace("0.27", "0.28")
    lines = merged(once, other, {}, date(2026, 12, 1), "learned").splitlines()
    assert 'delay = "1.5 ms"  # ± 0.03 ms, learned on 2026-12-01' in lines
    assert "gain = 0.28  # by hand; learned on 2026-12-01" in lines
    assert 'f90 = "70 Hz"  # ± 0.5 Hz, identified on 2026-11-23' in lines, "the same value as before"
    copied = once.replace("# ± 0.02 ms,", "# unchanged; ± 0.02 ms,")
    assert 'delay = "1.5 ms"  # ± 0.03 ms, learned on 2026-12-01' in merged(
        copied, other, {}, date(2026, 12, 1), "learned"
    )


@pytest.mark.parametrize(
    ("flow", "after"),
    [
        (
            '[valves.main.nominal_flow]  # at 70 bar\nflow = "60 l/min"  # datasheet\ndrop = "70 bar"  # of both\n'
            'per = "valve"\n',
            '[valves.main.nominal_flow]  # at 70 bar\nflow = "57 l/min"  # datasheet; ± 0.3 l/min, identified on '
            '2026-11-23\ndrop = "35 bar"  # of both; ± 0.3 l/min, identified on 2026-11-23\n',
        ),
        (
            'nominal_flow.flow = "60 l/min"  # datasheet\nnominal_flow.drop = "35 bar"  # over one edge\n'
            'nominal_flow.per = "edge"\n',
            'nominal_flow.flow = "57 l/min"  # datasheet; ± 0.3 l/min, identified on 2026-11-23\n'
            'nominal_flow.drop = "35 bar"  # over one edge\nnominal_flow.per = "edge"\n',
        ),
    ],
)
def test_a_flow_in_a_table_of_its_own_keeps_its_comments(flow: str, after: str) -> None:
    found = FRAGMENT.split("delay")[0]
    text = merged(f'[valves.main]\nport = "A"\n{flow}', found, {}, TODAY)
    assert after in text
    expected = {"flow": "57 l/min", "drop": "35 bar", "per": "edge"}
    assert tomllib.loads(text)["valves"]["main"] == {"port": "A", "nominal_flow": expected}
    assert merged(text, found, {}, date(2026, 12, 1)) == text


def test_valves_may_be_written_in_a_line() -> None:
    rig = 'valves = { main = { port = "A", delay = "1 ms", bridge = { gain = 0.3 } } }  # all of them\n'
    after = merged(rig, '[valves.main]\ndelay = "1.4 ms"  # ± 0.02 ms\n', {}, TODAY)
    assert tomllib.loads(after)["valves"]["main"] == {"port": "A", "delay": "1.4 ms", "bridge": {"gain": 0.3}}
    assert "# all of them" in after


def test_new_keys_stand_before_the_comment_of_the_next_table() -> None:
    text = '[valves.main]\nport = "A"\n\n# --- the small one\n[valves.other]\nport = "B"\n# --- end\n[mqtt]\nport = 0\n'
    found = "[valves.main]\nnull = 0.1\n[valves.main.bridge]\ngain = 1.0  # ± 0.1\n[valves.other]\nnull = 0.2\n"
    after = merged(text, found, {}, TODAY)
    assert list(map(str.strip, filter(None, after.splitlines()))) == [
        "[valves.main]",
        'port = "A"',
        "null = 0.1  # identified on 2026-11-23",
        "[valves.main.bridge]",
        "gain = 1.0  # ± 0.1, identified on 2026-11-23",
        "# --- the small one",
        "[valves.other]",
        'port = "B"',
        "null = 0.2  # identified on 2026-11-23",
        "# --- end",
        "[mqtt]",
        "port = 0",
    ]
    assert merged(after, found, {}, TODAY) == after


@pytest.mark.parametrize(
    "text", ['[valves]\nmain = { port = "A" }\n', "valves = { main = { bridge = {} } }\n", "[valves.main]\n"]
)
def test_a_table_that_the_valve_does_not_have_is_added(text: str) -> None:
    found = "[valves.main.bridge]\ngain = 0.27  # ± 0.01\n[cylinders.lift]\nleakage = 0.1\n"
    after = tomllib.loads(merged(text, found, {}, TODAY))
    assert after["valves"]["main"]["bridge"] == {"gain": 0.27}
    assert after["cylinders"] == {"lift": {"leakage": 0.1}}
    assert set(after["valves"]["main"]) - {"bridge"} == set(tomllib.loads(text)["valves"]["main"]) - {"bridge"}


def test_difference_shows_old_and_new_lines() -> None:
    shown = difference(RIG, merged(RIG, FRAGMENT, {"main": ("f45",)}, TODAY), "lab.toml", "identified").splitlines()
    assert '-f45 = "60 Hz"  # datasheet, page 3' in shown
    assert '+f90 = "70 Hz"  # ± 0.5 Hz, identified on 2026-11-23' in shown


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_merge_that_would_make_the_file_invalid_is_refused(tmp_path: Path) -> None:
    shutil.copytree(CONFIG, tmp_path / "config")
    rig = tmp_path / "config/rigs/lift.toml"
    before = files(rig.parent)
    with pytest.raises(HilserverError, match=r"Nothing was changed.\n.*f90"):
        replace_keeping_copy(rig, rig.read_text().replace('f90 = "80 Hz"', 'f90 = "80 bar"'), NOW, load_rig)
    assert files(rig.parent) == before


def without_numbers(text: str) -> str:
    return re.sub(r"\d[\d.:eT-]*", "0", text)


def test_command_shows_the_difference_asks_and_keeps_a_copy(
    tmp_path: Path, hilserver: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = only("tested: tests/rig/test_merge.py::test_command_shows_the_difference_asks_and_keeps_a_copy")
    ((command, shown),) = block.commands
    shutil.copytree(CONFIG, tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    rig = Path("config/rigs/lift.toml")
    before = files(rig.parent)
    arguments = (*shlex.split(command)[1:], "--seconds", "6", "--no-end-stops")
    found: dict[tuple[bytes, ...], Identified] = {}

    def identified_once(rig: Rig, recording: Recording, valve: str, order: int | None = None) -> Identified:
        """The second command has the same recordings."""
        key = valve.encode(), *(channel.tobytes() for channel in recording.channels.values())
        if key not in found:
            found[key] = identify_valve(rig, recording, valve, order)
        return found[key]

    monkeypatch.setattr(identification, "identify_valve", identified_once)
    said = hilserver(*arguments, answers=io.StringIO("n\n"))
    assert said.code == 1
    assert '-f90 = "80 Hz"' in said.out
    assert files(rig.parent) == before
    recordings = set(found)
    said = hilserver(*arguments, answers=io.StringIO("y\n"))
    assert said.code == 0, said.err
    assert set(found) == recordings
    for line in shown.splitlines():
        assert without_numbers(line.removesuffix(" y")) in without_numbers(said.out)
    (copy,) = rig.parent.glob("lift.toml.*.old")
    assert copy.read_text() == before["lift.toml"]
    assert files(rig.parent) == before | {copy.name: before["lift.toml"], "lift.toml": rig.read_text()}
    valves, was = load_rig(rig).settings.valves, load_rig(CONFIG / "rigs/lift.toml").settings.valves
    assert valves["A"].f90 != was["A"].f90
    assert valves["A"].f90 == pytest.approx(80.0, rel=0.05)
    assert valves["B"] == was["B"]
