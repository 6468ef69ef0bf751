"""The examples that ``hilserver demo`` runs by name, and the commands that it sends to them."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from io import StringIO
from pathlib import Path

import pytest
from command_line import Command
from rich.console import Console

import hilserver as package
from hilserver.cli.demo import live_table, report, script
from hilserver.cli.examples import example, ready_example, ready_examples
from hilserver.protocol.commands import Switch
from hilserver.realtime.shared import LoopMemory
from hilserver.rig.build import load_rig
from hilserver.service.switching import circuit_change
from hilserver.service.telemetry import TelemetryReader
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


def test_the_demo_of_an_actuator_tells_of_the_actuator() -> None:
    rig = load_rig(ready_example("frame").file)
    said = [step.text for step in script(rig)]
    assert said == [
        "arm: the actuator stays at its safe displacement",
        "start: the actuator approaches its node and follows it",
        "work cycle starts",
        "stop: the actuator returns to its safe displacement",
    ]
    assert script(load_rig(ready_example("demo").file))[0].text == "arm: the valve stays at null"


@pytest.mark.parametrize(("name", "first", "second"), [("frame", "force", "error"), ("demo", "p_A", "virtual flow")])
def test_the_live_table_shows_what_the_rig_has(name: str, first: str, second: str, tmp_path: Path) -> None:
    rig = load_rig(ready_example(name).file)
    run = LockstepRun(rig)
    run.start()
    run.run(100)
    with LoopMemory.create(tmp_path / "segment", row_width=rig.layout.width, ring_rows=9, mailbox_slots=4) as memory:
        state = TelemetryReader(rig, memory).state(run.row, 0)
    text = StringIO()
    Console(file=text, width=100).print(live_table(state, rig, ["0.2 s  arm"], 0.5))
    for word in (first, second, "missed ticks", "0.2 s  arm"):
        assert f" {word} " in text.getvalue()
    assert ("p_A" in text.getvalue()) == (name == "demo")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("check", "of actuators whose position is controlled, the critical delay of the force"),
        ("check", "The strategies of actuators are judged over the work cycle"),
        ("simulate", "Of actuators whose position is controlled (--strategy: those of actuators), it reports delay"),
        ("identify", "Of actuators whose position is controlled: position loop, servo valve, oil, specimen, delays"),
    ],
)
def test_the_help_tells_of_actuators(command: str, said: str, hilserver: Command) -> None:
    assert said in " ".join(hilserver(command, "--help").out.split())
