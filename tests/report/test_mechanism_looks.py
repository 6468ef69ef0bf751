"""Mechanisms drawn, animated and told; `hilserver check` and `simulate` with circuit and mechanism files."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from hilserver.circuit.library import standard_library
from hilserver.cli.check import mechanisms
from hilserver.mechanics.model import read_mechanism
from hilserver.report.mechanisms import draw, drawing, drawn_poses, start_poses, summary
from hilserver.rig.build import load_rig
from hilserver.simulation.circuit_report import write_animations, write_run
from hilserver.simulation.circuit_run import panels, read_circuit_file, run_circuit_file
from hilserver.toml import read_toml

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).parents[2] / "config"
FILES = sorted((CONFIG / "mechanisms").glob("*.toml"))


def cli(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "hilserver"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_ready_mechanism_can_be_drawn(file: Path, tmp_path: Path) -> None:
    mechanism = read_mechanism(read_toml(file), str(file))
    path = draw(mechanism, tmp_path / "m.png", file.stem)
    image = np.asarray(Image.open(path).convert("L"))
    assert (image < 128).sum() > 500  # there is ink


def test_a_drawing_shows_bodies_where_they_are() -> None:
    """The excavator's three outlines, as drawn; with the boom turned they turn with it."""
    mechanism = read_mechanism(read_toml(CONFIG / "mechanisms/excavator.toml"))
    figure = drawing(mechanism, drawn_poses(mechanism), "excavator")
    outlines = [patch.get_xy()[:-1] for patch in figure.axes[0].patches]  # type: ignore[attr-defined]
    expected = [body.outline for body in mechanism.bodies.values() if body.outline is not None]
    assert len(outlines) == 3
    for found, wanted in zip(outlines, expected, strict=True):
        assert found == pytest.approx(np.array(wanted))
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert texts == set(mechanism.bodies)


def test_it_is_drawn_at_its_start() -> None:
    table = read_toml(CONFIG / "mechanisms/boom.toml")
    table["actuators"]["lift"]["start"] = "0.40 m"
    poses = {}
    for method in ("absolute", "recursive"):
        mechanism = read_mechanism(table | {"method": method})
        rotation, origin = poses[method] = start_poses(mechanism)["boom"]
        x, y, _ = rotation @ [*mechanism.bodies["boom"].centre, 0.0] + origin
        assert rotation[1, 0] > 0.1
        assert np.hypot(x, y - 1.2) == pytest.approx(1.306064)
    for one, other in zip(*poses.values(), strict=True):
        assert one == pytest.approx(other, abs=1e-9)


def test_a_mechanism_in_space_is_simulated_and_shown(tmp_path: Path) -> None:
    """Nothing but its file: it falls; plot, values and animation are written."""
    run = run_circuit_file(CONFIG / "mechanisms/loop.toml", standard_library(), duration=0.2)
    assert np.ptp(run.series["loop.pin_1.angle"]) > 1e-4
    files = [*write_run(run, tmp_path), *write_animations(run, tmp_path)]
    assert {file.suffix for file in files} >= {".png", ".gif", ".csv"}
    assert all(file.stat().st_size > 1000 for file in files if file.suffix not in (".md", ".json"))


def test_summary_of_a_mechanism() -> None:
    found = summary("excavator", read_mechanism(read_toml(CONFIG / "mechanisms/excavator.toml")))
    assert found.line == "excavator: 5 bodies, 6 joints, 3 degrees of freedom."
    assert found.notes == ()
    assert len(found.bodies) == 5
    assert found.bodies[0][0] == "boom"


def test_redundant_constraints_and_too_many_actuators_are_noted() -> None:
    table = read_toml(CONFIG / "mechanisms/boom.toml")
    table["joints"]["again"] = {**table["joints"]["pivot"]}
    table["actuators"]["motor"] = {"type": "rotary", "joint": "pivot"}
    found = summary("boom", read_mechanism(table))
    assert found.line == "boom: 1 body, 2 joints, 1 degree of freedom."
    assert "redundant constraint, 2 constraints of joint again" in found.notes[0]
    assert "2 actuators on 1 degrees of freedom" in found.notes[1]


def test_redundant_constraints_of_a_mechanism_in_space_are_named() -> None:
    """Two hinges on one axis: the second one holds five things that the first one holds."""
    hinge = {"type": "revolute", "between": ["ground", "door"], "point": ["0 m", "0 m", "0 m"], "axis": [0, 0, 1]}
    door = {"mass": "20 kg", "inertia": ["2 kg*m^2"] * 3, "centre": ["0.4 m", "0 m", "1 m"]}
    table = {
        "bodies": {"door": door},
        "joints": {"low": hinge, "high": {**hinge, "point": ["0 m", "0 m", "2 m"]}},
    }
    found = summary("door", read_mechanism(table))
    assert found.line == "door: 1 body, 2 joints, 1 degree of freedom."
    assert len(found.notes) == 5
    assert all("high" in note or "low" in note for note in found.notes)


def test_an_animation_moves_as_fast_as_the_mechanism(tmp_path: Path) -> None:
    """0.5 s of the slider-crank: 10 frames of 50 ms, no two alike; its angles in the plot."""
    run = run_circuit_file(CONFIG / "mechanisms/slider_crank.toml", standard_library(), duration=0.5)
    (path,) = write_animations(run, tmp_path)
    with Image.open(path) as image:
        assert getattr(image, "n_frames", 1) == 10
        assert image.info["duration"] == 50
        frames = []
        for k in range(10):
            image.seek(k)
            frames.append(np.asarray(image.convert("L")).copy())
    assert all((a != b).any() for a, b in pairwise(frames))
    lines = {label: lines for label, _, lines in panels(run)}
    assert set(lines["angle"]) == {"slider_crank.crank", "slider_crank.rod"}


def test_a_mechanism_file_is_a_circuit_of_one_mechanism() -> None:
    circuit = read_circuit_file(CONFIG / "mechanisms/boom.toml", standard_library())
    assert [m.name for m in circuit.mechanisms] == ["boom"]
    assert circuit.placed == ()


def test_the_mechanisms_of_a_rig_are_those_of_circuit_and_machine() -> None:
    assert [m.name for m in mechanisms(load_rig(CONFIG / "rigs/boom.toml"))] == ["boom"]
    assert mechanisms(load_rig(CONFIG / "rigs/demo.toml")) == ()


def test_check_draws_a_mechanism(tmp_path: Path) -> None:
    done = cli("check", str(CONFIG / "circuits/boom.toml"), "-o", "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "boom: 1 body, 1 joint, 1 degree of freedom." in done.stdout
    assert "no problems." in done.stdout
    assert (tmp_path / "out/boom_drawing.png").stat().st_size > 10_000
    schematic = ElementTree.parse(tmp_path / "out/boom_circuit.svg")
    parts = read_toml(CONFIG / "circuits/boom.toml")["components"]
    assert {g.get("data-part") for g in schematic.iter() if g.get("data-part")} == set(parts)
    assert schematic.find("{*}style") is not None


def test_check_reports_errors_in_a_mechanism(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text('[bodies.b]\nmass = "1 kg"\ncentre = ["0 m", "0 m"]\n')
    done = cli("check", "m.toml", folder=tmp_path)
    assert done.returncode != 0
    assert "m.toml:1: bodies.b.inertia: missing" in done.stderr
    assert not (tmp_path / "reports").exists()
