"""``hilserver new``: what it writes is complete, runs, and has the values that were given."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import Command

from hilserver.commissioning.new_rig import TEMPLATES
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.toml import read_toml


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_a_new_rig_is_complete_and_runs(template: str, tmp_path: Path, hilserver: Command) -> None:
    folder = tmp_path / "somewhere" / "My rig"
    said = hilserver("new", folder, "--template", template)
    assert said.code == 0, said.err
    assert "Next: hilserver check" in said.out
    elsewhere = shutil.move(folder, tmp_path / "elsewhere")  # it refers to nothing outside of itself
    rig = load_rig(Path(elsewhere) / "rig.toml")
    assert rig.settings.name == "My_rig"
    with LockstepRun(rig) as run:
        run.start()
        run.run(500)
        assert run.mode == "RUNNING"
    assert "# My_rig" in (Path(elsewhere) / "README.md").read_text()
    assert not list(tmp_path.glob("**/.*"))


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_its_test_sequence_passes(template: str, tmp_path: Path, hilserver: Command) -> None:
    folder = tmp_path / "lab"
    assert hilserver("new", folder, "--template", template, "--flow", "15 l/min").code == 0
    assert "hilserver test test.toml" in (folder / "README.md").read_text()
    said = hilserver("test", folder / "test.toml", "--output", tmp_path)
    assert said.code == 0, said.out
    assert said.out.count("passed  ") == 6


REACTION = """
[[step]]
at = "0.3 s"
send = "react"
reaction = "{name}"
when = "x > 1 m"
then = "hold"
"""
PLAYOUT = """
[[step]]
at = "1.9 s"
send = "play"
playout = "shake"
input = "joystick"
channel = "x"
amplitude = "1 mm"
frequency = "5 Hz"
cycles = 5
drive = 0.1
"""


def test_it_has_room_for_reactions_and_playouts(tmp_path: Path, hilserver: Command) -> None:
    rig, test = tmp_path / "lab/rig.toml", tmp_path / "lab/test.toml"
    assert hilserver("new", tmp_path / "lab").code == 0
    test.write_text(test.read_text() + REACTION.format(name="one") + REACTION.format(name="two") + PLAYOUT)
    said = hilserver("test", test, "--output", tmp_path)
    assert said.code == 0, said.out
    assert said.out.count("passed  ") == 9
    rig.write_text(rig.read_text().replace("reactions = 4", "reactions = 1").replace("playouts = 2", "playouts = 0"))
    for command in ("check", "test"):
        said = hilserver(command, test)
        assert said.code == 2
        assert "the steps need reactions: 2 at the same time; the rig has 1. Set [loop] reactions = 2" in said.err
        assert "the steps need playouts: 1 at the same time; the rig has none. Set [loop] playouts = 1" in said.err


def test_its_test_sequence_fails_where_the_load_does_not_move(tmp_path: Path, hilserver: Command) -> None:
    folder = tmp_path / "lab"
    assert hilserver("new", folder).code == 0
    sequence = (folder / "test.toml").read_text()
    (folder / "test.toml").write_text(sequence.replace('["0.8 s", 0.4], ["1.5 s", 0.4]', '["0.8 s", 0.0]'))
    still = hilserver("test", folder / "test.toml", "--output", tmp_path)
    assert still.code == 1
    assert "FAILED  the load rises" in still.out


def test_values_of_the_real_valve_are_those_of_the_simulated_one(tmp_path: Path, hilserver: Command) -> None:
    said = hilserver(
        "new", tmp_path / "lab", "--flow", "40 l/min", "--drop", "5 bar", "--f90", "120 Hz", "--name", "b7"
    )
    assert said.code == 0, said.err
    rig = read_toml(tmp_path / "lab" / "rig.toml")
    wanted = {"flow": "40 l/min", "drop": "5 bar", "per": "edge"}
    for valve in (
        rig["valves"]["main"],
        read_toml(tmp_path / "lab" / "circuits" / "drive.toml")["components"]["servo_valve"],
    ):
        assert valve["nominal_flow"] == wanted
        assert valve["f90"] == "120 Hz"
    assert rig["name"] == "b7"
    assert "# --- the real servo valve" in (tmp_path / "lab" / "rig.toml").read_text()


def test_what_is_wrong_creates_nothing(tmp_path: Path, hilserver: Command) -> None:
    said = hilserver("new", tmp_path / "lab", "--f90", "80 bar")
    assert said.code == 2
    assert "rig.toml: valves.main.f90" in said.err
    assert "wrong unit" in said.err
    assert not list(tmp_path.iterdir())
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    said = hilserver("new", tmp_path / "used")
    assert said.code == 2
    assert "not an empty folder" in said.err
    assert [path.name for path in (tmp_path / "used").iterdir()] == ["file"]
    (tmp_path / "plain").touch()
    said = hilserver("new", tmp_path / "plain" / "lab")
    assert said.code == 2
    assert "can't be created" in said.err
