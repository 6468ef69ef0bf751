"""Studies of a simulated rig with its bridge: a variant is the rig of files with these values; trips are named."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from itertools import count
from math import inf, isnan
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from command_line import Command
from study_bench import CONFIG, lift_files, replace_in

from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.fidelity.measures import largest_errors
from hilserver.fidelity.strategies import measure, simulate
from hilserver.fidelity.sweeps import sweep_of
from hilserver.fidelity.vary import strategy_for
from hilserver.margins.margins import margins
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.studies import varied_rig, worst
from hilserver.studies.measured import read_columns
from hilserver.studies.report import write_study
from hilserver.studies.rig_runs import RigSubject, _margins
from hilserver.studies.settings import load_study
from hilserver.studies.study import StudyResult, plan_of, prepared, repeat, run_study, values_of_variant
from hilserver.studies.subject import VariantFailedError
from hilserver.studies.varied_rig import RigValues
from hilserver.studies.worst import worst_case

pytestmark = pytest.mark.slow

BAR = 1e5
STUDY = """
rig = "rigs/lift.toml"
cycle = "cycles/lift.toml"
plan = "latin_hypercube"
samples = 6
[vary]
"machine.load.mass" = "± 20 %"
"drive.valve_A.f90" = { from = "60 Hz", to = "100 Hz" }
"circuit.relief.opening_pressure" = "± 3 %"
[figures]
position = "fidelity(position rod)"
flow = "fidelity(flow A)"
noise = "noise(valve.A.command)"
peak = "max(machine.A.p)"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lift_files(tmp_path)
    return tmp_path


def run(folder: Path, text: str = STUDY, workers: int = 0, resume: bool = False) -> StudyResult:
    file = folder / "study.toml"
    file.write_text(text)
    return run_study(load_study(file), folder / "out", workers, resume)


def fidelity_of(rig: Rig, strategy: str) -> dict[str, float]:
    """NRMSE of `hilserver simulate` for the rig."""
    (found,) = (variant for variant in simulate(rig, [strategy]).variants if variant.name == strategy)
    assert found.cycle is not None
    return {name: deviation.nrmse for name, deviation in found.cycle.deviations.items()}


# --- a variant is a rig with these values -----------------------------------------------------------------------------


def test_a_variant_is_the_rig_with_these_values_in_its_files(folder: Path) -> None:
    """Against `hilserver simulate` on a copy of the files: the same numbers to rounding, and not those of the rig."""
    result = run(folder)
    assert result.failures() == {}
    values = values_of_variant(result.study, 2)
    replace_in(
        folder / "circuits/lift_machine.toml", ('mass = "390 kg"', f'mass = "{values["machine.load.mass"]!r} kg"')
    )
    replace_in(folder / "circuits/two_valves.toml", ('f90 = "80 Hz"', f'f90 = "{values["drive.valve_A.f90"]!r} Hz"'))
    pressure = values["circuit.relief.opening_pressure"]
    replace_in(folder / "circuits/lift.toml", ('opening_pressure = "150 bar"', f'opening_pressure = "{pressure!r} Pa"'))
    expected = fidelity_of(load_rig(folder / "rigs/lift.toml"), "feedback")
    assert result.column("position")[2] == pytest.approx(expected["position rod"], rel=1e-6)
    assert result.column("flow")[2] == pytest.approx(expected["flow A"], rel=1e-6)
    assert result.column("flow")[2] > 2.0 * result.nominal["flow"]


def test_the_nominal_run_is_the_rig_as_described(folder: Path) -> None:
    expected = fidelity_of(load_rig(folder / "rigs/lift.toml"), "feedback")
    result = run(folder, STUDY.replace("samples = 6", "samples = 2"))
    assert result.nominal["position"] == expected["position rod"]
    assert result.nominal["flow"] == expected["flow A"]


def test_the_bridge_is_told_nothing_of_machine_drive_and_sensors(folder: Path) -> None:
    """All that the tick knows of the rig is the same, bit for bit; the simulated device is another one."""
    rig = load_rig(folder / "rigs/lift.toml")
    values = RigValues(rig)
    for key in (
        "machine.load.mass",
        "drive.valve_A.f90",
        "sensors.p_A.gain",
        "sensors.x.noise",
        "actuators.valve_A.delay",
    ):
        other = values.changed({key: 1.1 * values.known[key].value + 2e-3})
        assert other.plan.block.tobytes() == rig.plan.block.tobytes(), key
        assert other.packed.value.tobytes() == rig.packed.value.tobytes(), key
        plants = (other.first_plants["rig"], rig.first_plants["rig"])
        assert [each.tobytes() for each in plants[0]] != [each.tobytes() for each in plants[1]], key
    other = values.changed({"circuit.relief.opening_pressure": 100 * BAR})
    assert other.packed.value.tobytes() != rig.packed.value.tobytes()


def test_a_value_that_is_given_as_it_is_changes_nothing(folder: Path) -> None:
    rig = load_rig(folder / "rigs/lift.toml")
    values = RigValues(rig)
    stated = {key: each.value for key, each in values.known.items() if not key.startswith(("sensors.x", "unknowns."))}
    same = values.changed(stated)
    for one, other in zip(same.first_plants["rig"], rig.first_plants["rig"], strict=True):
        np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(same.packed.value, rig.packed.value, rtol=1e-12)
    for part in ("valves", "cylinders", "channels"):
        assert getattr(same.settings, part) == getattr(rig.settings, part)


@pytest.mark.parametrize(("key", "right", "wrong"), [("offset", 0.0, 0.0025), ("gain", 1.0, 1.01)])
def test_errors_of_a_sensor(key: str, right: float, wrong: float, folder: Path) -> None:
    """The channel reads the true pressure with an offset, a share of 250 bar, or gain times it."""
    text = STUDY[: STUDY.index("[vary]")].replace("latin_hypercube", "grid")
    text += f"""levels = 2
[vary]
"sensors.p_B.{key}" = {{ from = {right}, to = {wrong} }}
[figures]
read = "mean(channel.p_B)"
true = "mean(machine.B.p)"
"""
    result = run(folder, text)
    true, error = result.column("true"), result.column("read") - result.column("true")
    expected = wrong * 250.0 * BAR if key == "offset" else (wrong - right) * true[1]
    assert error[1] - error[0] == pytest.approx(expected, rel=0.02)  # the delay of the sensor is in both


def test_figures_are_those_of_rigs_that_are_assembled_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "study.toml").write_text(STUDY)
    study = load_study(folder / "study.toml")
    values = plan_of(study)[:2]
    found = [each(row).tobytes() for each in [prepared(study)] for row in values]
    monkeypatch.setattr(varied_rig, "assemble_variant", lambda rig, sources: assemble(sources, rig.file, rig.library))
    monkeypatch.setattr(RigValues, "_in_place", lambda values, wanted: None)
    assert [each(row).tobytes() for each in [prepared(study)] for row in values] == found


# --- over frequency ---------------------------------------------------------------------------------------------------

SWEPT = (
    STUDY[: STUDY.index("[figures]")]
    + """
[sweep]
frequencies = ["4 Hz", "10 Hz"]
amplitude = 0.2
[figures]
amplitude = "amplitude_error(flow A)"
at_10 = "amplitude_error(flow A at 10 Hz)"
phase = { figure = "phase_error(position rod)", below = "5 deg" }
delay = "delay(flow A at 10 Hz)"
"""
)


def test_figures_over_frequency_are_those_of_hilserver_fidelity(folder: Path) -> None:
    (folder / "study.toml").write_text(SWEPT)
    study = load_study(folder / "study.toml")
    nominal = dict(zip([each.name for each in study.figures], prepared(study).nominal.tolist(), strict=True))
    rig = load_rig(folder / "rigs/lift.toml")
    sweep = sweep_of(rig, "joystick", (4.0, 10.0), 0.2)
    (variant,) = (each for each in measure(rig, ["feedback"], "joystick", sweep).variants if each.name == "feedback")
    assert variant.sweep is not None
    of_flow, of_position = (variant.sweep.responses[name] for name in ("flow A", "position rod"))
    assert nominal["amplitude"] == abs(largest_errors(of_flow)[0]) > 0.0
    assert nominal["at_10"] == abs(of_flow[1].ratio - 1.0)
    assert nominal["phase"] == pytest.approx(np.radians(abs(largest_errors(of_position)[1])), rel=1e-12)
    assert nominal["delay"] == pytest.approx(-of_flow[1].phase / 360.0 / 10.0, rel=1e-12)
    assert [each.unit for each in study.figures] == ["", "", "rad", "s"]


def test_a_work_cycle_and_its_sweep_have_one_limit_of_computing_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the first is missing for the second: a variant with both would be given up as one that hangs."""
    (folder / "study.toml").write_text(SWEPT)
    study, ticking = load_study(folder / "study.toml"), count()
    runs, values = prepared(study), plan_of(study)[0]
    monkeypatch.setattr(time, "thread_time", lambda: float(next(ticking)))
    begin = next(ticking)
    runs(values)
    looks = next(ticking) - begin
    assert isinstance(study.subject, RigSubject)
    strict = replace(study.subject, limit=0.7 * looks).prepare()
    with pytest.raises(VariantFailedError, match="aborted"):
        strict(values)


@pytest.mark.parametrize(
    ("old", "new", "key", "said"),
    [
        ("error(flow A)", "error(speed)", "figures.amplitude", "position rod at 4 Hz"),
        ("flow A at 10 Hz", "flow A at 11 Hz", "figures.at_10", "flow A at 10 Hz"),
        ("amplitude = 0.2", 'amplitude = 0.2\ninput = "joistick"', "sweep", "Did you mean joystick?"),
        ("10 Hz", "1 kHz", "sweep", "up to 100 Hz"),
    ],
)
def test_a_sweep_or_figure_that_the_rig_can_not_have_is_refused(
    old: str, new: str, key: str, said: str, folder: Path
) -> None:
    (folder / "study.toml").write_text(SWEPT.replace(old, new, 1))
    with pytest.raises(ConfigurationError) as refused:
        load_study(folder / "study.toml")
    (problem,) = refused.value.problems
    assert problem.key == key
    assert said in problem.message


# --- tolerances, strategies -------------------------------------------------------------------------------------------


def test_tolerances_in_the_files_of_the_rig_are_used(folder: Path) -> None:
    replace_in(folder / "circuits/lift_machine.toml", ('mass = "390 kg"', 'mass = "390 kg ± 10 %"'))
    replace_in(
        folder / "rigs/lift.toml",
        ('p_A = { of = "A",', 'p_A = { of = "A", noise = { value = 0.0, from = 0.0, to = 0.001 },'),
    )
    (folder / "study.toml").write_text(STUDY.replace('"machine.load.mass" = "± 20 %"\n', ""))
    study = load_study(folder / "study.toml")
    found = {each.key: each.tolerance for each in study.varied}
    assert found.keys() == {
        "machine.load.mass", "sensors.p_A.noise", "drive.valve_A.f90", "circuit.relief.opening_pressure"
    }  # fmt: skip
    assert (found["machine.load.mass"].lower, found["machine.load.mass"].upper) == pytest.approx((351.0, 429.0))


def test_strategies_are_compared(folder: Path) -> None:
    """A row for each of a grid, each the figures of this strategy, by its name in the table; the same on two processes,
    also after an interruption."""
    replace_in(folder / "circuits/two_valves.toml", ('f90 = "80 Hz"', 'f90 = "70 Hz"'))
    text = """
rig = "rigs/lift.toml"
plan = "grid"
[vary]
strategy = ["inverse_static", "second_order", "feedback"]
"""
    result = run(folder, text)
    assert result.table["strategy"].to_pylist() == ["inverse_static", "second_order", "feedback"]
    rig = load_rig(folder / "rigs/lift.toml")
    for number, strategy in enumerate(result.table["strategy"].to_pylist()):
        for name, value in fidelity_of(rig, strategy).items():
            assert result.column(name)[number] == value, (strategy, name)
    again = run_study(result.study, folder / "two", workers=2)
    assert again.table.equals(result.table)
    page = write_study(result, folder / "out")[0].read_text()
    assert "By strategy" in page
    assert "second_order" in page


def test_one_and_two_processes_give_the_same_table(folder: Path) -> None:
    result = run(folder)
    assert run_study(result.study, folder / "two", workers=2).table.equals(result.table)


def test_deviations_are_those_of_the_same_variant(folder: Path) -> None:
    """``fidelity`` compares with the reference simulation on the same machine, ``nrmse`` with the nominal run."""
    text = (
        STUDY[: STUDY.index("[vary]")].replace("latin_hypercube", "grid")
        + """levels = 2
[vary]
"machine.load.mass" = { from = "390 kg", to = "780 kg" }
[figures]
of_reference = "fidelity(pressure A)"
of_nominal = "nrmse(machine.A.p)"
"""
    )
    result = run(folder, text)
    assert result.column("of_nominal")[0] == pytest.approx(0.0, abs=1e-9)
    assert result.column("of_nominal")[1] > 0.2
    assert result.column("of_reference")[1] < 0.02


# --- runs that fail, and what is made of the others -------------------------------------------------------------------


def test_a_trip_is_named_and_counted(folder: Path) -> None:
    """5 t on a 50 mm piston are 250 bar: beyond the limit of 240 bar."""
    text = STUDY.replace('"± 20 %"', '{ from = "390 kg", to = "5000 kg" }').replace("latin_hypercube", "grid")
    text = text.replace("samples = 6", "levels = 2")
    result = run(folder, text)
    heavy = result.column("machine.load.mass") > 4000.0
    assert result.failures().keys() == set(np.flatnonzero(heavy).tolist())
    assert all("p_A_high" in reason for reason in result.failures().values()), result.failures()
    assert np.isfinite(result.column("position")[~heavy]).all()


def test_an_impossible_value_and_a_slow_run_are_named(folder: Path) -> None:
    text = STUDY.replace(
        '"machine.load.mass" = "± 20 %"', '"machine.nodes.rod.position" = { from = "0.2 m", to = "1.5 m" }'
    )
    result = run(folder, text.replace("latin_hypercube", "grid").replace("samples = 6", "levels = 2"))
    assert len(result.failures()) == 4
    assert all(reason.startswith("this variant can't be built: ") for reason in result.failures().values())
    slow = run(folder, STUDY.replace("[vary]", 'time_limit = "1 us"\n[vary]').replace("samples = 6", "samples = 2"))
    assert set(slow.failures()) == {0, 1}
    assert all("aborted" in reason for reason in slow.failures().values())


def test_margins_of_a_variant_are_those_of_its_rig(folder: Path) -> None:
    """The capacity of a valve grows with its nominal flow; the delay is that of the strategy."""
    text = STUDY[: STUDY.index("[vary]")].replace("latin_hypercube", "grid").replace("samples = 6", "levels = 2")
    text += """
[vary]
"told.valves.A.nominal_flow.flow" = "± 20 %"
[figures]
capacity = { figure = "margin(capacity A)", above = 1.0 }
delay = "margin(delay)"
"""
    result = run(folder, text)
    assert result.failures() == {}
    capacity, nominal = result.column("capacity"), result.nominal["capacity"]
    assert capacity == pytest.approx([0.8 * nominal, 1.2 * nominal], rel=1e-6)
    rig = load_rig(folder / "rigs/lift.toml")
    found = margins(rig, compiled_program(rig.library))
    assert nominal == min(each.margin for each in found.capacity.capacities if each.valve == "A")
    delay = found.delay.of(result.study.settings.strategy or strategy_for(rig, None))
    assert delay is not None
    assert result.nominal["delay"] == pytest.approx(delay.margin, rel=1e-12)  # of eigenvalues
    assert result.worst(result.study.figures[1], 1) == [int(np.argmin(result.column("delay")))]


def test_the_worst_case_and_its_repetition(folder: Path, hilserver: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The valve that is farthest from what the bridge is told, and the command that repeats it."""
    monkeypatch.setattr(worst, "GENERATIONS", 8)  # enough for two quantities
    text = (
        STUDY[: STUDY.index("[vary]")]
        + """
[vary]
"drive.valve_A.nominal_flow.flow" = { from = "60 l/min", to = "72 l/min" }
strategy = ["second_order", "feedback"]
[figures]
flow = "fidelity(flow A)"
"""
    )
    (folder / "study.toml").write_text(text)
    study = load_study(folder / "study.toml")
    found = worst_case(study, "flow", folder / "out")
    assert found.values["drive.valve_A.nominal_flow.flow"] == pytest.approx(72.0 / 6e4, rel=0.01)
    assert "--set strategy=second_order" in found.command
    again = repeat(study, found.values, "again", folder / "out")
    assert again.figures[0] == pytest.approx(found.worst, rel=1e-12)
    said = hilserver("study", folder / "study.toml", "--set", "strategy=feedback", "-o", folder / "out")
    assert "strategy: feedback" in said.out
    assert "study-set-simulate.html" in said.out


def test_the_error_of_the_step_is_stated(folder: Path) -> None:
    result = run(folder)
    number = result.worst(result.study.figures[0], 1)[0]
    assert 0.0 < result.step_error(result.study.figures[0], number) < 1e-6
    assert "Halving every integration step changes the nominal figures by: position" in result.step


@pytest.mark.parametrize(
    ("old", "new", "key", "said"),
    [
        ("machine.load.mass", "machine.lod.mass", "vary.machine.lod.mass", "machine.load.mass"),
        ('"± 20 %"', '"± 20 bar"', "vary.machine.load.mass", "measured in"),
        ("[vary]", '[vary]\nstrategy = ["feedback", "feetback"]', "vary.strategy", "Did you mean feedback?"),
        ("[vary]", '[vary]\nstrategy = ["feedback"]', "vary.strategy", "two or more"),
        ("fidelity(flow A)", "fidelity(flow C)", "figures.flow", "Did you mean flow"),
        ("max(machine.A.p)", "max(machine.A.q)", "figures.peak", "machine.A.p"),
        (
            'cycle = "cycles/lift.toml"',
            'cycle = "cycles/lift.toml"\nduration = "1 s"',
            "",
            "duration can't be given when a rig is studied",
        ),
        (
            'cycle = "cycles/lift.toml"',
            'cycle = "cycles/lift.toml"\ncircuit = "circuits/lift.toml"',
            "",
            "give what is studied",
        ),
        (
            'cycle = "cycles/lift.toml"',
            'cycle = "cycles/lift.toml"\nstrategy = "feetback"',
            "strategy",
            "Did you mean feedback?",
        ),
    ],
)
def test_a_wrong_study_file_is_refused(old: str, new: str, key: str, said: str, folder: Path) -> None:
    assert old in STUDY
    (folder / "study.toml").write_text(STUDY.replace(old, new, 1))
    with pytest.raises(ConfigurationError) as refused:
        load_study(folder / "study.toml")
    (problem,) = refused.value.problems
    assert problem.key == key
    assert said in problem.message


def test_a_rig_without_a_simulated_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(f'rig = "{CONFIG}/rigs/actuator_log.toml"\n')
    with pytest.raises(HilserverError, match="simulated"):
        load_study(tmp_path / "study.toml")


def test_a_component_of_the_virtual_circuit_is_chosen(folder: Path) -> None:
    """The rows are those of the rig whose circuit file has this component."""
    text = """
rig = "rigs/lift.toml"
plan = "grid"
[vary]
"circuit.relief" = ["relief_valve", "static_relief_valve"]
[figures]
supply = "max(circuit.supply.p)"
"""
    result = run(folder, text)
    assert result.table["circuit.relief"].to_pylist() == ["relief_valve", "static_relief_valve"]
    replace_in(folder / "circuits/lift.toml", ('type = "relief_valve"', 'type = "static_relief_valve"'))
    other = run(
        folder, text.replace('["relief_valve", "static_relief_valve"]', '["static_relief_valve", "relief_valve"]')
    )
    assert other.column("supply").tolist() == result.column("supply")[::-1].tolist()
    assert other.nominal["supply"] == result.column("supply")[1]


@pytest.mark.parametrize("file", sorted((CONFIG / "studies").glob("*.toml")), ids=lambda file: file.stem)
def test_the_examples_are_studies_or_columns(file: Path, tmp_path: Path) -> None:
    """Every file of the examples is read, with all that it names."""
    if file.stem.endswith("_log"):
        assert read_columns(file).columns
        return
    if "\nreplay = " in file.read_text():  # a log that another example writes
        file = shutil.copytree(CONFIG, tmp_path / "config") / "studies" / file.name
        (tmp_path / "reports").mkdir()
        with LockstepRun(load_rig(CONFIG / "rigs/demo.toml"), tmp_path / "reports/relief_sequence-set.arrow") as run:
            run.run(2000)
    study = load_study(file)
    assert study.varied
    assert study.figures


def test_an_unlimited_margin_is_infinite_and_an_unknown_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An infinite margin is above every limit; it had counted as a failed run."""
    capacities = [SimpleNamespace(valve="main", margin=margin) for margin in (inf, 1.5)]
    found = SimpleNamespace(
        capacity=SimpleNamespace(capacities=capacities, speeds=[]),
        delay=SimpleNamespace(of=lambda strategy: SimpleNamespace(margin=inf)),
    )
    monkeypatch.setattr("hilserver.studies.rig_runs.margins", lambda rig, program: found)
    rig = SimpleNamespace(settings=SimpleNamespace(valves={"main": None}))
    least = dict(_margins(cast("Rig", rig), "feedback", cast("Program", None)))
    assert least["capacity main"] == 1.5
    assert least["delay"] == inf
    assert isnan(least["speed main"])
