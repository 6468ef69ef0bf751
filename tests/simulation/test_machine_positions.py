"""Where a machine is when its cylinders are put somewhere: what hangs on a rod by springs moves with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from component_bench import program
from lift_bench import lift
from rig_bench import merged

from hilserver.circuit.analysis import Analysis
from hilserver.circuit.library import standard_library
from hilserver.mechanics.tables import tables
from hilserver.rig.rig import Rig
from hilserver.simulation.machine import Machine, machine_alone, machine_of_device
from hilserver.toml import read_toml

CONFIG = Path(__file__).parents[2] / "config"
STIFFNESS, MASS, START = 5e6, 390.0, 0.25
"""N/m; kg of the load; m, where the rod of the lift starts."""
RELAXED = -9.81 * MASS / STIFFNESS
"""m: the spring carries the weight where rod and load start, at the same position."""


def sprung() -> tuple[Rig, Machine]:
    """The lift whose load is behind a spring, with a mass damper hanging on it, and a spring to the frame."""
    between = {"type": "spring", "stiffness": f"{STIFFNESS} N/m"}
    components: dict[str, Any] = {
        "load": {"ports": {"rod": "load"}},
        "spring": {**between, "ports": {"rod": "rod", "base": "load"}, "relaxed": f"{RELAXED!r} m"},
        "absorber": {"type": "load_mass", "ports": {"rod": "absorber"}, "mass": "10 kg", "gravity": "0 m/s^2"},
        "its_spring": {**between, "ports": {"rod": "absorber", "base": "load"}, "relaxed": f"{START} m"},
        "buffer": {**between, "stiffness": "1 N/m", "ports": {"rod": "load", "base": "frame"}},
        "frame": {"type": "velocity_source", "ports": {"rod": "frame"}, "velocity": "1 m/s", "command": "still"},
    }
    nodes = {"load": {"position": f"{START} m"}, "absorber": {"position": f"{2.0 * START} m"}}
    machine = {"components": components, "nodes": nodes}
    rig = lift({"devices": {"rig": {"machine": machine}}, "rig": {"inputs": {"still": {"range": [-1, 1]}}}})
    return rig, machine_of_device(rig, rig.devices[0])


def test_what_hangs_on_a_rod_moves_with_it_and_the_frame_does_not() -> None:
    _, machine = sprung()
    assert machine.hanging() == {"load": ("rod", 0.0), "absorber": ("rod", START)}
    assert machine.at_share(0.75) == {"rod.x": 0.75, "load.x": 0.75, "absorber.x": 1.0}


def test_moved_it_is_as_much_at_rest_as_at_the_start() -> None:
    rig, machine = sprung()
    analysis = Analysis(program(), machine_alone(rig, machine))
    place = list(analysis.packed.values).index
    for name, value in machine.at_share(0.75).items():
        analysis.values[place(name)] = value
    analysis.advance(1, 1e-4)
    for node in ("load", "absorber"):  # a spring that is stretched by 0.5 m would move the load at 0.6 m/s
        assert abs(analysis.values[place(f"{node}.v")]) < 1e-4


def test_what_hangs_on_the_rod_of_a_mechanism_moves_with_it() -> None:
    """Its rod has no start in the circuit file: it starts where the mechanism does."""
    file = CONFIG / "circuits" / "boom_machine.toml"
    parts = {
        "absorber": {"type": "load_mass", "ports": {"rod": "absorber"}, "mass": "10 kg"},
        "its_spring": {"type": "spring", "stiffness": "1e5 N/m", "ports": {"rod": "rod", "base": "absorber"}},
    }
    start = Machine.read(read_toml(file), standard_library(), "", str(file)).hanging()
    assert start == {}
    table = merged(read_toml(file), {"components": parts, "nodes": {"absorber": {"position": "0.3 m"}}})
    machine = Machine.read(table, standard_library(), "", str(file))
    ((rod, distance),) = machine.hanging().values()
    x = next(placed.values_at(tables(placed.mechanism))["rod.x"] for placed in machine.circuit.mechanisms)
    assert rod == "rod"
    assert distance == pytest.approx(0.3 - x)
    moved = machine.at_share(0.9)
    assert moved["absorber.x"] - moved["rod.x"] == pytest.approx(distance)
    assert machine.at_share(50.0) == {}
