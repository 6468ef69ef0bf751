"""Parameters and sub-circuits on a rig: switched live like a component, logged, and replayed without the files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from pydantic import JsonValue

from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError
from hilserver.protocol.commands import CircuitCommand, Switch, SwitchCircuit
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.service.switching import PreparedSwitch, prepare_switch
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log

CONFIG = Path(__file__).parents[2] / "config"
SUPPLY = """
ports = ["P"]
parameters = { set_pressure = "140 bar", relief = "=1.1*set_pressure" }
[components.tank]
type = "tank"
ports = { T = "T" }
[components.pump]
type = "pressure_compensated_pump"
ports = { P = "P", T = "T" }
max_flow = "60 l/min"
set_pressure = "=set_pressure"
[components.line]
type = "volume"
ports = { P = "P" }
volume = "2 l"
[components.relief]
type = "relief_valve"
ports = { P = "P", T = "T" }
opening_pressure = "=relief"
override = [["5 bar", "20 l/min"], ["15 bar", "60 l/min"]]
"""
CIRCUIT = """
parameters = { flow = "40 l/min" }
[components.unit]
type = "subcircuit"
file = "unit.toml"
ports = { P = "supply" }
[components.tank]
type = "tank"
ports = { T = "tank" }
[components.main_valve]
type = "proportional_valve_4_3"
ports = { P = "supply", T = "tank", A = "rig.A", B = "rig.B" }
command = "joystick"
nominal_flow = { flow = "=flow", drop = "35 bar", per = "edge" }
f45 = "30 Hz"
[nodes.supply]
pressure = "140 bar"
"""


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """The demo rig with a circuit of two files."""
    shutil.copytree(CONFIG, tmp_path / "config")
    circuits = tmp_path / "config" / "circuits"
    (circuits / "lift.toml").write_text(CIRCUIT)
    (circuits / "unit.toml").write_text(SUPPLY)
    return load_rig(tmp_path / "config" / "rigs" / "demo.toml")


def prepared(run: LockstepRun, command: CircuitCommand) -> PreparedSwitch:
    rig = run.rig
    return prepare_switch(rig, compiled_program(rig.library), rig.circuit, run.packed, run.row, command)


@pytest.mark.parametrize(
    ("component", "values", "changed"),
    [
        ("parameters", {"flow": "20 l/min"}, ("main_valve", "nominal_flow")),
        ("unit", {"relief": "170 bar"}, ("unit.relief", "opening_pressure")),
        ("unit.relief", {"opening_pressure": "170 bar"}, ("unit.relief", "opening_pressure")),
    ],
)
def test_a_switch_names_a_component_inside_or_parameters(
    rig: Rig, component: str, values: dict[str, JsonValue], changed: tuple[str, str]
) -> None:
    """Only what was named differs, and all states are carried over."""
    with LockstepRun(rig) as run:
        run.run(100)
        new = prepared(run, Switch(component=component, set=values))
    before, after = rig.circuit.source["components"], new.circuit.source["components"]
    different = [(name, key) for name, table in before.items() for key in table if table[key] != after[name][key]]
    assert different == [changed]
    assert (new.carried[: new.packed.n_states] >= 0).all()


def test_a_component_inside_gets_another_type_and_keeps_its_connections(rig: Rig) -> None:
    with LockstepRun(rig) as run:
        run.run(100)
        values: dict[str, JsonValue] = {"displacement": "28 cm^3", "speed": "1450 rpm"}
        new = prepared(run, Switch(component="unit.pump", type="fixed_pump", values=values))
    assert new.circuit.source["components"]["unit.pump"]["ports"] == {"P": "supply", "T": "unit.T"}


def test_a_wrong_value_is_reported_and_changes_nothing(rig: Rig) -> None:
    with LockstepRun(rig) as run:
        run.run(100)
        cases: tuple[tuple[str, dict[str, JsonValue], str], ...] = (
            ("unit", {"set_pressure": "=flow"}, "unit.definition.components.pump.set_pressure.*wrong unit"),
            ("unit", {"pressure": "1 bar"}, "no such parameter"),
            ("parameters", {"flow": "-40 l/min"}, "main_valve.nominal_flow"),
        )
        for component, values, expected in cases:
            with pytest.raises(ConfigurationError, match=expected):
                prepared(run, Switch(component=component, set=values))


def test_a_log_replays_without_the_files(rig: Rig, tmp_path: Path) -> None:
    """With a switch of parameters on the way."""
    with LockstepRun(rig, tmp_path / "run.arrow") as run:
        run.start()
        run.run(300)
        new = prepared(run, Switch(component="unit", set={"set_pressure": "120 bar"}))
        run.swap(new.circuit, new.packed)
        run.run(300)
    shutil.rmtree(tmp_path / "config")
    result = replay_log(tmp_path / "run.arrow")
    assert result.ok
    assert result.rows >= 600


def test_problems_of_a_circuit_file_have_lines(rig: Rig) -> None:
    """Also those of the files that it names; not those of a circuit that came as a table."""
    circuits = rig.file.parents[1] / "circuits"
    (circuits / "wrong.toml").write_text(
        CIRCUIT.replace("[nodes.supply]", "[nodes.suply]").replace("{ T =", "{ R =", 1)
    )
    (circuits / "unit.toml").write_text(SUPPLY.replace("type =", "typ =", 1))
    with LockstepRun(rig) as run:
        with pytest.raises(ConfigurationError) as caught:
            prepared(run, SwitchCircuit(file="wrong.toml"))
        texts = [str(problem) for problem in caught.value.problems]
        assert any(text.startswith("wrong.toml:9: components.tank.ports.") for text in texts), texts
        assert any(re.match(r".*/unit\.toml:\d+: components\.\w+\.type: missing", text) for text in texts), texts
        with pytest.raises(ConfigurationError) as caught:
            prepared(run, SwitchCircuit(circuit={"components": {"tank": {"type": "tnk"}}}))
        assert [problem.line for problem in caught.value.problems] == [0]
