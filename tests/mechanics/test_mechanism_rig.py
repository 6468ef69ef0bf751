"""Mechanisms at a rig: a boom as the simulated machine; one in the virtual circuit, switched, logged, replayed."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.rig.simulated import joined, plant_circuit
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.machine import is_position, machine_of
from hilserver.simulation.replay import replay_log

ROOT = Path(__file__).parents[2]
PENDULUM: dict[str, Any] = {
    "bodies": {"arm": {"mass": "2 kg", "inertia": "0.5 kg*m^2", "centre": ["0.8 m", "0 m"]}},
    "joints": {"pin": {"type": "revolute", "between": ["ground", "arm"], "point": ["0 m", "0 m"]}},
}


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(ROOT / "config/rigs/boom.toml")


def test_the_boom_as_the_machine_of_a_rig(rig: Rig, tmp_path: Path) -> None:
    """It lifts and lowers under the bridge; the log replays bit for bit, mechanism and all."""
    log = tmp_path / "boom.arrow"
    with LockstepRun(rig, log, trace=True) as run:
        run.run_cycle()
        assert run.mode == "RUNNING", run.fault
        values = run.true_values("rig")
    tables = rig.sources["devices"]["rig"]
    names = plant_circuit(tables["machine"], tables["drive"], rig.library).names
    angle = values[:, names.index("boom.boom.angle")]
    assert angle.max() > 0.05
    assert angle[-1] < -0.02
    replayed = replay_log(log)
    assert replayed.compared == replayed.rows > 4000
    assert replayed.differences == ()


def test_the_sensors_see_the_mechanism_from_the_first_tick_on(rig: Rig) -> None:
    """Position and speed of its nodes stand in the values before anything is integrated."""
    tables = rig.sources["devices"]["rig"]
    names = plant_circuit(tables["machine"], tables["drive"], rig.library).names
    plant = rig.plants()["rig"]
    assert plant.values[names.index("rod.x")] == pytest.approx(0.32, abs=1e-6)


def test_a_mechanism_is_switched_in_and_carried_over(rig: Rig, tmp_path: Path) -> None:
    """A pendulum in the virtual circuit: switched in at its start, then made heavier while it swings on; replayed."""
    source = copy.deepcopy(dict(rig.circuit.source))
    source["mechanisms"] = {"swing": {"definition": PENDULUM}}
    heavier = copy.deepcopy(source)
    heavier["mechanisms"]["swing"]["definition"]["bodies"]["arm"]["mass"] = "4 kg"
    log = tmp_path / "swing.arrow"
    with LockstepRun(rig, log) as run:
        run.run(10)
        run.swap(rig.read_circuit(source))
        run.run(300)
        names = rig.pack(rig.read_circuit(source)).names
        first = len(rig.layout.names)
        before = run.row[first + names.index("swing.arm.angle")]
        run.swap(rig.read_circuit(heavier))
        run.run(1)
        after = run.row[first + names.index("swing.arm.angle")]
        run.run(200)
    assert before < -0.2
    assert after == pytest.approx(before, abs=5e-3)
    replayed = replay_log(log)
    assert replayed.switches == 2
    assert replayed.differences == ()


def test_machine_and_drive_may_not_have_a_mechanism_of_the_same_name() -> None:
    part = {"components": {}, "mechanisms": {"m": {"definition": PENDULUM}}}
    with pytest.raises(Exception, match="both circuits have a mechanism of the same name"):
        joined(part, part)
    other = {"components": {}, "mechanisms": {"n": {"definition": PENDULUM}}}
    assert set(joined(part, other)["mechanisms"]) == {"m", "n"}


def test_the_machine_is_examined_over_its_stroke(rig: Rig) -> None:
    """Feasibility and stability put the cylinder at a share of its stroke: the boom's pose follows."""
    settings = rig.settings.model_copy(update={"cylinders": {}})
    machine = machine_of(replace(rig, settings=settings))
    assert machine is not None
    assert machine.origin == "the simulated machine"
    found = machine.at_share(0.9)
    assert found["rod.x"] == pytest.approx(0.45, abs=1e-12)  # and its stroke
    x, y = found["boom.boom.x"], found["boom.boom.y"] - 1.2
    assert np.hypot(x, y) == pytest.approx(1.2713027, abs=1e-9)
    assert found["boom.boom.angle"] > 0.2
    assert machine.at_share(50.0) == {}
    positions = {name for name in found if is_position(name)}
    bodies = {f"boom.{b}.{p}" for b in ("boom", "lift.barrel", "lift.rod") for p in ("x", "y", "angle")}
    assert positions == bodies | {"rod.x"}
    assert not is_position("sensor.y")
