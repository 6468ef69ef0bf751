"""Identification of actuators whose position is controlled, from simulated rigs whose truth differs from the file."""

from __future__ import annotations

import io
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Command
from hybrid_rig import ACTUATOR, hybrid_rig
from pages import only

from hilserver.errors import HilserverError
from hilserver.hybrid.rig_runs import HybridRig
from hilserver.identify.actuator_findings import delays, uncertainty
from hilserver.identify.actuator_fit import IdentifiedActuator, identify_actuator, is_stable
from hilserver.identify.actuator_model import ActuatorPrediction
from hilserver.identify.actuator_record import RecordedActuator, columns_in_log, columns_of_actuator, record_of_columns
from hilserver.identify.actuator_report import actuator_fragment, actuator_table, sentences
from hilserver.identify.actuator_sweep import recorded_sweep, sweep_of
from hilserver.rig.actuator_settings import ActuatorSettings, spread_of
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.toml import copied

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).parents[2] / "config"
TRUTH = ActuatorSettings.model_validate(ACTUATOR).model()
NAMES = ("velocity_gain", "f90", "damping", "oil_stiffness", "force_decay", "position_gain")
OF_SPECIMEN = ("specimen_mass", "specimen_damping", "specimen_stiffness")
UNITS = {"velocity_gain": "1/s", "f90": "Hz", "oil_stiffness": "N/m", "force_decay": "1/s"}
LATE, FORCE_LATE = 1.3e-3, 0.4e-3
"""s: delay of the command, and of the force sensor; the rig file states none."""


def stated(wrong: Mapping[str, float], seed: int = 1, **device: Any) -> Rig:
    """The small rig with a file whose values are these multiples of the truth."""
    servo = {name: f"{getattr(TRUTH, name) * wrong.get(name, 1.0)!r} {UNITS.get(name, '')}".strip() for name in NAMES}
    for name in ("damping", "position_gain"):
        servo[name] = float(servo[name])  # type: ignore[assignment]
    part, units = TRUTH.specimen, {"mass": "kg", "damping": "N*s/m", "stiffness": "N/m"}
    specimen = {n: f"{getattr(part, n) * wrong.get(f'specimen_{n}', 1.0)!r} {unit}" for n, unit in units.items()}
    actuator = {**ACTUATOR, "servo": servo, "specimen": specimen, "max_error": "5 mm"}
    late = {"F": {"delay": f"{FORCE_LATE} s"}}
    lab = {"seed": seed, "sensors": late, "actuators": {"command": {"delay": f"{LATE} s"}}, **device}
    return hybrid_rig({"rig": {"devices": {"lab": lab}, "actuators": {"table": actuator}}})


def drawn(seed: int) -> dict[str, float]:
    """Multiples that are 15 to 25 % wrong; the position gain 3 %."""
    draw = np.random.default_rng(seed)
    wrong = {n: float(np.exp(draw.choice([-1, 1]) * draw.uniform(0.15, 0.25))) for n in (*NAMES, *OF_SPECIMEN)}
    return wrong | {"position_gain": float(1.0 + 0.03 * draw.choice([-1, 1]))}


def truth(name: str) -> float:
    return {"delay": LATE, "force delay": FORCE_LATE}.get(name) or spread_of(TRUTH, name)


@pytest.fixture(scope="module")
def records() -> list[RecordedActuator]:
    return [recorded_sweep(stated(drawn(seed), seed), "table", 10.0) for seed in range(4)]


@pytest.fixture(scope="module")
def results(records: list[RecordedActuator]) -> list[IdentifiedActuator]:
    return [identify_actuator(record) for record in records]


def test_the_truth_is_found(results: list[IdentifiedActuator]) -> None:
    """Within 1 %, what has little effect within 20 %, delays within 0.05 ms."""
    for found in results:
        for name in (*NAMES, *OF_SPECIMEN):
            within = 0.2 if name in ("force_decay", "specimen_damping") else 0.01
            assert found.estimate(name).value == pytest.approx(truth(name), rel=within), name
        for name in ("delay", "force delay"):
            assert found.estimate(name).value == pytest.approx(truth(name), abs=5e-5), name
        assert is_stable(found.model)
        assert found.explained[0] > 0.999


def test_the_intervals_contain_the_truth(results: list[IdentifiedActuator]) -> None:
    """95 % intervals: at least 90 % of them; and they say something: most are narrower than 2 %."""
    inside, widths = [], []
    for found in results:
        for name in (*NAMES, *OF_SPECIMEN, "delay", "force delay"):
            estimate = found.estimate(name)
            inside.append(abs(estimate.value - truth(name)) <= 1.96 * estimate.deviation)
            widths.append(estimate.deviation / estimate.value)
    assert np.mean(inside) >= 0.9, f"{np.sum(inside)} of {len(inside)}"
    assert np.median(widths) < 0.01


def test_the_prediction_is_that_of_a_fine_simulation(records: list[RecordedActuator]) -> None:
    """With the true parameters and delays of 1.3 and 0.4 ticks, only noise of 1 µm and 0.4 N is left."""
    prediction = ActuatorPrediction(records[0])
    part, model = TRUTH.specimen, prediction.stated
    values = {name: float(np.log(getattr(TRUTH, name) / getattr(model, name))) for name in NAMES}
    values |= {"force_decay": TRUTH.force_decay, "specimen_mass": float(np.log(part.mass / model.specimen.mass))}
    values |= {"specimen_damping": part.damping, "specimen_stiffness": part.stiffness, "delay": LATE}
    values |= {"force delay": FORCE_LATE, "displacement delay": 0.0, "displacement zero": 0.0, "force zero": 0.0}
    x, force = prediction(values)
    used, sensors = prediction.used, (records[0].displacement, records[0].force)
    assert np.std((sensors[0].value - x)[used[0]]) == pytest.approx(1e-6, rel=0.05)
    assert np.std((sensors[1].value - force)[used[1]]) == pytest.approx(0.4, rel=0.05)


def test_gaps_divide_a_recording(records: list[RecordedActuator], results: list[IdentifiedActuator]) -> None:
    """Each part has an initial state of its own: the values are the same, to five standard deviations of both."""
    (begin, end), found = records[0].parts[0], results[0]
    parts = ((begin, 4000), (4321, 8000), (8500, end))
    again = identify_actuator(replace(records[0], parts=parts))
    for name in (*NAMES, *OF_SPECIMEN, "delay"):
        a, b = found.estimate(name), again.estimate(name)
        assert abs(a.value - b.value) < 5.0 * np.hypot(a.deviation, b.deviation), name
    assert ", in 3 parts," in sentences(again)[0]


def test_in_missed_ticks_the_command_was_held_and_lost_rows_are_a_gap() -> None:
    rig = hybrid_rig()
    with LockstepRun(rig) as run:
        rows = [run.arm_and_start(), run.run(1500)]
        run.miss(7)
        rows.append(run.run(1500))
    layout, all_rows = rig.layout, np.concatenate(rows)
    columns = {name: layout.values(all_rows, name) for name in columns_of_actuator(rig, "table")}
    record = record_of_columns(rig, "table", columns, "run")
    assert len(record.parts) == 1
    assert len(record.command) == len(all_rows) + 7
    lost = np.ones(len(all_rows), dtype=bool)
    lost[2000:2100] = False
    record = record_of_columns(rig, "table", {name: values[lost] for name, values in columns.items()}, "run")
    assert record.gaps == 1
    with pytest.raises(HilserverError, match="RUNNING for less than 2 s"):
        record_of_columns(rig, "table", {name: values[:1000] for name, values in columns.items()}, "run")


def test_a_slow_recording_determines_no_fast_parameters() -> None:
    """Up to 1 Hz, with noise: the servo valve of 80 Hz stays as stated, and the text says what would show it."""
    noisy = {"x": {"noise": 3e-4}, "F": {"noise": 3e-4, "delay": f"{FORCE_LATE} s"}}
    record = recorded_sweep(stated(drawn(2), sensors=noisy), "table", 20.0)
    found = identify_actuator(replace(record, parts=((record.parts[0][0], 6000),)))
    assert "f90" in found.unknown
    assert found.model.f90 == found.stated.f90
    assert found.estimate("specimen_stiffness").value == pytest.approx(TRUTH.specimen.stiffness, rel=0.01)
    text = " ".join(sentences(found))
    assert "left as in the rig file: -90° frequency of the servo valve" in text
    assert "a sweep of small displacements to above 1.5 times f90" in text
    assert "# f90: not identifiable" in actuator_fragment([found])


def test_friction_is_suspected() -> None:
    rig = stated({})
    devices = {name: copied(tables) for name, tables in rig.sources["devices"].items()}
    rub = {"type": "friction", "ports": {"rod": "table"}, "coulomb": "60 N", "static": "70 N"}
    devices["lab"]["machine"]["components"]["rub"] = rub
    rubbing = assemble({**rig.sources, "devices": devices}, rig.file, rig.library)
    text = " ".join(sentences(identify_actuator(recorded_sweep(rubbing, "table", 10.0))))
    assert "Suspected: friction of the specimen or piston" in text
    assert "not white noise" in text


def test_nothing_is_suspected_of_the_model_itself(results: list[IdentifiedActuator]) -> None:
    for found in results:
        text = " ".join(sentences(found))
        assert "Suspected" not in text
        assert "are white noise" in text
        assert "is stable" in text


def test_a_model_that_is_not_stable_is_said_to_be_so(results: list[IdentifiedActuator]) -> None:
    """With 50 times the velocity gain, the position loop oscillates."""
    found = replace(results[0], model=replace(results[0].model, velocity_gain=2000.0))
    assert found.decay < 0.0
    text = " ".join(sentences(found))
    assert "these values are not to be used" in text
    assert "The model is not stable" in text


def test_the_sensor_that_is_later_gets_the_delay(results: list[IdentifiedActuator]) -> None:
    late = delays(results[0])
    assert late["F"].estimate.value == pytest.approx(FORCE_LATE, abs=5e-5)
    assert set(late) == {"", "F"}


def test_a_force_that_is_earlier_than_stated_makes_the_displacement_later(results: list[IdentifiedActuator]) -> None:
    """The force sensor has no delay, the displacement is 0.5 ms later: that is no delay of the command."""
    found = results[0]
    moved = replace(found, values={**found.values, "force delay": -0.5e-3})
    late = delays(moved)
    assert late["F"].estimate.value == pytest.approx(0.0, abs=1e-9)
    assert late["x"].estimate.value == pytest.approx(0.5e-3, abs=1e-9)
    assert late[""].estimate.value == pytest.approx(found.estimate("delay").value - 0.5e-3, abs=1e-9)


def test_uncertainties_are_within_what_the_settings_accept(results: list[IdentifiedActuator]) -> None:
    """Of the parameters that the rig file names: the stiffness of the specimen."""
    assert uncertainty(results[0]) == {"specimen_stiffness": pytest.approx(0.005, rel=0.5)}


def test_the_table_has_stated_and_identified_values(results: list[IdentifiedActuator]) -> None:
    rows = {row[0]: row for row in actuator_table(results[0]).rows}
    _, configured, identified, deviation = rows["-90° frequency of the servo valve"]
    assert configured == f"{results[0].stated.f90:.5g} Hz"
    assert float(identified.split()[0]) == pytest.approx(80.0, rel=0.01)
    assert float(deviation.split()[0]) < 0.8


def test_a_log_says_the_same_as_the_run(tmp_path: Path) -> None:
    rig = hybrid_rig()
    log = tmp_path / "run.arrow"
    with LockstepRun(rig, log) as run:
        run.arm_and_start()
        run.run(3000)
    record = record_of_columns(rig, "table", columns_in_log(rig, ["table"], log), str(log))
    assert record.duration == pytest.approx(3.0, abs=0.01)


def test_prediction_is_as_accurate_as_with_the_true_values(results: list[IdentifiedActuator]) -> None:
    """Position of the node against the reference simulation, over 4 s of a virtual push of 1 Hz."""
    found, wrong = results[1], results[1].record.rig

    def error(rig: Rig) -> float:
        points = [[f"{0.05 * k} s", float(np.sin(0.05 * k * 2.0 * np.pi))] for k in range(81)]
        cycle = {"inputs": {"push": {"points": points}}}
        moved = assemble({**rig.sources, "cycle": cycle}, rig.file, rig.library)
        run = HybridRig.of(moved).run({"table": "prediction"})
        assert not run.trip
        return run.actuators["table"].off

    def with_model(values: Rig, name: str) -> Rig:
        source = copied(wrong.sources["rig"])
        table = values.sources["rig"]["actuators"]["table"]
        source["actuators"]["table"] = {**source["actuators"]["table"], "servo": table["servo"]}
        source["actuators"]["table"] |= {"specimen": table["specimen"], "delay": "1.3 ms"}
        source["channels"]["F"]["delay"] = "0.4 ms"
        return assemble({**wrong.sources, "rig": source}, Path(name), wrong.library)

    shares = {name: spread_of(found.model, name) / spread_of(TRUTH, name) for name in (*NAMES, *OF_SPECIMEN)}
    right, identified = error(with_model(stated({}), "true")), error(with_model(stated(shares), "identified"))
    assert identified < 1.1 * right + 2e-4
    assert error(wrong) > 3.0 * right


def test_the_command_merges_what_it_finds(tmp_path: Path, hilserver: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the page; what is shown there is among the lines of the difference, but for numbers."""
    block = only("tested: tests/identify/test_actuator_identification.py::test_the_command_merges_what_it_finds")
    ((command, shown),) = block.commands
    shutil.copytree(CONFIG, tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    file = Path("config/rigs/frame.toml")
    file.write_text(file.read_text().replace('f90 = "50.323 Hz"', 'f90 = "41 Hz"  # datasheet').replace("4096", "1024"))
    arguments = (*shlex.split(command)[1:], "--seconds", "8")
    said = hilserver(*arguments, answers=io.StringIO("y\n"))
    assert said.code == 0, said.err
    assert "Predicted are 9" in said.out
    for line in shown.splitlines():
        assert without_numbers(line.removesuffix("y")) in without_numbers(said.out), line
    after = load_rig(file).settings.actuators["table"]
    assert after.servo.f90 == pytest.approx(50.323, rel=0.005)
    assert "# datasheet; ± " in file.read_text()
    assert set(after.uncertainty) == set(load_rig(CONFIG / "rigs/frame.toml").settings.actuators["table"].uncertainty)
    assert len(list(file.parent.glob("frame.toml.*.old"))) == 1
    assert Path("reports/frame-actuators.toml").exists()
    refused = hilserver("identify", file, "--drive")
    assert refused.code == 2
    assert "--drive is for valves" in refused.err


def without_numbers(text: str) -> str:
    return re.sub(r"\d[\d.:eT-]*", "0", text)


def test_a_real_rig_gets_files_with_which_it_is_recorded(tmp_path: Path, hilserver: Command) -> None:
    """Here, replay stands for a real device. The files load, and name what the command says."""
    shutil.copytree(CONFIG, tmp_path / "config")
    file = tmp_path / "config/rigs/frame.toml"
    before, rest = file.read_text().split("[devices.lab]")
    channels = rest[rest.index("[channels]") :]
    device = 'driver = "replay"\nfile = "x.csv"\ncolumns = ["x", "F"]\nsample_rate = "4096 Hz"\noutputs = ["command"]\n'
    file.write_text(f"{before}[devices.lab]\n{device}\n{channels}")
    said = hilserver("identify", file)
    assert said.code == 2
    for words in (
        "device lab is not simulated",
        "up to 75.5 Hz, with strategy direct",
        "frame-sweep.toml; arm",
        "--log",
    ):
        assert words in said.err
    sweep = load_rig(tmp_path / "config/rigs/frame-sweep.toml")
    assert sweep.settings.actuators["table"].bridge.strategy == "direct"
    assert (
        sweep.settings.actuators["table"].bridge.approach == load_rig(file).settings.actuators["table"].bridge.approach
    )
    assert sweep.cycle is not None
    assert sweep.cycle.duration == pytest.approx(21.0, abs=0.1)
    assert hilserver("identify", file).code == 2, "its own files are written anew"
    (file.parent / "frame-sweep-circuit.toml").write_text("components = {}\n")
    assert "was not written by this command" in hilserver("identify", file).err
    wrong = hilserver("identify", file, "--actuator", "tabel")
    assert wrong.code == 2
    assert "Did you mean table?" in wrong.err


def test_a_sweep_keeps_range_slew_and_force() -> None:
    """A fifth of the range, half of the slew rate, half of the force of the limit: by the rig file's values."""
    rig = load_rig(CONFIG / "rigs/frame.toml")
    a, sweep = rig.settings.actuators["table"], sweep_of(rig, "table")
    assert np.ptp(sweep.command) <= 0.2 * (a.range[1] - a.range[0]) + 1e-9
    assert np.abs(np.diff(sweep.command) / np.diff(sweep.time)).max() <= 0.55 * a.slew
    assert sweep.highest == pytest.approx(1.5 * a.servo.f90, rel=1e-6)
    record = recorded_sweep(rig, "table", 10.0)
    assert np.abs(record.force.value).max() < 0.6 * 8900.0
