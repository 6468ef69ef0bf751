"""The benchmark measures what it says. How long anything takes is not tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from hilserver.record.reader import LogReader
from hilserver.rig.load import Rig, load_rig
from hilserver.runs.bench import benchmarks, with_substeps
from hilserver.runs.lockstep import LockstepRun
from hilserver.runs.replay import replay_log

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(ROOT / "config/rigs/demo.toml")


def test_every_case_is_timed_for_every_circuit(rig: Rig) -> None:
    results = benchmarks(rig, ticks=50, repeats=3, substeps=(1, 4))
    assert [result.circuit for result in results] == ["rk4 × 1"] * 4 + ["rk4 × 4"] * 4
    names = ["tick alone", "tick and devices", "tick, devices and full-rate log", "replay of that log"]
    assert [result.name for result in results] == names * 2
    for result in results:
        assert 0.0 < result.fastest <= result.median <= result.slowest
        assert result.speed == pytest.approx(1000.0 / result.median)


def test_substeps_change_the_virtual_circuit_only(rig: Rig) -> None:
    chosen = with_substeps(rig, 3)
    assert chosen.circuit.solver.substeps == 3
    assert chosen.circuit.solver.integrator == rig.circuit.solver.integrator
    assert rig.circuit.solver.substeps == 10
    with LockstepRun(rig) as fine, LockstepRun(chosen) as coarse:
        a, b = fine.run_cycle(), coarse.run_cycle()
    virtual = rig.layout.column("valve.main.flow_virtual")
    assert a[1000, virtual] != b[1000, virtual]
    assert a[1000, virtual] == pytest.approx(b[1000, virtual], rel=1e-2)


def test_the_log_of_a_changed_circuit_replays(rig: Rig, tmp_path: Path) -> None:
    """The circuit in the log's sources is the one that was packed and ran."""
    with LockstepRun(with_substeps(rig, 3), tmp_path / "run.arrow") as run:
        run.start()
        run.run(300)
    assert replay_log(tmp_path / "run.arrow").ok
    assert LogReader(tmp_path / "run.arrow").header.configuration["circuit"]["solver"]["substeps"] == 3
