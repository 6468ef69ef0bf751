"""Studies over what the bridge is not told, or is told wrongly: each variant against rig files written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from study_bench import CONFIG, lift_files, replace_in

from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError
from hilserver.fidelity.cycle_run import run_cycle_on
from hilserver.fidelity.unknowns import applicable
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.studies.report import write_study
from hilserver.studies.settings import Study, load_study
from hilserver.studies.study import StudyResult, repeat, run_study
from hilserver.studies.unknown_values import UnknownValue
from hilserver.studies.varied_rig import RigValues

STUDY = """
rig = "rigs/lift.toml"
plan = "grid"
levels = 2
[vary]
VARY
[figures]
flow = "fidelity(flow A)"
supply = "min(channel.p_S)"
"""
DROOP = """
[components.line]
type = "orifice"
ports = { A = "pump", B = "S" }
nominal_flow = { flow = "60 l/min", drop = "21 bar" }

[components.oil]
type = "volume"
ports = { P = "S" }
volume = "1 l"

[nodes.S]
pressure = "210 bar"
"""
"""10 % of the supply pressure at the nominal flow of the valves."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lift_files(tmp_path)
    return tmp_path


def loaded(folder: Path, vary: str, text: str = STUDY) -> Study:
    file = folder / "study.toml"
    file.write_text(text.replace("VARY", vary))
    return load_study(file)


def run(folder: Path, vary: str) -> StudyResult:
    result = run_study(loaded(folder, vary), folder / "out")
    assert result.failures() == {}
    return result


def flow_of(rig: Rig) -> float:
    """NRMSE of the flow over the work cycle of a rig."""
    return run_cycle_on(rig, "rig", "feedback", compiled_program(rig.library)).result.deviations["flow A"].nrmse


# --- a variant is the rig whose files have been written like this -----------------------------------------------------


def test_a_droop_of_the_supply(folder: Path) -> None:
    """A part that no file has."""
    result = run(
        folder,
        '"unknowns.supply_droop.drop" = { from = "10 %", to = "20 %" }\n'
        '"unknowns.supply_droop.volume" = { from = "1 l", to = "2 l" }',
    )
    (number,) = np.flatnonzero((result.values == [0.1, 1e-3]).all(axis=1))
    assert result.nominal["flow"] == flow_of(load_rig(folder / "rigs/lift.toml"))
    replace_in(folder / "circuits/two_valves.toml", ('ports = { P = "S" }', 'ports = { P = "pump" }'))
    drive, machine = folder / "circuits/two_valves.toml", folder / "circuits/lift_machine.toml"
    drive.write_text(drive.read_text() + DROOP)
    machine.write_text(machine.read_text() + 'integrator = "rosenbrock"\n')  # into the last table, [solver]
    by_hand = flow_of(load_rig(folder / "rigs/lift.toml"))
    assert result.column("flow")[number] == pytest.approx(by_hand, rel=1e-6)
    assert result.column("supply")[number] < result.nominal["supply"] - 5e5


def test_a_wrong_frequency_that_the_bridge_is_told(folder: Path) -> None:
    """60 Hz in the rig file; the simulated valve has its 80 Hz."""
    result = run(folder, '"told.valves.A.f90" = { from = "60 Hz", to = "80 Hz" }')
    assert result.column("flow")[1] == pytest.approx(result.nominal["flow"], rel=1e-6)
    replace_in(folder / "rigs/lift.toml", ('f90 = "80 Hz"', 'f90 = "60 Hz"'))
    assert result.column("flow")[0] == pytest.approx(flow_of(load_rig(folder / "rigs/lift.toml")), rel=1e-6)
    assert result.column("flow")[0] > 1.5 * result.nominal["flow"]


# --- who knows what ---------------------------------------------------------------------------------------------------


def test_unknowns_change_the_device_only_and_what_is_told_the_bridge_only(folder: Path) -> None:
    rig = load_rig(folder / "rigs/lift.toml")
    values = RigValues(rig)
    unknowns = {key: each for key, each in values.known.items() if isinstance(each, UnknownValue)}
    assert {key.split(".")[1] for key in unknowns} == {u.name.replace(" ", "_") for u in applicable(rig, "rig")}
    for key in unknowns:
        other = values.changed({key: unknowns[key].usual.high})
        assert other.plan.block.tobytes() == rig.plan.block.tobytes(), key
        assert other.packed.value.tobytes() == rig.packed.value.tobytes(), key
        assert plants(other) != plants(rig), key
    for key in ("told.valves.A.f90", "told.valves.B.overlap", "told.cylinders.lift.mass", "told.channels.p_A.delay"):
        other = values.changed({key: 1.1 * values.known[key].value + 2e-3})
        assert other.plan.block.tobytes() != rig.plan.block.tobytes(), key
        assert plants(other) == plants(rig), key
    rig = load_rig(CONFIG / "rigs/conveyor.toml")
    values = RigValues(rig)
    other = values.changed({"told.motors.drive.inertia": 0.06})
    assert other.plan.block.tobytes() != rig.plan.block.tobytes()
    assert plants(other) == plants(rig)


def plants(rig: Rig) -> list[bytes]:
    return [np.asarray(each).tobytes() for each in rig.first_plants["rig"]]


# --- how they are written ---------------------------------------------------------------------------------------------


def test_usual_ranges_are_those_of_the_fidelity_page(folder: Path) -> None:
    """Of one unknown, or of all; a range that is written for one of the values counts, also before or after."""
    varied = {each.key: each for each in loaded(folder, 'unknowns = "usual"').varied}
    assert len(varied) > 20
    assert (varied["unknowns.friction"].tolerance.lower, varied["unknowns.friction"].tolerance.upper) == (0.01, 0.08)
    assert (
        varied["unknowns.piston_leakage"].shown(varied["unknowns.piston_leakage"].tolerance.upper) == "0.02 l/min/bar"
    )
    late = varied["unknowns.sensor_delay"].tolerance
    assert (late.lower, late.upper) == (0.0, 0.002)
    given = '"unknowns.hose.share" = { from = 0.1, to = 0.3 }\n"unknowns.hose" = "usual"'
    hose = {each.key: each.tolerance for each in loaded(folder, given).varied}
    assert hose.keys() == {"unknowns.hose.share", "unknowns.hose.wall_coefficient"}
    assert (hose["unknowns.hose.share"].lower, hose["unknowns.hose.share"].upper) == (0.1, 0.3)
    fixed = loaded(folder, 'unknowns = "usual"', STUDY.replace("[vary]", 'fixed = ["unknowns.hose"]\n[vary]'))
    assert {each.key for each in fixed.varied} == varied.keys() - hose.keys()


def test_an_unknown_is_absent_or_present(folder: Path) -> None:
    """Present: with the middle of its usual range, 4.5 bar. The page says that the rig as described has none."""
    result = run(folder, '"unknowns.restriction" = ["absent", "present"]')
    assert result.table["unknowns.restriction"].to_pylist() == ["absent", "present"]
    assert result.column("flow")[0] == result.nominal["flow"]
    study = loaded(folder, '"unknowns.restriction" = { from = "4 bar", to = "6 bar" }')
    middle = repeat(study, {"unknowns.restriction": 4.5e5}, "middle", folder / "out")
    assert middle.figures[0] == pytest.approx(result.column("flow")[1], rel=1e-9)
    assert middle.figures[0] != result.nominal["flow"]
    page = write_study(result, folder / "out")[1].read_text()
    assert "| unknowns.restriction | absent | absent, present | choice |" in page


@pytest.mark.parametrize(
    ("key", "entry", "said"),
    [
        ("unknowns.hosse", '"usual"', "Did you mean unknowns.hose"),
        ("machine.load.mass", '"usual"', "only unknowns have a usual range"),
        (
            "unknowns.hose",
            "{ from = 0.1, to = 0.3 }",
            "choose from unknowns.hose.share, unknowns.hose.wall_coefficient",
        ),
        ("unknowns.friction", '"± 5 %"', "give a range { from, to }"),
        ("unknowns.friction", '{ from = "1 bar", to = "2 bar" }', "measured in Pa"),
        ("unknowns.friction", '["absent", "lugre"]', 'write ["absent", "present"]'),
        ("unknowns.frction", '["absent", "present"]', "Did you mean unknowns.friction?"),
        ("told.valves.A.f45", '"± 5 %"', "Did you mean told.valves.A.f90?"),
    ],
)
def test_what_is_wrong_is_named(key: str, entry: str, said: str, folder: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        loaded(folder, f'"{key}" = {entry}')
    (problem,) = refused.value.problems
    assert problem.key == f"vary.{key}"
    assert said in problem.message
