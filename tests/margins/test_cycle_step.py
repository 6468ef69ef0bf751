"""The verdict of `check` on a rig's step: its circuit over the work cycle, against half of the step."""

from __future__ import annotations

import copy
from pathlib import Path

from hilserver.circuit.library import standard_library
from hilserver.compiler import compiled_program
from hilserver.margins.cycle_step import cycle_step_error
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.step_error import StepError

DEMO = Path(__file__).parents[2] / "config/rigs/demo.toml"


def judged(substeps: int, volume: str = "2 l") -> StepError:
    rig: Rig = load_rig(DEMO)
    sources = copy.deepcopy(dict(rig.sources))
    sources["circuit"]["solver"] = {"substeps": substeps}
    sources["circuit"]["components"]["line"]["volume"] = volume
    found = cycle_step_error(assemble(sources, DEMO, standard_library()), compiled_program(standard_library()))
    assert found is not None
    return found


def test_the_step_of_the_demo_is_short_enough() -> None:
    found = judged(10)
    assert not found.too_long
    assert {each.quantity for each in found.deviations} == {"pressure", "flow"}


def test_a_step_that_is_too_long_is_reported_with_a_sufficient_one() -> None:
    """A supply line of 20 cm³: with RK4 at 1 ms the pressure chatters, within the bounds of cavitation and relief."""
    found = judged(1, "20 cm^3")
    assert found.too_long
    assert "step of 1000 µs is too long for rk4: pressure" in found.verdict()
    needed = int(found.remedy.split("at least ")[1].split()[0])
    assert not judged(needed, "20 cm^3").too_long


def test_a_rig_without_a_work_cycle_is_not_judged() -> None:
    rig = load_rig(DEMO)
    sources = {key: table for key, table in rig.sources.items() if key != "cycle"}
    sources["rig"] = {key: value for key, value in sources["rig"].items() if key != "cycle"}
    without = assemble(sources, DEMO, standard_library())
    assert cycle_step_error(without, compiled_program(standard_library())) is None
