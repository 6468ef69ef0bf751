"""The examples that ``hilserver demo`` runs by name, and the commands that it sends to them."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from command_line import Command

import hilserver as package
from hilserver.cli.demo import report, script
from hilserver.cli.examples import example, ready_example, ready_examples
from hilserver.protocol.commands import Switch
from hilserver.rig.build import load_rig
from hilserver.service.switching import circuit_change
from hilserver.simulation.lockstep import LockstepRun

ROOT = Path(__file__).parents[2]
COMPONENTS = {
    "demo": ["relief", "main_valve"],
    "lift": ["relief", "main_valve"],
    "boom": ["valve"],
    "conveyor": ["relief", "main_valve"],
}


def test_examples_are_listed(hilserver: Command) -> None:
    said = hilserver("demo", "--list")
    assert (said.code, said.err) == (0, "")
    for name, found in ready_examples().items():
        assert f" {name} " in said.out
        assert found.description in said.out
    rigs = [name for name, found in ready_examples().items() if found.cycle is None]
    assert rigs == ["demo", "boom", "conveyor", "frame", "lift"]  # not the one that needs a log
    assert {"lowering", "crane"} <= ready_examples().keys()
    assert not {"machine", "boom_valve", "actuator"} & ready_examples().keys()  # parts of rigs


@pytest.mark.parametrize(("name", "hint"), [("lowring", "Did you mean lowering?"), ("press", "Allowed: accumulator, ")])
def test_an_unknown_name_gets_a_hint(name: str, hint: str, hilserver: Command) -> None:
    said = hilserver("demo", name)
    assert said.code == 2
    assert hint in said.err
    assert "hilserver demo --list" in said.err


@pytest.mark.slow
def test_a_circuit_is_simulated_over_its_cycle(hilserver: Command, tmp_path: Path) -> None:
    said = hilserver("demo", "lowering", "--output", tmp_path)
    assert (said.code, said.err) == (0, "")
    assert list(tmp_path.glob("lowering*.html"))


@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_the_demo_switches_what_the_rig_has(name: str) -> None:
    rig = load_rig(ready_example(name).file)
    switches = [step.command for step in script(rig) if isinstance(step.command, Switch)]
    assert [switch.component for switch in switches] == COMPONENTS[name]
    for switch in switches:  # accepted; the server's own check of the running circuit comes on top
        changed = rig.read_circuit(circuit_change(rig, rig.circuit, switch).source)
        assert changed.written != rig.circuit.written


@pytest.mark.parametrize("place", ["prefix", "user", "target"])
def test_examples_are_found_wherever_a_wheel_puts_them(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {name: tmp_path / name for name in ("prefix", "user", "target")}
    shutil.copytree(ROOT / "config", folders[place] / "share/hilserver/config")
    monkeypatch.setattr(sys, "prefix", str(folders["prefix"]))
    monkeypatch.setattr(package, "__file__", str(folders["target"] / "hilserver/__init__.py"))
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(folders["user"]))
    assert example("rigs/lift.toml").is_relative_to(folders[place])
    assert "boom" in ready_examples()


@pytest.mark.slow
def test_a_rig_without_a_flow_sensor_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rig, log = load_rig(ready_example("lift").file), tmp_path / "run.arrow"
    with LockstepRun(rig, log) as run:
        run.start()
        run.run(100)
    report(log, tmp_path, rig.file)
    said = capsys.readouterr().out
    assert "valve A: the flow is not measured; saturated" in said
    assert "nan" not in said
