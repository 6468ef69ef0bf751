"""``hilserver check``: files of every kind, several at once, all problems in one run, each with its line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import Command

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"

CALIBRATION = """\
[[p_A]]
date = "2026-11-21T10:15:00+01:00"
source = "daq.ai0"
unit = "bar"
tare = 0.5
"""
TABLE = "time,send,p_A max (bar)\n0,arm,\n1,start,200\n"


@pytest.mark.parametrize(
    ("file", "said", "unchecked"),
    [
        ("cycles/lift.toml", "Work cycle of 8 s, with input joystick.", "whether a rig has these inputs"),
        ("sequences/relief.toml", "possible on", "whether its commands are accepted"),
        ("studies/relief.toml", "fluid.air_fraction, with figures peak, top, rise, deviation.", ""),
        ("studies/lift_log.toml", "Map of the columns of joystick, supply.p, rod.x.", "whether log and circuit have"),
        ("catalogue/servo_valves.toml", "Catalogue of 7 valves.", ""),
        ("circuits/parts/axis.toml", "Sub-circuit with ports P, T, rod, command.", "its connections"),
    ],
)
def test_a_file_of_every_kind_is_checked(file: str, said: str, unchecked: str, hilserver: Command) -> None:
    told = hilserver("check", CONFIG / file)
    assert (told.code, told.err) == (0, "")
    assert said in told.out
    assert told.out.endswith(f"{file}: no problems.\n")
    assert told.out.count("Not checked: ") == bool(unchecked)
    assert unchecked in told.out


def test_every_example_is_without_problems(hilserver: Command) -> None:
    """All but rigs, circuits and mechanisms, whose drawings take their time, and studies of logs that are not here."""
    kinds = ("catalogue/*.toml", "cycles/*.toml", "circuits/parts/*.toml", "studies/*_log.toml")
    files = sorted(file for kind in kinds for file in CONFIG.glob(kind))
    told = hilserver("check", *files)
    assert (told.code, told.err) == (0, "")
    assert told.out.count(": no problems.\n") == len(files) > 10


@pytest.mark.parametrize(("name", "text"), [("calibration.toml", CALIBRATION), ("sequence.csv", TABLE)])
def test_files_that_are_no_examples_are_checked(name: str, text: str, hilserver: Command, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    told = hilserver("check", tmp_path / name)
    assert (told.code, told.err) == (0, "")
    assert ("Calibrations of channel p_A." in told.out) == name.startswith("calibration")
    assert "Not checked: " in told.out


HASH = "$7$1$c2FsdA==$aGFzaA=="
LAYOUT = '[[tabs]]\nname = "lift"\n[[tabs.plots]]\nsignals = ["p_A", "x"]\n'


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("lift.layout.toml", LAYOUT, "Layout of recordings, with tab lift, and signals p_A, x."),
        (
            "anna.toml",
            'rig = "demo"\nhost = "10.0.0.9"\nuser = "anna"\npassword_file = "anna"\n',
            "Login as anna at the",
        ),
        ("plain.toml", 'host = "10.0.0.9"\n', "Login at the broker 10.0.0.9:1883."),
        ("accounts", f"anna:{HASH}\nwall:{HASH}\n", "Passwords of accounts anna, wall at a broker."),
        ("answers.toml", '[answers]\nbore = "80 mm"\n', "1 answer for hilserver new --answers."),
    ],
)
def test_files_of_viewer_broker_and_new_are_not_taken_for_rigs(
    name: str, text: str, said: str, hilserver: Command, tmp_path: Path
) -> None:
    (tmp_path / "anna").touch(0o600)
    (tmp_path / "anna").write_text("secret\n")
    (tmp_path / name).touch(0o600)
    (tmp_path / name).write_text(text)
    told = hilserver("check", tmp_path / name)
    assert (told.code, told.err) == (0, "")
    assert said in told.out
    assert told.out.endswith(f"{name}: no problems.\n")


WRONG = {
    "cycle.toml": (
        'repeat = "yes"\n[inputs.lever]\nshape = "wavy"\npoints = [["0 s", 0]]\n',
        ['1: repeat: "yes" is not true or false.', "3: inputs.lever.shape: "],
    ),
    "sequence.toml": (
        'length = "3 bar"\n[[step]]\nat = "0 s"\nsend = "amr"\n[[step]]\nat = "1 kg"\nsend = "start"\n[[expect]]\n',
        ["1: length: ", '2: step[0]: "amr": unknown command. Did you mean arm?', "6: step[1].at: ", "8: expect[0]"],
    ),
    "study.toml": (
        'circuit = "regenerative.toml"\nduration = "1 s"\nplan = "sobol"\nsamples = 100\n'
        '[vary]\n"pump.max_flwo" = "± 5 %"\n"relief.opening_pressure" = 3\n[figures]\npeak = "maxx(supply.p)"\n',
        ["4: samples: 100 is not a power", "6: vary.pump.max_flwo: ", "7: vary.relief", "9: figures.peak: maxx is not"],
    ),
    "catalogue.toml": (
        '[valves.small]\nsource = "a page"\nf90 = "1 bar"\nnominal_flow = { flow = "4 l/min" }\n[valves.large]\n',
        ["3: valves.small.f90: ", "4: valves.small.nominal_flow.drop: missing", "5: valves.large.source: missing"],
    ),
    "calibration.toml": (
        CALIBRATION.replace("tare", "tarre") + '[[p_B]]\nsource = "daq.ai1"\n',
        ["5: p_A[0].tarre: unknown key. Did you mean tare?", "6: p_B[0].unit"],
    ),
    "lost.toml": (  # nothing but its date tells what this is
        '[[p_A]]\ndate = "2026-11-21T10:15:00+01:00"\nunit = "bar"\ntare = 0.5\n[[p_B]]\nfoo = 1\n',
        ["1: p_A[0].source: missing", "6: p_B[0].foo: unknown key."],
    ),
    "faults.toml": (
        '[[fault]]\nat = "1 s"\nfault = "stuk"\n[inputs.joystick]\npoints = [["0 s", 0], ["1 s", 1]]\n',
        ["3: fault[0].fault"],
    ),
    "ports.toml": (
        'ports = "P"\n[components.line]\ntype = "volume"\nports = { P = "P" }\n',
        ['1: ports: its file gives ports as "P"; write ports = ["P", "T"].', "2: components.line.volume: missing"],
    ),
    "mechanism.toml": (
        '[bodies.arm]\nmas = "3 kg"\n[joints.pin]\nkind = "pinn"\n',
        ["2: bodies.arm.mas: unknown key. Did you mean mass?", "3: joints.pin"],
    ),
    "leg.toml": (
        'ports = ["P"]\n[components.relief]\ntype = "PRV"\n[components.line]\ntype = "volume"\n'
        'ports = { P = "P" }\nvolume = "1 bar"\n',
        ["3: components.relief.type: ", '7: components.line.volume: "1 bar" has the wrong unit'],
    ),
    "columns.toml": (
        'sample_rate = "3 bar"\ntim = "t"\n[columns]\nx = "x"\n',
        ["1: sample_rate: ", "2: tim: unknown key. Did you mean time?"],
    ),
    "wrong.layout.toml": (
        '[[tabs]]\nnam = "a"\n[[tabs.plots]]\nunits = { Pa = "kg" }\n',
        [
            "2: tabs[0].nam: unknown key. Did you mean name?",
            '4: tabs[0].plots[0].units: "kg" is not a unit for values in Pa',
        ],
    ),
    "login.toml": ('host = "a"\nuse = "anna"\npassword_file = "no"\n', ["2: use: unknown key. Did you mean user?"]),
    "answers.toml": ('[answers]\nborre = "80 mm"\n', ["2: answers.borre: is not a question. Did you mean bore?"]),
    "unit.toml": ('[answers]\n\nbore = "80 bar"\n', ['3: answers.bore: "80 bar" has the wrong unit']),
    "broken.toml": ("[inputs.lever]\nshape = \n", ["2: the file is not valid TOML: "]),
}


@pytest.mark.parametrize("name", WRONG)
def test_all_problems_of_a_file_are_named_with_their_lines(name: str, hilserver: Command, tmp_path: Path) -> None:
    text, expected = WRONG[name]
    file = tmp_path / name
    file.write_text(text)
    shutil.copy(CONFIG / "circuits/regenerative.toml", tmp_path / "regenerative.toml")
    told = hilserver("check", file)
    assert (told.code, told.out) == (2, "")
    for said in expected:
        assert f"{file}:{said}" in told.err
    assert "In sub-circuit" not in told.err  # of no circuit
    assert told.err.endswith("Nothing was changed.\n")


def test_several_files_are_checked_in_one_run(hilserver: Command, tmp_path: Path) -> None:
    """Also those after a file with problems, or that does not exist."""
    for name in ("cycle.toml", "broken.toml"):
        (tmp_path / name).write_text(WRONG[name][0])
    good = CONFIG / "cycles/lift.toml"
    told = hilserver("check", tmp_path / "none.toml", tmp_path / "broken.toml", good, tmp_path / "cycle.toml")
    assert told.code == 2
    assert told.out.endswith(f"{good}: no problems.\n")
    lines = told.err.splitlines()
    assert lines[0] == f"{tmp_path}/none.toml: no such file."
    assert lines[1].startswith(f"{tmp_path}/broken.toml:2: the file is not valid TOML")
    assert lines[2].startswith(f"{tmp_path}/cycle.toml:1: repeat")
    assert lines[-1] == "4 problems. Nothing was changed."


def test_options_of_virtual_commissioning_are_for_rigs(hilserver: Command) -> None:
    cycle = CONFIG / "cycles/lift.toml"
    assert "is a work cycle: --run needs a rig file" in hilserver("check", cycle, "--run").err
    assert "--json is for one rig file." in hilserver("check", cycle, cycle, "--run", "--json").err
    assert "add --run" in hilserver("check", cycle, "--json").err
