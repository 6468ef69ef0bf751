"""The results of a rig know the error of their step: the estimate against fine steps, and a verdict that is right."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.circuit import engine as e
from hilserver.circuit.library import standard_library
from hilserver.errors import HilserverError
from hilserver.fidelity.comparison import Comparison
from hilserver.fidelity.from_log import fidelity_of_log
from hilserver.fidelity.report import write_report, write_simulation
from hilserver.fidelity.results import Fidelity
from hilserver.fidelity.step import IntegrationStep, with_step_error
from hilserver.fidelity.strategies import at_step, simulate, with_cycle
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "config/rigs/demo.toml"
EULER = {"integrator": "euler", "substeps": 1}


def demo(circuit: dict[str, Any] | None = None, machine: dict[str, Any] | None = None) -> Rig:
    """The demo with other solvers, and its work cycle cut short."""
    tables = copy.deepcopy(dict(load_rig(DEMO).sources))
    points = tables["cycle"]["inputs"]["joystick"]["points"]
    tables["cycle"]["inputs"]["joystick"]["points"] = points[:3]
    if circuit is not None:
        tables["circuit"]["solver"] = circuit
    if machine is not None:
        for table in ("machine", "drive"):
            tables["devices"]["rig"][table]["solver"] = machine
    return assemble(tables, DEMO, standard_library())


def with_error(rig: Rig, tolerance: float = 0.01) -> Fidelity:
    return with_step_error(rig, simulate(rig, ["inverse_static"]), at_step(rig), tolerance)


def differences(one: Fidelity, other: Fidelity) -> dict[str, float]:
    """The largest difference of each kind of quantity, in the rig and in the reference simulation."""
    found: dict[str, float] = {}
    for variant in one.variants:
        twin = other.variant(variant.name)
        assert variant.cycle is not None
        assert twin.cycle is not None
        for of in ("actual", "reference"):
            for name, line in getattr(variant.cycle, of).items():
                what = name.split()[0]
                found[what] = max(found.get(what, 0.0), float(np.abs(line - getattr(twin.cycle, of)[name]).max()))
    return found


@pytest.mark.parametrize(("circuit", "machine"), [(EULER | {"substeps": 4}, EULER | {"substeps": 4}), (EULER, None)])
def test_the_error_is_that_of_the_step(circuit: dict[str, Any], machine: dict[str, Any] | None) -> None:
    """Against 16 steps of RK4 for each of Euler's, whose error is nothing against that of these."""
    rig = demo(circuit, machine)
    result = with_error(rig)
    assert result.error is not None
    exact = at_step(rig)(IntegrationStep(16, "rk4"), ["inverse_static"])
    for deviation in result.error.deviations:
        true = differences(result, exact)[deviation.quantity]
        assert true / 3 < deviation.largest < 3 * true


def test_a_step_that_is_too_long_is_told_with_the_one_that_suffices() -> None:
    """Euler in steps of 1 ms in the machine and its drive; as the verdict says, more of them suffice."""
    rig = demo(machine=EULER, circuit=EULER)
    result = with_error(rig, 1e-3)
    assert result.error is not None
    assert result.error.too_long
    verdict = result.error.verdict()
    assert verdict.startswith("The step of 1000 µs is too long for euler: ")
    needed = int(verdict.split("solver.substeps of at least ")[1].split()[0])
    assert f"{needed} in machine.toml" in verdict
    assert f"{needed} in drive.toml" in verdict
    assert ', or integrator = "rosenbrock"' in verdict
    enough = with_error(demo(machine=EULER | {"substeps": needed}, circuit=EULER | {"substeps": needed}), 1e-3)
    assert enough.error is not None
    assert not enough.error.too_long
    less = with_error(demo(machine=EULER | {"substeps": needed // 2}, circuit=EULER | {"substeps": needed // 2}), 1e-3)
    assert less.error is not None
    assert less.error.too_long


def test_a_run_that_does_not_complete_with_half_the_step_is_too_long() -> None:
    """What has no counterpart is infinitely far off."""
    rig = demo()
    result = simulate(rig, ["inverse_static"])

    def fails(step: IntegrationStep, names: list[str]) -> Fidelity:
        raise HilserverError("the rig does not complete its work cycle")

    error = with_step_error(rig, result, fails).error
    assert error is not None
    assert error.too_long
    assert "No step down to" in error.remedy


def test_error_on_page_and_in_json(tmp_path: Path) -> None:
    result = with_error(demo())
    assert result.error is not None
    assert not result.error.too_long
    assert {each.quantity for each in result.error.deviations} == {"position", "flow", "pressure"}
    for write in (write_simulation, write_report):
        files = write(result, tmp_path)
        page = next(file for file in files if file.suffix == ".html").read_text()
        assert "Discretisation error" in page
        assert result.error.verdict() in page
        figures = json.loads(next(file for file in files if file.suffix == ".json").read_text())
        assert figures["error"]["quantities"]["pressure"]["largest_difference"] > 0.0


def test_of_a_log_the_reference_simulation_has_an_error(tmp_path: Path) -> None:
    """What was recorded stays; only the reference simulation is calculated anew."""
    rig, log = demo(EULER | {"substeps": 4}), tmp_path / "run.arrow"
    with LockstepRun(rig, log) as run:
        run.run_cycle()
        run.run(10)
    plain = fidelity_of_log(rig, log)
    result = with_step_error(rig, plain, lambda step, names: fidelity_of_log(rig, log, step=step))
    assert result.error is not None
    assert {each.name.rpartition(", ")[2] for each in result.error.deviations} == {"reference"}
    true = differences(plain, fidelity_of_log(rig, log, step=IntegrationStep(16, "rk4")))
    for deviation in result.error.deviations:
        assert true[deviation.quantity] / 3 < deviation.largest < 3 * true[deviation.quantity]


def test_the_commands_tell_it(tmp_path: Path) -> None:
    hilserver = str(Path(sys.executable).with_name("hilserver"))
    command = (hilserver, "simulate", str(DEMO), "--strategy", "inverse_static", "-o", str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Error of pressure" in done.stdout
    assert "Discretisation error with a step of 100 µs, from a run with half the step: at most" in done.stdout


def test_the_companion_divides_its_steps_everywhere() -> None:
    """An implicit method divides half of the step into the same parts: circuit, machine and reference are told not to.

    A companion that does so is the same run once more, and sees no error.
    """
    implicit = {"integrator": "rosenbrock", "substeps": 1}
    companion = IntegrationStep(2, halvings=1).rig(demo(implicit, implicit))
    comparison = Comparison.of(companion)
    indices = [
        companion.packed.index,
        companion.plants()["rig"].ix,
        comparison.reference.packed.index,
        comparison.plant.index,
    ]
    assert [int(index[e.HALVINGS]) for index in indices] == [1, 1, 1, 1]
    assert [int(index[e.SUBSTEPS]) for index in indices] == [2, 2, 2, 2]
    again = IntegrationStep(halvings=2).of(companion.packed)
    assert (again.index[e.HALVINGS], again.index[e.SUBSTEPS]) == (2, 2)


def test_a_companion_with_another_work_cycle_divides_its_steps_too() -> None:
    """Otherwise the error of a sweep would be that of another method."""
    companion = IntegrationStep(2, halvings=1).rig(demo({"integrator": "rosenbrock", "substeps": 1}))
    assert companion.cycle is not None
    swept = with_cycle(companion, companion.sources["cycle"])
    assert swept.packed.index.tobytes() == companion.packed.index.tobytes()
    assert swept.plants()["rig"].ix.tobytes() == companion.plants()["rig"].ix.tobytes()
    assert swept.halvings == 1
