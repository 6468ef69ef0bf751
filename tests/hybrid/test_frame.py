"""The benchmark problem as circuits and a work cycle, config/circuits/frame*.toml, against its matrices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from component_bench import program

from hilserver.circuit.analysis import Analysis, LinearModel
from hilserver.circuit.library import standard_library
from hilserver.circuit.pack import PackedCircuit
from hilserver.displacement.actuator import SCALE
from hilserver.displacement.linear import LinearMotion
from hilserver.hybrid.benchmark import CASES, DT, NOMINAL, SPECIMEN, el_centro, reference
from hilserver.numerics.arrays import Floats
from hilserver.rig.simulated import plant_circuit
from hilserver.simulation.circuit_run import read_cycle
from hilserver.simulation.driven import course
from hilserver.simulation.packed_run import run_packed
from hilserver.toml import read_toml

CONFIG = Path(__file__).parents[2] / "config"
GROUND = "ground_acceleration"
FLOORS = ("table.x", "floor_2.x", "floor_3.x")
SPEEDS = ("table.v", "floor_2.v", "floor_3.v")
TRAVEL = 0.05
"""m, of the actuator."""


def table(name: str) -> dict[str, object]:
    return dict(read_toml(CONFIG / f"circuits/{name}.toml"))


def frame(specimen: dict[str, object]) -> PackedCircuit:
    """The virtual part with a specimen at its table."""
    return plant_circuit(specimen, table("frame"), standard_library())


def earthquake() -> Floats:
    """The work cycle in every tick."""
    times, values = course(read_cycle(CONFIG / "cycles/el_centro.toml"), GROUND)
    found: Floats = np.interp(np.arange(len(el_centro())) * DT, times, values)
    return found


def assert_moves_as(found: LinearModel, right: LinearMotion, states: tuple[str, ...], scale: Floats) -> None:
    """The same linear equations, to 1e-6 of the largest coefficient of each."""
    places = [found.states.index(name) for name in states]
    A, B = found.A[np.ix_(places, places)] * scale, found.B[places]
    largest = np.abs(right.A * scale).max(axis=1)[:, None]
    assert A / largest == pytest.approx(right.A * scale / largest, abs=1e-6)
    assert B / largest == pytest.approx(right.B / largest, abs=1e-6 * np.abs(right.B / largest).max())


def test_the_virtual_part_has_the_matrices_of_the_frame_without_its_specimen() -> None:
    packed = frame({"components": {}})
    right = CASES[0].structure().without(SPECIMEN).motion()
    found = Analysis(program(), packed).linearised([GROUND])
    ground_only = LinearMotion(right.A, right.B[:, :1])
    assert_moves_as(found, ground_only, (*FLOORS, *SPEEDS), np.ones(6))


def test_actuator_and_specimen_are_those_of_the_benchmark() -> None:
    packed = plant_circuit(table("frame_specimen"), table("frame_actuator"), standard_library())
    found = Analysis(program(), packed).linearised(["command"])
    right = LinearMotion(NOMINAL.motion().A, TRAVEL * NOMINAL.motion().B[:, :1])
    assert_moves_as(found, right, ("table.x", "table.v", "actuator.F", "actuator.s", "actuator.r"), SCALE)


def test_the_work_cycle_is_the_earthquake_of_the_benchmark() -> None:
    """To the sixth decimal, over its whole length."""
    ground = el_centro()
    assert earthquake() == pytest.approx(ground, abs=1e-6)
    assert read_cycle(CONFIG / "cycles/el_centro.toml").duration == pytest.approx((len(ground) - 1) * DT, abs=DT)


def test_the_joined_frame_moves_as_the_whole_structure_in_the_earthquake() -> None:
    """15 s with the strongest motion, all floors; matrix exponential of the whole structure, to 0.001 % RMS.

    The acceleration is held in each tick at its mean. At its value at the begin, the motion is half a tick late.
    """
    packed, ground, ticks = frame(table("frame_specimen")), earthquake(), round(15.0 / DT)
    right = reference(CASES[0])[1 : ticks + 1]
    columns = [packed.names.index(name) for name in FLOORS]
    assert np.abs(right).max() > 2e-3  # it is shaken, m

    def error(given: Floats) -> Floats:
        found = run_packed(program(), packed, DT, [GROUND], given[:, None])[:, columns]
        off: Floats = np.std(found - right, axis=0) / np.std(right, axis=0)
        return off

    assert error(0.5 * (ground[:ticks] + ground[1 : ticks + 1])).max() < 1e-5
    late = np.std(np.gradient(right, DT, axis=0), axis=0) * 0.5 * DT / np.std(right, axis=0)
    assert error(ground[:ticks].copy()) == pytest.approx(late, rel=0.02)
